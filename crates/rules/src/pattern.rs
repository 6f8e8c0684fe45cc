//! Regular expressions in Python's syntax.
//!
//! Carbon's files contain expressions for Python. The `regex` crate has another syntax in a few places, which
//! [`translated`] bridges. It matches in linear time, so it has no look-around and no backreferences. An
//! expression that needs them is an error.

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// Limit on the length of an expression.
const PATTERN_BYTES_MAX: usize = 4096;

/// Limit on the compiled size of an expression. With [`crate::RULES_MAX`], it limits the memory of a file.
pub(crate) const COMPILED_BYTES_MAX: usize = 256 << 10;

/// Compiles an expression that is searched for anywhere in a name, like Python's `re.search`.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("expression of {} bytes, the limit is {PATTERN_BYTES_MAX}", pattern.len()));
    }
    let mut builder = RegexBuilder::new(&translated(pattern));
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX);
    builder.build().map_err(|error| reason(pattern, &error))
}

/// Limit on the compiled size of a set of expressions.
const SET_BYTES_MAX: usize = 4 << 20;

/// Compiles expressions into a set, which is matched in one pass. [`compile`] must have accepted each of them. Each thread that uses the
/// set takes up to `cache_bytes_max` of memory. Returns `None` if the set would be too large.
pub(crate) fn set<'a>(compiled: impl Iterator<Item = &'a str>, cache_bytes_max: usize) -> Option<RegexSet> {
    let mut builder = RegexSetBuilder::new(compiled);
    builder.size_limit(SET_BYTES_MAX).dfa_size_limit(cache_bytes_max).build().ok()
}

fn reason(pattern: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            format!("expression {pattern:?} takes more than {} KiB of memory", COMPILED_BYTES_MAX >> 10)
        }
        error => {
            // the last line of the library's message has the reason, the others show the expression
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("expression {pattern:?}: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
    }
}

/// Rewrites what Python reads differently: literal braces, `{,n}`, `\Z`, `\<`, and brackets, `&&`, `~~` and
/// `--` in a class.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '\\' => escape(rest, &mut out),
            '[' => class(rest, &mut out),
            '{' => brace(rest, &mut out),
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// Copies an escape, and returns its length.
fn escape(text: &str, out: &mut String) -> usize {
    match text[1..].chars().next() {
        Some('Z') => out.push_str("\\z"),
        Some(angle @ ('<' | '>')) => out.push(angle),
        Some(other) => {
            out.push('\\');
            out.push(other);
        }
        None => out.push('\\'),
    }
    1 + text[1..].chars().next().map_or(0, char::len_utf8)
}

/// Copies a class, and returns its length. A class without an end is copied to the last character, which fails later.
fn class(text: &str, out: &mut String) -> usize {
    let mut at = 1;
    out.push('[');
    if text[at..].starts_with('^') {
        out.push('^');
        at += 1;
    }
    if text[at..].starts_with(']') {
        out.push_str("\\]");
        at += 1;
    }
    while let Some(next) = text[at..].chars().next() {
        match next {
            '\\' => {
                at += escape(&text[at..], out);
                continue;
            }
            ']' => {
                out.push(']');
                return at + 1;
            }
            '[' => out.push_str("\\["),
            '&' | '~' => {
                out.push('\\');
                out.push(next);
            }
            '-' if text[at + 1..].starts_with('-') => out.push_str("\\-"),
            other => out.push(other),
        }
        at += next.len_utf8();
    }
    at
}

/// Copies a repetition, or a brace that begins none, and returns its length.
fn brace(text: &str, out: &mut String) -> usize {
    let end = text.find('}').filter(|end| is_repetition(&text[1..*end]));
    match end {
        Some(end) if text[1..].starts_with(',') => {
            out.push_str("{0");
            out.push_str(&text[1..=end]);
            end + 1
        }
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

/// Tells whether the text between two braces is `n`, `n,`, `,m` or `n,m`.
fn is_repetition(text: &str) -> bool {
    let (low, high) = text.split_once(',').map_or((text, None), |(low, high)| (low, Some(high)));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    digits(low) && high.is_none_or(digits) && text.len() > usize::from(high.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_syntax() {
        for (python, rust) in [
            (r"^carbon\.", r"^carbon\."),
            (r"a{2,3}b{4}c{5,}", r"a{2,3}b{4}c{5,}"),
            (r"a{,3}", r"a{0,3}"),
            (r"{a,b}{}", r"\{a,b}\{}"),
            (r"end\Z", r"end\z"),
            (r"\<all\>", r"<all>"),
            (r"[[a]x", r"[\[a]x"),
            (r"[]a]", r"[\]a]"),
            (r"[^]a]", r"[^\]a]"),
            (r"[a&&b~~c]", r"[a\&\&b\~\~c]"),
            (r"[\]{]{", r"[\]{]\{"),
            (r"\[a", r"\[a"),
            ("é[é]\\é", "é[é]\\é"),
        ] {
            assert_eq!(translated(python), rust, "{python}");
        }
    }

    #[test]
    fn searches_anywhere() {
        let found = |pattern: &str, name: &str| compile(pattern).unwrap().is_match(name);
        assert!(found("load$", "web1.load"));
        assert!(!found("^load", "web1.load"));
        assert!(found(r"^(?P<env>[a-z]+)\.(app|db)\d{1,3}\.", "prod.app17.cpu"));
        assert!(found(r"[.\-_]count\Z", "a_count"));
    }

    #[test]
    fn errors_say_why() {
        for (pattern, reason) in [
            ("(", "unclosed group"),
            ("a(?!b)", "look-around"),
            (r"(a)\1", "backreferences are not supported"),
            (r"(\w{100}){100}", "takes more than 256 KiB"),
            ("[a", "unclosed character class"),
        ] {
            let error = compile(pattern).unwrap_err();
            assert!(
                error.contains(reason) && error.contains(pattern.escape_debug().to_string().as_str()),
                "{error}"
            );
        }
        assert!(compile(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    }
}
