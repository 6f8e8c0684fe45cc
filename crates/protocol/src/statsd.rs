//! Reads the lines of statsd, with the tags of DogStatsD and Telegraf.
//!
//! ```text
//!   requests:1|c|@0.1|#code:200,host:web1      counter, of which one in ten was sent
//!   pool.size:-2|g                             gauge, changed by -2
//!   latency,host=web1:12:17|ms                 two values of a timer
//!   users:alice|s                              member of a set
//! ```
//!
//! Sources: <https://github.com/statsd/statsd/blob/master/docs/metric_types.md> and
//! <https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/>.

use crate::decimal::{float, short_decimal};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, SeriesRefusal};

/// Limit on the bytes of a line.
pub const LINE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Counter,
    Gauge,
    /// Timers, histograms and distributions, which are the same.
    Timer,
    Set,
}

/// One value of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Number(f64),
    /// A gauge is changed by this.
    Change(f64),
    Member(&'a [u8]),
}

/// A line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line<'a> {
    /// The name, which may have tags after commas.
    pub name: &'a [u8],
    pub kind: Kind,
    /// The values, between colons.
    values: &'a [u8],
    /// How many events each value stands for: one divided by the sample rate. It is finite.
    pub weight: f64,
    /// Tags after `#`.
    pub tags: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("no name")]
    NoName,
    #[error("no value")]
    NoValue,
    #[error("no type after |")]
    NoKind,
    #[error("the type is not c, g, ms, h, d or s")]
    Kind,
    #[error("a value is not a finite number")]
    Value,
    #[error("the sample rate is not above 0 and at most 1, or too small")]
    Rate,
    #[error("the line is too long")]
    TooLong,
    /// Events and service checks of DogStatsD.
    #[error("events and service checks are not supported")]
    Unsupported,
}

