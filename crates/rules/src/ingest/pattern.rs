//! Regular expressions in Go's syntax, as Prometheus uses them: they must match a whole text, and `.` matches a newline.
//!
//! Lists of texts and `prefix.*` are matched without the regex engine.

use super::label_set::{Steps, TooMuch};
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::{Compiler, Config as NfaConfig, WhichCaptures};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use std::collections::HashSet;

/// Limit on the length of an expression. Lists of metric names can be long.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Limit on the compiled size of an expression.
const COMPILED_BYTES_MAX: usize = 256 << 10;

/// Limit on the states that an expression's automaton keeps in each thread.
const AUTOMATON_BYTES_MAX: usize = 64 << 10;

/// Limit on the groups of an expression, with the whole match. For each of them and each state, a thread keeps two places.
const GROUPS_MAX: usize = 33;

#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// `.*`, or with a group `(.*)`.
    Any {
        has_group: bool,
    },
    /// Exactly these texts.
    OneOf(HashSet<Box<str>>),
    /// `prefix.*` (`more` is 0) or `prefix.+` (`more` is 1).
    Prefix {
        prefix: Box<str>,
        more: usize,
    },
    Engine {
        regex: Box<Regex>,
        states: usize,
    },
}

/// The groups of a match.
pub(super) struct Groups<'t> {
    text: &'t str,
    found: Found,
}

enum Found {
    /// This many groups have the whole text.
    Whole(usize),
    Captures(Captures),
}

impl<'t> Groups<'t> {
    /// The text of a group, which is empty if the group has not matched. Group 0 is the whole text.
    pub(super) fn get(&self, number: usize) -> &'t str {
        match &self.found {
            Found::Whole(count) if number < *count => self.text,
            Found::Whole(_) => "",
            Found::Captures(found) => found.get_group(number).map_or("", |span| &self.text[span.range()]),
        }
    }
}

impl Pattern {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("expression of {} bytes, the limit is {PATTERN_BYTES_MAX}", text.len()));
        }
        let kind = match simple(text) {
            Some(kind) => kind,
            None => engine(text).map_err(|reason| format!("expression {text:?}: {reason}"))?,
        };
        Ok(Self { text: text.to_owned(), kind })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_match(&self, text: &str, steps: &Steps) -> Result<bool, TooMuch> {
        steps.take(text.len().saturating_mul(self.steps_per_byte(false)))?;
        Ok(match &self.kind {
            Kind::Any { .. } => true,
            Kind::OneOf(texts) => texts.contains(text),
            Kind::Prefix { prefix, more } => {
                text.strip_prefix(&**prefix).is_some_and(|rest| rest.len() >= *more)
            }
            Kind::Engine { regex, .. } => regex.is_match(text),
        })
    }

    /// Returns the groups if the expression matches.
    pub(super) fn groups<'t>(&self, text: &'t str, steps: &Steps) -> Result<Option<Groups<'t>>, TooMuch> {
        let found = match &self.kind {
            Kind::Engine { regex, .. } => {
                steps.take(text.len().saturating_mul(self.steps_per_byte(true)))?;
                let mut captures = regex.create_captures();
                regex.captures(text, &mut captures);
                captures.is_match().then_some(Found::Captures(captures))
            }
            Kind::Any { has_group } => Some(Found::Whole(1 + usize::from(*has_group))),
            _ => self.is_match(text, steps)?.then_some(Found::Whole(1)),
        };
        Ok(found.map(|found| Groups { text, found }))
    }

    /// Limit on the steps for each byte of a text. The engine takes at most one step for each state, and copies the places of
    /// all groups with it if they are asked for.
    pub(super) fn steps_per_byte(&self, has_groups: bool) -> usize {
        match &self.kind {
            Kind::Engine { regex, states } if has_groups => states.saturating_mul(regex.captures_len()),
            Kind::Engine { states, .. } => *states,
            _ => 1,
        }
    }

    /// Number of groups, including the whole match.
    pub(super) fn group_count(&self) -> usize {
        match &self.kind {
            Kind::Engine { regex, .. } => regex.captures_len(),
            Kind::Any { has_group: true } => 2,
            _ => 1,
        }
    }

    pub(super) fn group_named(&self, name: &str) -> Option<usize> {
        match &self.kind {
            Kind::Engine { regex, .. } => {
                let mut names = regex.group_info().pattern_names(regex_automata::PatternID::ZERO);
                names.position(|found| found == Some(name))
            }
            _ => None,
        }
    }

    /// Memory that the expression takes in any case. While it matches, each thread takes some more.
    pub(super) fn memory_bytes(&self) -> usize {
        let own = match &self.kind {
            Kind::Any { .. } => 0,
            Kind::OneOf(texts) => texts.capacity() * 2 * size_of::<Box<str>>() + self.text.len(),
            Kind::Prefix { prefix, .. } => prefix.len(),
            Kind::Engine { regex, .. } => regex.memory_usage(),
        };
        own + self.text.len()
    }
}

