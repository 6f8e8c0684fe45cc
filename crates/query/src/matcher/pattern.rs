//! What a regular expression accepts, recognised without the regex engine where it is simple.

use super::{MatcherError, REGEX_BYTES_MAX, REGEX_COMPILED_BYTES_MAX};
use regex::{Regex, RegexBuilder};

/// Alternatives beyond which a set is left to the regex engine.
const SET_LEN_MAX: usize = 10_000;

/// The values that are accepted.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// `.*`
    Any,
    /// `.+`
    AnyNonEmpty,
    /// Exactly these, sorted.
    Set(Vec<String>),
    /// `prefix.*`, or `prefix.+` with at least one byte more.
    Prefix { prefix: String, more: usize },
    /// Anything else, anchored; all that it accepts begins with `prefix`.
    Regex { prefix: String, regex: Regex },
}

impl Pattern {
    /// One value.
    pub(super) fn literal(value: &str) -> Self {
        Self::Set(vec![value.into()])
    }

    /// A regular expression as Prometheus reads it: anchored at both ends, `.` matches a newline too.
    pub(super) fn parse(text: &str) -> Result<Self, MatcherError> {
        if text.len() > REGEX_BYTES_MAX {
            return Err(MatcherError::TooLong(text.len()));
        }
        if let Some(simple) = Self::parse_simple(text) {
            return Ok(simple);
        }
        Ok(Self::Regex { prefix: literal_head(text), regex: compile(text)? })
    }

    fn parse_simple(text: &str) -> Option<Self> {
        match text {
            ".*" => return Some(Self::Any),
            ".+" => return Some(Self::AnyNonEmpty),
            _ => {}
        }
        if let Some(head) = text.strip_suffix(".*") {
            return Some(Self::Prefix { prefix: unescape(head)?, more: 0 });
        }
        if let Some(head) = text.strip_suffix(".+") {
            return Some(Self::Prefix { prefix: unescape(head)?, more: 1 });
        }
        let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
        let inner = inner.strip_prefix("?:").unwrap_or(inner);
        if inner.matches('|').count() >= SET_LEN_MAX {
            return None;
        }
        let mut set = inner.split('|').map(unescape).collect::<Option<Vec<_>>>()?;
        set.sort_unstable();
        set.dedup();
        Some(Self::Set(set))
    }

    #[inline]
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::AnyNonEmpty => !value.is_empty(),
            Self::Set(set) if set.len() == 1 => set[0] == value,
            Self::Set(set) => set.binary_search_by(|s| s.as_str().cmp(value)).is_ok(),
            Self::Prefix { prefix, more } => {
                value.starts_with(prefix.as_str()) && value.len() >= prefix.len() + more
            }
            Self::Regex { prefix, regex } => value.starts_with(prefix.as_str()) && regex.is_match(value),
        }
    }

    pub(super) fn set(&self) -> Option<&[String]> {
        match self {
            Self::Set(set) => Some(set),
            _ => None,
        }
    }

    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::Any | Self::AnyNonEmpty => "",
            Self::Set(set) => {
                if set.len() == 1 {
                    &set[0]
                } else {
                    ""
                }
            }
            Self::Prefix { prefix, .. } | Self::Regex { prefix, .. } => prefix,
        }
    }
}

/// Compiles `text` for matching whole values.
pub(crate) fn compile(text: &str) -> Result<Regex, MatcherError> {
    let build = |text: &str| {
        RegexBuilder::new(&format!("^(?s:{text})$"))
            .size_limit(REGEX_COMPILED_BYTES_MAX)
            .dfa_size_limit(REGEX_COMPILED_BYTES_MAX)
            .build()
    };
    // `a)|(b` would close the group that is put around it.
    if closes_too_early(text) {
        return Err(MatcherError::Regex(format!("unexpected ): `{text}`")));
    }
    let built = build(text).or_else(|e| {
        let escaped = escape_braces(text);
        if escaped == text { Err(e) } else { build(&escaped) }
    });
    match built {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(limit)) => {
            Err(MatcherError::Regex(format!("expression needs more than {limit} bytes: `{text}`")))
        }
        Err(e) => {
            let last = e.to_string();
            let reason = last.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
            Err(MatcherError::Regex(format!("{reason}: `{text}`")))
        }
    }
}

/// True where a parenthesis closes that was not opened inside `text`.
fn closes_too_early(text: &str) -> bool {
    let (mut depth, mut in_class, mut bytes) = (0i64, false, text.bytes());
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => {
                bytes.next();
            }
            b'[' if !in_class => in_class = true,
            b']' => in_class = false,
            b'(' if !in_class => depth += 1,
            b')' if !in_class => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Go takes a `{` that begins no repetition for itself; Rust's engine refuses it. Escapes those.
fn escape_braces(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    let mut rest = text;
    while let Some(at) = rest.find(['{', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('\\') {
            let len = rest.chars().take(2).map(char::len_utf8).sum();
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let body = rest[1..].split('}').next().unwrap_or("");
        let closed = rest.len() > body.len() + 1;
        let (low, high) = body.split_once(',').unwrap_or((body, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let repeats = closed && !low.is_empty() && digits(low) && digits(high);
        out.push_str(if repeats || out.ends_with("\\p") || out.ends_with("\\P") { "{" } else { "\\{" });
        rest = &rest[1..];
    }
    out.push_str(rest);
    out
}

/// The text that `pattern` stands for, where it has no operator.
fn unescape(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if c.is_ascii_punctuation() => out.push(c),
                _ => return None,
            },
            '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '|' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// What all accepted values begin with: the literal characters before the first operator.
fn literal_head(pattern: &str) -> String {
    if has_alternatives(pattern) {
        return String::new();
    }
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => chars.next().filter(char::is_ascii_punctuation),
            '*' | '?' | '{' => {
                out.pop(); // the character before it may be absent
                None
            }
            '.' | '+' | '(' | ')' | '[' | ']' | '}' | '^' | '$' | '|' => None,
            c => Some(c),
        };
        match literal {
            Some(c) => out.push(c),
            None => break,
        }
    }
    out
}

/// True where a `|` stands outside of all groups (or where that is not sure).
fn has_alternatives(pattern: &str) -> bool {
    if pattern.contains('[') {
        return pattern.contains('|');
    }
    let (mut depth, mut bytes) = (0i64, pattern.bytes());
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => {
                bytes.next();
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'|' if depth <= 0 => return true,
            _ => {}
        }
    }
    false
}
