//! Labels that were not known by their hash, looked at for the first time.

use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::is_canonical;
use model::{Labels, LabelsBuilder, LabelsRef, SeriesError};

/// A label in a series or an exemplar.
const LABEL: Tag = tag(1, WireType::Len);
const LABEL_NAME: Tag = tag(1, WireType::Len);
const LABEL_VALUE: Tag = tag(2, WireType::Len);

/// The canonical labels of a series from its label bytes as sent ([`model::Batch::label_bytes`]), or why
/// it cannot be stored.
///
/// Most senders sort already, and then the bytes are checked and copied. Others are sorted here; empty
/// values mean "no such label" and are dropped. The error names the first thing wrong in the order:
/// damaged, not UTF-8, too many labels, a name or value too long, all together too long, a name empty or
/// twice, no metric name. Memory is bounded by the caps, whatever `raw` is.
pub fn labels_of(raw: &[u8], builder: &mut LabelsBuilder) -> Result<Labels, SeriesError> {
    if is_canonical(raw) {
        return Ok(LabelsRef::from_canonical(raw).to_owned());
    }
    builder.clear();
    collect(raw, builder)?;
    builder.build_series()
}

/// Reads every label of `raw` into `builder`, within the caps.
fn collect(raw: &[u8], builder: &mut LabelsBuilder) -> Result<(), SeriesError> {
    let damaged = |e: WireError| SeriesError::DamagedLabels(e.offset);
    let mut total = Total::default();
    let mut fields = Reader::new(raw);
    while let Some(tag) = fields.tag().map_err(damaged)? {
        if tag != LABEL {
            fields.skip_unknown(tag, &[1]).map_err(damaged)?;
            continue;
        }
        let (name, value) = name_and_value(fields.message().map_err(damaged)?).map_err(damaged)?;
        total.add(name, value)?;
        if total.fits() {
            push_text(name, value, builder)?;
        }
    }
    total.check()
}

/// Counts before anything is copied, so that a flood of labels is measured and not kept.
#[derive(Debug, Default)]
pub(super) struct Total {
    labels: usize,
    bytes: usize,
}

impl Total {
    /// Counts a label, and checks it.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), SeriesError> {
        if value.is_empty() {
            return Ok(());
        }
        self.labels += 1;
        self.bytes += name.len() + value.len();
        if name.len() > LABEL_NAME_BYTES_MAX {
            return Err(SeriesError::LabelNameTooLong(name.len()));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX {
            let name = std::str::from_utf8(name).map_err(|_| SeriesError::NotUtf8)?;
            return Err(SeriesError::LabelValueTooLong(name.into(), value.len()));
        }
        Ok(())
    }

    /// False once it is certain that [`Self::check`] refuses.
    pub(super) fn fits(&self) -> bool {
        self.labels <= SERIES_LABELS_MAX && self.bytes <= SERIES_LABEL_BYTES_MAX
    }

    /// Checks the whole.
    pub(super) fn check(&self) -> Result<(), SeriesError> {
        if self.labels > SERIES_LABELS_MAX {
            return Err(SeriesError::TooManyLabels(self.labels));
        }
        if self.bytes > SERIES_LABEL_BYTES_MAX {
            return Err(SeriesError::LabelsTooLong(self.bytes));
        }
        Ok(())
    }
}

/// Adds a label to `builder` if it is text; an empty value is no label.
pub(super) fn push_text(name: &[u8], value: &[u8], builder: &mut LabelsBuilder) -> Result<(), SeriesError> {
    if value.is_empty() {
        return Ok(());
    }
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| SeriesError::NotUtf8);
    builder.push(text(name)?, text(value)?);
    Ok(())
}

/// A Label message: fields in any order, the last of a kind wins, absent means empty.
pub(super) fn name_and_value(mut label: Reader<'_>) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    while let Some(tag) = label.tag()? {
        match tag {
            LABEL_NAME => name = label.len_field()?,
            LABEL_VALUE => value = label.len_field()?,
            other => label.skip_unknown(other, &[1, 2])?,
        }
    }
    Ok((name, value))
}