fn simple(text: &str) -> Option<Kind> {
    match text {
        ".*" => return Some(Kind::Any { has_group: false }),
        "(.*)" => return Some(Kind::Any { has_group: true }),
        _ => {}
    }
    for (end, more) in [(".*", 0), (".+", 1)] {
        if let Some(prefix) = text.strip_suffix(end).and_then(literal) {
            return Some(Kind::Prefix { prefix: prefix.into(), more });
        }
    }
    // a `|` after a backslash leaves the backslash at the end of a part, which is then no literal
    let texts: Option<HashSet<Box<str>>> =
        text.split('|').map(|part| literal(part).map(String::into_boxed_str)).collect();
    texts.map(Kind::OneOf)
}

/// The text that an expression without operators matches.
fn literal(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => out.push(chars.next().filter(char::is_ascii_punctuation)?),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

fn engine(text: &str) -> Result<Kind, String> {
    let translated = translated(text)?;
    // parsed alone first, because `a)|(b` would close the group that anchors it
    syntax::parse(&translated).map_err(|error| last_line(&error.to_string()))?;
    let whole = format!("^(?s:{translated})$");
    let too_large = |limit: Option<usize>, error: &dyn std::fmt::Display| match limit {
        Some(limit) => format!("it takes more than {} KiB of memory", limit >> 10),
        None => last_line(&error.to_string()),
    };
    let config = NfaConfig::new().nfa_size_limit(Some(COMPILED_BYTES_MAX)).which_captures(WhichCaptures::All);
    let nfa = Compiler::new().configure(config).build(&whole);
    let nfa = nfa.map_err(|error| too_large(error.size_limit(), &error))?;
    let config = Config::new()
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(COMPILED_BYTES_MAX))
        .hybrid_cache_capacity(AUTOMATON_BYTES_MAX);
    let regex = Regex::builder().configure(config).build(&whole);
    let regex = regex.map_err(|error| too_large(error.size_limit(), &error))?;
    if regex.captures_len() > GROUPS_MAX {
        return Err(format!("{} groups, the limit is {}", regex.captures_len() - 1, GROUPS_MAX - 1));
    }
    Ok(Kind::Engine { regex: Box::new(regex), states: nfa.states().len() })
}

/// Last line of a parser's error. The earlier lines repeat the expression.
fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Rewrites what Go reads differently from the engine: classes of ASCII characters, `\Q…\E`, braces that are
/// not a repetition, and `[`, `&&`, `--` and `~~` in a class.
fn translated(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '\\' => escape(rest, false, &mut out)?,
            '[' => class(rest, &mut out)?,
            '{' => brace(rest, &mut out),
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Ok(out)
}

/// Copies an escape, and returns its length.
fn escape(text: &str, is_in_class: bool, out: &mut String) -> Result<usize, String> {
    let Some(next) = text[1..].chars().next() else { return Err("it ends with a backslash".into()) };
    let class = match next {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => "[\\t\\n\\f\\r ]",
        'S' => "[^\\t\\n\\f\\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        'b' if !is_in_class => "(?-u:\\b)",
        'B' if !is_in_class => "(?-u:\\B)",
        '<' => "<",
        '>' => ">",
        'Q' if !is_in_class => {
            let quoted = &text[2..];
            let end = quoted.find("\\E").unwrap_or(quoted.len());
            for quoted in quoted[..end].chars() {
                if quoted.is_ascii_punctuation() && !matches!(quoted, '<' | '>') {
                    out.push('\\');
                }
                out.push(quoted);
            }
            return Ok((2 + end + 2).min(text.len()));
        }
        'C' => return Err("\\C (a single byte) is not supported".into()),
        // names of properties contain braces
        'p' | 'P' if text[2..].starts_with('{') => {
            let end = text.find('}').ok_or("\\p{ has no }")?;
            out.push_str(&text[..=end]);
            return Ok(end + 1);
        }
        'p' | 'P' => {
            let letter = text[2..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&text[..2 + letter]);
            return Ok(2 + letter);
        }
        'x' if text[2..].starts_with('{') => {
            let end = text.find('}').ok_or("\\x{ has no }")?;
            out.push_str(&text[..=end]);
            return Ok(end + 1);
        }
        other => {
            out.push('\\');
            out.push(other);
            return Ok(1 + other.len_utf8());
        }
    };
    out.push_str(class);
    Ok(2)
}

