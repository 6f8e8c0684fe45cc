//! Writes protobuf fields.

use stdx::varint;

/// Appends a length-delimited field. `tag` has one byte.
pub(super) fn bytes(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    varint::put(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a varint field. A zero is omitted, because it is the default.
pub(super) fn number(out: &mut Vec<u8>, tag: u8, value: u64) {
    if value != 0 {
        out.push(tag);
        varint::put(out, value);
    }
}

pub(super) const fn number_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint::len(value) }
}

/// Appends a field with a double. It is omitted if all bits are zero, so a negative zero is kept.
pub(super) fn double(out: &mut Vec<u8>, tag: u8, value: f64) {
    if value.to_bits() != 0 {
        out.push(tag);
        out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

pub(super) const fn double_len(value: f64) -> usize {
    if value.to_bits() == 0 { 0 } else { 9 }
}

/// Appends a nested message. `write` must append exactly `len` bytes. `tag` is the field's one-byte tag.
pub(super) fn message(out: &mut Vec<u8>, tag: u8, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    varint::put(out, len as u64);
    let start = out.len();
    write(out);
    assert_eq!(out.len() - start, len, "BUG: a message does not have the announced length");
}

pub(super) const fn field_len(len: usize) -> usize {
    1 + varint::len(len as u64) + len
}
