//! Regular expressions for the regex engine, in Go's syntax, with bounds on time and memory.

use super::{MatcherError, REGEX_COMPILED_BYTES_MAX, classes};
use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::{Compiler, Config as NfaConfig, NFA, WhichCaptures};
use regex_automata::util::captures::Captures;
use regex_syntax::ast::parse::Parser;
use regex_syntax::hir::Hir;
use regex_syntax::hir::translate::Translator;

/// Memory that a pattern's lazy automaton may use for its states.
const AUTOMATON_BYTES_MAX: usize = 128 << 10;

const BACKTRACKING_BYTES_MAX: usize = 256 << 10;

/// Upper bound on the syntax tree's memory per byte of the pattern. `a*b*` reaches it.
const SYNTAX_BYTES_PER_BYTE: usize = 256;

/// Memory of a Unicode class (`\pL`, 650 ranges) in the syntax tree.
const CLASS_BYTES: usize = 32 << 10;

/// Memory of the NFA simulation per state: an entry in each of its two sets, and one on its stack. The
/// offsets of capture groups are not included.
const STATE_BYTES: usize = 2 * 8 + 2 * 48;

/// Maximum number of steps to find the capture groups of one value, or to search a name of any length: half a second. The
/// query cannot be canceled during this time.
const STEPS_MAX: usize = 128 << 20;

/// Number of group offsets that can be copied in the time of one step.
const SLOTS_PER_STEP: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Program {
    regex: Regex,
    memory_bytes: usize,
    steps_per_byte: usize,
}

impl Program {
    /// Compiles `text` as in Prometheus: anchored at both ends, and `.` matches a newline.
    pub(crate) fn compile(text: &str) -> Result<Self, MatcherError> {
        Self::compile_for(text, Part::Whole, false)
    }

    pub(crate) fn compile_with_groups(text: &str) -> Result<Self, MatcherError> {
        Self::compile_for(text, Part::Whole, true)
    }

    /// Compiles `text` without anchors, to search for it in values.
    pub(crate) fn compile_to_search(text: &str) -> Result<Self, MatcherError> {
        Self::compile_for(text, Part::Any, true)
    }

    fn compile_for(text: &str, part: Part, with_groups: bool) -> Result<Self, MatcherError> {
        // `a)|(b` would close the group that anchors the pattern.
        if closes_too_early(text) {
            return Err(MatcherError::Regex(format!("unexpected ): `{text}`")));
        }
        let ascii = with_ascii_classes(text);
        let hir = parse(&ascii, part).or_else(|e| {
            let escaped = escape_braces(&ascii);
            if escaped == ascii { Err(e) } else { parse(&escaped, part) }
        });
        let refused = |reason: String| MatcherError::Regex(format!("{reason}: `{text}`"));
        let hir = hir.map_err(refused)?;
        let captures = if with_groups { WhichCaptures::All } else { WhichCaptures::Implicit };
        let nfa = automaton(&hir, captures).map_err(refused)?;
        let regex = build(&hir, captures, with_groups).map_err(refused)?;
        let slots = nfa.group_info().slot_len();
        let backtracking = if with_groups { BACKTRACKING_BYTES_MAX } else { 0 };
        let working = regex.create_cache().memory_usage() + AUTOMATON_BYTES_MAX + backtracking;
        Ok(Self {
            memory_bytes: regex.memory_usage() + working + simulation_bytes(nfa.states().len(), slots),
            steps_per_byte: nfa.states().len() * (SLOTS_PER_STEP + slots) / SLOTS_PER_STEP,
            regex,
        })
    }

    /// Upper bound on the temporary memory of compiling a pattern.
    pub(crate) fn compilation_bytes(text: &str) -> usize {
        let classes = text.matches("\\p").count() + text.matches("\\P").count();
        let syntax_bytes = with_ascii_classes(text).len() * SYNTAX_BYTES_PER_BYTE;
        syntax_bytes + classes * CLASS_BYTES + 3 * REGEX_COMPILED_BYTES_MAX
    }

    /// Memory held now, and the memory that matching may add.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn is_match(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }

    /// Like [`Self::is_match`], of a value that may be longer than a label's. Fails above [`STEPS_MAX`].
    pub(crate) fn is_match_of_any_length(&self, value: &str) -> Result<bool, String> {
        self.check_steps("matching", value.len(), value.len())?;
        Ok(self.is_match(value))
    }

    pub(crate) fn groups(&self) -> Captures {
        self.regex.create_captures()
    }

