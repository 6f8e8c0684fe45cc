//! One part of a pattern, between two dots.
//!
//! Alternatives in braces are written out first, as graphite-web does; each is then a wildcard as in a shell: `*`, `?`,
//! `[a-z]`, `[!a-z]`. A bracket or brace without its counterpart stands for itself.

use crate::pattern::PatternError;
use crate::steps::{Steps, Stopped};
use std::collections::BTreeSet;

/// Limit on the alternatives of all parts of a pattern. Nodes are compared with each of them.
const ALTERNATIVES_MAX: usize = 10_000;

/// Limit on the text of all alternatives.
const ALTERNATIVES_BYTES_MAX: usize = 512 << 10;

/// Upper bounds on the memory of an alternative while it is parsed and afterwards: for each one, and for each byte of its text. A
/// class of one character (`[a]`) takes most: a token of 16 bytes, and two allocations.
const ALTERNATIVE_BYTES: usize = 256;
const WILDCARD_FACTOR: usize = 40;
const TEXT_FACTOR: usize = 4;

/// How many more alternatives, bytes of them, and bytes of memory a pattern may have.
#[derive(Debug)]
pub(crate) struct Room {
    alternatives: usize,
    bytes: usize,
    memory_bytes: usize,
    memory_bytes_max: usize,
}

impl Room {
    pub(crate) const fn within(memory_bytes_max: usize) -> Self {
        Self {
            alternatives: ALTERNATIVES_MAX,
            bytes: ALTERNATIVES_BYTES_MAX,
            memory_bytes: memory_bytes_max,
            memory_bytes_max,
        }
    }

    /// Must be called before a text is parsed.
    fn take_memory(&mut self, text: &str) -> Result<(), PatternError> {
        let factor = if text.contains(['*', '?', '[']) { WILDCARD_FACTOR } else { TEXT_FACTOR };
        let room = self.memory_bytes.checked_sub(ALTERNATIVE_BYTES + factor * text.len());
        self.memory_bytes = room.ok_or(PatternError::Memory { bytes_max: self.memory_bytes_max })?;
        Ok(())
    }

    fn take(&mut self, text: &str) -> Result<(), PatternError> {
        let room = self.alternatives.checked_sub(1).zip(self.bytes.checked_sub(text.len()));
        (self.alternatives, self.bytes) = room.ok_or(PatternError::Alternatives { max: ALTERNATIVES_MAX })?;
        self.take_memory(text)
    }
}

#[derive(Debug)]
pub(crate) struct Glob {
    prefixes: Vec<Prefix>,
    /// Alternatives without wildcards, sorted.
    texts: Vec<String>,
    wildcards: Vec<Wildcard>,
}

/// Text with which matching nodes begin, to seek to. The prefixes of a glob are sorted, and no node belongs to two of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix {
    pub(crate) text: Vec<u8>,
    /// True if only the node with exactly this text matches. Otherwise, any node that begins with it may match.
    pub(crate) is_exact: bool,
}

impl Prefix {
    /// Every node may match.
    pub(crate) const ANYWHERE: &'static [Self] = &[Self { text: Vec::new(), is_exact: false }];
}

impl Glob {
    pub(crate) fn parse(text: &str, room: &mut Room) -> Result<Self, PatternError> {
        let (mut all, mut texts, mut wildcards) = (Vec::new(), Vec::new(), Vec::new());
        for alternative in alternatives(text, room)? {
            let wildcard = Wildcard::parse(&alternative);
            let prefix = wildcard.prefix();
            match prefix.is_exact {
                true => texts.push(alternative),
                false => wildcards.push(wildcard),
            }
            all.push(prefix);
        }
        all.sort();
        let mut prefixes: Vec<Prefix> = Vec::new();
        for prefix in all {
            // sorted, so a prefix that covers others comes before them
            let is_covered = |by: &Prefix| by == &prefix || !by.is_exact && prefix.text.starts_with(&by.text);
            if !prefixes.last().is_some_and(is_covered) {
                prefixes.push(prefix);
            }
        }
        Ok(Self { prefixes, texts, wildcards })
    }

    /// Matches only this text.
    pub(crate) fn of_text(text: &str) -> Self {
        let prefix = Prefix { text: text.into(), is_exact: true };
        Self { prefixes: vec![prefix], texts: vec![text.to_owned()], wildcards: Vec::new() }
    }

