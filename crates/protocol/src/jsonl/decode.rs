//! Decodes requests of JSON lines.
//!
//! The key of a series is a hash of the bytes of its object `metric`, so the labels of known series are not parsed.

use super::value;
use crate::decimal::short_decimal;
use crate::decoder::{describe_text, part};
use crate::json::Parser;
use crate::line_batch::LineBatch;
use crate::line_fault::Fault;
use crate::raw_keys::RawKeys;
use crate::{DecodeError, JsonError, LabelForm, Request, SharedLabels};
use model::{Batch, Labels, LabelsBuilder, SeriesHasher, SeriesRefusal};
use std::ops::Range;
use std::sync::Arc;
use stdx::budget::IncrementalReservation;

/// What a request says besides its lines.
#[derive(Debug, Clone)]
pub struct Format {
    pub labels: Arc<SharedLabels>,
    /// Number of the first line, for error messages.
    pub first_line: usize,
}

#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    fn new(seed: u64) -> Self {
        Self { seed, hasher: SeriesHasher::new(seed) }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Request { format: Format { labels, first_line }, body } = request;
        body.decompress(&mut batch.bytes, reservation)?;
        // moved out, so that other fields of the batch can be modified while the bytes are borrowed
        let bytes = std::mem::take(&mut batch.bytes);
        let keys = RawKeys { hasher: &self.hasher, fingerprint: labels.fingerprint(self.seed) };
        let read = LineBatch::new(&bytes, keys, batch, reservation).each_line(first_line, line);
        batch.bytes = bytes;
        read
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn label_form(format: &Format) -> &dyn LabelForm {
        &*format.labels
    }
}

impl LabelForm for SharedLabels {
    /// The range is an object of names and values.
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal> {
        builder.clear();
        let mut json = Parser::new(part(bytes, labels));
        let read = json.object(|json, name| json.string().map(|value| self.push_own(name, &value, builder)));
        // the decoder has parsed the object before, but not that its values are strings
        read.map_err(|error| SeriesRefusal::Text(error.to_string()))?;
        self.push_to(builder);
        builder.build_series()
    }

    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String {
        let found = self.labels_of(bytes, labels, &mut LabelsBuilder::new());
        describe_text(part(bytes, labels), found)
    }
}

/// How the end of the object `metric` is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    /// By its first brace, without reading the strings before it.
    Guessed,
    Read,
}

/// A wrong guess leaves a line that cannot be read, or an object that is none and refused as labels.
fn line(lines: &mut LineBatch<'_, '_>, line: Range<usize>) -> Result<(), Fault> {
    let first = lines.samples();
    match line_with(lines, line.clone(), Metric::Guessed) {
        Err(Fault::Line(_)) => {
            lines.truncate_values(first);
            lines.truncate_timestamps(first);
            line_with(lines, line, Metric::Read)
        }
        read => read,
    }
}

fn line_with(lines: &mut LineBatch<'_, '_>, line: Range<usize>, how: Metric) -> Result<(), Fault> {
    let first = lines.samples();
    let mut metric = None;
    // the parser knows only its own errors
    let mut failed = None;
    let mut json = Parser::new(&lines.text[line.clone()]);
    let mut added = |added: Result<(), DecodeError>, json: &Parser<'_>| {
        added.map_err(|error| {
            failed = Some(error);
            json.error("too many samples")
        })
    };
    let read = json.object(|json, key| match key {
        "metric" => {
            let guessed = if how == Metric::Guessed { json.guessed_object() } else { None };
            metric = Some(guessed.map_or_else(|| json.skipped_object(), Ok)?);
            Ok(())
        }
        "values" => {
            lines.truncate_values(first);
            json.list(|json| {
                let value = match json.rest().and_then(short_decimal_of) {
                    Some((value, length)) => {
                        json.advance(length);
                        value
                    }
                    None => value(json)?,
                };
                added(lines.value(value), json)
            })
        }
        "timestamps" => {
            lines.truncate_timestamps(first);
            json.list(|json| {
                let time = json.integer()?;
                added(lines.timestamp(time), json)
            })
        }
        _ => json.skip(),
    });
    let ended = read.and_then(|()| json.end());
    if let Some(error) = failed {
        return Err(error.into());
    }
    ended.map_err(fault)?;
    let metric: Range<usize> = metric.ok_or_else(|| fault(json.error("missing \"metric\"")))?;
    let (values, timestamps) = lines.counts();
    if values != timestamps {
        return Err(fault(json.error("the numbers of values and timestamps differ")));
    }
    let labels = line.start + metric.start..line.start + metric.end;
    let key = lines.keys.head(&lines.text[labels.clone()]).only();
    Ok(lines.series(key, labels, first)?)
}

/// A short decimal that is followed by a comma or the end of the list.
fn short_decimal_of(text: &[u8]) -> Option<(f64, usize)> {
    let (value, length) = short_decimal(text)?;
    matches!(text.get(length), Some(b',' | b']')).then_some((value, length))
}

fn fault(error: JsonError) -> Fault {
    Fault::Line(error.to_string())
}
