//! Reads and writes the text formats of Prometheus and OpenMetrics.
//!
//! ```text
//!   # HELP requests_total Requests.
//!   requests_total{code="200"} 1027 1795284000123          Prometheus: milliseconds
//!   requests_total{code="200"} 1027 1795284000.123         OpenMetrics: seconds, and # EOF at the end
//!   {"a name", "a label"="x"} 1 1795284000                 names with special characters are quoted
//! ```
//!
//! Only samples are read. Comments and exemplars are skipped. These formats have a single NaN and no
//! staleness markers.

mod decode;

pub use decode::{Decoder, Format, TextLabels};

use crate::number::{NAN, put_finite, put_integer};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, SeriesRefusal};

/// Longest line that is accepted. It is long enough for any valid series, even if each character is escaped.
pub const LINE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Prometheus' text format 0.0.4, extended with quoted names.
    Prometheus,
    OpenMetrics,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Nothing,
    /// `# EOF`, the last line in OpenMetrics.
    End,
    Sample {
        labels: Result<Labels, SeriesRefusal>,
        /// `None` if the line has no timestamp.
        timestamp_ms: Option<i64>,
        value: f64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct LineError {
    /// Position of the fault in the line, counted in bytes from 1.
    pub column: usize,
    pub what: &'static str,
}

/// Parses one line. `line` must not contain the line break.
pub fn parse(line: &[u8], dialect: Dialect, builder: &mut LabelsBuilder) -> Result<Line, LineError> {
    let text = std::str::from_utf8(line)
        .map_err(|e| LineError { column: e.valid_up_to() + 1, what: "not UTF-8" })?;
    let mut reader = Reader { text, at: 0 };
    reader.spaces();
    if reader.rest().starts_with('#') {
        let end = dialect == Dialect::OpenMetrics && reader.rest().trim_end() == "# EOF";
        return Ok(if end { Line::End } else { Line::Nothing });
    }
    if reader.rest().is_empty() {
        return Ok(Line::Nothing);
    }
    builder.clear();
    reader.series(|name, value| builder.push(name, value))?;
    let value = reader.word();
    let value = parse_value(value).ok_or_else(|| reader.error("missing or invalid value"))?;
    let time = reader.word();
    let timestamp_ms = match time {
        "" => None,
        text => Some(parse_time(text, dialect).ok_or_else(|| reader.error("invalid timestamp"))?),
    };
    // only an exemplar may follow the value and time
    reader.spaces();
    if !(reader.rest().is_empty() || reader.rest().starts_with('#')) {
        return Err(reader.error("trailing characters after the timestamp"));
    }
    Ok(Line::Sample { labels: builder.build_series(), timestamp_ms, value })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    const fn error(&self, what: &'static str) -> LineError {
        LineError { column: self.at + 1, what }
    }

    fn spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
    }

    fn is_next(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let text = &rest[..rest.find(end).unwrap_or(rest.len())];
        self.at += text.len();
        text
    }

    /// Returns the next word. It is empty at the end of the line, or if an exemplar follows.
    fn word(&mut self) -> &'a str {
        self.spaces();
        if self.rest().starts_with('#') {
            return "";
        }
        self.until(|c| matches!(c, ' ' | '\t' | '\r'))
    }

    /// Parses a metric name and the labels after it, and passes each label to `push`.
    fn series(&mut self, mut push: impl FnMut(&str, &str)) -> Result<(), LineError> {
        let name = self.until(|c| matches!(c, '{' | ' ' | '\t' | '#'));
        if !name.is_empty() {
            push(METRIC_NAME, name);
        }
        self.spaces();
        if self.is_next('{') { self.labels(push) } else { Ok(()) }
    }

    /// Parses labels up to and including the closing brace. The opening brace was already read.
    fn labels(&mut self, mut push: impl FnMut(&str, &str)) -> Result<(), LineError> {
        loop {
            self.spaces();
            if self.is_next('}') {
                return Ok(());
            }
            let quoted = self.rest().starts_with('"');
            let name = if quoted {
                self.quoted()?
            } else {
                self.until(|c| matches!(c, '=' | ' ' | '\t' | ',' | '}' | '"')).to_string()
            };
            self.spaces();
            if self.is_next('=') {
                self.spaces();
                let value = self.quoted()?;
                push(&name, &value);
            } else if quoted {
                // a quoted text without a value is the metric name
                push(METRIC_NAME, &name);
            } else {
                return Err(self.error("a label without a value"));
            }
            self.spaces();
            if !self.is_next(',') && !self.rest().starts_with('}') {
                return Err(self.error("expected a comma or a closing brace"));
            }
        }
    }

    fn quoted(&mut self) -> Result<String, LineError> {
        if !self.is_next('"') {
            return Err(self.error("expected a quoted text"));
        }
        let mut out = String::new();
        loop {
            out.push_str(self.until(|c| matches!(c, '"' | '\\')));
            if self.is_next('"') {
                return Ok(out);
            }
            if !self.is_next('\\') {
                return Err(self.error("unterminated quoted text"));
            }
            let c = self.rest().chars().next().ok_or_else(|| self.error("unterminated quoted text"))?;
            self.at += c.len_utf8();
            match c {
                'n' => out.push('\n'),
                '"' | '\\' => out.push(c),
                // as in Prometheus, other escape sequences stand for themselves
                c => out.extend(['\\', c]),
            }
        }
    }
}

