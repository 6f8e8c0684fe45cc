//! Label sets derived from other label sets.

use super::QueryError;
use super::ast::Grouping;
use crate::meter::{Charge, Meter};
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use model::labels::{METRIC_NAME, put_label};
use model::{Labels, LabelsBuilder, LabelsRef, SeriesRefusal};

/// True for labels that identify or describe a metric. Operations whose result is another quantity, such as
/// `rate`, drop them.
pub(super) fn is_metadata(name: &str) -> bool {
    matches!(name, METRIC_NAME | "__type__" | "__unit__")
}

/// Appends the labels that `keep` accepts, in canonical form.
pub(super) fn keep_into(out: &mut Vec<u8>, labels: LabelsRef<'_>, mut keep: impl FnMut(&str) -> bool) {
    for (name, value) in labels.iter() {
        if keep(name) {
            put_label(out, name.as_bytes(), value.as_bytes());
        }
    }
}

pub(super) fn keep(labels: LabelsRef<'_>, keep: impl FnMut(&str) -> bool) -> Labels {
    let mut bytes = Vec::with_capacity(labels.as_bytes().len());
    keep_into(&mut bytes, labels, keep);
    LabelsRef::from_canonical(&bytes).to_owned()
}

pub(super) fn without_name(labels: LabelsRef<'_>) -> Labels {
    keep(labels, |name| !is_metadata(name))
}

/// Returns the labels after the given changes. A change to the empty value removes the label.
pub(super) fn with(labels: LabelsRef<'_>, changes: &[(&str, &str)]) -> Result<Labels, QueryError> {
    let mut builder = LabelsBuilder::new();
    for (name, value) in labels.iter() {
        if !changes.iter().any(|(changed, _)| *changed == name) {
            builder.push(name, value);
        }
    }
    for (i, (name, value)) in changes.iter().enumerate() {
        if !changes[i + 1..].iter().any(|(later, _)| later == name) {
            builder.push(name, value);
        }
    }
    builder.build().map_err(|error: SeriesRefusal| QueryError::Execution(error.to_string()))
}

/// Formats labels in Prometheus' notation: `{__name__="up", job="x"}`.
pub(super) fn to_text(labels: LabelsRef<'_>) -> String {
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Appends bytes that compare as Prometheus orders label sets.
pub(super) fn sort_key(out: &mut Vec<u8>, labels: LabelsRef<'_>) {
    for (name, value) in labels.iter() {
        for text in [name, value] {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    }
}

#[derive(Debug)]
pub(super) struct Groups<'g> {
    grouping: &'g Grouping,
    charge: Charge<'g>,
    ids: HashMap<Vec<u8>, usize>,
    key: Vec<u8>,
    /// Labels of each group, in order of appearance.
    pub(super) labels: Vec<Labels>,
}

impl<'g> Groups<'g> {
    pub(super) fn new(grouping: &'g Grouping, meter: &'g Meter<'g>) -> Self {
        Self { grouping, charge: meter.charge(), ids: HashMap::new(), key: Vec::new(), labels: Vec::new() }
    }

    pub(super) fn is_single(&self) -> bool {
        matches!(self.grouping, Grouping::By(names) if names.is_empty())
    }

    pub(super) fn single(&mut self) -> usize {
        if self.labels.is_empty() {
            self.labels.push(Labels::empty());
        }
        0
    }

    pub(super) fn of(&mut self, labels: LabelsRef<'_>) -> Result<usize, QueryError> {
        self.key.clear();
        match self.grouping {
            Grouping::By(names) => {
                let mut wanted = names.iter().map(String::as_str).peekable();
                for (name, value) in labels.iter() {
                    while wanted.next_if(|w| *w < name).is_some() {}
                    match wanted.peek() {
                        None => break,
                        Some(w) if *w == name => put_label(&mut self.key, name.as_bytes(), value.as_bytes()),
                        Some(_) => {}
                    }
                }
            }
            Grouping::Without(names) => keep_into(&mut self.key, labels, |name| {
                name != METRIC_NAME && names.binary_search_by(|n| n.as_str().cmp(name)).is_err()
            }),
        }
        match self.ids.entry_ref(self.key.as_slice()) {
            EntryRef::Occupied(entry) => Ok(*entry.get()),
            EntryRef::Vacant(entry) => {
                let (id, labels) = (self.labels.len(), LabelsRef::from_canonical(&self.key));
                self.charge.add_series(labels)?; // for the key of the map
                self.charge.add_series(labels)?;
                self.labels.push(labels.to_owned());
                entry.insert(id);
                Ok(id)
            }
        }
    }
}
