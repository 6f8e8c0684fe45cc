//! Patterns of paths, such as `servers.{web,db}*.cpu[0-7].?`.
//!
//! A pattern is split at its dots, and each part matches one node of a path. `*` matches any text within a node, `?`
//! one character, `[a-z]` and `[!a-z]` one of a class, `{a,b}` one of the alternatives. A node `**` matches any
//! number of nodes.
//!
//! Alternatives are expanded to lists of patterns for each node, whose size is limited. Matching compares texts from
//! left to right and takes time in proportion to the product of the lengths of path and pattern. It ends early once the
//! request that has parsed the pattern is interrupted.

mod segment;
mod steps;

pub use segment::Segment;

use crate::allowance::Allowance;
use crate::interrupt::Interrupt;
use std::sync::Arc;
use steps::{Steps, Stopped};

/// Maximum number of patterns that the braces of one glob stand for, added up over its nodes.
pub const ALTERNATIVES_MAX: usize = 10_000;

/// Maximum size of these patterns in bytes. Braces repeat the text around them.
pub const ALTERNATIVES_BYTES_MAX: usize = 1 << 20;

/// Maximum size in bytes of those patterns that have wildcards. Each of them is compared with a node, of up to 16 KiB.
pub const WILDCARDS_BYTES_MAX: usize = 1 << 16;

/// Maximum number of nodes of a glob.
pub const NODES_MAX: usize = 256;

/// Maximum number of braces in a node. All patterns of the node are copied at each of them.
pub const BRACES_MAX: usize = 64;

/// Memory of a parsed pattern of a node, besides its text.
const PATTERN_BYTES: usize = 128;

/// Upper bound on the memory of a byte in a parsed pattern with wildcards. In the worst case, characters and wildcards
/// alternate.
const WILDCARDS_BYTE_BYTES: usize = 48;

/// A copy shares the text and the patterns.
#[derive(Debug, Clone)]
pub struct Glob {
    text: Arc<str>,
    segments: Arc<[Segment]>,
    bytes: usize,
    /// That of the request.
    interrupt: Option<Arc<dyn Interrupt>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("the braces of {0:?} stand for more than {ALTERNATIVES_MAX} patterns")]
    TooManyAlternatives(String),
    #[error("the patterns that the braces of {0:?} stand for take more than {ALTERNATIVES_BYTES_MAX} bytes")]
    AlternativesTooLarge(String),
    #[error("the patterns with wildcards that {0:?} stands for take more than {WILDCARDS_BYTES_MAX} bytes")]
    WildcardsTooLarge(String),
    #[error("{0:?} has more than {NODES_MAX} nodes")]
    TooManyNodes(String),
    #[error("{0:?} has a node with more than {BRACES_MAX} braces")]
    TooManyBraces(String),
    #[error("{0:?} has braces in braces, or a dot in braces")]
    Nested(String),
    /// The request exceeds one of its limits ([`Allowance`]).
    #[error("{0}")]
    TooMuch(String),
}