fn parse_value(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    match lower.trim_start_matches(['+', '-']) {
        "nan" => Some(NAN),
        "inf" | "infinity" => Some(if lower.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
        _ => text.parse().ok(),
    }
}

/// Parses a timestamp to milliseconds. Prometheus writes milliseconds, OpenMetrics writes seconds. Decimals
/// beyond milliseconds are dropped.
fn parse_time(text: &str, dialect: Dialect) -> Option<i64> {
    if dialect == Dialect::Prometheus {
        return text.parse().ok();
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (sign, size) = text.strip_prefix('-').map_or((1, text), |size| (-1, size));
    let (whole, decimals) = size.split_once('.').unwrap_or((size, "0"));
    if digits(whole) && digits(decimals) {
        let thousandths = format!("{decimals:0<3}")[..3].parse::<i64>().ok()?;
        return whole.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(thousandths)?.checked_mul(sign);
    }
    // the seconds are written with an exponent, such as 1.795e9
    let ms = (text.parse::<f64>().ok()? * 1000.0).round();
    (ms.abs() <= (1u64 << 53) as f64).then_some(ms as i64)
}

/// Appends a line for each sample of a series. Staleness markers cannot be expressed in these formats, so
/// they are left out. Returns how many were left out.
pub fn put_samples(
    out: &mut Vec<u8>,
    dialect: Dialect,
    labels: LabelsRef<'_>,
    timestamps: &[i64],
    values: &[f64],
) -> u64 {
    let mut head = Vec::new();
    put_series(&mut head, labels);
    let mut left_out = 0;
    for (t, v) in timestamps.iter().zip(values) {
        if model::sample::is_stale(*v) {
            left_out += 1;
            continue;
        }
        out.extend_from_slice(&head);
        match *v {
            v if v.is_finite() => put_finite(out, v),
            f64::INFINITY => out.extend_from_slice(b"+Inf"),
            f64::NEG_INFINITY => out.extend_from_slice(b"-Inf"),
            _ => out.extend_from_slice(b"NaN"),
        }
        out.push(b' ');
        match dialect {
            Dialect::Prometheus => put_integer(out, *t),
            Dialect::OpenMetrics => put_seconds(out, *t),
        }
        out.push(b'\n');
    }
    left_out
}

/// The text that must follow the last sample.
pub const fn end(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::Prometheus => b"",
        Dialect::OpenMetrics => b"# EOF\n",
    }
}

/// Appends the name and labels of a series, such as `name{a="x"}`, followed by a space.
fn put_series(out: &mut Vec<u8>, labels: LabelsRef<'_>) {
    let name = labels.get(METRIC_NAME).unwrap_or("");
    let plain = is_plain(name, true);
    if plain {
        out.extend_from_slice(name.as_bytes());
    }
    let quoted_name = (!plain).then_some((name, None));
    let others = labels.iter().filter(|(n, _)| *n != METRIC_NAME).map(|(n, v)| (n, Some(v)));
    let mut parts = quoted_name.into_iter().chain(others).peekable();
    if parts.peek().is_some() {
        for (i, (name, value)) in parts.enumerate() {
            out.push(if i == 0 { b'{' } else { b',' });
            match value {
                Some(value) => {
                    if is_plain(name, false) {
                        out.extend_from_slice(name.as_bytes());
                    } else {
                        put_quoted(out, name);
                    }
                    out.push(b'=');
                    put_quoted(out, value);
                }
                None => put_quoted(out, name),
            }
        }
        out.push(b'}');
    }
    out.push(b' ');
}

/// Returns true if a name needs no quotes. Colons are allowed in the names of metrics, but not of labels.
fn is_plain(name: &str, colons: bool) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || (colons && b == b':');
    name.bytes().all(fits) && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn put_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for b in text.bytes() {
        match b {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b => out.push(b),
        }
    }
    out.push(b'"');
}

fn put_seconds(out: &mut Vec<u8>, ms: i64) {
    if ms < 0 {
        out.push(b'-');
    }
    let ms = ms.unsigned_abs();
    out.extend_from_slice(itoa::Buffer::new().format(ms / 1000).as_bytes());
    let rest = ms % 1000;
    if rest != 0 {
        out.push(b'.');
        out.extend([100, 10, 1].map(|unit| b'0' + (rest / unit % 10) as u8));
    }
}

#[cfg(test)]
mod tests;
