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

    /// Adds one at the end.
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        self.timestamps.push(timestamp_ms);
        self.values.push(value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }
}
