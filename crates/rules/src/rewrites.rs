//! `rewrite-rules.conf`: search and replace in names.
//!
//! ```text
//! [pre]
//! ^collectd\.([a-z]+)\. = \1.system.
//! [post]
//! _sum$ =
//! ```
//!
//! The rules of `[pre]` apply before carbon's aggregation rules, those of `[post]` after them and to their
//! results.

use crate::{RULES_MAX, RuleError, pattern};
use regex::{Captures, Regex};
use std::borrow::Cow;

/// Limit on the length of a rewritten name, as for names that are received. Points with a longer one are
/// refused.
const NAME_BYTES_MAX: usize = 64 << 10;

/// Limit on the bytes that searches may read again after matches in a name, for all rules of a section together. Each match
/// adds the whole rest of the name, so without a limit, a long name with many matches would take time in proportion to the
/// square of its length. A name of 1,000 bytes may match at each byte. With usual expressions, this takes two milliseconds.
pub const SEARCHED_BYTES_MAX: usize = 512 << 10;

/// The rules of a file.
#[derive(Debug, Default)]
pub struct Rewrites {
    pre: Vec<Rewrite>,
    post: Vec<Rewrite>,
}

#[derive(Debug)]
struct Rewrite {
    pattern: Regex,
    template: Vec<Part>,
}

/// A part of a replacement.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

/// Why a name cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    #[error("a rewrite rule makes a name of more than {NAME_BYTES_MAX} bytes")]
    TooLong,
    #[error(
        "a rewrite rule matches too often in this long name: the searches would look at more than {SEARCHED_BYTES_MAX} bytes"
    )]
    TooManyMatches,
}

impl Rewrites {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut found = Self::default();
        let mut section: Option<&mut Vec<Rewrite>> = None;
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('[') && line.ends_with(']') {
                let rules = match line[1..line.len() - 1].to_ascii_lowercase().as_str() {
                    "pre" => &mut found.pre,
                    "post" => &mut found.post,
                    _ => return Err(RuleError::new(number, format!("{line:?} is neither [pre] nor [post]"))),
                };
                rules.clear(); // in carbon, too, the last of several sections counts
                section = Some(rules);
                continue;
            }
            let rules = section.as_deref_mut();
            let rules = rules.ok_or_else(|| RuleError::new(number, "a rule before [pre] or [post]"))?;
            if rules.len() == RULES_MAX {
                return Err(RuleError::new(number, format!("more than {RULES_MAX} rules")));
            }
            rules.push(rewrite(line).map_err(|reason| RuleError::new(number, reason))?);
        }
        Ok(found)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.pre.len() + self.post.len()
    }

    /// Applies the rules of `[pre]`, each to the result of the one before.
    pub fn pre<'n>(&self, name: &'n str) -> Result<Cow<'n, str>, RewriteError> {
        apply(&self.pre, name)
    }

    pub fn post<'n>(&self, name: &'n str) -> Result<Cow<'n, str>, RewriteError> {
        apply(&self.post, name)
    }
}

fn apply<'n>(rules: &[Rewrite], name: &'n str) -> Result<Cow<'n, str>, RewriteError> {
    let (mut name, mut left_bytes) = (Cow::Borrowed(name), SEARCHED_BYTES_MAX);
    for rule in rules {
        if rule.pattern.is_match(&name) {
            name = Cow::Owned(rule.apply(&name, &mut left_bytes)?);
        }
    }
    Ok(name)
}

impl Rewrite {
    /// Replaces all matches. As in Python since 3.7, an empty match may follow another one at once: in `abc`, `.*` is found
    /// twice. After an empty match, Python also finds one that is not empty at the same place, for example `^|web` in `web1`.
    /// The `regex` crate cannot search for that.
    ///
    /// The searches take from `left_bytes` what they may look at.
    fn apply(&self, name: &str, left_bytes: &mut usize) -> Result<String, RewriteError> {
        let (mut out, mut copied) = (String::with_capacity(name.len()), 0);
        let (mut at, mut empty_at) = (0, None);
        while let Some(found) = self.pattern.captures_at(name, at) {
            let all = found.get_match();
            if all.is_empty() && empty_at == Some(all.end()) {
                let Some(next) = name[at..].chars().next() else { break };
                at += next.len_utf8();
                continue;
            }
            out.push_str(&name[copied..all.start()]);
            self.expand(&found, &mut out);
            if out.len() > NAME_BYTES_MAX {
                return Err(RewriteError::TooLong);
            }
            (copied, at) = (all.end(), all.end());
            empty_at = all.is_empty().then_some(at);
            *left_bytes = left_bytes.checked_sub(name.len() - at).ok_or(RewriteError::TooManyMatches)?;
        }
        out.push_str(&name[copied..]);
        if out.len() > NAME_BYTES_MAX { Err(RewriteError::TooLong) } else { Ok(out) }
    }

    fn expand(&self, found: &Captures<'_>, out: &mut String) {
        for part in &self.template {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Group(number) => out.push_str(found.get(*number).map_or("", |group| group.as_str())),
            }
        }
    }
}

fn rewrite(line: &str) -> Result<Rewrite, String> {
    let (pattern, replacement) = line
        .split_once('=')
        .ok_or_else(|| format!("{line:?} is neither a section nor \"expression = replacement\""))?;
    let pattern = pattern::compile(pattern.trim())?;
    let template = template(replacement.trim(), &pattern)?;
    Ok(Rewrite { pattern, template })
}

