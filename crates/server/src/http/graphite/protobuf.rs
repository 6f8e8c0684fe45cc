//! Writes messages of protocol buffers.

use crate::http::json::Json;
use crate::query_source::label_queries::FoundNode;

/// A message that is being written, field by field. Integers that are 0 are left out, as is usual in proto3.
pub(super) struct Message<'a>(&'a mut Json);

const VARINT: u64 = 0;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

const fn varint_len(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// Length of a field of `len` bytes, with its tag and length.
pub(super) const fn bytes_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

pub(super) const fn integer_len(value: i64) -> usize {
    if value == 0 { 0 } else { 1 + varint_len(value as u64) }
}

impl<'a> Message<'a> {
    pub(super) const fn new(out: &'a mut Json) -> Self {
        Self(out)
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.put(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.0.put(&[number as u8]);
    }

    /// Begins a field whose bytes follow.
    pub(super) fn begin(&mut self, field: u64, len: usize) {
        self.varint(field << 3 | BYTES);
        self.varint(len as u64);
    }

    /// Appends bytes of a field that was begun.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.put(bytes);
    }

    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.begin(field, text.len());
        self.bytes(text.as_bytes());
    }

    pub(super) fn integer(&mut self, field: u64, value: i64) {
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value as u64);
        }
    }

    pub(super) fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | FIXED_32);
        self.bytes(&value.to_le_bytes());
    }
}

/// `GlobResponse` of `carbonapi_v2_pb`: the pattern, and the nodes that it selects.
pub(super) fn nodes<'n>(out: &mut Json, pattern: &str, nodes: &mut dyn Iterator<Item = FoundNode<'n>>) {
    let mut message = Message::new(out);
    message.text(1, pattern);
    for FoundNode { path, is_leaf } in nodes {
        let is_leaf = i64::from(is_leaf);
        message.begin(2, bytes_len(path.len()) + integer_len(is_leaf));
        message.text(1, path);
        message.integer(2, is_leaf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_what_is_written() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Json::new();
            Message::new(&mut out).varint(number);
            assert_eq!(out.into_bytes().len(), varint_len(number), "{number}");
        }
        for number in [0, 1, -1, i64::MAX] {
            let mut out = Json::new();
            Message::new(&mut out).integer(3, number);
            assert_eq!(out.into_bytes().len(), integer_len(number), "{number}");
        }
    }
}
