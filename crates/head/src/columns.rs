//! Samples of many series on their way into the head.

use model::{SeriesRef, ValuesRef};

#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    pub(crate) refs: &'a [SeriesRef],
    pub(crate) timestamps: &'a [i64],
    pub(crate) values: ValuesRef<'a>,
}

impl<'a> Columns<'a> {
    /// Panics if the lengths differ. All series must hold the kind of values (floats or histograms) that
    /// `values` has.
    pub fn new(refs: &'a [SeriesRef], timestamps: &'a [i64], values: ValuesRef<'a>) -> Self {
        assert!(
            refs.len() == timestamps.len() && refs.len() == values.len(),
            "BUG: columns differ in length"
        );
        Self { refs, timestamps, values }
    }

    pub const fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    pub const fn refs(self) -> &'a [SeriesRef] {
        self.refs
    }

    pub const fn timestamps(self) -> &'a [i64] {
        self.timestamps
    }

    pub const fn values(self) -> ValuesRef<'a> {
        self.values
    }

    pub(crate) fn first(self, most: usize) -> Self {
        let len = self.refs.len().min(most);
        Self::new(&self.refs[..len], &self.timestamps[..len], self.values.slice(0..len))
    }

    pub(crate) fn skip(&mut self, count: usize) {
        let values = self.values.slice(count..self.values.len());
        *self = Self::new(&self.refs[count..], &self.timestamps[count..], values);
    }
}