/// Parses a replacement in Python's syntax: `\1`, `\g<1>`, `\g<name>`, `\\`.
fn template(text: &str, pattern: &Regex) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        parts.push(Part::Text(rest[..at].to_owned()));
        rest = &rest[at + 1..];
        let digits = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            parts.push(group(&rest[..digits], pattern)?);
            rest = &rest[digits..];
        } else if let Some(named) = rest.strip_prefix("g<") {
            let (name, after) = named.split_once('>').ok_or("\\g< has no > in the replacement")?;
            parts.push(group(name, pattern)?);
            rest = after;
        } else {
            // as in Python, other letters have no meaning, and a sign stands for itself after a backslash
            let next = rest.chars().next().ok_or("the replacement ends with a backslash")?;
            match next {
                '\\' => parts.push(Part::Text("\\".into())),
                letter if letter.is_ascii_alphabetic() => {
                    return Err(format!("\\{letter} has no meaning in a replacement"));
                }
                sign => parts.push(Part::Text(format!("\\{sign}"))),
            }
            rest = &rest[next.len_utf8()..];
        }
    }
    parts.push(Part::Text(rest.to_owned()));
    parts.retain(|part| *part != Part::Text(String::new()));
    Ok(parts)
}

fn group(name: &str, pattern: &Regex) -> Result<Part, String> {
    let number = name.parse().ok().filter(|number| *number < pattern.captures_len());
    let number = number.or_else(|| pattern.capture_names().position(|found| found == Some(name)));
    number.map(Part::Group).ok_or_else(|| format!("the expression has no group {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_apply_one_after_the_other() {
        let text = "
            # c
            [pre]
            ^collectd\\.([a-z]+)\\. = \\1.system.
            (?P<a>x)(y) = \\g<2>\\g<a>\\\\
            [POST]
            _sum$ =
            = never
        ";
        // an empty expression is found between all characters
        assert!(Rewrites::parse(text).is_ok());
        let rules = Rewrites::parse(&text.replace("= never", "")).unwrap();
        assert_eq!(rules.pre("collectd.web.cpu").unwrap(), "web.system.cpu");
        assert_eq!(rules.pre("xyxy").unwrap(), "yx\\yx\\");
        assert_eq!(rules.post("a_sum").unwrap(), "a");
        assert!(matches!(rules.pre("other"), Ok(Cow::Borrowed("other"))));
        assert!(Rewrites::parse("[pre]\n").unwrap().is_empty());
    }

    #[test]
    fn empty_matches_follow_others_as_in_python() {
        for (pattern, rewritten) in [(".*", "<<"), ("x*", "<a<<b<"), ("b?", "<a<x<x<<"), ("", "<a<x<x<b<")] {
            let rules = Rewrites::parse(&format!("[pre]\n{pattern} = <\n")).unwrap();
            assert_eq!(rules.pre("axxb").unwrap(), rewritten, "{pattern}");
        }
    }

    #[test]
    fn the_last_of_several_sections_counts() {
        let rules = Rewrites::parse("[pre]\na = b\n[post]\nx = y\n[Pre]\nb = c\n").unwrap();
        assert_eq!((&*rules.pre("ab").unwrap(), &*rules.post("x").unwrap()), ("ac", "y"));
    }

    #[test]
    fn names_stay_bounded() {
        let rules: String = (0..40).map(|_| "(.*) = \\1\\1\\1\n").collect();
        let rules = Rewrites::parse(&format!("[pre]\n{rules}")).unwrap();
        assert_eq!(rules.pre("a"), Err(RewriteError::TooLong));
    }

    #[test]
    fn many_matches_in_a_long_name_are_refused() {
        let rules = Rewrites::parse("[pre]\n\\.a(\\..*_total)? = .b\n").unwrap();
        assert_eq!(rules.pre(&".a".repeat(300)).unwrap(), ".b".repeat(300));
        assert_eq!(rules.pre(&".a".repeat(15_000)), Err(RewriteError::TooManyMatches));
        // an empty match that follows another one counts as well
        let rules = Rewrites::parse("[pre]\n(x.*y)?(a)? = \\2\n").unwrap();
        assert_eq!(rules.pre(&"xa".repeat(15_000)), Err(RewriteError::TooManyMatches));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, error) in [
            ("a = b\n", "line 1: a rule before [pre] or [post]"),
            ("[mid]\n", "line 1: \"[mid]\" is neither [pre] nor [post]"),
            ("[pre]\na\n", "line 2: \"a\" is neither a section nor \"expression = replacement\""),
            ("[pre]\na = \\1\n", "line 2: the expression has no group \"1\""),
            ("[pre]\na = \\g<b>\n", "line 2: the expression has no group \"b\""),
            ("[pre]\na = \\g<b\n", "line 2: \\g< has no > in the replacement"),
            ("[pre]\na = \\q\n", "line 2: \\q has no meaning in a replacement"),
            ("[pre]\na = b\\\n", "line 2: the replacement ends with a backslash"),
        ] {
            assert_eq!(Rewrites::parse(text).unwrap_err().to_string(), error);
        }
    }
}
