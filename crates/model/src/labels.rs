//! The label set that names a series, in one canonical byte form.
//!
//! Each label is written as
//!
//! ```text
//!   0x0A  varint(length of the rest)  0x0A  varint(length)  name  0x12  varint(length)  value
//! ```
//!
//! in ascending byte order of the names, each name once, no empty value, shortest varints. This is what a
//! protobuf `repeated Label = 1` field looks like, and that is why it was chosen: the label bytes of a
//! Prometheus remote-write series *are* its canonical form, so a known series is found by hashing what came
//! off the wire. Everything else treats the form as its own and goes through this file.

use crate::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use crate::error::SeriesError;
use std::cmp::Ordering;
use std::sync::Arc;
use stdx::varint;

/// The label that holds a series' metric name.
pub const METRIC_NAME: &str = "__name__";

const TAG_LABEL: u8 = 0x0a;
const TAG_NAME: u8 = 0x0a;
const TAG_VALUE: u8 = 0x12;

/// An owned, shared, canonical label set. Equality, order and hash are those of its bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Arc<[u8]>);

/// A borrowed canonical label set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsRef<'a>(&'a [u8]);

impl Labels {
    /// The empty set.
    pub fn empty() -> Self {
        Self(Arc::from([]))
    }

    /// A set from pairs in any order. Panics on what is not valid: for tests and constants.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        let mut builder = LabelsBuilder::new();
        for (name, value) in pairs {
            builder.push(name, value);
        }
        builder.build().expect("BUG: label pairs of a constant are valid")
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Borrows the set.
    pub fn as_ref(&self) -> LabelsRef<'_> {
        LabelsRef(&self.0)
    }

    /// Name and value of each label, in order.
    pub fn iter(&self) -> LabelsIter<'_> {
        self.as_ref().iter()
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.as_ref().get(name)
    }

    /// True where there is no label.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> LabelsRef<'a> {
    /// Takes bytes that are known to be canonical: those of a [`Labels`], or ones that
    /// [`is_canonical`] accepts. Garbage panics on iteration but is never unsafe.
    pub const fn from_canonical(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The canonical bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// An owned copy.
    pub fn to_owned(self) -> Labels {
        Labels(Arc::from(self.0))
    }

    /// Name and value of each label, in order.
    pub const fn iter(self) -> LabelsIter<'a> {
        LabelsIter { rest: self.0 }
    }

    /// The value of `name`.
    pub fn get(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Table order: by metric name, then by the other labels, pair by pair, each by name and then by value;
    /// who has fewer of equal pairs comes first. It is the order in which tables keep their rows. (The order
    /// of the canonical bytes is another one, since lengths stand before texts there.)
    pub fn cmp_in_tables(self, other: Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal;
        }
        let name = |labels: Self| labels.pairs().find(|(n, _)| *n == METRIC_NAME.as_bytes()).map(|(_, v)| v);
        let others = |labels: Self| labels.pairs().filter(|(n, _)| *n != METRIC_NAME.as_bytes());
        name(self).cmp(&name(other)).then_with(|| others(self).cmp(others(other)))
    }

    /// As [`Self::iter`], without a look whether the texts are texts.
    fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let canonical = "BUG: label bytes are not canonical";
            let mut wire = Wire { rest: Some(rest).filter(|rest| !rest.is_empty())? };
            let mut label = Wire { rest: wire.field(TAG_LABEL).expect(canonical) };
            rest = wire.rest;
            Some((label.field(TAG_NAME).expect(canonical), label.field(TAG_VALUE).expect(canonical)))
        })
    }
}

impl std::fmt::Debug for LabelsRef<'_> {
    /// In Prometheus' notation: `metric{name="value"}`.
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

/// Walks canonical label bytes.
#[derive(Debug, Clone)]
pub struct LabelsIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let canonical = "BUG: label bytes are not canonical";
        let mut wire = Wire { rest: self.rest };
        let mut label = Wire { rest: wire.field(TAG_LABEL).expect(canonical) };
        let name = label.field(TAG_NAME).expect(canonical);
        let value = label.field(TAG_VALUE).expect(canonical);
        self.rest = wire.rest;
        let text = |bytes| std::str::from_utf8(bytes).expect(canonical);
        Some((text(name), text(value)))
    }
}

/// Reads length-delimited fields in exactly the canonical order.
struct Wire<'a> {
    rest: &'a [u8],
}

impl<'a> Wire<'a> {
    #[inline]
    fn field(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&first, rest) = self.rest.split_first()?;
        if first != tag {
            return None;
        }
        let (len, rest) = read_varint(rest)?;
        if len > rest.len() {
            return None;
        }
        let (field, rest) = rest.split_at(len);
        self.rest = rest;
        Some(field)
    }
}

/// A shortest varint of at most three bytes: more than any cap on labels allows.
#[inline]
fn read_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [a, ref rest @ ..] if a < 0x80 => Some((a as usize, rest)),
        [a, b, ref rest @ ..] if b < 0x80 && b != 0 => Some(((a & 0x7f) as usize | (b as usize) << 7, rest)),
        [a, b, c, ref rest @ ..] if b >= 0x80 && c < 0x80 && c != 0 => {
            Some(((a & 0x7f) as usize | ((b & 0x7f) as usize) << 7 | (c as usize) << 14, rest))
        }
        _ => None,
    }
}

/// Appends one label in canonical form. The caller keeps order and caps.
#[inline]
pub fn put_label(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let len = |text: &[u8]| 1 + varint::len(text.len() as u64) + text.len();
    let inner = len(name) + len(value);
    out.push(TAG_LABEL);
    varint::put(out, inner as u64);
    for (tag, text) in [(TAG_NAME, name), (TAG_VALUE, value)] {
        out.push(tag);
        varint::put(out, text.len() as u64);
        out.extend_from_slice(text);
    }
}

