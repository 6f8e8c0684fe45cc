//! How many series the metrics of a tenant have in a partition, kept up to date with each series.

use std::collections::BTreeMap;

/// Memory of an entry. The nodes of maps are at least half full.
const ENTRY_BYTES: usize = 2 * size_of::<(usize, usize)>();

#[derive(Debug, Default)]
pub(crate) struct MetricSizes {
    /// For each number of series, how many metrics have so many. Metrics of n different sizes have more than n²/2 series, so
    /// there are few entries.
    metrics: BTreeMap<usize, usize>,
    peak: usize,
}

impl MetricSizes {
    /// Records that a metric has `after` series, and had `before`.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        if before > 0 {
            let metrics = self.metrics.get_mut(&before).expect("BUG: the size of a metric was not recorded");
            *metrics -= 1;
            if *metrics == 0 {
                self.metrics.remove(&before);
            }
        }
        if after > 0 {
            *self.metrics.entry(after).or_default() += 1;
            self.peak = self.peak.max(after);
        }
    }

    /// Number of series of the largest metric.
    pub(crate) fn largest(&self) -> usize {
        self.metrics.last_key_value().map_or(0, |(series, _)| *series)
    }

    /// The highest value of [`Self::largest`] so far.
    pub(crate) const fn peak(&self) -> usize {
        self.peak
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.metrics.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn the_largest_metric_is_known_at_any_time() {
        let mut rng = Rng::announced();
        let (mut sizes, mut metrics, mut peak) = (MetricSizes::default(), [0_usize; 20], 0);
        for step in 0..5000 {
            let metric = rng.below(20) as usize;
            let before = metrics[metric];
            // first more series come than go, then the reverse
            let grows = rng.chance(if step < 2500 { 0.6 } else { 0.4 });
            metrics[metric] = if grows { before + 1 } else { before.saturating_sub(1) };
            sizes.change(before, metrics[metric]);
            let largest = metrics.into_iter().max().unwrap_or(0);
            peak = peak.max(largest);
            assert_eq!((sizes.largest(), sizes.peak()), (largest, peak));
            assert!(sizes.memory_bytes() <= 20 * ENTRY_BYTES);
        }
        for metric in metrics {
            sizes.change(metric, 0);
        }
        assert_eq!((sizes.largest(), sizes.peak(), sizes.memory_bytes()), (0, peak, 0));
    }
}
