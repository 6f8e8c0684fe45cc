//! Labels of the fields of lines.

use super::scan::{head_end, last_name, name_end};
use crate::LabelForm;
use crate::decoder::{describe_text, part};
use model::caps::{SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, SeriesKey, SeriesRefusal};
use std::borrow::Cow;
use std::ops::Range;

/// How a measurement and the name of a field become the name of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRule {
    /// `cpu_usage_user{…}`, as VictoriaMetrics does.
    #[default]
    MeasurementAndField,
    /// `cpu{field="usage_user", …}`.
    FieldAsLabel,
}

/// The label that has the name of the field with [`NameRule::FieldAsLabel`].
const FIELD_LABEL: &str = "field";

/// How the lines of a request become labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    rule: NameRule,
    /// A label of all lines that do not have a tag of this name.
    shared: Option<(Box<str>, Box<str>)>,
}

impl Names {
    pub fn new(rule: NameRule, shared: Option<(&str, &str)>) -> Self {
        let shared = shared.filter(|(name, value)| !name.is_empty() && !value.is_empty());
        Self { rule, shared: shared.map(|(name, value)| (name.into(), value.into())) }
    }

    /// A number that is the same only for equal names.
    pub(super) fn fingerprint(&self, seed: u64) -> u128 {
        let mut bytes = vec![self.rule as u8];
        if let Some((name, value)) = &self.shared {
            model::labels::put_label(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        SeriesKey::of(&bytes, seed).0
    }

    /// Adds the labels of a head and a field to an empty builder. Labels that are too many or too long are not read to their
    /// end: nobody remembers that a series is invalid, so each field of the head comes here.
    fn push(&self, head: &[u8], field: &[u8], builder: &mut LabelsBuilder) -> Result<(), SeriesRefusal> {
        let (mut at, mut has_shared) = (part_end(head, 0), false);
        let (mut labels, mut label_bytes) = (0, 0);
        let (measurement, field) = (unescaped(&head[..at])?, unescaped(field)?);
        while at < head.len() {
            let end = part_end(head, at + 1);
            let tag = &head[at + 1..end];
            at = end;
            let equals = name_end(tag, 0);
            if equals == 0 || tag.get(equals) != Some(&b'=') {
                return Err(SeriesRefusal::Tag(String::from_utf8_lossy(&tag[..tag.len().min(64)]).into()));
            }
            let (name, value) = (unescaped(&tag[..equals])?, unescaped(&tag[equals + 1..])?);
            has_shared |= self.shared.as_ref().is_some_and(|(shared, _)| **shared == *name);
            if value.is_empty() {
                continue; // no label
            }
            labels += 1;
            label_bytes += name.len() + value.len();
            if labels > SERIES_LABELS_MAX {
                return Err(SeriesRefusal::TooManyLabels(labels));
            }
            if label_bytes > SERIES_LABEL_BYTES_MAX {
                return Err(SeriesRefusal::LabelsTooLong(label_bytes));
            }
            builder.push(&name, &value);
        }
        match self.rule {
            NameRule::MeasurementAndField => builder.push(METRIC_NAME, &format!("{measurement}_{field}")),
            NameRule::FieldAsLabel => {
                builder.push(METRIC_NAME, &measurement);
                builder.push(FIELD_LABEL, &field);
            }
        }
        if let Some((name, value)) = self.shared.as_ref().filter(|_| !has_shared) {
            builder.push(name, value);
        }
        Ok(())
    }
}

impl LabelForm for Names {
    /// The range is a line up to the end of a field's name.
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal> {
        let line = part(bytes, labels);
        builder.clear();
        self.push(&line[..head_end(line, 0)], &line[last_name(line)..], builder)?;
        builder.build_series()
    }

    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String {
        let found = self.labels_of(bytes, labels, &mut LabelsBuilder::new());
        describe_text(part(bytes, labels), found)
    }
}

/// Returns where the measurement or the tag ends that begins at `at`.
fn part_end(head: &[u8], mut at: usize) -> usize {
    loop {
        at = name_end(head, at);
        // only a comma separates tags
        match head.get(at) {
            None | Some(b',') => return at.min(head.len()),
            Some(_) => at += 1,
        }
    }
}

/// Removes the backslash before a comma, a blank, `=` or another backslash. Other backslashes are part of the text.
fn unescaped(text: &[u8]) -> Result<Cow<'_, str>, SeriesRefusal> {
    let text = std::str::from_utf8(text).map_err(|_| SeriesRefusal::NotUtf8)?;
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let escaped = chars.as_str().chars().next().filter(|next| matches!(next, ',' | ' ' | '=' | '\\'));
        match (char, escaped) {
            ('\\', Some(escaped)) => {
                out.push(escaped);
                chars.next();
            }
            _ => out.push(char),
        }
    }
    Ok(Cow::Owned(out))
}