impl<'a> Line<'a> {
    /// Parses a line without its line break.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(LineError::TooLong);
        }
        if line.starts_with(b"_e{") || line.starts_with(b"_sc|") {
            return Err(LineError::Unsupported);
        }
        let mut parts = line.split(|byte| *byte == b'|');
        let head = parts.next().unwrap_or_default();
        let colon = head.iter().position(|byte| *byte == b':').ok_or(LineError::NoValue)?;
        let (name, values) = (&head[..colon], &head[colon + 1..]);
        if name.is_empty() || name.starts_with(b",") {
            return Err(LineError::NoName);
        }
        let kind = match parts.next().ok_or(LineError::NoKind)? {
            b"c" | b"m" => Kind::Counter,
            b"g" => Kind::Gauge,
            b"ms" | b"h" | b"d" => Kind::Timer,
            b"s" => Kind::Set,
            _ => return Err(LineError::Kind),
        };
        let mut parsed = Self { name, kind, values, weight: 1.0, tags: b"" };
        for part in parts {
            match part {
                [b'@', rate @ ..] => {
                    let rate = float(rate).filter(|rate| *rate > 0.0 && *rate <= 1.0);
                    // the inverse of a subnormal rate may be infinite, which makes NaN of the value 0
                    let weight = rate.map(|rate| 1.0 / rate).filter(|weight| weight.is_finite());
                    parsed.weight = weight.ok_or(LineError::Rate)?;
                }
                [b'#', tags @ ..] => parsed.tags = tags,
                _ => {} // the container, the time, and what later versions may add
            }
        }
        // all values are checked before the first one counts
        if values.is_empty() {
            return Err(LineError::NoValue);
        }
        if kind != Kind::Set && parsed.parts().any(|part| parsed.value(part).is_none()) {
            return Err(LineError::Value);
        }
        Ok(parsed)
    }

    pub fn values(&self) -> impl Iterator<Item = Value<'a>> {
        self.parts().map(|part| self.value(part).expect("BUG: the values were checked"))
    }

    fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // a member of a set may have colons
        let separator = if self.kind == Kind::Set { b'\n' } else { b':' };
        self.values.split(move |byte| *byte == separator)
    }

    fn value(&self, part: &'a [u8]) -> Option<Value<'a>> {
        if self.kind == Kind::Set {
            return Some(Value::Member(part));
        }
        let number = match short_decimal(part) {
            Some((number, length)) if length == part.len() => number,
            _ => {
                let digits = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                float(part).filter(|number| number.is_finite() && part.iter().all(digits))?
            }
        };
        let is_change = self.kind == Kind::Gauge && matches!(part.first(), Some(b'+' | b'-'));
        Some(if is_change { Value::Change(number) } else { Value::Number(number) })
    }

    /// Returns the labels of the line, with its name. A tag without a value has the value `true`, since a label cannot be
    /// empty.
    pub fn labels(&self, builder: &mut LabelsBuilder) -> Result<Labels, SeriesRefusal> {
        builder.clear();
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| SeriesRefusal::NotUtf8);
        let mut in_name = text(self.name)?.split(',');
        builder.push(METRIC_NAME, in_name.next().unwrap_or_default());
        for tag in in_name.filter(|tag| !tag.is_empty()) {
            let (name, value) = tag.split_once('=').ok_or_else(|| SeriesRefusal::Tag(shown(tag)))?;
            builder.push(name, value);
        }
        for tag in text(self.tags)?.split(',').filter(|tag| !tag.is_empty()) {
            let (name, value) = tag.split_once(':').unwrap_or((tag, "true"));
            builder.push(name, value);
        }
        builder.build_series()
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (String, Kind, Vec<Value<'_>>, f64) {
        let line = Line::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let labels = line.labels(&mut LabelsBuilder::new()).unwrap().to_string();
        (labels, line.kind, line.values().collect(), line.weight)
    }

    #[test]
    fn lines_of_all_dialects() {
        use Value::{Change, Member, Number};
        let check = |line: &'static str, labels: &str, kind, values: &[Value<'_>], weight| {
            assert_eq!(parse(line), (labels.to_owned(), kind, values.to_vec(), weight), "{line:?}");
        };
        check("a.b:1|c", "a.b{}", Kind::Counter, &[Number(1.0)], 1.0);
        check("a:-2.5|c|@0.5", "a{}", Kind::Counter, &[Number(-2.5)], 2.0);
        check("a:1e3|m", "a{}", Kind::Counter, &[Number(1000.0)], 1.0);
        check("a:3|g", "a{}", Kind::Gauge, &[Number(3.0)], 1.0);
        check("a:+3|g", "a{}", Kind::Gauge, &[Change(3.0)], 1.0);
        check("a:-3|g", "a{}", Kind::Gauge, &[Change(-3.0)], 1.0);
        check("a:1:2.5:3|ms", "a{}", Kind::Timer, &[Number(1.0), Number(2.5), Number(3.0)], 1.0);
        check("a:1|h|#x:y,flag,z:a:b", r#"a{flag="true", x="y", z="a:b"}"#, Kind::Timer, &[Number(1.0)], 1.0);
        check("a,x=y,z=w:1|d|#q:r", r#"a{q="r", x="y", z="w"}"#, Kind::Timer, &[Number(1.0)], 1.0);
        check("a:u:1|s", "a{}", Kind::Set, &[Member(b"u:1")], 1.0);
        check("a:1|c|#x:y|c:abc|T1656581400", r#"a{x="y"}"#, Kind::Counter, &[Number(1.0)], 1.0);
        check("a:1|c|#|@1", "a{}", Kind::Counter, &[Number(1.0)], 1.0);
        check("a:1|c|@1e-300", "a{}", Kind::Counter, &[Number(1.0)], 1.0 / 1e-300);
    }

    #[test]
    fn lines_that_cannot_be_read() {
        let check =
            |line: &str, expected| assert_eq!(Line::parse(line.as_bytes()), Err(expected), "{line:?}");
        check("", LineError::NoValue);
        check("a", LineError::NoValue);
        check("a|c", LineError::NoValue);
        check(":1|c", LineError::NoName);
        check(",x=y:1|c", LineError::NoName);
        check("a:1", LineError::NoKind);
        check("a:1|", LineError::Kind);
        check("a:1|x", LineError::Kind);
        check("a:|c", LineError::NoValue);
        check("a:one|c", LineError::Value);
        check("a:nan|g", LineError::Value);
        check("a:inf|g", LineError::Value);
        check("a:1e999|g", LineError::Value);
        check("a:1::2|ms", LineError::Value);
        for rate in ["0", "-1", "1.1", "x", "nan", "", "5e-324", "1e-309"] {
            check(&format!("a:1|c|@{rate}"), LineError::Rate);
        }
        check("_e{1,1}:a|b", LineError::Unsupported);
        check("_sc|a|0", LineError::Unsupported);
        check(&"a".repeat(LINE_BYTES_MAX + 1), LineError::TooLong);
        let labels = |line: &[u8]| Line::parse(line).unwrap().labels(&mut LabelsBuilder::new());
        assert_eq!(labels(b"a\xff:1|c"), Err(SeriesRefusal::NotUtf8));
        assert_eq!(labels(b"a,x:1|c"), Err(SeriesRefusal::Tag("x".into())));
        assert_eq!(labels(b"a:1|c|#x:1,x:2"), Err(SeriesRefusal::DuplicateLabel("x".into())));
    }
}
