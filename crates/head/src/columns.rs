//! Samples of many series on their way into the head.

use model::SeriesRef;

/// Samples as three columns of equal length.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    pub(crate) refs: &'a [SeriesRef],
    pub(crate) timestamps: &'a [i64],
    pub(crate) values: &'a [f64],
}

impl<'a> Columns<'a> {
    /// The three slices are parallel.
    pub fn new(refs: &'a [SeriesRef], timestamps: &'a [i64], values: &'a [f64]) -> Self {
        assert!(refs.len() == timestamps.len() && refs.len() == values.len(), "BUG: columns differ");
        Self { refs, timestamps, values }
    }

    /// True if there are no samples.
    pub const fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// The samples one by one.
    pub fn iter(self) -> impl Iterator<Item = (SeriesRef, i64, f64)> {
        let times = self.refs.iter().zip(self.timestamps);
        times.zip(self.values).map(|((series, timestamp_ms), value)| (*series, *timestamp_ms, *value))
    }

    /// The first `most` samples, or all.
    pub(crate) fn first(self, most: usize) -> Self {
        let len = self.refs.len().min(most);
        Self::new(&self.refs[..len], &self.timestamps[..len], &self.values[..len])
    }

    /// Drops the first `count` samples.
    pub(crate) fn skip(&mut self, count: usize) {
        *self = Self::new(&self.refs[count..], &self.timestamps[count..], &self.values[count..]);
    }
}