/// Classes with a name, such as `[:digit:]`.
const ASCII_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Copies a class, and returns its length. A class without an end is copied whole, and so is an error later.
fn class(text: &str, out: &mut String) -> Result<usize, String> {
    let mut at = 1;
    out.push('[');
    if text[at..].starts_with('^') {
        out.push('^');
        at += 1;
    }
    let mut is_first = true;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(']') && !is_first {
            out.push(']');
            return Ok(at + 1);
        }
        is_first = false;
        if rest.starts_with("[:")
            && let Some(end) = rest[2..].find(":]")
        {
            let name = &rest[2..2 + end];
            if !ASCII_CLASSES.contains(&name.trim_start_matches('^')) {
                return Err(format!("there is no class [:{name}:]"));
            }
            out.push_str(&rest[..end + 4]);
            at += end + 4;
            continue;
        }
        let (length, is_character) = class_item(rest, out)?;
        at += length;
        // a minus between two characters makes a range, whatever the second one is
        let rest = &text[at..];
        if is_character && rest.len() > 1 && rest.starts_with('-') && !rest.starts_with("-]") {
            out.push('-');
            let (length, is_character) = class_item(&rest[1..], out)?;
            if !is_character {
                return Err("a range in a class does not end with a character".into());
            }
            at += 1 + length;
        }
    }
    Ok(at)
}

/// Copies a character or an escape of a class. Returns its length, and whether it can begin a range.
fn class_item(text: &str, out: &mut String) -> Result<(usize, bool), String> {
    let Some(next) = text.chars().next() else { return Ok((0, false)) };
    if next == '\\' {
        let is_class = text[1..].starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p', 'P']);
        return Ok((escape(text, true, out)?, !is_class));
    }
    if matches!(next, '[' | ']' | '^' | '-' | '&' | '~') {
        out.push('\\');
    }
    out.push(next);
    Ok((next.len_utf8(), true))
}

/// Copies a repetition, or a brace that begins none, and returns its length.
fn brace(text: &str, out: &mut String) -> usize {
    let end = text.find('}').filter(|end| is_repetition(&text[1..*end]));
    match end {
        Some(end) => {
            out.push_str(&text[..=end]);
            end + 1
        }
        None => {
            out.push_str("\\{");
            1
        }
    }
}

