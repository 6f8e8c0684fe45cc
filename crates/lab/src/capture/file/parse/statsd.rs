//! Lines of statsd, with the tags of DogStatsD and Telegraf. Each value becomes a sample with the time of its arrival, and
//! labels say what kind of value it is.
//!
//! ```text
//!   requests:1|c|@0.1|#code:200     requests{code="200", statsd_rate="0.1", statsd_type="c"} 1
//!   pool:7|g                        pool 7
//!   pool:-2|g                       pool{statsd_type="g+"} -2
//!   latency:12:17|ms                latency{statsd_type="ms"} 12, and 17
//!   users:alice|s                   users{statsd_type="s"}, with a number in place of alice
//! ```
//!
//! The members of a set are replaced by keyed hashes, whose key is known to nobody. Equal members stay equal.

use super::super::request::Parsed;
use super::number;
use crate::generate::driver::statsd::{CHANGE, RATE_LABEL, TYPE_LABEL};
use anyhow::Result;
use std::hash::{BuildHasher, RandomState};

/// Members are replaced by numbers of this many bits, which a double has exactly.
const MEMBER_BITS: u32 = 53;

/// The value of a tag that has none.
const NO_VALUE: &[u8] = b"true";

pub(super) fn parse(piece: &[u8], members: &RandomState, arrival_ms: i64, out: &mut Parsed) -> Result<()> {
    for line in super::lines(piece) {
        match Line::of(line, members) {
            Some(line) => line.put(arrival_ms, out)?,
            None => out.refuse_line(),
        }
    }
    Ok(())
}

struct Line<'a> {
    name: &'a [u8],
    kind: &'a [u8],
    rate: Option<&'a [u8]>,
    /// Tags within the name, and behind `#`.
    tags: Vec<(&'a [u8], &'a [u8])>,
    values: Vec<f64>,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8], members: &RandomState) -> Option<Self> {
        let mut parts = line.split(|byte| *byte == b'|');
        let head = parts.next()?;
        let colon = head.iter().position(|byte| *byte == b':')?;
        let (name, values) = (&head[..colon], &head[colon + 1..]);
        let kind =
            parts.next().filter(|kind| matches!(*kind, b"c" | b"m" | b"g" | b"ms" | b"h" | b"d" | b"s"))?;
        let mut in_name = name.split(|byte| *byte == b',');
        let name = in_name.next().filter(|name| !name.is_empty())?;
        let mut line = Self { name, kind, rate: None, tags: Vec::new(), values: Vec::new() };
        for tag in in_name {
            let equals = tag.iter().position(|byte| *byte == b'=')?;
            line.tags.push((&tag[..equals], &tag[equals + 1..]));
        }
        for part in parts {
            match part {
                [b'@', rate @ ..] => line.rate = Some(rate).filter(|rate| number(rate) != Some(1.0)),
                [b'#', tags @ ..] => {
                    for tag in tags.split(|byte| *byte == b',').filter(|tag| !tag.is_empty()) {
                        let colon = tag.iter().position(|byte| *byte == b':');
                        line.tags.push(colon.map_or((tag, NO_VALUE), |at| (&tag[..at], &tag[at + 1..])));
                    }
                }
                _ => {} // the container, the time, and what later versions may add
            }
        }
        line.read_values(values, members)?;
        Some(line)
    }

    fn read_values(&mut self, values: &[u8], members: &RandomState) -> Option<()> {
        if self.kind == b"s" {
            self.values.push((members.hash_one(values) >> (u64::BITS - MEMBER_BITS)) as f64);
            return Some(());
        }
        for text in values.split(|byte| *byte == b':') {
            let value = number(text).filter(|value| value.is_finite())?;
            let is_change = self.kind == b"g" && matches!(text.first(), Some(b'+' | b'-'));
            if is_change && self.values.is_empty() {
                self.kind = CHANGE.as_bytes();
            }
            // the values of a gauge follow each other, and only the result matters
            match self.values.last_mut().filter(|_| self.kind.starts_with(b"g")) {
                Some(last) if is_change => *last += value,
                Some(last) => {
                    *last = value;
                    self.kind = b"g";
                }
                None => self.values.push(value),
            }
        }
        Some(())
    }

    fn put(&self, arrival_ms: i64, out: &mut Parsed) -> Result<()> {
        let mut labels = Vec::with_capacity(self.tags.len() + 3);
        for (name, value) in &self.tags {
            labels.push(out.put_label(name, if value.is_empty() { NO_VALUE } else { value })?);
        }
        if self.kind != b"g" {
            labels.push(out.put_label(TYPE_LABEL.as_bytes(), self.kind)?);
        }
        if let Some(rate) = self.rate {
            labels.push(out.put_label(RATE_LABEL.as_bytes(), rate)?);
        }
        labels.push(out.put_name(&[self.name])?);
        out.put_series(&labels, self.values.iter().map(|value| (arrival_ms, *value)))
    }
}
