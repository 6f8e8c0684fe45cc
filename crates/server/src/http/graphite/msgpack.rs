//! Encodes answers as MessagePack, which graphite-web uses within a cluster.

use crate::http::json::Json;
use crate::query_source::label_queries::FoundNode;

/// A value that is being written. Lists and maps begin with the number of their elements.
#[derive(Debug)]
pub(super) struct MsgPack<'a>(&'a mut Json);

impl<'a> MsgPack<'a> {
    pub(super) const fn new(out: &'a mut Json) -> Self {
        Self(out)
    }

    pub(super) fn list(&mut self, len: usize) {
        self.0.put(&[0xdd]);
        self.0.put(&(len as u32).to_be_bytes());
    }

    pub(super) fn map(&mut self, len: u8) {
        assert!(len < 16, "BUG: a map is written in the form for few entries");
        self.0.put(&[0x80 | len]);
    }

    pub(super) fn string(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(len @ ..32) => self.0.put(&[0xa0 | len]),
            Ok(len) => self.0.put(&[0xd9, len]),
            Err(_) => {
                self.0.put(&[0xdb]);
                self.0.put(&(text.len() as u32).to_be_bytes());
            }
        }
        self.0.put(text.as_bytes());
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.0.put(&[if value { 0xc3 } else { 0xc2 }]);
    }

    /// Writes a number, or nil for NaN.
    pub(super) fn number(&mut self, value: f64) {
        match value.is_nan() {
            true => self.0.put(&[0xc0]),
            false => {
                self.0.put(&[0xcb]);
                self.0.put(&value.to_be_bytes());
            }
        }
    }

    pub(super) fn integer(&mut self, value: i64) {
        self.0.put(&[0xd3]);
        self.0.put(&value.to_be_bytes());
    }
}

pub(super) fn nodes<'n>(
    out: &mut Json,
    count: usize,
    nodes: &mut dyn Iterator<Item = FoundNode<'n>>,
    until_s: i64,
) {
    let mut pack = MsgPack::new(out);
    pack.list(count);
    for node in nodes {
        pack.map(if node.is_leaf { 4 } else { 3 });
        pack.string("path");
        pack.string(node.path);
        // the second name is that of graphite-web 0.9, which carbonapi still reads
        for name in ["is_leaf", "isLeaf"] {
            pack.string(name);
            pack.boolean(node.is_leaf);
        }
        if node.is_leaf {
            pack.string("intervals");
            pack.list(1);
            pack.list(2);
            pack.integer(0);
            pack.integer(until_s);
        }
    }
}
