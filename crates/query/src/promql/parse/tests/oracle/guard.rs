//! Checks and rewrites input for the parser crate. The crate recurses without a limit and converts some
//! numbers unchecked, so the guard limits nesting and checks numbers. The crate's strings and regular
//! expressions differ from Go's, so the guard replaces each string by an index.

use crate::matcher::MatchOp;
use crate::promql::parse::{DURATION_MS_MAX, number, quoted};
use crate::promql::{EXPR_BYTES_MAX, EXPR_DEPTH_MAX, QueryError};
use stdx::units;

const OPERATOR_WORDS: [&str; 4] = ["and", "or", "unless", "atan2"];

/// A parse error in Prometheus' form, without a position.
pub(super) fn error(text: &str, message: &str) -> QueryError {
    if text.trim().is_empty() || message.contains("no expression found") {
        return QueryError::Parse("unknown position: parse error: no expression found in input".into());
    }
    QueryError::Parse(format!("parse error: {message}"))
}

fn error_at(text: &str, at: usize, message: impl std::fmt::Display) -> QueryError {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    QueryError::Parse(format!("{line}:{column}: parse error: {message}"))
}

struct Level {
    close: u8,
    at: usize,
    operators: usize,
    deepest: usize,
}

impl Level {
    const fn new(close: u8, at: usize) -> Self {
        Self { close, at, operators: 0, deepest: 0 }
    }

    const fn depth(&self) -> usize {
        self.operators + self.deepest + 1
    }
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    /// The text before the offset `copied`, with its strings replaced.
    out: Checked,
    copied: usize,
    levels: Vec<Level>,
    /// True if the last word was `offset`, followed by a sign at most.
    after_offset: bool,
    op: MatchOp,
}

/// An expression that is safe for the parser crate.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The expression for the parser crate. Each string is replaced by its index in `strings`, in quotes, and
    /// each matcher's operator by `=`.
    pub(super) text: String,
    /// The strings of the expression, each with the operator of its matcher, or [`MatchOp::Equal`] outside of
    /// matchers.
    pub(super) strings: Vec<(MatchOp, String)>,
}

pub(super) fn check(text: &str) -> Result<Checked, QueryError> {
    if text.len() > EXPR_BYTES_MAX {
        return Err(QueryError::Parse(format!(
            "expression has {} bytes, the limit is {EXPR_BYTES_MAX}",
            text.len()
        )));
    }
    let mut scan = Scan {
        text,
        at: 0,
        out: Checked::default(),
        copied: 0,
        levels: vec![Level::new(0, 0)],
        after_offset: false,
        op: MatchOp::Equal,
    };
    while scan.at < text.len() {
        scan.token()?;
    }
    let open = scan.levels.last().expect("BUG: the outermost level was removed");
    match open.close {
        0 => {
            scan.close()?;
            scan.out.text.push_str(&text[scan.copied..]);
            Ok(scan.out)
        }
        b')' => Err(error_at(text, text.len(), "unclosed left parenthesis")),
        b'}' => Err(error_at(text, text.len(), "unexpected end of input inside braces")),
        _ => Err(error_at(text, open.at, "unclosed left bracket")),
    }
}