    /// Finds the capture groups. Returns true if the value matches. Fails above [`STEPS_MAX`].
    pub(crate) fn find_groups(&self, value: &str, groups: &mut Captures) -> Result<bool, String> {
        self.find_groups_from(value, 0, groups)
    }

    /// Like [`Self::find_groups`], in the value from byte `start` on.
    pub(crate) fn find_groups_from(
        &self,
        value: &str,
        start: usize,
        groups: &mut Captures,
    ) -> Result<bool, String> {
        self.check_steps("finding the groups in", value.len() - start, value.len())?;
        self.regex.captures(Input::new(value).range(start..), groups);
        Ok(groups.is_match())
    }

    /// Fails if it takes too long to search `searched` bytes of a value of `bytes`.
    fn check_steps(&self, what: &str, searched: usize, bytes: usize) -> Result<(), String> {
        let steps = searched.saturating_mul(self.steps_per_byte);
        match steps > STEPS_MAX {
            true => Err(format!(
                "{what} a value of {bytes} bytes takes {steps} steps, the limit is {STEPS_MAX}; use fewer groups and \
                 repetitions in the regular expression"
            )),
            false => Ok(()),
        }
    }
}

/// Memory of the NFA simulation. Besides [`STATE_BYTES`], it holds the offsets of all groups twice for each
/// state. The offsets of the match come on top.
const fn simulation_bytes(states: usize, slots: usize) -> usize {
    let offsets = (states + 1) * slots * size_of::<usize>();
    2 * offsets + states * STATE_BYTES + 2 * slots * size_of::<usize>()
}

/// Which part of a value a pattern must match.
#[derive(Debug, Clone, Copy)]
enum Part {
    Whole,
    Any,
}

fn parse(text: &str, part: Part) -> Result<Hir, String> {
    let text = match part {
        Part::Whole => format!("^(?s:{text})$"),
        Part::Any => format!("(?s:{text})"),
    };
    let ast = Parser::new().parse(&text).map_err(|e| last_line(&e.to_string()))?;
    classes::check_cost(&text, &ast)?;
    Translator::new().translate(&text, &ast).map_err(|e| last_line(&e.to_string()))
}

/// Last line of a parser error. The earlier lines repeat the pattern.
fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned()
}

/// Builds the automaton to learn its size.
fn automaton(hir: &Hir, captures: WhichCaptures) -> Result<NFA, String> {
    let config = NfaConfig::new().nfa_size_limit(Some(REGEX_COMPILED_BYTES_MAX)).which_captures(captures);
    Compiler::new().configure(config).build_from_hir(hir).map_err(|e| too_large(e.size_limit(), &e))
}

fn build(hir: &Hir, captures: WhichCaptures, backtrack: bool) -> Result<Regex, String> {
    let config = Config::new()
        .nfa_size_limit(Some(REGEX_COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(REGEX_COMPILED_BYTES_MAX))
        .hybrid_cache_capacity(AUTOMATON_BYTES_MAX)
        .which_captures(captures)
        .backtrack(backtrack);
    let built = Regex::builder().configure(config).build_from_hir(hir);
    built.map_err(|e| too_large(e.size_limit(), &e))
}

fn too_large(limit: Option<usize>, error: &dyn std::fmt::Display) -> String {
    match limit {
        Some(limit) => format!("the compiled expression takes more than {limit} bytes"),
        None => error.to_string(),
    }
}

/// Replaces `\d`, `\s` and `\w` by ASCII classes, as in Go. Unicode classes would be a hundred times as
/// large.
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

/// Escapes each `{` that does not begin a repetition such as `{2,3}`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_matching_is_counted() {
        let value = "a".repeat(16_000);
        for pattern in [
            "(.*)",
            "(a+)(?:.*)(a)",
            &format!("{}.*", "()".repeat(300)),
            &format!("{}.*", "(a|b)?".repeat(60)),
            &format!("({}).*", "(?:a*b*)*".repeat(40)),
        ] {
            for with_groups in [false, true] {
                let program = Program::compile_for(pattern, Part::Whole, with_groups).unwrap();
                let mut cache = program.regex.create_cache();
                let mut groups = program.groups();
                let (input, slots) = (Input::new(&value), groups.slots_mut());
                program.regex.search_slots_with(&mut cache, &input, slots);
                let bytes = program.regex.memory_usage() + cache.memory_usage() + size_of_val(slots);
                let paid = program.memory_bytes();
                assert!(bytes <= paid, "{pattern:.40} {with_groups}: {bytes} bytes in use, {paid} counted");
            }
        }
    }
}