    pub(crate) fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    pub(crate) fn matches(&self, text: &str, steps: &mut Steps<'_>) -> Result<bool, Stopped> {
        steps.take(1)?;
        if self.texts.binary_search_by(|listed| listed.as_str().cmp(text)).is_ok() {
            return Ok(true);
        }
        for wildcard in &self.wildcards {
            if wildcard.matches(text, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Writes out the alternatives in braces: `a{b,c}` is `ab` or `ac`. Inner braces come first.
fn alternatives(text: &str, room: &mut Room) -> Result<BTreeSet<String>, PatternError> {
    room.take_memory(text)?;
    let (mut written, mut waiting) = (BTreeSet::new(), vec![text.to_owned()]);
    while let Some(text) = waiting.pop() {
        let Some((open, close)) = innermost(&text) else {
            written.insert(text);
            continue;
        };
        for inner in text[open + 1..close].split(',') {
            let one = [&text[..open], inner, &text[close + 1..]].concat();
            room.take(&one)?;
            waiting.push(one);
        }
    }
    Ok(written)
}

/// Positions of the first pair of braces without braces between them.
fn innermost(text: &str) -> Option<(usize, usize)> {
    let mut open = None;
    for (at, byte) in text.bytes().enumerate() {
        match (byte, open) {
            (b'{', _) => open = Some(at),
            (b'}', Some(open)) => return Some((open, at)),
            _ => {}
        }
    }
    None
}

#[derive(Debug)]
struct Wildcard(Vec<Token>);

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
    Star,
    Class(Box<Class>),
}

#[derive(Debug, PartialEq, Eq)]
struct Class {
    is_negated: bool,
    ranges: Vec<(char, char)>,
}

impl Token {
    /// What a comparison with one character counts for.
    fn steps(&self) -> usize {
        if let Self::Class(class) = self { 1 + class.ranges.len() } else { 1 }
    }

    fn matches(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::Any | Self::Star => true,
            Self::Class(class) => {
                class.ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != class.is_negated
            }
        }
    }
}

impl Wildcard {
    fn parse(text: &str) -> Self {
        let (mut tokens, mut rest, mut may_have_class) = (Vec::new(), text, true);
        while let Some(c) = rest.chars().next() {
            let class = if c == '[' && may_have_class { class(rest) } else { None };
            // after a bracket that is not closed, none is, so that the text is not searched again
            may_have_class &= c != '[' || class.is_some();
            let (token, len) = match (c, class) {
                (_, Some(class)) => class,
                ('*', _) => (Token::Star, 1),
                ('?', _) => (Token::Any, 1),
                (c, None) => (Token::Char(c), c.len_utf8()),
            };
            rest = &rest[len..];
            if token != Token::Star || tokens.last() != Some(&Token::Star) {
                tokens.push(token);
            }
        }
        Self(tokens)
    }

    fn prefix(&self) -> Prefix {
        let mut text = String::new();
        for token in &self.0 {
            match token {
                Token::Char(c) => text.push(*c),
                _ => return Prefix { text: text.into(), is_exact: false },
            }
        }
        Prefix { text: text.into(), is_exact: true }
    }

    /// Compares from the left. After a mismatch, the last star takes one more character.
    fn matches(&self, text: &str, steps: &mut Steps<'_>) -> Result<bool, Stopped> {
        let (mut at, mut rest) = (0, text.chars());
        let mut retry = None;
        loop {
            let (before, token) = (rest.clone(), self.0.get(at));
            steps.take(token.map_or(1, Token::steps))?;
            match (token, rest.next()) {
                (None, None) => return Ok(true),
                (Some(Token::Star), _) => {
                    rest = before;
                    at += 1;
                    retry = Some((at, rest.clone()));
                    continue;
                }
                (Some(token), Some(c)) if token.matches(c) => {
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let Some((after, from)) = &mut retry else { return Ok(false) };
            if from.next().is_none() {
                return Ok(false);
            }
            (at, rest) = (*after, from.clone());
        }
    }
}

/// Parses the characters in brackets at the beginning of `text`. A `]` directly behind the opening bracket is one of
/// them. `None` if the closing bracket is missing.
fn class(text: &str) -> Option<(Token, usize)> {
    let inner = text.strip_prefix('[')?;
    let (is_negated, inner) = match inner.strip_prefix('!') {
        Some(inner) => (true, inner),
        None => (false, inner),
    };
    let from = usize::from(inner.starts_with(']'));
    let end = from + inner[from..].find(']')?;
    let len = text.len() - inner.len() + end + 1;
    let chars: Vec<char> = inner[..end].chars().collect();
    let (mut ranges, mut i) = (Vec::new(), 0);
    while let Some(first) = chars.get(i) {
        match (chars.get(i + 1), chars.get(i + 2)) {
            (Some('-'), Some(last)) => {
                // a range that ends before it begins has no characters
                ranges.push((*first, *last));
                i += 3;
            }
            _ => {
                ranges.push((*first, *first));
                i += 1;
            }
        }
    }
    Some((Token::Class(Box::new(Class { is_negated, ranges })), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Glob, PatternError> {
        Glob::parse(text, &mut Room::within(usize::MAX))
    }

    fn matches(glob: &Glob, text: &str) -> bool {
        glob.matches(text, &mut Steps::new(&mut || true)).unwrap()
    }

    fn check(glob: &str, matching: &[&str], others: &[&str]) {
        let parsed = parse(glob).unwrap();
        let check = |text: &str, expected| {
            assert_eq!(matches(&parsed, text), expected, "{glob:?} and {text:?}");
            let is_at = |prefix: &Prefix| match prefix.is_exact {
                true => prefix.text == text.as_bytes(),
                false => text.as_bytes().starts_with(&prefix.text),
            };
            let prefixes = parsed.prefixes().iter().filter(|prefix| is_at(prefix)).count();
            assert!(
                prefixes <= 1 && (prefixes == 1 || !expected),
                "{glob:?} has {prefixes} prefixes for {text:?}"
            );
        };
        matching.iter().for_each(|text| check(text, true));
        others.iter().for_each(|text| check(text, false));
    }

    #[test]
    fn globs_match_as_in_graphite() {
        check("cpu", &["cpu"], &["", "cp", "cpu0", "CPU"]);
        check("", &[""], &["a"]);
        check("*", &["", "a", "äöü"], &[]);
        check("c?u", &["cpu", "cäu"], &["cu", "cppu"]);
        check("*a*b*", &["ab", "xaxxbx", "aab"], &["ba", "a", ""]);
        check("a*aab", &["aaaab", "aaab", "axaab"], &["aab", "aaba"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x", "-x"]);
        check("[!a-c]x", &["dx", "-x"], &["ax", "x"]);
        check("[]-]", &["]", "-"], &["a"]);
        check("[c-a]", &[], &["a", "b", "c", "-"]);
        check("[!c-a]", &["a", "b", "-"], &["", "ab"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[a", &["[a"], &["a"]);
        check("[]", &["[]"], &["", "]"]);
        check("[!]", &["[!]"], &["a"]);
        check("a]", &["a]"], &["a"]);
        check("{web,db}-[0-9]", &["web-1", "db-9"], &["web-", "web-12", "{web,db}-1"]);
        check("{a,b*}", &["a", "b", "bc"], &["ab", "{a,b}"]);
        check("{a,ab,a*z,ac}", &["a", "ab", "ac", "az"], &["b", "ad", "abz!"]);
        check("{ab,a}c{,d}", &["abc", "ac", "abcd", "acd"], &["ab", "a"]);
        check("{a,{b,c}d}", &["a", "bd", "cd"], &["b", "d", "{a", "ad"]);
        check("{a", &["{a"], &["a"]);
        check("a}{b", &["a}{b"], &["ab"]);
        check("{}", &[""], &["{}", "a"]);
    }

    #[test]
    fn braces_that_stand_for_too_much_are_refused() {
        let error = parse(&"{a,b}".repeat(40)).unwrap_err();
        assert!(error.to_string().contains("10000"), "{error}");
        assert!(parse(&format!("{{{}}}", vec!["abc"; 9_999].join(","))).is_ok());
        assert!(parse(&format!("{}{{{}", "x".repeat(1000), "{a,b},".repeat(2000))).is_err());
        assert!(parse(&"{".repeat(60_000)).is_ok(), "braces that stand for themselves");
    }

    /// If each bracket were searched for its counterpart, this would take minutes.
    #[test]
    fn brackets_that_are_not_closed_take_little_time() {
        let brackets = "[".repeat(1 << 21);
        assert!(matches(&parse(&format!("[a]{brackets}?")).unwrap(), &format!("a{brackets}b")));
        check("[[x][", &["[[", "x["], &["[", "[[x["]);
    }

    #[test]
    fn stars_take_no_exponential_time() {
        let glob = parse(&"*a".repeat(200)).unwrap();
        assert!(!matches(&glob, &"a".repeat(199)));
        assert!(!matches(&glob, &"ab".repeat(2000)));
    }
}