/// True where `bytes` are canonical label bytes of a valid series. Costs a walk over them.
pub fn is_canonical(bytes: &[u8]) -> bool {
    let mut wire = Wire { rest: bytes };
    let mut previous: Option<&[u8]> = None;
    let (mut count, mut named) = (0, false);
    while !wire.rest.is_empty() {
        let Some(inner) = wire.field(TAG_LABEL) else { return false };
        let mut label = Wire { rest: inner };
        let (Some(name), Some(value)) = (label.field(TAG_NAME), label.field(TAG_VALUE)) else { return false };
        let ordered = previous.is_none_or(|p| p < name);
        let sized = !name.is_empty()
            && name.len() <= LABEL_NAME_BYTES_MAX
            && !value.is_empty()
            && value.len() <= LABEL_VALUE_BYTES_MAX;
        let utf8 = std::str::from_utf8(name).is_ok() && std::str::from_utf8(value).is_ok();
        if !(label.rest.is_empty() && ordered && sized && utf8) {
            return false;
        }
        named |= name == METRIC_NAME.as_bytes();
        previous = Some(name);
        count += 1;
    }
    named && count <= SERIES_LABELS_MAX && bytes.len() <= SERIES_LABEL_BYTES_MAX
}

/// Builds a canonical label set from labels in any order.
#[derive(Debug, Default)]
pub struct LabelsBuilder {
    text: String,
    /// (name start, value start, end) in `text`
    spans: Vec<(u32, u32, u32)>,
}

impl LabelsBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the labels, keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Adds a label. An empty value means "no such label" in Prometheus' data model and is left out when
    /// building.
    pub fn push(&mut self, name: &str, value: &str) {
        let start = self.text.len() as u32;
        self.text.push_str(name);
        let middle = self.text.len() as u32;
        self.text.push_str(value);
        self.spans.push((start, middle, self.text.len() as u32));
    }

    /// Any label set: sorted, each name once, no empty names, within the caps. It may be empty and
    /// nameless, as the results of queries are.
    pub fn build(&mut self) -> Result<Labels, SeriesError> {
        let text = &self.text;
        let name = |s: &(u32, u32, u32)| &text[s.0 as usize..s.1 as usize];
        let value = |s: &(u32, u32, u32)| &text[s.1 as usize..s.2 as usize];
        self.spans.retain(|s| s.1 < s.2);
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        if let Some(pair) = self.spans.windows(2).find(|w| name(&w[0]) == name(&w[1])) {
            return Err(SeriesError::DuplicateLabel(name(&pair[0]).into()));
        }
        if self.spans.len() > SERIES_LABELS_MAX {
            return Err(SeriesError::TooManyLabels(self.spans.len()));
        }
        let mut bytes = Vec::with_capacity(text.len() + 8 * self.spans.len());
        for span in &self.spans {
            let (name, value) = (name(span), value(span));
            if name.is_empty() {
                return Err(SeriesError::EmptyLabelName);
            }
            if name.len() > LABEL_NAME_BYTES_MAX {
                return Err(SeriesError::LabelNameTooLong(name.len()));
            }
            if value.len() > LABEL_VALUE_BYTES_MAX {
                return Err(SeriesError::LabelValueTooLong(name.into(), value.len()));
            }
            put_label(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        if bytes.len() > SERIES_LABEL_BYTES_MAX {
            return Err(SeriesError::LabelsTooLong(bytes.len()));
        }
        Ok(Labels(bytes.into()))
    }

    /// The label set of a stored series: as [`Self::build`], and it has a metric name.
    pub fn build_series(&mut self) -> Result<Labels, SeriesError> {
        let labels = self.build()?;
        match labels.get(METRIC_NAME) {
            Some(_) => Ok(labels),
            None => Err(SeriesError::NoName),
        }
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

    #[test]
    fn refuses() {
        let check = |pairs: &[(&str, &str)]| {
            let mut b = LabelsBuilder::new();
            pairs.iter().for_each(|(n, v)| b.push(n, v));
            b.build_series().unwrap_err()
        };
        let long = "x".repeat(LABEL_VALUE_BYTES_MAX + 1);
        assert_eq!(check(&[]), SeriesError::NoName);
        assert_eq!(check(&[("__name__", "")]), SeriesError::NoName);
        assert_eq!(check(&[("a", "1"), ("a", "2")]), SeriesError::DuplicateLabel("a".into()));
        assert_eq!(check(&[("", "2")]), SeriesError::EmptyLabelName);
        assert_eq!(check(&[("a", &long)]), SeriesError::LabelValueTooLong("a".into(), long.len()));
    }

    #[test]
    fn tells_canonical_bytes_from_others() {
        let up = Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
        let mut swapped = Vec::new();
        put_label(&mut swapped, b"job", b"x");
        put_label(&mut swapped, b"__name__", b"up");
        assert!(!is_canonical(&swapped), "unsorted");
        let mut twice = up.as_bytes().to_vec();
        put_label(&mut twice, b"job", b"y");
        assert!(!is_canonical(&twice), "duplicate");
        let mut empty = up.as_bytes().to_vec();
        put_label(&mut empty, b"k", b"");
        assert!(!is_canonical(&empty), "empty value");
        let mut bad = up.as_bytes().to_vec();
        put_label(&mut bad, b"k", b"\xff");
        assert!(!is_canonical(&bad), "not UTF-8");
        assert!(!is_canonical(&up.as_bytes()[..up.as_bytes().len() - 1]), "cut");
        assert!(!is_canonical(b""), "no name");
        // the same length in two bytes instead of one
        assert!(!is_canonical(&[0x0a, 0x8c, 0x00]), "overlong varint");
    }
}
