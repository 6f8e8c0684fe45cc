//! Columns of values: all floats or all histograms, so that code branches once per column and not
//! per value.

use crate::Histogram;

/// A series has floats or histograms. If both arrive with the same labels, they are two series
/// ([`crate::SeriesKey::of_kind`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ValueKind {
    #[default]
    Float,
    Histogram,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// NaNs keep their bits, which tell staleness markers from ordinary NaNs.
    Floats(Vec<f64>),
    Histograms(Vec<Histogram>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValuesRef<'a> {
    Floats(&'a [f64]),
    Histograms(&'a [Histogram]),
}

pub trait Value: Clone {
    const KIND: ValueKind;

    fn heap_bytes(&self) -> usize;

    fn is_same(&self, other: &Self) -> bool;

    /// True for a staleness marker: the series has ended.
    fn is_stale(&self) -> bool;

    fn column(values: &[Self]) -> ValuesRef<'_>;

    /// Panics if the column has values of another kind.
    fn of(values: &mut Values) -> &mut Vec<Self>;
}

impl Value for f64 {
    const KIND: ValueKind = ValueKind::Float;

    #[inline]
    fn heap_bytes(&self) -> usize {
        0
    }

    fn is_same(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }

    #[inline]
    fn is_stale(&self) -> bool {
        crate::sample::is_stale(*self)
    }

    fn column(values: &[Self]) -> ValuesRef<'_> {
        ValuesRef::Floats(values)
    }

    fn of(values: &mut Values) -> &mut Vec<Self> {
        match values {
            Values::Floats(values) => values,
            Values::Histograms(_) => panic!("BUG: floats were expected in a column of histograms"),
        }
    }
}

impl Value for Histogram {
    const KIND: ValueKind = ValueKind::Histogram;

    fn heap_bytes(&self) -> usize {
        self.as_bytes().len()
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn is_stale(&self) -> bool {
        crate::sample::is_stale(self.sum())
    }

    fn column(values: &[Self]) -> ValuesRef<'_> {
        ValuesRef::Histograms(values)
    }

    fn of(values: &mut Values) -> &mut Vec<Self> {
        match values {
            Values::Histograms(values) => values,
            Values::Floats(_) => panic!("BUG: histograms were expected in a column of floats"),
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::Floats(Vec::new())
    }
}

macro_rules! each {
    ($values:expr, $vec:ident => $body:expr) => {
        match $values {
            Self::Floats($vec) => $body,
            Self::Histograms($vec) => $body,
        }
    };
}

impl Values {
    pub const fn new(kind: ValueKind) -> Self {
        match kind {
            ValueKind::Float => Self::Floats(Vec::new()),
            ValueKind::Histogram => Self::Histograms(Vec::new()),
        }
    }

    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Floats(_) => ValueKind::Float,
            Self::Histograms(_) => ValueKind::Histogram,
        }
    }

    pub const fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub const fn as_ref(&self) -> ValuesRef<'_> {
        match self {
            Self::Floats(values) => ValuesRef::Floats(values.as_slice()),
            Self::Histograms(values) => ValuesRef::Histograms(values.as_slice()),
        }
    }

    /// Removes all values, so that values of `kind` can be added.
    pub fn clear_for(&mut self, kind: ValueKind) {
        match self.kind() == kind {
            true => self.truncate(0),
            false => *self = Self::new(kind),
        }
    }

    pub fn truncate(&mut self, len: usize) {
        each!(self, values => values.truncate(len));
    }

    /// Overwrites the value at `to` with the one at `from`, which is then unspecified. Loops that remove some
    /// of the values use this to close the gaps.
    #[inline]
    pub fn keep(&mut self, from: usize, to: usize) {
        match self {
            Self::Floats(values) => values[to] = values[from],
            Self::Histograms(values) => values.swap(from, to),
        }
    }

    /// Panics if the values are of another kind than the column.
    pub fn extend(&mut self, values: ValuesRef<'_>) {
        match (self, values) {
            (Self::Floats(own), ValuesRef::Floats(values)) => own.extend_from_slice(values),
            (Self::Histograms(own), ValuesRef::Histograms(values)) => own.extend_from_slice(values),
            _ => panic!("BUG: a column has values of two kinds"),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Floats(values) => values.capacity() * size_of::<f64>(),
            Self::Histograms(values) => {
                let encoded: usize = values.iter().map(Value::heap_bytes).sum();
                values.capacity() * size_of::<Histogram>() + encoded
            }
        }
    }
}

impl<'a> ValuesRef<'a> {
    pub const fn len(self) -> usize {
        each!(self, values => values.len())
    }

    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub const fn kind(self) -> ValueKind {
        match self {
            Self::Floats(_) => ValueKind::Float,
            Self::Histograms(_) => ValueKind::Histogram,
        }
    }

    pub fn slice(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::Floats(values) => Self::Floats(&values[range]),
            Self::Histograms(values) => Self::Histograms(&values[range]),
        }
    }
}

impl<'a, V: Value> From<&'a [V]> for ValuesRef<'a> {
    fn from(values: &'a [V]) -> Self {
        V::column(values)
    }
}

impl<'a, V: Value> From<&'a Vec<V>> for ValuesRef<'a> {
    fn from(values: &'a Vec<V>) -> Self {
        V::column(values)
    }
}

impl<'a, V: Value, const N: usize> From<&'a [V; N]> for ValuesRef<'a> {
    fn from(values: &'a [V; N]) -> Self {
        V::column(values)
    }
}

impl<'a> From<&'a Values> for ValuesRef<'a> {
    fn from(values: &'a Values) -> Self {
        values.as_ref()
    }
}
