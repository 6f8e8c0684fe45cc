//! `aggregation-rules.conf`: series that are computed from the points of others.
//!
//! ```text
//! <env>.applications.<app>.all.requests (60) = sum <env>.applications.<app>.*.requests
//!  └─ output                        seconds ┘    │   └─ input
//!                                      function ─┘
//! ```
//!
//! In the input, `*` and `<name>` stand for characters other than dots, and `<<name>>` for any characters. All else is a
//! regular expression. It must match a whole name, unless it has a `|` at its top level: as in carbon, only the last
//! alternative must then reach the end.
//!
//! - [`Function`]: how many values become one
//! - [`Buffer`]: the values of one output, until they are computed

mod buffer;
mod function;
mod quantile;

pub use buffer::{Buffer, Computed, Due, Missed};
pub use function::Function;

use crate::{RULES_MAX, RuleError, pattern};
use regex::{Regex, RegexSet};

/// Limit on the memory that each thread takes while it matches all inputs at once.
const SET_CACHE_BYTES_MAX: usize = 1 << 20;

/// Limit on the interval of a rule. Values are kept in memory for several intervals.
const INTERVAL_S_MAX: u32 = 86_400;

/// Limit on the length of an output's name. A rule does not apply to a point for which its output would be
/// longer.
const NAME_BYTES_MAX: usize = 64 << 10;

/// A rule of the file.
#[derive(Debug)]
pub struct Aggregation {
    pub interval_s: u32,
    pub function: Function,
    /// The line of the file, with single spaces.
    pub text: String,
    input: Regex,
    output: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The number of a group of the input.
    Field(usize),
}

impl Aggregation {
    /// Returns the name of the series to which a point of this name contributes. `None` if the rule does not match, or if
    /// the name would be too long.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<String> {
        let found = self.input.captures(name)?;
        let mut output = String::new();
        for part in &self.output {
            output.push_str(match part {
                Part::Text(text) => text,
                // a field of an alternative that was not used; this is how Python writes it
                Part::Field(group) => found.get(*group).map_or("None", |text| text.as_str()),
            });
            if output.len() > NAME_BYTES_MAX {
                return None;
            }
        }
        Some(output)
    }
}

/// The rules of a file.
#[derive(Debug, Default)]
pub struct Aggregations {
    rules: Vec<Aggregation>,
    /// The inputs of all rules, which are matched in one pass. `None` if they are too large together.
    inputs: Option<RegexSet>,
}

impl Aggregations {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut rules = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if rules.len() == RULES_MAX {
                return Err(RuleError::new(number, format!("more than {RULES_MAX} rules")));
            }
            rules.push(rule(line).map_err(|reason| RuleError::new(number, reason))?);
        }
        let inputs =
            pattern::set(rules.iter().map(|rule: &Aggregation| rule.input.as_str()), SET_CACHE_BYTES_MAX);
        Ok(Self { rules, inputs })
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    #[must_use]
    pub fn rules(&self) -> &[Aggregation] {
        &self.rules
    }

    /// The rules that match a name, with the names of their outputs.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Aggregation, String)> {
        let matches = self.inputs.as_ref().map(|inputs| inputs.matches(name));
        let rules = self.rules.iter().enumerate();
        rules
            .filter(move |(i, _)| matches.as_ref().is_none_or(|matches| matches.matched(*i)))
            .filter_map(|(_, rule)| Some((rule, rule.output(name)?)))
    }
}

fn rule(line: &str) -> Result<Aggregation, String> {
    let form = || format!("{line:?} is not of the form \"output (seconds) = function input\"");
    let (left, right) = line.split_once('=').ok_or_else(form)?;
    let [output, interval] = words(left).ok_or_else(form)?;
    let [function, input] = words(right).ok_or_else(form)?;
    let interval_s = interval.trim_start_matches('(').trim_end_matches(')').parse().ok();
    let interval_s = interval_s.filter(|interval_s| (1..=INTERVAL_S_MAX).contains(interval_s));
    let interval_s = interval_s
        .ok_or_else(|| format!("{interval:?} is not a number of seconds from 1 to {INTERVAL_S_MAX}"))?;
    let text = format!("{output} {interval} = {function} {input}");
    let function = Function::named(function).ok_or_else(|| {
        let known: Vec<_> = Function::ALL.iter().map(|(name, _)| *name).collect();
        format!("unknown function {function:?}; there are {}", known.join(", "))
    })?;
    let parts: Vec<_> = input.split('.').map(input_part).collect();
    let input = pattern::compile(&format!("^(?:{}$)", parts.join("\\.")))?;
    let output = output_parts(output, &input)?;
    Ok(Aggregation { interval_s, function, text, input, output })
}

fn words(text: &str) -> Option<[&str; 2]> {
    let mut words = text.split_whitespace();
    let found = [words.next()?, words.next()?];
    words.next().is_none().then_some(found)
}

/// Translates a part of the input between two dots to a regular expression. A part has at most one field; more of them are
/// text, and an output that uses them is an error.
fn input_part(part: &str) -> String {
    let field = |open: &str, close: &str, any: &str| {
        let (start, end) = (part.find(open)?, part.find(close)?);
        let name = part.get(start + open.len()..end)?;
        let (before, after) = (&part[..start], &part[end + close.len()..]);
        Some(format!("{before}(?P<{name}>{any}){after}"))
    };
    field("<<", ">>", ".+?").or_else(|| field("<", ">", "[^.]+?")).unwrap_or_else(|| match part {
        "*" => "[^.]+".into(),
        part => part.replace('*', "[^.]*"),
    })
}

/// Parses the output. `%%` stands for `%`, because carbon formats it with Python's operator `%`.
fn output_parts(text: &str, input: &Regex) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('<') {
        let (name, after) = after.split_once('>').ok_or("\"<\" has no \">\" in the output")?;
        let group = input.capture_names().position(|found| found == Some(name));
        parts.push(Part::Text(literal(before)?));
        parts.push(Part::Field(group.ok_or_else(|| format!("the input has no field <{name}>"))?));
        rest = after;
    }
    parts.push(Part::Text(literal(rest)?));
    parts.retain(|part| *part != Part::Text(String::new()));
    if parts.is_empty() { Err("the output has no name".into()) } else { Ok(parts) }
}

fn literal(text: &str) -> Result<String, &'static str> {
    if text.contains('>') {
        return Err("\">\" has no \"<\" in the output");
    }
    if text.replace("%%", "").contains('%') {
        return Err("\"%\" must be written as \"%%\" in the output");
    }
    Ok(text.replace("%%", "%"))
}

#[cfg(test)]
mod tests;