impl Scan<'_> {
    fn token(&mut self) -> Result<(), QueryError> {
        let bytes = self.text.as_bytes();
        let (start, byte) = (self.at, bytes[self.at]);
        let was_offset = std::mem::take(&mut self.after_offset);
        self.at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => self.after_offset = was_offset,
            b'#' => self.skip_while(|b| b != b'\n'),
            b'"' | b'\'' | b'`' => self.string()?,
            b'(' => self.open(b')')?,
            b'{' => self.open(b'}')?,
            b'[' => self.brackets()?,
            b')' | b'}' => self.close_with(byte)?,
            b'+' | b'-' => {
                self.after_offset = was_offset;
                self.operator()?;
            }
            b'=' | b'!' if self.in_braces() => self.match_op(start),
            b'*' | b'/' | b'%' | b'^' | b'=' | b'!' | b'<' | b'>' => self.operator()?,
            b'0'..=b'9' | b'.' => {
                self.at = start + number::len(&self.text[start..]);
                if was_offset {
                    self.duration(start, self.at)?;
                } else if let Some(value) = number::value(&self.text[start..self.at]) {
                    let plain = value == 0.0 || (1e-9..1e15).contains(&value);
                    self.replace(start, &if plain { value.to_string() } else { format!("{value:e}") });
                }
            }
            _ if is_word(byte) => {
                self.skip_while(is_word);
                let word = self.text[start..self.at].to_ascii_lowercase();
                if was_offset {
                    self.duration(start, self.at)?;
                }
                self.after_offset = word == "offset";
                if OPERATOR_WORDS.contains(&word.as_str()) {
                    self.operator()?;
                }
            }
            _ => self.skip_while(|b| b >= 0x80),
        }
        Ok(())
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        while self.text.as_bytes().get(self.at).is_some_and(|b| skip(*b)) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<(), QueryError> {
        let start = self.at - 1;
        let (value, len) = match quoted::read(&self.text[start..]) {
            Ok(read) => read,
            Err(message) => return Err(error_at(self.text, start, message)),
        };
        self.at = start + len;
        self.replace(start, &format!("\"{}\"", self.out.strings.len()));
        self.out.strings.push((std::mem::replace(&mut self.op, MatchOp::Equal), value));
        Ok(())
    }

    fn replace(&mut self, start: usize, with: &str) {
        self.out.text.push_str(&self.text[self.copied..start]);
        self.out.text.push_str(with);
        self.copied = self.at;
    }

    fn in_braces(&self) -> bool {
        self.levels.last().is_some_and(|level| level.close == b'}')
    }

    /// Remembers the operator of a matcher, to store it with the string that follows.
    fn match_op(&mut self, start: usize) {
        let op = match &self.text.as_bytes()[start..] {
            [b'=', b'~', ..] => MatchOp::Regex,
            [b'!', b'~', ..] => MatchOp::NotRegex,
            [b'!', b'=', ..] => MatchOp::NotEqual,
            _ => return,
        };
        self.op = op;
        self.at = start + 2;
        self.replace(start, "=");
    }

    fn open(&mut self, close: u8) -> Result<(), QueryError> {
        if self.levels.len() >= EXPR_DEPTH_MAX {
            return Err(self.too_deep());
        }
        self.levels.push(Level::new(close, self.at - 1));
        Ok(())
    }

    fn close_with(&mut self, byte: u8) -> Result<(), QueryError> {
        let open = self.levels.last().expect("BUG: the outermost level was removed");
        if open.close == byte {
            let depth = self.close()?;
            let level = self.levels.last_mut().expect("BUG: the outermost level was removed");
            level.deepest = level.deepest.max(depth);
            return Ok(());
        }
        let message =
            if byte == b')' { "unexpected right parenthesis ')'" } else { "unexpected right brace '}'" };
        Err(error_at(self.text, self.at - 1, message))
    }

    fn close(&mut self) -> Result<usize, QueryError> {
        let depth = self.levels.pop().expect("BUG: no level is open").depth();
        if depth > EXPR_DEPTH_MAX { Err(self.too_deep()) } else { Ok(depth) }
    }

    fn operator(&mut self) -> Result<(), QueryError> {
        let level = self.levels.last_mut().expect("BUG: the outermost level was removed");
        // matchers in braces are not levels of the tree
        level.operators += usize::from(level.close != b'}');
        if level.operators > EXPR_DEPTH_MAX { Err(self.too_deep()) } else { Ok(()) }
    }

    /// Checks `[range]` or `[range:step]`.
    fn brackets(&mut self) -> Result<(), QueryError> {
        let start = self.at;
        let Some(len) = self.text[start..].find(']') else {
            return Err(error_at(self.text, start - 1, "unclosed left bracket"));
        };
        self.at = start + len + 1;
        let mut part_at = start;
        for part in self.text[start..start + len].split(':') {
            let trimmed = part.trim();
            if !trimmed.is_empty() {
                let from = part_at + (part.len() - part.trim_start().len());
                self.duration(from, from + trimmed.len())?;
            }
            part_at += part.len() + 1;
        }
        self.operator()
    }

    /// Checks a duration literal, or a number of seconds.
    fn duration(&self, from: usize, to: usize) -> Result<(), QueryError> {
        let text = &self.text[from..to];
        match duration_ms(text) {
            Some(ms) if ms <= DURATION_MS_MAX => Ok(()),
            Some(_) => Err(error_at(self.text, from, "duration out of range")),
            None => Err(error_at(self.text, from, format_args!("bad number or duration syntax: {text:?}"))),
        }
    }

    fn too_deep(&self) -> QueryError {
        error_at(
            self.text,
            self.at.saturating_sub(1),
            format_args!("expression nests deeper than {EXPR_DEPTH_MAX} levels"),
        )
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

/// Milliseconds of `1h30m`, `5`, `0.5` or `0x1f`; `None` if it is no positive duration.
fn duration_ms(text: &str) -> Option<i64> {
    if let Some(seconds) = number::value(text).filter(|s| s.is_finite()) {
        let ms = seconds * 1000.0;
        return (seconds > 0.0).then_some(if ms < DURATION_MS_MAX as f64 { ms as i64 } else { i64::MAX });
    }
    units::duration_ms(text).filter(|ms| *ms > 0)
}
