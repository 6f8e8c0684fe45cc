//! A value at a time.

/// The bits of the NaN with which Prometheus marks a series that has ended. Compared as bits: ordinary
/// NaNs are values. Source: `model/value/value.go` in Prometheus.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// True for the staleness marker.
pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A closed range of time in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The first millisecond.
    pub start_ms: i64,
    /// The last millisecond, included.
    pub end_ms: i64,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };

    /// The range from `start_ms` to `end_ms`, both included.
    pub const fn new(start_ms: i64, end_ms: i64) -> Self {
        Self { start_ms, end_ms }
    }

    /// True where the two share a millisecond.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }

    /// True where `timestamp_ms` lies inside.
    pub const fn contains(&self, timestamp_ms: i64) -> bool {
        self.start_ms <= timestamp_ms && timestamp_ms <= self.end_ms
    }
}

/// Samples of one series as two columns of equal length, in ascending order of time, each time once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Milliseconds since the Unix epoch.
    pub timestamps: Vec<i64>,
    /// Values; NaN payloads are kept bit-exact.
    pub values: Vec<f64>,
}

impl Samples {
    /// Drops the samples, keeps the memory.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.values.clear();
    }

    /// Appends a sample.
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        self.timestamps.push(timestamp_ms);
        self.values.push(value);
    }

    /// Samples from position `from` on.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = (i64, f64)> + '_ {
        self.timestamps[from..].iter().copied().zip(self.values[from..].iter().copied())
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }
}

impl Extend<(i64, f64)> for Samples {
    fn extend<T: IntoIterator<Item = (i64, f64)>>(&mut self, samples: T) {
        samples.into_iter().for_each(|(timestamp_ms, value)| self.push(timestamp_ms, value));
    }
}

/// Merges two streams of samples, each in ascending order of time with each time once. At equal times the
/// sample of `later` wins.
pub fn overlay(
    earlier: impl Iterator<Item = (i64, f64)>,
    later: impl Iterator<Item = (i64, f64)>,
) -> impl Iterator<Item = (i64, f64)> {
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
    fn the_later_of_two_stays() {
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
