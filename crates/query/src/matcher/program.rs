//! Regular expressions for the engine: Go's syntax, a bound on what they take, and what that is.

use super::{MatcherError, REGEX_COMPILED_BYTES_MAX};
use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;

/// The states of its automaton that a pattern may keep at a time. They are made while values are matched.
const AUTOMATON_BYTES_MAX: usize = 128 << 10;

/// What the engine that finds groups may keep: a bit for each state and each byte of a short value.
const BACKTRACKING_BYTES_MAX: usize = 256 << 10;

/// What syntax trees take for each byte of a pattern, at the most: `a*b*`.
const SYNTAX_BYTES_PER_BYTE: usize = 256;

/// What a Unicode class (`\pL`, 650 ranges) takes there.
const CLASS_BYTES: usize = 32 << 10;

/// A compiled regular expression that matches whole values.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    regex: Regex,
    memory_bytes: usize,
}

impl Program {
    /// As Prometheus reads it: anchored at both ends, `.` matches a newline too.
    pub(crate) fn compile(text: &str) -> Result<Self, MatcherError> {
        Self::compile_for(text, false)
    }

    /// With groups to be asked for.
    pub(crate) fn compile_with_groups(text: &str) -> Result<Self, MatcherError> {
        Self::compile_for(text, true)
    }

    fn compile_for(text: &str, with_groups: bool) -> Result<Self, MatcherError> {
        // `a)|(b` would close the group that is put around it.
        if closes_too_early(text) {
            return Err(MatcherError::Regex(format!("unexpected ): `{text}`")));
        }
        let ascii = with_ascii_classes(text);
        let built = build(&ascii, with_groups).or_else(|e| {
            let escaped = escape_braces(&ascii);
            if escaped == ascii { Err(e) } else { build(&escaped, with_groups) }
        });
        let regex = built.map_err(|e| refused(text, &e))?;
        let groups = if with_groups { BACKTRACKING_BYTES_MAX } else { 0 };
        let working = regex.create_cache().memory_usage() + AUTOMATON_BYTES_MAX + groups;
        Ok(Self { memory_bytes: regex.memory_usage() + working, regex })
    }

    /// What compiling a pattern takes for a moment, at the most.
    pub(crate) fn compilation_bytes(text: &str) -> usize {
        let classes = text.matches("\\p").count() + text.matches("\\P").count();
        text.len() * SYNTAX_BYTES_PER_BYTE + classes * CLASS_BYTES + 2 * REGEX_COMPILED_BYTES_MAX
    }

    /// What it holds, and what it may come to hold while it matches.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn is_match(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }

    /// Room for the groups of a match.
    pub(crate) fn groups(&self) -> Captures {
        self.regex.create_captures()
    }

    /// Finds the groups; true where the value matches.
    pub(crate) fn find_groups(&self, value: &str, groups: &mut Captures) -> bool {
        self.regex.captures(value, groups);
        groups.is_match()
    }
}

fn build(text: &str, with_groups: bool) -> Result<Regex, Box<BuildError>> {
    let config = Config::new()
        .nfa_size_limit(Some(REGEX_COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(REGEX_COMPILED_BYTES_MAX))
        .hybrid_cache_capacity(AUTOMATON_BYTES_MAX)
        .which_captures(if with_groups { WhichCaptures::All } else { WhichCaptures::Implicit })
        .backtrack(with_groups);
    let mut builder = Regex::builder();
    builder.configure(config).syntax(syntax::Config::new());
    builder.build(&format!("^(?s:{text})$")).map_err(Box::new)
}

fn refused(text: &str, error: &BuildError) -> MatcherError {
    if let Some(limit) = error.size_limit() {
        return MatcherError::Regex(format!("expression needs more than {limit} bytes: `{text}`"));
    }
    let all = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let reason = all.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
    MatcherError::Regex(format!("{reason}: `{text}`"))
}

/// Go's `\d`, `\s` and `\w` are ASCII, this engine's are Unicode (a hundred times as large).
fn with_ascii_classes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(c);
        if c != '\\' {
            continue;
        }
        let Some(escaped) = chars.next() else { break };
        let class = match escaped {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => "[\\t\\n\\f\\r ]",
            'S' => "[^\\t\\n\\f\\r ]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            other => {
                out.push(other);
                continue;
            }
        };
        out.pop();
        out.push_str(class);
    }
    out
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
