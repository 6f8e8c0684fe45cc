//! Regular expressions in arguments of functions, with the replacements of Python.

use crate::matcher::Program;
use crate::meter::{Charge, Meter};
use crate::{QueryError, graphite::call::Call};
use regex_automata::PatternID;
use regex_automata::util::captures::{Captures, GroupInfo};

/// Longest regular expression in bytes.
const PATTERN_BYTES_MAX: usize = 4096;

/// Longest replacement, and longest name with its replacements, in bytes.
const NAME_BYTES_MAX: usize = 64 << 10;

/// Maximum number of replacements in a name. Each one searches the rest of the name.
const REPLACEMENTS_MAX: usize = 1000;

/// A regular expression that is searched in names.
#[derive(Debug)]
pub(super) struct Pattern<'m> {
    program: Program,
    charge: Charge<'m>,
}

/// What replaces each match.
#[derive(Debug)]
pub(super) struct Replacement(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What a group matched. The whole match is group 0.
    Group(usize),
}

impl<'m> Pattern<'m> {
    /// The pattern that is the argument of a parameter.
    pub(super) fn of(call: &Call<'m>, param: &str) -> Result<Self, QueryError> {
        let text = call.text(param);
        if text.len() > PATTERN_BYTES_MAX {
            return Err(
                call.refuse(format!("the regular expression has more than {PATTERN_BYTES_MAX} bytes"))
            );
        }
        Self::compile(&text, call.meter())?.map_err(|error| call.refuse(error))
    }

    fn compile(text: &str, meter: &'m Meter<'m>) -> Result<Result<Self, String>, QueryError> {
        let mut charge = meter.charge();
        charge.add_bytes(Program::compilation_bytes(text))?;
        let program = match Program::compile_to_search(text) {
            Ok(program) => program,
            Err(error) => return Ok(Err(error.to_string())),
        };
        drop(charge);
        let mut charge = meter.charge();
        charge.add_bytes(program.memory_bytes())?;
        Ok(Ok(Self { program, charge }))
    }

    /// Fails if it would take too long, because names may be long.
    pub(super) fn is_match(&self, name: &str) -> Result<bool, QueryError> {
        self.program.is_match_of_any_length(name).map_err(QueryError::Invalid)
    }

    /// Reads the replacement that is the argument of a parameter: `\1` and `\g<name>` are what groups matched.
    pub(super) fn replacement(&self, call: &Call<'_>, param: &str) -> Result<Replacement, QueryError> {
        let text = call.text(param);
        if text.len() > NAME_BYTES_MAX {
            return Err(call.refuse(format!("the replacement has more than {NAME_BYTES_MAX} bytes")));
        }
        let groups = self.program.groups();
        pieces(&text, groups.group_info()).map(Replacement).map_err(|error| call.refuse(error))
    }

    /// Replaces all matches in a name that do not overlap. Like Python, replaces an empty match also behind another
    /// match, but not behind an empty one.
    pub(super) fn replace(&self, name: &str, replacement: &Replacement) -> Result<String, QueryError> {
        let too_long =
            || QueryError::Invalid(format!("a replacement makes a name longer than {NAME_BYTES_MAX} bytes"));
        let (mut out, mut groups) = (String::new(), self.program.groups());
        let (mut copied, mut start) = (0, 0);
        for number in 0.. {
            // each search may read the rest of the name
            self.charge.check()?;
            let is_found = start <= name.len()
                && self.program.find_groups_from(name, start, &mut groups).map_err(QueryError::Invalid)?;
            let Some(found) = groups.get_match().filter(|_| is_found) else { break };
            if number == REPLACEMENTS_MAX {
                return Err(QueryError::Invalid(format!(
                    "a name has more than {REPLACEMENTS_MAX} matches to replace"
                )));
            }
            out.push_str(&name[copied..found.start()]);
            if !replacement.write(name, &groups, &mut out) {
                return Err(too_long());
            }
            (copied, start) = (found.end(), found.end());
            if found.is_empty() {
                // the next match begins behind the next character
                start += name[start..].chars().next().map_or(1, char::len_utf8);
            }
        }
        out.push_str(&name[copied..]);
        if out.len() > NAME_BYTES_MAX { Err(too_long()) } else { Ok(out) }
    }
}

impl Replacement {
    /// Stops and returns false before the result is longer than a name may be.
    fn write(&self, name: &str, groups: &Captures, out: &mut String) -> bool {
        for piece in &self.0 {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Group(number) => groups.get_group(*number).map_or("", |group| &name[group.range()]),
            };
            if out.len() + text.len() > NAME_BYTES_MAX {
                return false;
            }
            out.push_str(text);
        }
        true
    }
}

fn pieces(text: &str, groups: &GroupInfo) -> Result<Vec<Piece>, String> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        push_text(&mut out, &rest[..at]);
        rest = &rest[at + 1..];
        let next = rest.chars().next().ok_or("the replacement ends with a backslash")?;
        let (piece, len) = match next {
            'g' => named_group(rest, groups)?,
            '0' => return Err("octal numbers are not allowed in replacements".into()),
            '1'..='9' => {
                let len = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
                (group(&rest[..len], groups)?, len)
            }
            'n' => (Piece::Text("\n".into()), 1),
            't' => (Piece::Text("\t".into()), 1),
            letter if letter.is_ascii_alphabetic() => {
                return Err(format!("unknown escape \\{letter} in the replacement"));
            }
            // other characters stand for themselves; only a backslash loses the one before
            '\\' => (Piece::Text("\\".into()), 1),
            other => (Piece::Text(format!("\\{other}")), other.len_utf8()),
        };
        match piece {
            Piece::Text(text) => push_text(&mut out, &text),
            piece => out.push(piece),
        }
        rest = &rest[len..];
    }
    push_text(&mut out, rest);
    Ok(out)
}

