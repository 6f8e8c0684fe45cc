//! Lexer: text to tokens. The parser passes a [`Place`], because the meaning of some characters depends on
//! it.

use super::{number, quoted};
use stdx::units;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Number,
    Duration,
    Text,
    Word,
    Symbol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind,
    pub(super) text: &'t str,
    pub(super) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Open,
    /// Between `{` and `}`, where names have no colons.
    Braces,
    /// Between `[` and `]`, where a colon is a token.
    Brackets,
}

/// Byte offset and text of an error.
pub(super) type Fault = (usize, String);

impl Token<'_> {
    pub(super) const fn end(&self) -> usize {
        self.at + self.text.len()
    }

    pub(super) fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// True if the token is this word, in upper or lower case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
}

pub(super) fn token(text: &str, from: usize, place: Place) -> Result<Token<'_>, Fault> {
    let at = from + blank(&text[from..]);
    let rest = &text[at..];
    let Some(first) = rest.chars().next() else {
        return Ok(Token { kind: Kind::End, text: "", at });
    };
    let (kind, len) = match first {
        '"' | '\'' | '`' => {
            let (_, len) = quoted::read(rest).map_err(|message| (at, message.to_owned()))?;
            (Kind::Text, len)
        }
        '_' | 'a'..='z' | 'A'..='Z' => (Kind::Word, word(rest, place)),
        ':' if place == Place::Open => (Kind::Word, word(rest, place)),
        '0'..='9' | '.' if place != Place::Braces => number_or_duration(rest).map_err(|m| (at, m))?,
        _ => (Kind::Symbol, symbol(rest, place).ok_or_else(|| (at, strange(rest, place)))?),
    };
    Ok(Token { kind, text: &rest[..len], at })
}

/// Length of the white space and comments at the beginning.
fn blank(text: &str) -> usize {
    let (bytes, mut at) = (text.as_bytes(), 0);
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\t' | b'\r' | b'\n') => at += 1,
            Some(b'#') => at += text[at..].find('\n').unwrap_or(text.len() - at),
            _ => return at,
        }
    }
}

fn word(text: &str, place: Place) -> usize {
    let part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || (*b == b':' && place == Place::Open);
    text.bytes().take_while(part).count()
}

fn number_or_duration(text: &str) -> Result<(Kind, usize), String> {
    let len = number::len(text);
    if number::value(&text[..len]).is_some() {
        Ok((Kind::Number, len))
    } else if units::duration_ms(&text[..len]).is_some() {
        Ok((Kind::Duration, len))
    } else {
        Err(format!("bad number or duration syntax: {:?}", &text[..len]))
    }
}

fn symbol(text: &str, place: Place) -> Option<usize> {
    let two = |symbols: &[&str]| symbols.iter().any(|s| text.starts_with(s)).then_some(2);
    let one = |symbols: &str| text.starts_with(|c| symbols.contains(c)).then_some(1);
    match place {
        Place::Braces => two(&["!=", "=~", "!~"]).or_else(|| one("=,}")),
        Place::Brackets => one(":]+-*/%^(),"),
        Place::Open if text.starts_with("=~") => None,
        Place::Open => two(&["==", "!=", ">=", "<="]).or_else(|| one("+-*/%^=<>(){}[],@")),
    }
}

fn strange(text: &str, place: Place) -> String {
    let mut chars = text.chars();
    let (first, second) = (chars.next().unwrap_or_default(), chars.next());
    match (place, first, second) {
        (Place::Open, '!' | '=', Some(next)) => format!("unexpected character after {first:?}: {next:?}"),
        (Place::Braces, '!', Some(next)) => format!("unexpected character after '!' inside braces: {next:?}"),
        (Place::Braces, '{', _) => "unexpected left brace '{'".into(),
        (Place::Braces, ..) => format!("unexpected character inside braces: {first:?}"),
        (Place::Brackets, ..) => format!("unexpected character in duration expression: {first:?}"),
        (Place::Open, ..) => format!("unexpected character: {first:?}"),
    }
}
