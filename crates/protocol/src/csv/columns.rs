//! The map of columns: what each column of a table means.

use super::row::{Labelled, text_of};
use super::time::TimeForm;
use crate::decoder::{describe_text, part};
use crate::{LabelForm, SharedLabels};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, SeriesKey, SeriesRefusal};
use std::ops::Range;

/// Limit on the columns of a table, used or not.
pub(super) const COLUMNS_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    Unused,
    /// The name of the metric whose values the column has.
    Metric(Box<str>),
    /// The name of the label whose values the column has.
    Label(Box<str>),
    Time(TimeForm),
}

/// The meaning of each column, and labels of all rows.
#[derive(Debug, Clone)]
pub struct Columns {
    columns: Vec<Column>,
    /// The names of the columns that have labels, in the order of the columns.
    names: Vec<Box<str>>,
    labels: SharedLabels,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    #[error("column {0:?} is not of the form NUMBER:metric:NAME, NUMBER:label:NAME or NUMBER:time:FORM")]
    Form(String),
    #[error("column number {0:?} must be 1 to {COLUMNS_MAX}")]
    Number(String),
    #[error("column {0} is given more than once")]
    Twice(usize),
    #[error("column kind {0:?} must be metric, label or time")]
    Kind(String),
    #[error("time form {0:?} must be {forms}", forms = TimeForm::NAMES)]
    Time(String),
    #[error("name {0:?} of a column is empty or too long")]
    Name(String),
    #[error("no column has a metric")]
    NoMetric,
    #[error("more than one column has the time")]
    TwoTimes,
}

impl Columns {
    /// Reads the map, such as `1:label:ticker,2:metric:ask,3:time:unix_s`.
    pub fn parse(map: &str, labels: SharedLabels) -> Result<Self, ColumnsError> {
        let mut columns: Vec<Column> = Vec::new();
        for entry in map.split(',') {
            let mut parts = entry.splitn(3, ':');
            let (Some(number), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(ColumnsError::Form(shown(entry)));
            };
            let number = number.trim();
            let place = number.parse::<usize>().ok().filter(|place| (1..=COLUMNS_MAX).contains(place));
            let place = place.ok_or_else(|| ColumnsError::Number(shown(number)))?;
            let named = |bytes_max: usize| match (1..=bytes_max).contains(&name.len()) {
                true => Ok(Box::from(name)),
                false => Err(ColumnsError::Name(shown(name))),
            };
            let column = match kind {
                "metric" => Column::Metric(named(LABEL_VALUE_BYTES_MAX)?),
                "label" => Column::Label(named(LABEL_NAME_BYTES_MAX)?),
                "time" => Column::Time(TimeForm::parse(name).ok_or_else(|| ColumnsError::Time(shown(name)))?),
                kind => return Err(ColumnsError::Kind(shown(kind))),
            };
            if columns.len() < place {
                columns.resize(place, Column::Unused);
            }
            if columns[place - 1] != Column::Unused {
                return Err(ColumnsError::Twice(place));
            }
            columns[place - 1] = column;
        }
        if !columns.iter().any(|column| matches!(column, Column::Metric(_))) {
            return Err(ColumnsError::NoMetric);
        }
        if columns.iter().filter(|column| matches!(column, Column::Time(_))).count() > 1 {
            return Err(ColumnsError::TwoTimes);
        }
        let names = columns.iter().filter_map(|column| match column {
            Column::Label(name) => Some(name.clone()),
            _ => None,
        });
        Ok(Self { names: names.collect(), columns, labels })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The name of the metric in a column.
    pub(super) fn metric(&self, place: u16) -> &str {
        match self.columns.get(place as usize) {
            Some(Column::Metric(name)) => name,
            _ => unreachable!("BUG: column {place} has no metric"),
        }
    }

    /// A number that is the same only for equal maps.
    pub(super) fn fingerprint(&self, seed: u64) -> u128 {
        let mut bytes = Vec::new();
        for column in &self.columns {
            let (kind, name) = match column {
                Column::Unused => (0, ""),
                Column::Metric(name) => (1, &**name),
                Column::Label(name) => (2, &**name),
                Column::Time(_) => (3, ""),
            };
            bytes.push(kind);
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        SeriesKey::of(&bytes, seed).0 ^ self.labels.fingerprint(seed).rotate_left(1)
    }
}

impl LabelForm for Columns {
    /// The range is an entry behind the rows ([`Labelled`]).
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal> {
        builder.clear();
        let Labelled { start, place } = Labelled::of(part(bytes, labels));
        let mut own = 0;
        for (name, cell) in self.names.iter().zip(cells_from(bytes, start)) {
            let text = text_of(cell);
            if text.is_empty() {
                continue; // no label
            }
            own += 1;
            // nobody remembers that a series is invalid, so each metric of the row comes here
            if own > SERIES_LABELS_MAX + self.labels.len() {
                return Err(SeriesRefusal::TooManyLabels(own));
            }
            let value = std::str::from_utf8(&text).map_err(|_| SeriesRefusal::NotUtf8)?;
            self.labels.push_own(name, value, builder);
        }
        self.labels.push_own(METRIC_NAME, self.metric(place), builder);
        self.labels.push_to(builder);
        builder.build_series()
    }

    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String {
        let found = self.labels_of(bytes, labels, &mut LabelsBuilder::new());
        let Labelled { start, place } = Labelled::of(part(bytes, labels));
        let cells: Vec<_> = self.names.iter().zip(cells_from(bytes, start)).map(|(_, cell)| cell).collect();
        describe_text(&[self.metric(place).as_bytes(), b" of ", &cells.join(&b',')].concat(), found)
    }
}

/// The labels of a row, which begin at `start`. Other bytes follow them.
fn cells_from(bytes: &[u8], start: u32) -> impl Iterator<Item = &[u8]> {
    bytes[start as usize..].split(|byte| *byte == b'\n')
}

/// The limit on how many characters of the map are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
