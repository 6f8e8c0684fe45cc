//! The label set that names a series, in one canonical byte form.
//!
//! Each label is written as
//!
//! ```text
//!   0x0A  varint(length of the rest)  0x0A  varint(length)  name  0x12  varint(length)  value
//! ```
//!
//! Labels are sorted by name in byte order. Names are unique, no value is empty, and varints have their
//! shortest form. Prometheus sends the same bytes in remote write (`repeated Label = 1`), so a hash of
//! received bytes finds a known series.

mod builder;
mod form;

pub use builder::LabelsBuilder;
pub use form::{is_canonical, put_label};

use form::Pairs;
use std::cmp::Ordering;
use std::sync::Arc;

pub const METRIC_NAME: &str = "__name__";

/// A set of labels in canonical form. Clones share memory. Equality, order and hash are those of
/// the bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Arc<[u8]>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsRef<'a>(&'a [u8]);

impl Labels {
    pub fn empty() -> Self {
        Self(Arc::from([]))
    }

    /// Builds a set from labels in any order, for tests and constants. Panics if they are not valid.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        let mut builder = LabelsBuilder::new();
        for (name, value) in pairs {
            builder.push(name, value);
        }
        builder.build().expect("BUG: label pairs of a constant are invalid")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_ref(&self) -> LabelsRef<'_> {
        LabelsRef(&self.0)
    }

    pub fn iter(&self) -> LabelsIter<'_> {
        self.as_ref().iter()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.as_ref().get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> LabelsRef<'a> {
    /// Wraps bytes that are already canonical, for example because [`is_canonical`] accepted them.
    /// Iteration over other bytes panics.
    pub const fn from_canonical(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn to_owned(self) -> Labels {
        Labels(Arc::from(self.0))
    }

    pub const fn iter(self) -> LabelsIter<'a> {
        LabelsIter(Pairs::of(self.0))
    }

    pub fn get(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// The order of series in tables: by metric name, then label by label. A series whose labels
    /// are a prefix of the other's comes first.
    pub fn cmp_in_tables(self, other: Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal;
        }
        let name = |labels: Self| labels.pairs().find(|(n, _)| *n == METRIC_NAME.as_bytes()).map(|(_, v)| v);
        let others = |labels: Self| labels.pairs().filter(|(n, _)| *n != METRIC_NAME.as_bytes());
        name(self).cmp(&name(other)).then_with(|| others(self).cmp(others(other)))
    }

    /// Like [`Self::iter`], but does not check that the bytes are UTF-8.
    fn pairs(self) -> Pairs<'a> {
        Pairs::of(self.0)
    }
}

impl std::fmt::Debug for LabelsRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get(METRIC_NAME).unwrap_or(""))?;
        f.write_str("{")?;
        let others = self.iter().filter(|(n, _)| *n != METRIC_NAME);
        for (i, (name, value)) in others.enumerate() {
            write!(f, "{}{name}={value:?}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.as_ref(), f)
    }
}

impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.as_ref(), f)
    }
}

#[derive(Debug, Clone)]
pub struct LabelsIter<'a>(Pairs<'a>);

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let text = |bytes| std::str::from_utf8(bytes).expect("BUG: label bytes are not UTF-8");
        self.0.next().map(|(name, value)| (text(name), text(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_sorted_and_walks_back() {
        let labels = Labels::from_pairs(&[("job", "x"), ("__name__", "up"), ("gone", ""), ("Zone", "é")]);
        let pairs: Vec<_> = labels.iter().collect();
        assert_eq!(pairs, [("Zone", "é"), ("__name__", "up"), ("job", "x")]);
        assert!(is_canonical(labels.as_bytes()));
        assert_eq!(labels.to_string(), r#"up{Zone="é", job="x"}"#);
        assert_eq!(labels.get("job"), Some("x"));
        assert_eq!(labels.get("gone"), None);
    }

    #[test]
    fn table_order_is_that_of_texts() {
        let ordered = [
            vec![("__name__", "a"), ("z", "9")],
            vec![("__name__", "aa")],
            vec![("__name__", "aa"), ("Zone", "x"), ("a", "1")],
            vec![("__name__", "aa"), ("a", "1")],
            vec![("__name__", "aa"), ("a", "1"), ("b", "1")],
            vec![("__name__", "aa"), ("a", "10")],
            vec![("__name__", "aa"), ("a", "2")],
            vec![("__name__", "aa"), ("aa", "1")],
            vec![("__name__", "b")],
        ]
        .map(|pairs| Labels::from_pairs(&pairs));
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                assert_eq!(a.as_ref().cmp_in_tables(b.as_ref()), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn long_values_round_trip() {
        for n in [1, 127, 128, 16_383, 16_384] {
            let value = "v".repeat(n);
            let labels = Labels::from_pairs(&[("__name__", "m"), ("l", &value)]);
            assert_eq!(labels.get("l"), Some(value.as_str()));
            assert!(is_canonical(labels.as_bytes()));
        }
    }
}
