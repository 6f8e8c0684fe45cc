//! Parser of Graphite's lines, independent of the server's decoder.

use model::caps::SERIES_LABELS_MAX;
use model::labels::METRIC_NAME;
use std::ops::Range;

/// A longer line is not a point.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// A line such as `disk.used;host=a 1.5 1795284000`. Byte ranges refer to the text of all lines.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) path: Range<usize>,
    pub(super) tags: Vec<[Range<usize>; 2]>,
    pub(super) timestamp_ms: i64,
    pub(super) value: f64,
}

/// Parses the line in `range` of `text`. `None` if it is not a point with a time of its own. Carbon also accepts the
/// time -1, which means the time of arrival.
pub(super) fn parse(text: &[u8], range: Range<usize>) -> Option<Line> {
    if range.len() > LINE_BYTES_MAX {
        return None;
    }
    let mut words = words(text, range);
    let (path, value, time) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let number = |range: Range<usize>| std::str::from_utf8(&text[range]).ok()?.parse::<f64>().ok();
    let value = number(value).filter(|value| !value.is_nan())?;
    let seconds = number(time).filter(|seconds| (0.0..1e12).contains(seconds))?;
    let mut parts = split(text, path, b';');
    let path = parts.next().filter(|path| !path.is_empty())?;
    let mut tags = Vec::new();
    for part in parts {
        let equals = text[part.clone()].iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let at = part.start + equals;
        tags.push([part.start..at, at + 1..part.end]);
        if tags.len() >= SERIES_LABELS_MAX {
            return None;
        }
    }
    tags.retain(|[name, value]| !value.is_empty() && &text[name.clone()] != METRIC_NAME.as_bytes());
    Some(Line { path, tags, timestamp_ms: (seconds * 1000.0).round() as i64, value })
}

fn words(text: &[u8], range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at + text[at..range.end].iter().position(|byte| !is_space(byte))?;
        at = text[start..range.end].iter().position(is_space).map_or(range.end, |len| start + len);
        Some(start..at)
    })
}

pub(super) fn split(text: &[u8], range: Range<usize>, at: u8) -> impl Iterator<Item = Range<usize>> {
    let mut start = range.start;
    text[range].split(move |byte| *byte == at).map(move |part| {
        let this = start..start + part.len();
        start = this.end + 1;
        this
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_other_lines() {
        let read = |text: &str| {
            let line = parse(text.as_bytes(), 0..text.len())?;
            let of = |range: &Range<usize>| text[range.clone()].to_owned();
            let tags: Vec<String> =
                line.tags.iter().map(|[name, value]| format!("{}={}", of(name), of(value))).collect();
            Some((of(&line.path), tags.join(","), line.timestamp_ms, line.value))
        };
        let point =
            |path: &str, tags: &str, time, value| Some((path.to_owned(), tags.to_owned(), time, value));
        assert_eq!(read("a.b 1.5 10"), point("a.b", "", 10_000, 1.5));
        assert_eq!(read("  a;k=v;l=  -1e3\t10.25 \r"), point("a", "k=v", 10_250, -1000.0));
        for bad in [
            "", "a", "a 1", "a 1 2 3", "a x 2", "a nan 2", "a 1 -1", "a 1 N", ";k=v 1 2", "a;k 1 2",
            "a;=v 1 2",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
