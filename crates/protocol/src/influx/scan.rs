//! Finds the ends of a line's parts. A byte after a backslash never ends a part, except for a line break.

use crate::scan::{Eight, find, line_end};

/// Returns where the measurement and the tags end that begin at `at`: at the next blank or line break, or at the end of
/// `text`.
#[inline]
pub(super) fn head_end(text: &[u8], mut at: usize) -> usize {
    let may_end = |eight: Eight| eight.below(b' ' + 1) | eight.equal(b'\\');
    while let Some(found) = find(text, at, may_end) {
        match text[found] {
            b' ' | b'\n' => return found,
            b'\\' => at = after_escape(text, found),
            _ => at = found + 1,
        }
    }
    text.len()
}

/// Returns where the name ends that begins at `at`: at the next `=`, `,`, blank or line break, or at the end of `text`.
#[inline]
pub(super) fn name_end(text: &[u8], mut at: usize) -> usize {
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'=' | b',' | b' ' | b'\n') => return at,
            Some(b'\\') => at = after_escape(text, at),
            Some(_) => at += 1,
        }
    }
}

/// Returns where the value ends that begins at `at`, which is not a string.
#[inline]
pub(super) fn value_end(text: &[u8], at: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b' ' | b'\n' | b'\r');
    text[at..].iter().position(is_end).map_or(text.len(), |end| at + end)
}

/// Returns where the string ends whose first character is at `at`, and how many line breaks it has. `None` if it does not
/// end.
pub(super) fn string_end(text: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut breaks = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((at, breaks)),
            b'\\' => {
                at += 1;
                breaks += usize::from(text.get(at) == Some(&b'\n'));
            }
            b'\n' => breaks += 1,
            _ => {}
        }
        at += 1;
    }
}

/// Returns where the next line begins.
pub(super) fn next_line(text: &[u8], at: usize) -> usize {
    (line_end(text, at) + 1).min(text.len())
}

/// Returns where the last name of `text` begins: after the last `,` or blank that is not escaped.
pub(super) fn last_name(text: &[u8]) -> usize {
    let mut at = text.len();
    while at > 0 {
        let is_separator = matches!(text[at - 1], b',' | b' ');
        let backslashes = || text[..at - 1].iter().rev().take_while(|byte| **byte == b'\\').count();
        if is_separator && backslashes() % 2 == 0 {
            return at;
        }
        at -= 1;
    }
    0
}

fn after_escape(text: &[u8], at: usize) -> usize {
    // a line break ends the line in any case
    if text.get(at + 1) == Some(&b'\n') { at + 1 } else { (at + 2).min(text.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    /// Eight bytes at a time give the same result as one.
    #[test]
    fn heads_end_at_blanks_that_are_not_escaped() {
        let mut rng = Rng::announced();
        for _ in 0..200_000 {
            let text: Vec<u8> = (0..rng.below(40))
                .map(|_| match rng.below(12) {
                    0 => b'\\',
                    1 => b" \n\r\t"[rng.below(4) as usize],
                    2 => rng.next_u64() as u8,
                    _ => b'a',
                })
                .collect();
            let mut at = 0;
            let expected = loop {
                match text.get(at) {
                    None => break text.len(),
                    Some(b' ' | b'\n') => break at,
                    Some(b'\\') if text.get(at + 1).is_some_and(|next| *next != b'\n') => at += 2,
                    Some(_) => at += 1,
                }
            };
            assert_eq!(head_end(&text, 0), expected, "{text:?}");
        }
    }

    #[test]
    fn names_and_strings_end_where_they_should() {
        let check = |text: &str, end: usize| assert_eq!(name_end(text.as_bytes(), 0), end, "{text:?}");
        check("a=1", 1);
        check(r"a\=b\,c\ d=1", 10);
        check(r"a\\=1", 3);
        check("a b=1", 1);
        check("a,b=1", 1);
        check("a\\\nb=1", 2);
        check("abc", 3);
        check("abc\\", 4);
        let check = |text: &str, end| assert_eq!(string_end(text.as_bytes(), 0), end, "{text:?}");
        check(r#"a" b"#, Some((1, 0)));
        check(r#"a\"b" c"#, Some((4, 0)));
        check(r#"a\\" b"#, Some((3, 0)));
        check("a\nb\\\nc\"", Some((6, 2)));
        check(r#"a\""#, None);
        check("", None);
        let check = |text: &str, name: &str| assert_eq!(&text[last_name(text.as_bytes())..], name);
        check("m,t=1 a", "a");
        check("m,t=1 a=1,b", "b");
        check(r"m,t=1 a=1,b\,c\ d", r"b\,c\ d");
        check(r"m a\\,b", "b");
        check("m", "m");
        check("", "");
    }
}
