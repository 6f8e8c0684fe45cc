//! Reads lines of text.
//!
//! Lines of the common form, `path value time` with a short decimal and a whole number of seconds, take a
//! fast path ([`common_line`]). All others take the slow path ([`Lines::line`]), which gives the same result.

use super::LINE_BYTES_MAX;
use super::number::{short_seconds, time_of, value_of};
use super::points::{Fault, Points, fault};
use crate::DecodeError;
use crate::decimal::short_decimal;
use model::SeriesRefusal;

pub(super) struct Lines<'a, 'p> {
    pub(super) points: Points<'a, 'p>,
}

impl Lines<'_, '_> {
    pub(super) fn read(&mut self, text: &[u8]) -> Result<(), DecodeError> {
        let (mut rest, mut number) = (text, 0);
        while !rest.is_empty() {
            number += 1;
            let (line, added) = match common_line(rest) {
                Some((CommonLine { path, value, seconds }, length)) => {
                    let line = &rest[..length];
                    rest = &rest[length..];
                    self.points.check_count("lines")?;
                    (line, self.points.add(path, seconds * 1000, value))
                }
                None => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let line = rest[..end.unwrap_or(rest.len())].trim_ascii();
                    rest = end.map_or(&[], |end| &rest[end + 1..]);
                    if line.is_empty() {
                        continue;
                    }
                    self.points.check_count("lines")?;
                    (line, self.line(line))
                }
            };
            match added {
                Ok(()) => {}
                Err(Fault::Memory(full)) => return Err(full.into()),
                Err(Fault::Point(what)) => {
                    let what = self.points.with_excerpt(what, line.trim_ascii());
                    self.points.batch.refuse(SeriesRefusal::Line { number, what }, 0..0, 1);
                }
            }
        }
        Ok(())
    }

    /// `line` must not be empty, and must have no white space at its ends.
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Fault::Point(format!("{} bytes, the limit is {LINE_BYTES_MAX}", line.len())));
        }
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let path = words.next().unwrap_or_default();
        let value = words.next().ok_or_else(|| Fault::Point("no value".into()))?;
        let value = value_of(value).ok_or_else(|| fault("value", value, "is not a number"))?;
        let time = words.next().ok_or_else(|| Fault::Point("no time".into()))?;
        let timestamp_ms = time_of(time).ok_or_else(|| fault("time", time, "is not a number of seconds"))?;
        if let Some(word) = words.next() {
            return Err(fault("unexpected text", word, "after the time"));
        }
        let timestamp_ms = self.points.time_ms(timestamp_ms);
        self.points.add(path, timestamp_ms, value)
    }
}

#[derive(Debug, PartialEq)]
struct CommonLine<'a> {
    path: &'a [u8],
    value: f64,
    seconds: i64,
}

/// Reads the first line of `text`, and returns it with its length. `None` if the line is not of the common
/// form.
#[inline]
fn common_line(text: &[u8]) -> Option<(CommonLine<'_>, usize)> {
    let path = &text[..word_end(text)];
    if path.is_empty() || path.len() > SHORT_PATH_BYTES_MAX {
        return None;
    }
    let mut at = after_blanks(text, path.len())?;
    let (value, length) = short_decimal(&text[at..])?;
    at = after_blanks(text, at + length)?;
    let (seconds, length) = short_seconds(&text[at..])?;
    at += length;
    at += usize::from(text.get(at) == Some(&b'\r'));
    match text.get(at) {
        Some(b'\n') => Some((CommonLine { path, value, seconds }, at + 1)),
        Some(_) => None,
        None => Some((CommonLine { path, value, seconds }, at)),
    }
}

/// A line with a path of this length can be longer than [`LINE_BYTES_MAX`] only because of blanks.
const SHORT_PATH_BYTES_MAX: usize = 1 << 14;

/// Limit on the blanks between words of a line of the common form.
const BLANKS_MAX: usize = 16;

/// Returns where the word after the blanks at `at` begins. `None` if there are no blanks, or too many.
#[inline(always)]
fn after_blanks(text: &[u8], at: usize) -> Option<usize> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    if !text.get(at).is_some_and(is_blank) {
        return None;
    }
    // usually, there is only one
    let more = text[at + 1..].iter().take(BLANKS_MAX).take_while(|byte| is_blank(byte)).count();
    (more < BLANKS_MAX).then_some(at + 1 + more)
}

/// Returns where the first byte is that may end a word: a control character or a blank. Eight bytes are compared at a
/// time.
#[inline(always)]
fn word_end(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(eight) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let eight = u64::from_le_bytes(*eight);
        // sets the high bit of each byte that is at most a blank. Above the first such byte, a bit may be wrong
        let small = eight.wrapping_sub(ONES * 0x21) & !eight & HIGH;
        if small != 0 {
            return at + small.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    text[at..].iter().position(|byte| *byte <= b' ').map_or(text.len(), |end| at + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn words_end_at_blanks_and_control_characters() {
        let mut rng = Rng::announced();
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.below(40))
                .map(|_| if rng.below(10) == 0 { rng.below(0x24) as u8 } else { rng.next_u64() as u8 })
                .collect();
            let expected = bytes.iter().position(|byte| *byte <= b' ').unwrap_or(bytes.len());
            assert_eq!(word_end(&bytes), expected, "{bytes:?}");
        }
    }

    /// A line is read in the same way whether or not it has the common form.
    #[test]
    fn usual_lines_are_read_like_all_others() {
        let mut rng = Rng::announced();
        let paths = ["a", "b.c", "b.c;t=1", ";", "é=", "", "a.rather.long.name"];
        let numbers = ["1", "1795284000", "-2", "0.5", ".", "1e3", "-.25", "17952840001795284000", "x"];
        let blanks = [" ", " ", " ", "\t", "  ", "", " \r"];
        let ends = ["", "\n", "\r\n", "\nb 2 2\n", " \n", " 7\n", "\r"];
        let mut found = 0;
        for _ in 0..300_000 {
            let mut any = |of: &[&'static str]| of[rng.below(of.len() as u64) as usize];
            let words = [any(&paths), any(&blanks), any(&numbers), any(&blanks), any(&numbers), any(&ends)];
            let text = words.concat();
            let Some((CommonLine { path, value, seconds }, length)) = common_line(text.as_bytes()) else {
                continue;
            };
            found += 1;
            let line = text[..length].trim_ascii();
            assert_eq!(text[..length].trim_end_matches('\n'), text.split('\n').next().unwrap(), "{text:?}");
            let words: Vec<_> = line.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
            assert_eq!(words.len(), 3, "{text:?}");
            assert_eq!(words[0].as_bytes(), path, "{text:?}");
            assert_eq!(value_of(words[1].as_bytes()).map(f64::to_bits), Some(value.to_bits()), "{text:?}");
            assert_eq!(time_of(words[2].as_bytes()), Some(seconds * 1000), "{text:?}");
        }
        assert!(found > 1000, "only {found} lines were of the common form");
    }
}
