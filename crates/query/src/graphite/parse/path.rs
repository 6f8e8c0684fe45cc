//! Paths in targets.

use super::{Fault, Parser};

/// Characters that end a path, unless a backslash escapes them.
const SYMBOLS: &str = "(){},'\"\\|";

impl Parser<'_, '_> {
    /// Parses a path, and removes the backslashes that escape.
    pub(super) fn path(&mut self) -> Result<String, Fault> {
        let rest = self.rest();
        let end = end_of(rest);
        if end == 0 {
            return Err(match rest.chars().next() {
                Some('{') => (self.at, fault_of_braces(rest).into()),
                _ => self.expected("a path or a function"),
            });
        }
        if rest[end..].starts_with('{') {
            return Err((self.at + end, fault_of_braces(&rest[end..]).into()));
        }
        if self.is_name && end_of_nodes(&rest[..end]) < end {
            return Err((self.at, "the name has a path that no target can have".into()));
        }
        self.count(3 * end)?;
        self.at += end;
        let mut path = String::with_capacity(end);
        let mut is_escaped = false;
        for c in rest[..end].chars() {
            is_escaped = c == '\\' && !is_escaped;
            if !is_escaped {
                path.push(c);
            }
        }
        Ok(path)
    }
}

/// Length in bytes of the path at the beginning of a text. Commas belong to the path if they are in braces.
pub(super) fn end_of(text: &str) -> usize {
    let mut skipped = 0;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let at = skipped + at;
        match c {
            '\\' if chars
                .clone()
                .next()
                .is_some_and(|(_, next)| SYMBOLS.contains(next) || matches!(next, '=' | '.')) =>
            {
                chars.next();
            }
            '{' => {
                let Some(len) = braces_len(&text[at..]) else { return at };
                // goes on behind the closing brace
                skipped = at + len;
                chars = text[skipped..].char_indices();
            }
            c if c.is_whitespace() || SYMBOLS.contains(c) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Length in bytes of the beginning of a path that graphite-web would take from the name of a series: it ends before an
/// empty node, as in `a..b`, and before braces with dots or empty alternatives in them.
pub(super) fn end_of_nodes(path: &str) -> usize {
    let (mut end, mut is_empty) = (0, true);
    let mut at = 0;
    while let Some(c) = path[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '.' if is_empty => break,
            '.' => {
                is_empty = true;
                continue;
            }
            '\\' => at += path[at..].chars().next().map_or(0, char::len_utf8),
            '{' => {
                let Some((inside, _)) = path[at..].split_once('}') else { break };
                if inside.contains('.') || inside.split(',').any(str::is_empty) {
                    break;
                }
                at += inside.len() + 1;
            }
            _ => {}
        }
        (end, is_empty) = (at, false);
    }
    end
}

/// Says why a text that begins with a brace does not begin with braces that [`braces_len`] knows.
fn fault_of_braces(text: &str) -> &'static str {
    match text[1..].find(['}', '{', '(', ')', '\'', '"', '|']) {
        Some(at) if text[1 + at..].starts_with('{') => "a target cannot have braces in braces",
        _ => "the braces are not closed",
    }
}

/// Length of `{…}` at the beginning of a text. `None` if the braces are not closed, or have other symbols in them.
fn braces_len(text: &str) -> Option<usize> {
    let inside = &text[1..];
    let end = inside.find(['}', '{', '(', ')', '\'', '"', '|'])?;
    inside[end..].starts_with('}').then_some(end + 2)
}
