//! Influx' lines: `cpu,host=web1 usage_user=1.5,usage_idle=98i 1795284000000000000`. Each field is a series, whose name is
//! that of the measurement and that of the field, joined by `_`.

use super::super::request::Parsed;
use super::{integer, lines, number};
use anyhow::Result;
use std::borrow::Cow;

const NS_PER_MS: i128 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Value of the label `db` of lines without such a tag.
    pub(crate) db: Option<String>,
    /// Length of a unit of the timestamps.
    pub(crate) unit_ns: i64,
}

impl Options {
    /// `None` for an unknown precision.
    pub(crate) fn of(precision: Option<&str>, db: Option<String>) -> Option<Self> {
        let unit_ns = match precision.unwrap_or("ns") {
            "n" | "ns" => 1,
            "u" | "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        Some(Self { db: db.filter(|db| !db.is_empty()), unit_ns })
    }
}

pub(super) fn parse(piece: &[u8], options: &Options, arrival_ms: i64, out: &mut Parsed) -> Result<()> {
    for line in lines(piece).filter(|line| line[0] != b'#') {
        match Line::of(line, options, arrival_ms) {
            Some(line) => line.put(options, out)?,
            None => out.refuse_line(),
        }
    }
    Ok(())
}

/// Text without its escapes.
type Plain<'a> = Cow<'a, [u8]>;

struct Line<'a> {
    measurement: Plain<'a>,
    tags: Vec<(Plain<'a>, Plain<'a>)>,
    fields: Vec<(Plain<'a>, f64)>,
    /// Fields whose values are not numbers.
    refused: usize,
    timestamp_ms: i64,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8], options: &Options, arrival_ms: i64) -> Option<Self> {
        let (head, rest) = split_once(line, b' ', false)?;
        let rest = rest.trim_ascii_start();
        let (fields, time) = split_once(rest, b' ', true).unwrap_or((rest, b""));
        let timestamp_ms = match time.trim_ascii() {
            b"" => arrival_ms,
            time => {
                let ns = i128::from(integer(time)?) * i128::from(options.unit_ns);
                i64::try_from(ns.div_euclid(NS_PER_MS)).ok()?
            }
        };
        let mut parts = split(head, b',', false);
        let measurement = plain(parts.next().filter(|name| !name.is_empty())?);
        let mut tags = Vec::new();
        for tag in parts {
            let (key, value) = split_once(tag, b'=', false)?;
            if key.is_empty() {
                return None;
            }
            tags.push((plain(key), plain(value)));
        }
        let mut line = Self { measurement, tags, fields: Vec::new(), refused: 0, timestamp_ms };
        for field in split(fields, b',', true) {
            let (key, text) = split_once(field, b'=', false)?;
            match value(text).filter(|_| !key.is_empty()) {
                Some(value) => line.fields.push((plain(key), value)),
                None => line.refused += 1,
            }
        }
        Some(line)
    }

    fn put(&self, options: &Options, out: &mut Parsed) -> Result<()> {
        (0..self.refused).for_each(|_| out.refuse_line());
        let mut labels = Vec::with_capacity(self.tags.len() + 2);
        // a tag of this name comes later, and so replaces it
        if let Some(db) = &options.db {
            labels.push(out.put_label(b"db", db.as_bytes())?);
        }
        for (key, value) in &self.tags {
            labels.push(out.put_label(key, value)?);
        }
        for (key, value) in &self.fields {
            labels.push(out.put_name(&[&self.measurement, b"_", key])?);
            out.put_series(&labels, [(self.timestamp_ms, *value)])?;
            labels.pop();
        }
        Ok(())
    }
}

/// The value of a field, or `None` for a string and for what is no number.
fn value(text: &[u8]) -> Option<f64> {
    match text {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => return Some(1.0),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => return Some(0.0),
        _ => {}
    }
    if let Some(whole) = text.strip_suffix(b"i") {
        return Some(integer(whole)? as f64);
    }
    if let Some(whole) = text.strip_suffix(b"u") {
        return Some(std::str::from_utf8(whole).ok()?.parse::<u64>().ok()? as f64);
    }
    number(text).filter(|value| value.is_finite())
}

/// Splits at the first `at` that is not escaped, and with `quoted` not within quotes either.
fn split_once(text: &[u8], at: u8, quoted: bool) -> Option<(&[u8], &[u8])> {
    let (mut escaped, mut within) = (false, false);
    for (index, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if quoted => within = !within,
            byte if *byte == at && !within => return Some((&text[..index], &text[index + 1..])),
            _ => {}
        }
    }
    None
}

fn split(text: &[u8], at: u8, quoted: bool) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (part, after) = match split_once(text, at, quoted) {
            Some((part, after)) => (part, Some(after)),
            None => (text, None),
        };
        rest = after;
        Some(part)
    })
}

/// Removes the backslashes before blanks, commas, equals signs and backslashes.
fn plain(text: &[u8]) -> Plain<'_> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((byte, after)) = rest.split_first() {
        match after.first() {
            Some(escaped @ (b' ' | b',' | b'=' | b'\\')) if *byte == b'\\' => {
                plain.push(*escaped);
                rest = &after[1..];
            }
            _ => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}
