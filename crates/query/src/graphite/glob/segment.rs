//! The pattern of one node.

use super::steps::{Steps, Stopped};

/// So many bytes of a text are compared in about the time of a step.
const STEP_BYTES: usize = 64;

/// The pattern of one node of a path: a list of alternatives.
#[derive(Debug, Clone)]
pub struct Segment {
    kind: Kind,
    /// Text with which all matching nodes begin.
    prefix: String,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Texts without wildcards, sorted.
    Literals(Vec<String>),
    Patterns(Vec<Pattern>),
    /// `**`
    AnyDepth,
}

impl Segment {
    /// `patterns` have no braces that stand for alternatives, and are sorted and not empty.
    pub(super) fn of(patterns: Vec<String>) -> Self {
        if patterns.len() == 1 && patterns[0] == "**" {
            return Self { kind: Kind::AnyDepth, prefix: String::new() };
        }
        let parsed: Vec<_> = patterns.iter().map(|pattern| Pattern::parse(pattern)).collect();
        let prefix = common_prefix(parsed.iter().map(Pattern::prefix)).to_owned();
        let is_literal = parsed.iter().all(|pattern| matches!(&pattern.0[..], [] | [Token::Text(_)]));
        let kind = if is_literal { Kind::Literals(patterns) } else { Kind::Patterns(parsed) };
        Self { kind, prefix }
    }

    pub(super) fn matches(&self, node: &str, steps: &mut Steps<'_>) -> Result<bool, Stopped> {
        match &self.kind {
            Kind::Literals(texts) => Ok(texts.binary_search_by(|text| text.as_str().cmp(node)).is_ok()),
            Kind::Patterns(patterns) => {
                for pattern in patterns {
                    if pattern.matches(node, steps)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Kind::AnyDepth => Ok(true),
        }
    }

    /// True for `**`, which matches any number of nodes.
    pub const fn is_any_depth(&self) -> bool {
        matches!(self.kind, Kind::AnyDepth)
    }

    /// True for `*`, which matches each node.
    pub fn is_any(&self) -> bool {
        matches!(&self.kind, Kind::Patterns(patterns) if patterns.iter().any(|p| matches!(p.0[..], [Token::Any])))
    }

    /// The only node that matches, if there is only one.
    pub fn literal(&self) -> Option<&str> {
        match self.literals() {
            Some([text]) => Some(text),
            _ => None,
        }
    }

    /// All nodes that match, sorted, if they can be listed.
    pub fn literals(&self) -> Option<&[String]> {
        match &self.kind {
            Kind::Literals(texts) => Some(texts),
            Kind::Patterns(_) | Kind::AnyDepth => None,
        }
    }

    /// Text with which all matching nodes begin.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn common_prefix<'a>(mut texts: impl Iterator<Item = &'a str>) -> &'a str {
    let mut prefix = texts.next().unwrap_or_default();
    for text in texts {
        let same = prefix.char_indices().zip(text.chars()).find(|((_, a), b)| a != b);
        let len = same.map_or(prefix.len().min(text.len()), |((i, _), _)| i);
        prefix = &prefix[..len];
    }
    prefix
}

#[derive(Debug, Clone)]
struct Pattern(Vec<Token>);

#[derive(Debug, Clone)]
enum Token {
    Text(String),
    /// `*`
    Any,
    /// `?`
    One,
    /// `[a-z]`, as ranges that include both ends.
    Class {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
}

impl Pattern {
    fn parse(text: &str) -> Self {
        let mut tokens: Vec<Token> = Vec::new();
        let (mut rest, mut may_have_class) = (text, true);
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            let class = if c == '[' && may_have_class { class(rest) } else { None };
            // after a bracket that is not closed, none is, so that the text is not searched again
            may_have_class &= c != '[' || class.is_some();
            match (c, class) {
                (_, Some((token, after))) => {
                    tokens.push(token);
                    rest = after;
                }
                ('*', _) if matches!(tokens.last(), Some(Token::Any)) => {}
                ('*', _) => tokens.push(Token::Any),
                ('?', _) => tokens.push(Token::One),
                (c, None) => match tokens.last_mut() {
                    Some(Token::Text(text)) => text.push(c),
                    _ => tokens.push(Token::Text(c.into())),
                },
            }
        }
        tokens.shrink_to_fit();
        Self(tokens)
    }

    fn prefix(&self) -> &str {
        match self.0.first() {
            Some(Token::Text(text)) => text,
            _ => "",
        }
    }

    /// Matches from left to right. After a mismatch, the last `*` takes one more character.
    fn matches(&self, node: &str, steps: &mut Steps<'_>) -> Result<bool, Stopped> {
        let (mut at, mut rest) = (0, node);
        let mut retry = None;
        loop {
            let token = self.0.get(at);
            steps.take(token.map_or(1, Token::steps))?;
            match token {
                None if rest.is_empty() => return Ok(true),
                Some(Token::Any) => {
                    retry = Some((at, rest));
                    at += 1;
                    continue;
                }
                Some(token) => {
                    if let Some(after) = token.take(rest) {
                        (at, rest) = (at + 1, after);
                        continue;
                    }
                }
                None => {}
            }
            let Some((star, from)) = retry else { return Ok(false) };
            let Some(c) = from.chars().next() else { return Ok(false) };
            let from = &from[c.len_utf8()..];
            retry = Some((star, from));
            (at, rest) = (star + 1, from);
        }
    }
}

impl Token {
    /// What a comparison counts for.
    fn steps(&self) -> usize {
        match self {
            Self::Text(text) => 1 + text.len() / STEP_BYTES,
            Self::Class { ranges, .. } => 1 + ranges.len(),
            Self::Any | Self::One => 1,
        }
    }

    /// Returns the rest of a text that begins with the token, or `None` if it does not begin with it. A `*` takes nothing here:
    /// [`Pattern::matches`] makes it longer.
    fn take<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Text(expected) => text.strip_prefix(expected.as_str()),
            Self::Any => Some(text),
            Self::One => text.chars().next().map(|c| &text[c.len_utf8()..]),
            Self::Class { ranges, is_negated } => {
                let c = text.chars().next()?;
                let is_in = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                (is_in != *is_negated).then(|| &text[c.len_utf8()..])
            }
        }
    }
}

/// Reads a class after its `[`. Returns the text after its `]`, or `None` if there is no `]`, so that the bracket is
/// an ordinary character.
fn class(text: &str) -> Option<(Token, &str)> {
    let is_negated = text.starts_with('!');
    let inside = text.strip_prefix('!').unwrap_or(text);
    // a `]` right at the beginning is a member of the class
    let first = inside.chars().next()?.len_utf8();
    let end = first + inside.get(first..)?.find(']')?;
    let members: Vec<char> = inside[..end].chars().collect();
    let mut ranges = Vec::new();
    let mut i = 0;
    while let Some(from) = members.get(i) {
        match (members.get(i + 1), members.get(i + 2)) {
            (Some('-'), Some(to)) => {
                ranges.push((*from, *to));
                i += 3;
            }
            _ => {
                ranges.push((*from, *from));
                i += 1;
            }
        }
    }
    Some((Token::Class { ranges, is_negated }, &inside[end + 1..]))
}
