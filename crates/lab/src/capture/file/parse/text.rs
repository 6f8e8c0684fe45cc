//! Prometheus' text and OpenMetrics: `http_requests_total{code="200"} 7 1795284000000`.

use super::super::request::Parsed;
use super::super::sink::Label;
use super::{Extra, lines, number};
use anyhow::Result;
use model::caps::SERIES_LABELS_MAX;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    /// True for OpenMetrics, whose times are in seconds.
    pub(crate) seconds: bool,
    /// Time of lines without a time. `None` for the time of arrival.
    pub(crate) timestamp_ms: Option<i64>,
    /// Labels of all series, which replace those of the lines.
    pub(crate) extra: Vec<Extra>,
}

pub(super) fn parse(piece: &[u8], options: &Options, arrival_ms: i64, out: &mut Parsed) -> Result<()> {
    let usual_ms = options.timestamp_ms.unwrap_or(arrival_ms);
    for line in lines(piece).filter(|line| line[0] != b'#') {
        let Some((head, value, timestamp_ms)) = Head::of(line).and_then(|(head, rest)| {
            let (value, timestamp_ms) = sample(rest, options.seconds)?;
            Some((head, value, timestamp_ms.unwrap_or(usual_ms)))
        }) else {
            out.refuse_line();
            continue;
        };
        let mut labels: Vec<Label> = vec![out.put_name(&[&head.name])?];
        for (name, value) in &head.labels {
            labels.push(out.put_label(name, value)?);
        }
        for (name, value) in &options.extra {
            labels.push(out.put_label(name.as_bytes(), value.as_bytes())?);
        }
        out.put_series(&labels, [(timestamp_ms, value)])?;
    }
    Ok(())
}

/// The value, and the time if there is one.
fn sample(text: &[u8], seconds: bool) -> Option<(f64, Option<i64>)> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let value = number(words.next()?)?;
    // an exemplar begins with a #
    let time = words.next().filter(|word| word[0] != b'#');
    let timestamp_ms = match time {
        None => None,
        Some(time) => {
            let factor = if seconds { 1000.0 } else { 1.0 };
            let ms = (number(time)? * factor).round();
            Some((-1e15..1e15).contains(&ms).then_some(ms as i64)?)
        }
    };
    let is_end = time.is_none() || words.next().is_none_or(|word| word[0] == b'#');
    is_end.then_some((value, timestamp_ms))
}

#[derive(Default)]
struct Head {
    name: Vec<u8>,
    labels: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Head {
    /// Reads the name and the labels, and returns what comes after them.
    fn of(line: &[u8]) -> Option<(Self, &[u8])> {
        let end = line.iter().position(|byte| *byte == b'{' || byte.is_ascii_whitespace())?;
        let (name, rest) = line.split_at(end);
        let mut head = Self { name: name.to_vec(), ..Self::default() };
        let rest = rest.trim_ascii_start();
        let rest = match rest.strip_prefix(b"{") {
            Some(labels) => head.read_labels(labels)?,
            None => rest,
        };
        (!head.name.is_empty()).then_some((head, rest))
    }

    /// Reads labels up to the closing brace.
    fn read_labels<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            rest = rest.trim_ascii_start();
            if let Some(after) = rest.strip_prefix(b"}") {
                return Some(after);
            }
            let name;
            (name, rest) = match rest.strip_prefix(b"\"") {
                Some(quoted) => text(quoted)?,
                None => {
                    let end = rest.iter().position(|byte| *byte == b'=' || byte.is_ascii_whitespace())?;
                    (rest[..end].to_vec(), &rest[end..])
                }
            };
            rest = rest.trim_ascii_start();
            match rest.strip_prefix(b"=") {
                Some(after) => {
                    let value;
                    (value, rest) = text(after.trim_ascii_start().strip_prefix(b"\"")?)?;
                    self.labels.push((name, value));
                }
                // the name of the metric, if it has characters that are unusual
                None if self.name.is_empty() => self.name = name,
                None => return None,
            }
            if self.labels.len() > SERIES_LABELS_MAX {
                return None;
            }
            rest = rest.trim_ascii_start();
            match rest.first()? {
                b',' => rest = &rest[1..],
                b'}' => {}
                _ => return None,
            }
        }
    }
}

/// Reads a text up to its closing quote.
fn text(rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut text, mut at) = (Vec::new(), 0);
    loop {
        match rest.get(at)? {
            b'"' => return Some((text, &rest[at + 1..])),
            b'\\' => {
                at += 1;
                match rest.get(at)? {
                    b'n' => text.push(b'\n'),
                    byte @ (b'"' | b'\\') => text.push(*byte),
                    byte => text.extend([b'\\', *byte]),
                }
            }
            byte => text.push(*byte),
        }
        at += 1;
    }
}
