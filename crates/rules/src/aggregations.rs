//! `aggregation-rules.conf`: series that are computed from others.
//!
//! ```text
//! <env>.applications.<app>.all.requests (60) = sum <env>.applications.<app>.*.requests
//! ```
//!
//! `*` stands for characters other than dots, `<name>` too, and `<<name>>` for any characters. The other parts are
//! regular expressions. A rule matches a whole name.

use crate::{RULES_MAX, RuleError, pattern};
use regex::Regex;

/// Limit on the interval of a rule. Values of several intervals are kept in memory.
const INTERVAL_S_MAX: u32 = 86_400;

/// How the values of an interval become one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Function {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    /// A quantile from 0 to 1, interpolated between two values.
    Quantile(f64),
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "count" => Self::Count,
            "p50" => Self::Quantile(0.5),
            "p75" => Self::Quantile(0.75),
            "p80" => Self::Quantile(0.8),
            "p90" => Self::Quantile(0.9),
            "p95" => Self::Quantile(0.95),
            "p99" => Self::Quantile(0.99),
            "p999" => Self::Quantile(0.999),
            _ => return None,
        })
    }
}

/// A rule of the file.
#[derive(Debug)]
pub struct Aggregation {
    pub interval_s: u32,
    pub function: Function,
    input: Regex,
    output: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    /// The number of a group of the input.
    Field(usize),
}

impl Aggregation {
    /// Returns the name of the series that a value of this name contributes to.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<String> {
        let found = self.input.captures(name)?;
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(group) => found.get(*group).map_or_else(String::new, |text| text.as_str().to_owned()),
        };
        Some(self.output.iter().map(part).collect())
    }
}

/// The rules of a file.
#[derive(Debug, Default)]
pub struct Aggregations {
    pub rules: Vec<Aggregation>,
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
        Ok(Self { rules })
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
    let function = Function::named(function).ok_or_else(|| {
        let known = "sum, avg, min, max, count, p50, p75, p80, p90, p95, p99 and p999";
        format!("unknown function {function:?}; there are {known}")
    })?;
    let parts: Vec<_> = input.split('.').map(input_part).collect();
    let input = pattern::compile(&format!("^(?:{})$", parts.join("\\.")))?;
    let output = output_parts(output, &input)?;
    Ok(Aggregation { interval_s, function, input, output })
}

fn words(text: &str) -> Option<[&str; 2]> {
    let mut words = text.split_whitespace();
    let found = [words.next()?, words.next()?];
    words.next().is_none().then_some(found)
}

/// Translates a part of the input between two dots to a regular expression.
fn input_part(part: &str) -> String {
    let field = |open: &str, close: &str, any: &str| {
        let (before, rest) = part.split_once(open)?;
        let (name, after) = rest.split_once(close)?;
        Some(format!("{before}(?P<{name}>{any}){after}"))
    };
    field("<<", ">>", ".+?").or_else(|| field("<", ">", "[^.]+?")).unwrap_or_else(|| match part {
        "*" => "[^.]+".into(),
        part => part.replace('*', "[^.]*"),
    })
}

fn output_parts(text: &str, input: &Regex) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('<') {
        let (name, after) = after.split_once('>').ok_or("\"<\" has no \">\" in the output")?;
        let group = input.capture_names().position(|found| found == Some(name));
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Field(group.ok_or_else(|| format!("the input has no field <{name}>"))?));
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs() {
        let check = |rule: &str, name: &str, output: Option<&str>| {
            let rules = Aggregations::parse(rule).unwrap().rules;
            assert_eq!(rules[0].output(name).as_deref(), output, "{rule}, {name}");
        };
        let requests = "<env>.apps.<app>.all.requests (60) = sum <env>.apps.<app>.*.requests";
        check(requests, "prod.apps.web.www1.requests", Some("prod.apps.web.all.requests"));
        check(requests, "prod.apps.web.www1.x.requests", None);
        check(requests, "prod.apps.web.www1.requests.more", None);
        let rest = "<env>.all.<rest> (10) = p99 <env>.host*.<<rest>>";
        check(rest, "prod.host17.cpu.user", Some("prod.all.cpu.user"));
        check(rest, "prod.cpu.user", None);
        let expression = r"<app>.<domain>.n (60) = count <app>.<domain>\d{2}.n";
        check(expression, "web.www01.n", Some("web.www.n"));
        check(expression, "web.www1.n", None);
        check("all (60) = avg *.load", "a.load", Some("all"));
        let rules = Aggregations::parse(&format!("# c\n\n{rest}\n")).unwrap().rules;
        assert_eq!((rules[0].interval_s, rules[0].function), (10, Function::Quantile(0.99)));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, error) in [
            ("a", "line 1: \"a\" is not of the form \"output (seconds) = function input\""),
            ("a (60) = sum b c", "is not of the form"),
            ("a (0) = sum b", "\"(0)\" is not a number of seconds from 1 to 86400"),
            ("a (60) = median b", "unknown function \"median\""),
            ("\na.<x> (60) = sum b.<y>", "line 2: the input has no field <x>"),
            ("a.<x (60) = sum b.<x>", "\"<\" has no \">\" in the output"),
            ("a (60) = sum b.(", "unclosed group"),
        ] {
            let found = Aggregations::parse(text).unwrap_err().to_string();
            assert!(found.contains(error), "{found}");
        }
    }
}
