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
}

/// Limit on the text that a builder holds, which keeps its offsets within 32 bits. A valid series
/// needs far less.
const TEXT_BYTES_MAX: usize = 16 * SERIES_LABEL_BYTES_MAX;

impl LabelsBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.too_long = None;
    }

    pub fn push(&mut self, name: &str, value: &str) {
        let all = self.too_long.unwrap_or(self.text.len()).saturating_add(name.len() + value.len());
        if all > TEXT_BYTES_MAX {
            self.too_long = Some(all);
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
        let text = &self.text;
        let name = |s: &(u32, u32, u32)| &text[s.0 as usize..s.1 as usize];
        let value = |s: &(u32, u32, u32)| &text[s.1 as usize..s.2 as usize];
        self.spans.retain(|s| s.1 < s.2);
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
    }
}
