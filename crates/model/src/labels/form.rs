//! Writes, reads and checks labels in canonical form ([`super`] describes the format).

use super::METRIC_NAME;
use crate::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use stdx::varint;

const TAG_LABEL: u8 = 0x0a;
const TAG_NAME: u8 = 0x0a;
const TAG_VALUE: u8 = 0x12;

#[derive(Debug, Clone)]
pub(super) struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    pub(super) const fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let canonical = "BUG: label bytes are not canonical";
        let mut wire = Wire { rest: self.rest };
        let mut label = Wire { rest: wire.field(TAG_LABEL).expect(canonical) };
        self.rest = wire.rest;
        Some((label.field(TAG_NAME).expect(canonical), label.field(TAG_VALUE).expect(canonical)))
    }
}

/// Reads the fields of a `Label` message one by one. Their tags must come in the canonical order.
struct Wire<'a> {
    rest: &'a [u8],
}

impl<'a> Wire<'a> {
    #[inline]
    fn field(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&first, rest) = self.rest.split_first()?;
        if first != tag {
            return None;
        }
        let (len, rest) = read_varint(rest)?;
        if len > rest.len() {
            return None;
        }
        let (field, rest) = rest.split_at(len);
        self.rest = rest;
        Some(field)
    }
}

/// Reads a varint of one to three bytes, enough for every length that [`crate::caps`] allows. A varint that
/// is longer than necessary is not canonical, so it is refused.
#[inline]
fn read_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [a, ref rest @ ..] if a < 0x80 => Some((a as usize, rest)),
        [a, b, ref rest @ ..] if b < 0x80 && b != 0 => Some(((a & 0x7f) as usize | (b as usize) << 7, rest)),
        [a, b, c, ref rest @ ..] if b >= 0x80 && c < 0x80 && c != 0 => {
            Some(((a & 0x7f) as usize | ((b & 0x7f) as usize) << 7 | (c as usize) << 14, rest))
        }
        _ => None,
    }
}

/// Appends one label in canonical form. The caller has to add labels in order and within the
/// limits.
#[inline]
pub fn put_label(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let text_len = |text: &[u8]| 1 + varint::len(text.len() as u64) + text.len();
    let inner = text_len(name) + text_len(value);
    out.push(TAG_LABEL);
    varint::put(out, inner as u64);
    for (tag, text) in [(TAG_NAME, name), (TAG_VALUE, value)] {
        out.push(tag);
        varint::put(out, text.len() as u64);
        out.extend_from_slice(text);
    }
}

/// True if `bytes` are the canonical label bytes of a valid series.
pub fn is_canonical(bytes: &[u8]) -> bool {
    let mut wire = Wire { rest: bytes };
    let mut previous: Option<&[u8]> = None;
    let (mut count, mut named) = (0, false);
    while !wire.rest.is_empty() {
        let Some(inner) = wire.field(TAG_LABEL) else { return false };
        let mut label = Wire { rest: inner };
        let (Some(name), Some(value)) = (label.field(TAG_NAME), label.field(TAG_VALUE)) else { return false };
        let ordered = previous.is_none_or(|p| p < name);
        let sized = !name.is_empty()
            && name.len() <= LABEL_NAME_BYTES_MAX
            && !value.is_empty()
            && value.len() <= LABEL_VALUE_BYTES_MAX;
        let utf8 = std::str::from_utf8(name).is_ok() && std::str::from_utf8(value).is_ok();
        if !(label.rest.is_empty() && ordered && sized && utf8) {
            return false;
        }
        named |= name == METRIC_NAME.as_bytes();
        previous = Some(name);
        count += 1;
    }
    named && count <= SERIES_LABELS_MAX && bytes.len() <= SERIES_LABEL_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Labels;

    #[test]
    fn noncanonical_bytes_are_recognized() {
        let up = Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
        let mut swapped = Vec::new();
        put_label(&mut swapped, b"job", b"x");
        put_label(&mut swapped, b"__name__", b"up");
        assert!(!is_canonical(&swapped), "unsorted");
        let mut twice = up.as_bytes().to_vec();
        put_label(&mut twice, b"job", b"y");
        assert!(!is_canonical(&twice), "duplicate");
        let mut empty = up.as_bytes().to_vec();
        put_label(&mut empty, b"k", b"");
        assert!(!is_canonical(&empty), "empty value");
        let mut bad = up.as_bytes().to_vec();
        put_label(&mut bad, b"k", b"\xff");
        assert!(!is_canonical(&bad), "not UTF-8");
        assert!(!is_canonical(&up.as_bytes()[..up.as_bytes().len() - 1]), "cut");
        assert!(!is_canonical(b""), "no name");
        // the length takes two bytes although one would be enough
        assert!(!is_canonical(&[0x0a, 0x8c, 0x00]), "overlong varint");
    }
}
