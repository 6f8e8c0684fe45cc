use super::{Labels, METRIC_NAME, put_label};
use crate::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use crate::series_refusal::SeriesRefusal;

#[derive(Debug, Default)]
pub struct LabelsBuilder {
    text: String,
    /// for each label, where its name starts in `text`, where its value starts, and where the value ends
    spans: Vec<(u32, u32, u32)>,
    /// Length of all labels in bytes, once it exceeds [`TEXT_BYTES_MAX`]. Labels after that are not stored,
    /// but their length is added, so that the error can state the total.
    too_long: Option<usize>,
    /// How many labels are not stored, because there are [`SPANS_MAX`].
    left_out: usize,
}

/// Limit on the text that a builder holds, which keeps its offsets within 32 bits. A valid series
/// needs far less.
const TEXT_BYTES_MAX: usize = 16 * SERIES_LABEL_BYTES_MAX;

/// Limit on the labels that a builder holds, so that it stays small. A valid series has far fewer.
const SPANS_MAX: usize = 8 * SERIES_LABELS_MAX;

impl LabelsBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.too_long = None;
        self.left_out = 0;
    }

    /// Memory that the builder keeps for the next labels.
    pub const fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.spans.capacity() * size_of::<(u32, u32, u32)>()
    }

    /// Adds a label. With an empty value, it is no label.
    pub fn push(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        let all = self.too_long.unwrap_or(self.text.len()).saturating_add(name.len() + value.len());
        if all > TEXT_BYTES_MAX {
            self.too_long = Some(all);
            return;
        }
        if self.spans.len() == SPANS_MAX {
            self.left_out += 1;
            return;
        }
        let start = self.text.len() as u32;
        self.text.push_str(name);
        let middle = self.text.len() as u32;
        self.text.push_str(value);
        self.spans.push((start, middle, self.text.len() as u32));
    }

    /// Builds the label set: sorted, with unique, non-empty names, and within the limits of
    /// [`crate::caps`]. A metric name is not required.
    pub fn build(&mut self) -> Result<Labels, SeriesRefusal> {
        if let Some(bytes) = self.too_long {
            return Err(SeriesRefusal::LabelsTooLong(bytes));
        }
        if self.left_out > 0 {
            return Err(SeriesRefusal::TooManyLabels(self.spans.len() + self.left_out));
        }
        let text = &self.text;
        let name = |s: &(u32, u32, u32)| &text[s.0 as usize..s.1 as usize];
        let value = |s: &(u32, u32, u32)| &text[s.1 as usize..s.2 as usize];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        if let Some(pair) = self.spans.windows(2).find(|w| name(&w[0]) == name(&w[1])) {
            return Err(SeriesRefusal::DuplicateLabel(name(&pair[0]).into()));
        }
        if self.spans.len() > SERIES_LABELS_MAX {
            return Err(SeriesRefusal::TooManyLabels(self.spans.len()));
        }
        let mut bytes = Vec::with_capacity(text.len() + 8 * self.spans.len());
        for span in &self.spans {
            let (name, value) = (name(span), value(span));
            if name.is_empty() {
                return Err(SeriesRefusal::EmptyLabelName);
            }
            if name.len() > LABEL_NAME_BYTES_MAX {
                return Err(SeriesRefusal::LabelNameTooLong(name.len()));
            }
            if value.len() > LABEL_VALUE_BYTES_MAX {
                return Err(SeriesRefusal::LabelValueTooLong(name.into(), value.len()));
            }
            put_label(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        if bytes.len() > SERIES_LABEL_BYTES_MAX {
            return Err(SeriesRefusal::LabelsTooLong(bytes.len()));
        }
        Ok(Labels(bytes.into()))
    }

    /// Like [`Self::build`], but requires a metric name.
    pub fn build_series(&mut self) -> Result<Labels, SeriesRefusal> {
        let labels = self.build()?;
        match labels.get(METRIC_NAME) {
            Some(_) => Ok(labels),
            None => Err(SeriesRefusal::NoName),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_label_sets_are_refused() {
        let check = |pairs: &[(&str, &str)]| {
            let mut b = LabelsBuilder::new();
            pairs.iter().for_each(|(n, v)| b.push(n, v));
            b.build_series().unwrap_err()
        };
        let long = "x".repeat(LABEL_VALUE_BYTES_MAX + 1);
        assert_eq!(check(&[]), SeriesRefusal::NoName);
        assert_eq!(check(&[("__name__", "")]), SeriesRefusal::NoName);
        assert_eq!(check(&[("a", "1"), ("a", "2")]), SeriesRefusal::DuplicateLabel("a".into()));
        assert_eq!(check(&[("", "2")]), SeriesRefusal::EmptyLabelName);
        let longer = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(check(&[("a", &longer)]), SeriesRefusal::LabelsTooLong(TEXT_BYTES_MAX + 1));
        assert_eq!(check(&[("a", &longer), ("b", "1")]), SeriesRefusal::LabelsTooLong(TEXT_BYTES_MAX + 3));
        assert_eq!(check(&[("a", &long)]), SeriesRefusal::LabelValueTooLong("a".into(), long.len()));
        let many = vec![("a", "1"); SPANS_MAX + 7];
        assert_eq!(check(&many), SeriesRefusal::TooManyLabels(SPANS_MAX + 7));
    }

    /// Whatever a client sends, a builder keeps little memory.
    #[test]
    fn labels_without_values_and_too_many_labels_take_no_memory() {
        let mut b = LabelsBuilder::new();
        b.push("a", "1");
        let one = b.memory_bytes();
        for name in ["", "a", "b"] {
            (0..10_000).for_each(|_| b.push(name, ""));
        }
        assert_eq!(b.memory_bytes(), one);
        assert_eq!(b.build().unwrap(), Labels::from_pairs(&[("a", "1")]));
        (0..10_000).for_each(|_| b.push("", "1"));
        assert_eq!(b.build().unwrap_err(), SeriesRefusal::TooManyLabels(10_001));
        assert!(b.memory_bytes() <= 16 * SPANS_MAX, "{} bytes", b.memory_bytes());
        b.clear();
        b.push("a", "2");
        assert_eq!(b.build().unwrap(), Labels::from_pairs(&[("a", "2")]));
    }
}
