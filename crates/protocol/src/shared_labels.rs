//! Labels that a request gives to all of its series.

use model::labels::put_label;
use model::{LabelsBuilder, SeriesKey};

/// Labels that replace those of the same name in the text of a request. They are sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedLabels(Vec<(Box<str>, Box<str>)>);

impl SharedLabels {
    /// Limit on the bytes of all names and values, because they are copied for each series that is not known.
    pub const BYTES_MAX: usize = 4 << 10;

    /// Of several labels with the same name, the last one counts. An empty value removes the label from all series.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut all: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (name, value) in labels {
            all.retain(|(other, _)| **other != *name);
            all.push((name.into(), value.into()));
        }
        all.sort_unstable();
        Self(all)
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number that is the same only for equal labels.
    pub(crate) fn fingerprint(&self, seed: u64) -> u128 {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|(name, value)| put_label(&mut bytes, name.as_bytes(), value.as_bytes()));
        SeriesKey::of(&bytes, seed).0
    }

    /// Adds a label of the text, unless one of these labels replaces it.
    pub(crate) fn push_own(&self, name: &str, value: &str, builder: &mut LabelsBuilder) {
        if self.0.binary_search_by(|(shared, _)| (**shared).cmp(name)).is_err() {
            builder.push(name, value);
        }
    }

    pub(crate) fn push_to(&self, builder: &mut LabelsBuilder) {
        self.0.iter().for_each(|(name, value)| builder.push(name, value));
    }
}