/// Reads `g<name>` or `g<1>`. Returns its length too.
fn named_group(text: &str, groups: &GroupInfo) -> Result<(Piece, usize), String> {
    let name = text.strip_prefix("g<").and_then(|rest| rest.split_once('>')).map(|(name, _)| name);
    let name = name.ok_or("expected \\g<name> in the replacement")?;
    Ok((group(name, groups)?, name.len() + 3))
}

fn group(name: &str, groups: &GroupInfo) -> Result<Piece, String> {
    let number = match name.parse::<usize>() {
        Ok(number) => Some(number).filter(|number| *number < groups.group_len(PatternID::ZERO)),
        Err(_) => groups.to_index(PatternID::ZERO, name),
    };
    number.map(Piece::Group).ok_or_else(|| format!("the regular expression has no group {name:?}"))
}

fn push_text(out: &mut Vec<Piece>, text: &str) {
    match out.last_mut() {
        Some(Piece::Text(before)) => before.push_str(text),
        _ if text.is_empty() => {}
        _ => out.push(Piece::Text(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn matches_are_replaced_as_in_python() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(1 << 20, &canceled, None);
        for (pattern, replacement, name, replaced) in [
            ("b", "x", "a.b.b", Ok("a.x.x")),
            ("^a", "x", "aaa", Ok("xaa")),
            (r"(\w+)\.(\w+)", r"\2.\1", "a.b.c.d", Ok("b.a.d.c")),
            (r"(?P<first>\w+)\.", r"\g<first>-\g<1>", "a.b", Ok("a-ab")),
            ("x*", "-", "abxd", Ok("-a-b--d-")),
            ("(a)|b", r"<\1>", "ab", Ok("<a><>")),
            ("a", r"\\\n\.$1", "a", Ok("\\\n\\.$1")),
            ("a", r"\2", "a", Err("has no group \"2\"")),
            ("a", r"\q", "a", Err("unknown escape \\q")),
            ("a", "\\", "a", Err("ends with a backslash")),
            ("é", "e", "café", Ok("cafe")),
            ("", "-", "é", Ok("-é-")),
        ] {
            let compiled = Pattern::compile(pattern, &meter).unwrap().unwrap();
            let pieces = pieces(replacement, compiled.program.groups().group_info()).map(Replacement);
            let result = pieces.and_then(|pieces| compiled.replace(name, &pieces).map_err(|e| e.to_string()));
            match (result, replaced) {
                (Ok(result), Ok(replaced)) => assert_eq!(result, replaced, "{pattern} {replacement}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{pattern} {replacement}: {error}"),
                (result, _) => panic!("{pattern} {replacement}: {result:?}, expected {replaced:?}"),
            }
        }
    }

    #[test]
    fn patterns_that_are_slow_to_match_are_refused_for_long_names() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(1 << 20, &canceled, None);
        let pattern = Pattern::compile("[ab]*a[ab]{2000}c", &meter).unwrap().unwrap();
        assert_eq!(pattern.is_match(&format!("a{}c", "b".repeat(2000))), Ok(true));
        let error = pattern.is_match(&"ab".repeat(125_000)).unwrap_err().to_string();
        assert!(error.contains("matching a value of 250000 bytes takes"), "{error}");
        let pattern = Pattern::compile("web-[0-9]+\\.cpu", &meter).unwrap().unwrap();
        assert_eq!(pattern.is_match(&"ab".repeat(125_000)), Ok(false));
    }

    #[test]
    fn replacing_ends_once_the_query_is_canceled() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(1 << 20, &canceled, None);
        let pattern = Pattern::compile("a", &meter).unwrap().unwrap();
        canceled.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(pattern.replace("aaa", &Replacement(Vec::new())), Err(QueryError::Canceled));
    }

    #[test]
    fn a_replacement_cannot_make_names_of_any_length() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(1 << 20, &canceled, None);
        let pattern = Pattern::compile("a", &meter).unwrap().unwrap();
        let pieces = Replacement(vec![Piece::Text("x".repeat(1000))]);
        assert!(pattern.replace(&"a".repeat(100), &pieces).is_err());
        assert!(pattern.replace(&"a".repeat(1001), &Replacement(Vec::new())).is_err());
        // one match with thousands of groups
        let pieces = Replacement((0..30_000).map(|_| Piece::Group(0)).collect());
        let pattern = Pattern::compile("a+", &meter).unwrap().unwrap();
        let (mut out, mut groups) = (String::new(), pattern.program.groups());
        let name = "a".repeat(1000);
        assert!(pattern.replace(&name, &pieces).is_err());
        assert!(pattern.program.find_groups_from(&name, 0, &mut groups).unwrap());
        assert!(!pieces.write(&name, &groups, &mut out));
        assert!(out.capacity() <= 2 * NAME_BYTES_MAX, "{}", out.capacity());
    }
}