/// Tells whether the text between two braces is `n`, `n,` or `n,m`.
fn is_repetition(text: &str) -> bool {
    let (low, high) = text.split_once(',').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_whole_texts() {
        for (pattern, matching, others) in [
            (".*", &["", "a", "a\nb"][..], &[][..]),
            ("", &[""], &["a"]),
            ("a|b.c|", &["a", "bxc", ""], &["b", "ab"]),
            ("a|b\\.c|", &["a", "b.c", ""], &["bxc", "ab", "a|b.c"]),
            ("a\\|b", &["a|b"], &["a", "b"]),
            ("go_.*", &["go_", "go_x", "go_\n"], &["xgo_", "go"]),
            ("go_.+", &["go_x"], &["go_"]),
            ("go_\\.*", &["go_", "go_.."], &["go_x"]),
            ("a.c", &["abc", "a\nc"], &["xabc", "abcx"]),
            ("(?i)Ab", &["aB"], &["aBc"]),
            ("\\d+", &["17"], &["١٧", ""]),
            ("\\w\\W\\s", &["a- "], &["é- "]),
            ("[[:alpha:]_[]+", &["a_["], &["1"]),
            ("[a&&b]+", &["a&b"], &["c"]),
            ("[^]a]", &["b"], &["]", "a"]),
            ("x{,2}", &["x{,2}"], &["x", "xx"]),
            ("x{2}{", &["xx{"], &["xx"]),
            ("\\Qa.b\\E+", &["a.b", "a.bb"], &["axb"]),
            ("\\Qa.b", &["a.b"], &["axb"]),
            ("\\pL+\\p{Greek}", &["éα"], &["éa"]),
            ("\\x{e9}\\x41", &["éA"], &["eA"]),
            ("a\\b-", &["a-"], &["a"]),
            ("(?m)^a$", &["a"], &["a\nb", "b\na"]),
            ("[\\w.]+", &["a.b"], &["a-b"]),
            ("[+--]+", &["+,-"], &["."]),
            ("[--/]+", &["-./"], &[",", "0"]),
            ("[&--]+", &["&'-"], &["."]),
            ("[[-^]+", &["[\\]^"], &["_", "Z"]),
            ("[]-a]+", &["]^_`a"], &["b", "\\"]),
            ("[^]-a]+", &["b\\"], &["]", "`"]),
            ("[a\\-z]+", &["a-z"], &["b"]),
            ("[\\d-z]+", &["1-z"], &["y"]),
            ("[a-]+", &["a-"], &["b"]),
            ("[\\pL-~]+", &["é-~"], &["1"]),
            ("[\\t-\\r]+", &["\t\n\r"], &[" ", "t"]),
            ("[a~~b^]+", &["a~b^"], &["c"]),
        ] {
            let compiled = Pattern::compile(pattern).unwrap();
            for (texts, expected) in [(matching, true), (others, false)] {
                for text in texts {
                    let steps = Steps::default();
                    assert_eq!(compiled.is_match(text, &steps), Ok(expected), "{pattern} {text:?}");
                    assert_eq!(
                        compiled.groups(text, &steps).unwrap().is_some(),
                        expected,
                        "{pattern} {text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn simple_expressions_need_no_engine() {
        let is_simple = |text: &str| !matches!(Pattern::compile(text).unwrap().kind, Kind::Engine { .. });
        for text in [".*", "(.*)", "up", "a|b|c", "go_.*", "go_.+", "a\\.b", "", "é|ü"] {
            assert!(is_simple(text), "{text}");
        }
        for text in ["a.b", "(a|b)", "a?", ".*a", "a|b.*", "(.+)"] {
            assert!(!is_simple(text), "{text}");
        }
    }

    #[test]
    fn groups_are_found_by_number_and_name() {
        let compiled = Pattern::compile("(?P<env>[a-z]+)-(x)?(.*)").unwrap();
        assert_eq!(
            (compiled.group_count(), compiled.group_named("env"), compiled.group_named("no")),
            (4, Some(1), None)
        );
        let groups = compiled.groups("prod-é", &Steps::default()).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|number| groups.get(number)), ["prod-é", "prod", "", "é", ""]);
        let any = Pattern::compile("(.*)").unwrap();
        let groups = any.groups("a", &Steps::default()).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|number| groups.get(number)), ["a", "a", ""]);
    }

    #[test]
    fn errors_say_why() {
        for (pattern, reason) in [
            ("(", "unclosed group"),
            ("a)|(b", "unopened group"),
            ("a(?!b)", "look-around"),
            ("(a)\\1", "backreferences are not supported"),
            ("(\\w{100}){100}", "more than 256 KiB"),
            ("[a", "unclosed character class"),
            ("[a--]", "invalid character class range"),
            ("[--\\W]", "does not end with a character"),
            ("[[:x:]", "no class [:x:]"),
            ("a\\", "ends with a backslash"),
            ("\\C", "not supported"),
            (&"(a)".repeat(33), "33 groups, the limit is 32"),
        ] {
            let error = Pattern::compile(pattern).unwrap_err();
            assert!(error.contains(reason) && error.contains(&format!("{pattern:?}")), "{error}");
        }
        assert!(Pattern::compile(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        assert!(Pattern::compile(r".*\Ba").unwrap().is_match("ba", &Steps::default()).unwrap());
    }

    /// Backtracking engines need 2^30 steps for this.
    #[test]
    fn a_pattern_bomb_takes_linear_time() {
        let steps = Steps::default();
        let bomb = Pattern::compile(&format!("{}{}b", "a?".repeat(30), "a".repeat(30))).unwrap();
        assert_eq!(bomb.is_match(&"a".repeat(30), &steps), Ok(false));
        let nested = Pattern::compile("((a*)*)*b").unwrap();
        assert!(nested.groups(&"a".repeat(10_000), &steps).unwrap().is_none());
        let large = Pattern::compile("(?:a?){500}b").unwrap();
        assert_eq!(large.is_match("aab", &steps), Ok(true));
        // each match takes some of the steps of the series
        let long = "a".repeat(10_000);
        let matches = (0..100).take_while(|_| large.is_match(&long, &steps) == Ok(false)).count();
        assert!((1..20).contains(&matches), "{matches}");
        assert_eq!(large.is_match("aab", &steps), Err(TooMuch::Steps));
        assert_eq!(large.is_match("aab", &Steps::default()), Ok(true));
    }
}
