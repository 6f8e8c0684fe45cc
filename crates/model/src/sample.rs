use crate::{Histogram, ValueKind};

/// Bits of the NaN that marks the end of a series (`model/value/value.go` in Prometheus). Other NaNs are
/// ordinary values.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A range of time that includes both its ends, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub start_ms: i64,
    pub end_ms: i64,
}

impl TimeRange {
    pub const ALL: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };

    pub const fn new(start_ms: i64, end_ms: i64) -> Self {
        Self { start_ms, end_ms }
    }

    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }

    pub const fn contains(&self, timestamp_ms: i64) -> bool {
        self.start_ms <= timestamp_ms && timestamp_ms <= self.end_ms
    }
}

/// Samples of one series, in ascending order of time and with unique timestamps. Both columns have the same
/// length.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples<V = f64> {
    /// Milliseconds since the Unix epoch.
    pub timestamps: Vec<i64>,
    /// NaNs keep their bits, which tell staleness markers from ordinary NaNs.
    pub values: Vec<V>,
}

impl<V> Default for Samples<V> {
    fn default() -> Self {
        Self { timestamps: Vec::new(), values: Vec::new() }
    }
}

impl<V> Samples<V> {
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    pub fn truncate(&mut self, len: usize) {
        self.timestamps.truncate(len);
        self.values.truncate(len);
    }

    pub fn push(&mut self, timestamp_ms: i64, value: V) {
        self.timestamps.push(timestamp_ms);
        self.values.push(value);
    }

    pub const fn len(&self) -> usize {
        self.timestamps.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }
}

impl<V: Clone> Samples<V> {
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = (i64, V)> + '_ {
        self.timestamps[from..].iter().copied().zip(self.values[from..].iter().cloned())
    }
}

impl<V> Extend<(i64, V)> for Samples<V> {
    fn extend<T: IntoIterator<Item = (i64, V)>>(&mut self, samples: T) {
        samples.into_iter().for_each(|(timestamp_ms, value)| self.push(timestamp_ms, value));
    }
}

impl From<Samples> for SeriesSamples {
    fn from(samples: Samples) -> Self {
        Self::Floats(samples)
    }
}

impl From<Samples<Histogram>> for SeriesSamples {
    fn from(samples: Samples<Histogram>) -> Self {
        Self::Histograms(samples)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SeriesSamples {
    Floats(Samples),
    Histograms(Samples<Histogram>),
}

impl Default for SeriesSamples {
    fn default() -> Self {
        Self::Floats(Samples::default())
    }
}

impl SeriesSamples {
    pub fn new(kind: ValueKind) -> Self {
        match kind {
            ValueKind::Float => Self::Floats(Samples::default()),
            ValueKind::Histogram => Self::Histograms(Samples::default()),
        }
    }

    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Floats(_) => ValueKind::Float,
            Self::Histograms(_) => ValueKind::Histogram,
        }
    }

    /// Removes all samples, so that the samples of a series of `kind` can be added.
    pub fn clear_for(&mut self, kind: ValueKind) {
        match self {
            Self::Floats(samples) if kind == ValueKind::Float => samples.clear(),
            Self::Histograms(samples) if kind == ValueKind::Histogram => samples.clear(),
            _ => *self = Self::new(kind),
        }
    }

    pub const fn floats(&self) -> Option<&Samples> {
        match self {
            Self::Floats(samples) => Some(samples),
            Self::Histograms(_) => None,
        }
    }

    pub const fn len(&self) -> usize {
        match self {
            Self::Floats(samples) => samples.len(),
            Self::Histograms(samples) => samples.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn timestamps(&self) -> &[i64] {
        match self {
            Self::Floats(samples) => &samples.timestamps,
            Self::Histograms(samples) => &samples.timestamps,
        }
    }
}

/// Merges two streams of samples, each in ascending time order with unique timestamps. If both have
/// a sample with the same timestamp, the one from `later` is kept.
pub fn overlay<V>(
    earlier: impl Iterator<Item = (i64, V)>,
    later: impl Iterator<Item = (i64, V)>,
) -> impl Iterator<Item = (i64, V)> {
    let (mut earlier, mut later) = (earlier.peekable(), later.peekable());
    std::iter::from_fn(move || {
        let Some((new_ms, _)) = later.peek() else { return earlier.next() };
        if let Some(old) = earlier.next_if(|(old_ms, _)| old_ms < new_ms) {
            return Some(old);
        }
        earlier.next_if(|(old_ms, _)| old_ms == new_ms);
        later.next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_samples_overlay_earlier_ones() {
        let check = |earlier: &[i64], later: &[i64], expected: &[(i64, f64)]| {
            let (old, new) = (earlier.iter().map(|t| (*t, 1.0)), later.iter().map(|t| (*t, 2.0)));
            assert_eq!(overlay(old, new).collect::<Vec<_>>(), expected);
        };
        check(&[], &[], &[]);
        check(&[1, 3], &[], &[(1, 1.0), (3, 1.0)]);
        check(&[], &[2], &[(2, 2.0)]);
        check(&[1, 3, 5], &[0, 3, 4, 9], &[(0, 2.0), (1, 1.0), (3, 2.0), (4, 2.0), (5, 1.0), (9, 2.0)]);
    }
}
