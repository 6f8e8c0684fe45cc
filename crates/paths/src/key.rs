//! Names as keys, in the order in which they are walked.
//!
//! In the order of bytes, `a-b` comes between `a` and `a.x`, because `-` is smaller than a dot. In a key, the dot is the
//! smallest byte, so that everything below a node is in one place: the bytes 0 and `.` are exchanged.

/// Separates the levels of a key.
pub(crate) const SEPARATOR: u8 = 0;

/// Follows everything below a node: it is the smallest byte that is greater than [`SEPARATOR`].
pub(crate) const AFTER: u8 = SEPARATOR + 1;

const fn exchanged(byte: u8) -> u8 {
    match byte {
        b'.' => SEPARATOR,
        SEPARATOR => b'.',
        other => other,
    }
}

/// Appends the key of a name to `key`.
pub(crate) fn push_key(name: &str, key: &mut Vec<u8>) {
    key.extend(name.bytes().map(exchanged));
}

/// Replaces `name` by the name that has this key.
pub(crate) fn name_of<'n>(key: &[u8], name: &'n mut Vec<u8>) -> &'n str {
    name.clear();
    name.extend(key.iter().copied().map(exchanged));
    std::str::from_utf8(name).expect("BUG: a key is not made from a name")
}

/// Text of one level of a key. Bytes 0 of the name are dots here, which no pattern can contain.
pub(crate) fn text_of(component: &[u8]) -> &str {
    std::str::from_utf8(component).expect("BUG: a key is not made from a name")
}

pub(crate) fn component_len(key: &[u8]) -> usize {
    key.iter().position(|byte| *byte == SEPARATOR).unwrap_or(key.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_a_node_is_in_one_place() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for name in ["a-b", "a.x", "a", "a\0b", "a!", "a-b.c", "a.", "b", ""] {
            let mut key = Vec::new();
            push_key(name, &mut key);
            assert_eq!(name_of(&key, &mut Vec::new()), name);
            keys.push(key);
        }
        keys.sort();
        let mut text = Vec::new();
        let names: Vec<_> = keys.iter().map(|key| name_of(key, &mut text).to_owned()).collect();
        assert_eq!(names, ["", "a", "a.", "a.x", "a!", "a-b", "a-b.c", "a\0b", "b"]);
    }
}
