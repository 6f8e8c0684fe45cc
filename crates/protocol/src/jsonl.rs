//! Reads and writes VictoriaMetrics' JSON lines. Each line has some samples of one series.
//!
//! ```text
//!   {"metric":{"__name__":"up","job":"x"},"values":[1,null,"NaN","-Infinity"],"timestamps":[1000,2000,3000,4000]}
//! ```
//!
//! Timestamps are in milliseconds. `null` is a staleness marker, `"Infinity"` and `"-Infinity"` are
//! infinities, and `"NaN"` is any other NaN. All other values are exact.

mod decode;

pub use decode::{Decoder, Format};

use crate::json::{JsonError, Parser, put_string};
use crate::number::{NAN, put_finite, put_integer};
use model::{Labels, LabelsBuilder, LabelsRef, STALE_NAN_BITS, Samples, SeriesRefusal};

/// Longest line that is accepted, enough for three million samples. VictoriaMetrics splits longer lines if
/// `max_rows_per_line` is set.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Parses a line. `samples` gets the samples in the order of the line. The outer error means that the line is
/// damaged, the inner one that the labels are invalid.
pub fn parse(
    line: &[u8],
    builder: &mut LabelsBuilder,
    samples: &mut Samples,
) -> Result<Result<Labels, SeriesRefusal>, JsonError> {
    samples.clear();
    builder.clear();
    let mut labelled = false;
    let mut json = Parser::new(line);
    json.object(|json, key| match key {
        "metric" => {
            labelled = true;
            builder.clear();
            json.object(|json, name| json.string().map(|value| builder.push(name, &value)))
        }
        "values" => {
            samples.values.clear();
            json.list(|json| value(json).map(|v| samples.values.push(v)))
        }
        "timestamps" => {
            samples.timestamps.clear();
            json.list(|json| json.integer().map(|t| samples.timestamps.push(t)))
        }
        _ => json.skip(),
    })?;
    json.end()?;
    if !labelled {
        return Err(json.error("missing \"metric\""));
    }
    if samples.timestamps.len() != samples.values.len() {
        return Err(json.error("the numbers of values and timestamps differ"));
    }
    Ok(builder.build_series())
}

fn value(json: &mut Parser<'_>) -> Result<f64, JsonError> {
    match json.peek() {
        Some(b'"') => match &*json.string()? {
            "Infinity" | "+Infinity" | "Inf" | "+Inf" => Ok(f64::INFINITY),
            "-Infinity" | "-Inf" => Ok(f64::NEG_INFINITY),
            "NaN" => Ok(NAN),
            _ => Err(json.error("a string that is not NaN or Infinity")),
        },
        Some(b'n') => match json.word()? {
            "null" => Ok(f64::from_bits(STALE_NAN_BITS)),
            _ => Err(json.error("expected a value")),
        },
        _ => {
            let text = json.number()?;
            text.parse().map_err(|_| json.error("expected a number"))
        }
    }
}

pub fn put_line(out: &mut Vec<u8>, labels: LabelsRef<'_>, timestamps: &[i64], values: &[f64]) {
    begin_line(out, labels);
    put_values(out, 0, values);
    begin_timestamps(out);
    put_timestamps(out, 0, timestamps);
    end_line(out);
}

/// Appends the start of a line, up to the first value. With the functions below, a line that does not fit
/// into memory can be written in pieces.
pub fn begin_line(out: &mut Vec<u8>, labels: LabelsRef<'_>) {
    out.extend_from_slice(b"{\"metric\":{");
    for (i, (name, value)) in labels.iter().enumerate() {
        comma(out, i);
        put_string(out, name);
        out.push(b':');
        put_string(out, value);
    }
    out.extend_from_slice(b"},\"values\":[");
}

/// Appends some values of a line. `position` is the number of values that the line already has.
pub fn put_values(out: &mut Vec<u8>, position: usize, values: &[f64]) {
    for (i, v) in values.iter().enumerate() {
        comma(out, position + i);
        if v.is_finite() {
            put_finite(out, *v);
        } else {
            let text: &[u8] = match *v {
                v if model::sample::is_stale(v) => b"null",
                f64::INFINITY => b"\"Infinity\"",
                f64::NEG_INFINITY => b"\"-Infinity\"",
                _ => b"\"NaN\"",
            };
            out.extend_from_slice(text);
        }
    }
}

pub fn begin_timestamps(out: &mut Vec<u8>) {
    out.extend_from_slice(b"],\"timestamps\":[");
}

pub fn put_timestamps(out: &mut Vec<u8>, position: usize, timestamps: &[i64]) {
    for (i, t) in timestamps.iter().enumerate() {
        comma(out, position + i);
        put_integer(out, *t);
    }
}

pub fn end_line(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}\n");
}

fn comma(out: &mut Vec<u8>, position: usize) {
    if position > 0 {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests;