impl Glob {
    pub fn parse(text: &str, allowance: &mut Allowance) -> Result<Self, GlobError> {
        allowance.node(2 * text.len()).map_err(GlobError::TooMuch)?;
        let mut left = Left { alternatives: ALTERNATIVES_MAX, bytes: ALTERNATIVES_BYTES_MAX };
        let (mut segments, mut bytes, mut wildcard_bytes) = (Vec::new(), text.len(), 0);
        for node in nodes(text) {
            if segments.len() == NODES_MAX {
                return Err(GlobError::TooManyNodes(excerpt(text)));
            }
            let patterns = expand(node, &mut left).map_err(|wrong| wrong.of(text))?;
            let text_bytes = patterns.iter().map(String::len).sum::<usize>();
            // a class needs both brackets
            let may_have_wildcards = patterns.iter().any(|pattern| pattern.contains(['*', '?', ']']));
            let mut node_bytes = PATTERN_BYTES * patterns.len() + 4 * text_bytes;
            if may_have_wildcards {
                node_bytes += WILDCARDS_BYTE_BYTES * text_bytes;
                wildcard_bytes += text_bytes;
            }
            if wildcard_bytes > WILDCARDS_BYTES_MAX {
                return Err(GlobError::WildcardsTooLarge(excerpt(text)));
            }
            bytes += node_bytes;
            allowance.spend(node_bytes).map_err(GlobError::TooMuch)?;
            segments.push(Segment::of(patterns));
        }
        let interrupt = allowance.interrupt().map(Arc::clone);
        Ok(Self { text: text.into(), segments: segments.into(), bytes, interrupt })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// One pattern for each node.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// True if the glob stands for exactly one path: it has no wildcards, and its braces have no alternatives.
    pub fn is_literal(&self) -> bool {
        self.segments.iter().all(|segment| segment.literal().is_some())
    }

    /// All paths that match, sorted, if there are at most `count_max` and their texts take at most `bytes_max`.
    pub fn literals(&self, count_max: usize, bytes_max: usize) -> Option<Vec<String>> {
        // a short glob can stand for gigabytes of paths, so their size is checked before the list is built
        self.literals_size().filter(|(count, bytes)| *count <= count_max && *bytes <= bytes_max)?;
        let mut paths = vec![String::new()];
        for (i, segment) in self.segments.iter().enumerate() {
            let nodes = segment.literals()?;
            let dot = if i > 0 { "." } else { "" };
            let all =
                paths.iter().flat_map(|path| nodes.iter().map(move |node| format!("{path}{dot}{node}")));
            paths = all.collect();
        }
        paths.sort_unstable();
        paths.dedup();
        Some(paths)
    }

    /// Number of all paths that match, and the size of their texts, if they can be listed.
    pub(crate) fn literals_size(&self) -> Option<(usize, usize)> {
        let (mut count, mut bytes) = (1_usize, 0_usize);
        for (i, segment) in self.segments.iter().enumerate() {
            let nodes = segment.literals()?;
            let node_bytes: usize = nodes.iter().map(|node| usize::from(i > 0) + node.len()).sum();
            bytes = bytes.saturating_mul(nodes.len()).saturating_add(node_bytes.saturating_mul(count));
            count = count.saturating_mul(nodes.len());
        }
        Some((count, bytes))
    }

    /// Upper bound on the memory of the glob.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Text with which all matching paths begin.
    pub fn prefix(&self) -> String {
        let mut prefix = String::new();
        for (i, segment) in self.segments.iter().enumerate() {
            if i > 0 && !segment.is_any_depth() {
                prefix.push('.');
            }
            match segment.literal() {
                Some(literal) => prefix.push_str(literal),
                None => {
                    prefix.push_str(segment.prefix());
                    break;
                }
            }
        }
        prefix
    }

    /// True if the glob matches the path. False once the request is interrupted, so the caller checks this before it uses
    /// results.
    pub fn matches(&self, path: &str) -> bool {
        let mut steps = Steps::new(self.interrupt.as_deref());
        self.matches_within(path, &mut steps).unwrap_or(false)
    }

    /// Matches from left to right. After a mismatch, the last `**` takes one more node: those before it need not, because
    /// what follows them matched as early as possible.
    fn matches_within(&self, path: &str, steps: &mut Steps<'_>) -> Result<bool, Stopped> {
        // `rest` is `None` after the last node
        let (mut at, mut rest) = (0, Some(path));
        let mut retry = None;
        loop {
            steps.take(1)?;
            match (self.segments.get(at), rest) {
                (None, None) => return Ok(true),
                (Some(segment), _) if segment.is_any_depth() => {
                    at += 1;
                    if at == self.segments.len() {
                        return Ok(rest.is_some()); // as the last node, it stands for at least one
                    }
                    retry = Some((at, rest));
                    continue;
                }
                (Some(segment), Some(path)) => {
                    let (node, after) = split_node(path);
                    if segment.matches(node, steps)? {
                        (at, rest) = (at + 1, after);
                        continue;
                    }
                }
                _ => {}
            }
            let Some((after_any, Some(path))) = retry else { return Ok(false) };
            (at, rest) = (after_any, split_node(path).1);
            retry = Some((at, rest));
        }
    }
}

fn split_node(path: &str) -> (&str, Option<&str>) {
    match path.split_once('.') {
        Some((node, rest)) => (node, Some(rest)),
        None => (path, None),
    }
}

/// Splits a pattern at its dots, but not at those in brackets or braces.
fn nodes(text: &str) -> impl Iterator<Item = &str> {
    let (has_brace, has_bracket) = (text.contains('}'), text.contains(']'));
    let mut closing = None;
    text.split(move |c| {
        closing = match (closing, c) {
            (None, '{') if has_brace => Some('}'),
            (None, '[') if has_bracket => Some(']'),
            (Some(end), c) if c == end => None,
            (open, _) => open,
        };
        c == '.' && closing.is_none()
    })
}

struct Left {
    alternatives: usize,
    bytes: usize,
}

enum Wrong {
    TooMany,
    TooLarge,
    TooManyBraces,
    Nested,
}

impl Wrong {
    fn of(self, text: &str) -> GlobError {
        match self {
            Self::TooMany => GlobError::TooManyAlternatives(excerpt(text)),
            Self::TooLarge => GlobError::AlternativesTooLarge(excerpt(text)),
            Self::TooManyBraces => GlobError::TooManyBraces(excerpt(text)),
            Self::Nested => GlobError::Nested(excerpt(text)),
        }
    }
}

/// The beginning of a text, for a message.
fn excerpt(text: &str) -> String {
    if text.len() <= 200 { text.into() } else { format!("{}…", &text[..text.floor_char_boundary(200)]) }
}

/// Expands the braces of a node: `a{b,c}{d,e}` stands for four patterns.
fn expand(node: &str, left: &mut Left) -> Result<Vec<String>, Wrong> {
    let (mut patterns, mut rest, mut braces) = (vec![String::new()], node, 0);
    while let Some((before, (inside, after))) =
        rest.split_once('{').and_then(|(before, open)| Some((before, open.split_once('}')?)))
    {
        if inside.contains(['{', '.']) {
            return Err(Wrong::Nested);
        }
        braces += 1;
        if braces > BRACES_MAX {
            return Err(Wrong::TooManyBraces);
        }
        let choices: Vec<_> = inside.split(',').collect();
        let count = patterns.len().saturating_mul(choices.len());
        if count > left.alternatives {
            return Err(Wrong::TooMany);
        }
        let old: usize = patterns.iter().map(String::len).sum();
        let added: usize = choices.iter().map(|choice| before.len() + choice.len()).sum();
        let bytes = old.saturating_mul(choices.len()).saturating_add(added.saturating_mul(patterns.len()));
        if bytes > left.bytes {
            return Err(Wrong::TooLarge);
        }
        let all =
            patterns.iter().flat_map(|pattern| choices.iter().map(move |c| format!("{pattern}{before}{c}")));
        patterns = all.collect();
        rest = after;
    }
    let bytes = patterns.iter().map(|pattern| pattern.len() + rest.len()).sum::<usize>();
    left.alternatives = left.alternatives.checked_sub(patterns.len()).ok_or(Wrong::TooMany)?;
    left.bytes = left.bytes.checked_sub(bytes).ok_or(Wrong::TooLarge)?;
    patterns.iter_mut().for_each(|pattern| pattern.push_str(rest));
    patterns.sort_unstable();
    patterns.dedup();
    Ok(patterns)
}

#[cfg(test)]
mod tests;
