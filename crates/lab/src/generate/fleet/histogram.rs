//! Layout of classic histograms among the series of a target.
//!
//! ```text
//!   metric   0 … buckets-1      _bucket, with `le` ascending to +Inf    the first histogram
//!            buckets            _count
//!            buckets + 1        _sum
//!            …                                                          the next
//! ```

use serde::{Deserialize, Serialize};

/// Maximum number of buckets of a histogram. With this number, the last bound is 2.5 × 10^13.
pub const BUCKETS_MAX: u32 = 48;

/// Default number of buckets. Their bounds go up to 10, and the last bucket is `+Inf`.
pub const BUCKETS_DEFAULT: u32 = 12;

/// Bucket bounds in thousandths, which repeat in each power of ten, as in client libraries.
const BOUNDS: [u64; 3] = [5, 10, 25];

/// Number and size of the classic histograms of a target. Their series come before its other metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histograms {
    pub count: u32,
    /// Number of buckets of each histogram, including `+Inf`; at most [`BUCKETS_MAX`].
    pub buckets: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Plain,
    Bucket(u32),
    Count,
    Sum,
}

impl Part {
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bucket(_) => "_bucket",
            Self::Count => "_count",
            Self::Sum => "_sum",
        }
    }
}

impl Histograms {
    /// Chooses the number of histograms so that they make up about `share` of a target's `metrics`.
    pub fn of_share(share: f64, buckets: u32, metrics: u32) -> Self {
        let one = Self { count: 1, buckets };
        let count = (share.clamp(0.0, 1.0) * f64::from(metrics) / f64::from(one.series())).round() as u32;
        Self { count: count.min(metrics / one.series()), buckets }
    }

    pub fn series(self) -> u32 {
        self.buckets + 2
    }

    /// Returns the first metric of the histogram to which `metric` belongs, and which part of that histogram `metric`
    /// is. A metric that belongs to no histogram is returned itself.
    #[inline]
    pub fn part(self, metric: u32) -> (u32, Part) {
        if metric >= self.count * self.series() {
            return (metric, Part::Plain);
        }
        let within = metric % self.series();
        let part = match within.checked_sub(self.buckets) {
            None => Part::Bucket(within),
            Some(0) => Part::Count,
            Some(_) => Part::Sum,
        };
        (metric - within, part)
    }

    pub fn le(self, metric: u32) -> Option<String> {
        match self.part(metric) {
            (_, Part::Bucket(bucket)) if bucket + 1 == self.buckets => Some("+Inf".to_owned()),
            (_, Part::Bucket(bucket)) => Some(bound(bucket)),
            _ => None,
        }
    }

    /// Maximum number of metrics of one target with the same name. Only buckets share a name.
    pub fn alike_max(self) -> u32 {
        if self.count == 0 { 1 } else { self.buckets }
    }

    /// The first of the metrics that have the same name as `metric`.
    pub fn first_alike(self, metric: u32) -> u32 {
        match self.part(metric) {
            (first, Part::Bucket(_)) => first,
            _ => metric,
        }
    }

    /// Share of all observations that fall into `bucket` or a lower one, from 0 to 1. The histogram's `key` selects
    /// the shape of the distribution.
    pub fn share_below(self, key: u64, bucket: u32) -> f64 {
        let x = f64::from(bucket + 1) / f64::from(self.buckets);
        // only basic arithmetic, whose results are the same on all machines
        match key % 3 {
            0 => x,
            1 => x * x * (3.0 - 2.0 * x),
            _ => 1.0 - (1.0 - x) * (1.0 - x),
        }
    }
}

fn bound(bucket: u32) -> String {
    let thousandths = BOUNDS[(bucket % 3) as usize] * 10u64.pow(bucket / 3);
    let (whole, rest) = (thousandths / 1000, thousandths % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:03}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let histograms = Histograms { count: 2, buckets: 3 };
        let parts: Vec<_> = (0..12).map(|metric| histograms.part(metric)).collect();
        let of = |first| {
            let buckets = (0..3).map(move |b| (first, Part::Bucket(b)));
            buckets.chain([(first, Part::Count), (first, Part::Sum)])
        };
        let expected: Vec<_> = of(0).chain(of(5)).chain([(10, Part::Plain), (11, Part::Plain)]).collect();
        assert_eq!(parts, expected);
        let alike: Vec<_> = (0..7).map(|metric| histograms.first_alike(metric)).collect();
        assert_eq!(alike, [0, 0, 0, 3, 4, 5, 5]);
        assert_eq!(Histograms::default().part(0), (0, Part::Plain));
    }

    #[test]
    fn bounds_are_those_of_client_libraries() {
        let histograms = Histograms { count: 1, buckets: 12 };
        let bounds: Vec<_> = (0..14).map_while(|metric| histograms.le(metric)).collect();
        let expected =
            ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
        assert_eq!(bounds, expected);
        let many: std::collections::HashSet<_> = (0..BUCKETS_MAX).map(bound).collect();
        assert_eq!(many.len(), BUCKETS_MAX as usize);
    }

    #[test]
    fn shares_become_whole_histograms() {
        let check = |share, metrics, count| {
            assert_eq!(Histograms::of_share(share, 8, metrics), Histograms { count, buckets: 8 });
        };
        check(0.0, 100, 0);
        check(0.3, 100, 3);
        check(1.0, 99, 9);
        check(1.0, 9, 0);
    }

    #[test]
    fn buckets_hold_what_the_buckets_below_hold() {
        let histograms = Histograms { count: 1, buckets: 7 };
        for key in 0..3 {
            let shares: Vec<_> = (0..7).map(|bucket| histograms.share_below(key, bucket)).collect();
            assert!(shares.is_sorted() && shares[6] == 1.0, "{shares:?}");
        }
    }
}
