//! Encodes answers in Python's pickle format, protocol 2, as graphite-web does for its cluster.
//!
//! A pickle is a program for a stack machine. Lists and dictionaries are begun with a mark, and ended by an instruction
//! that collects everything since the mark.

use crate::http::json::Json;
use crate::query_source::label_queries::FoundNode;

const BEGIN: &[u8] = b"\x80\x02";
const STOP: &[u8] = b".";
const EMPTY_LIST: &[u8] = b"]";
const EMPTY_DICT: &[u8] = b"}";
const MARK: &[u8] = b"(";
const APPENDS: &[u8] = b"e";
const SET_ITEMS: &[u8] = b"u";
const TRUE: &[u8] = b"\x88";
const FALSE: &[u8] = b"\x89";
/// Makes a tuple of two.
const PAIR: &[u8] = b"\x86";

/// A pickle that is being written.
#[derive(Debug)]
pub(super) struct Pickle<'a>(&'a mut Json);

impl<'a> Pickle<'a> {
    pub(super) fn begin(out: &'a mut Json) -> Self {
        out.put(BEGIN);
        Self(out)
    }

    pub(super) fn end(self) {
        self.0.put(STOP);
    }

    pub(super) fn begin_list(&mut self) {
        self.0.put(EMPTY_LIST);
        self.0.put(MARK);
    }

    pub(super) fn end_list(&mut self) {
        self.0.put(APPENDS);
    }

    pub(super) fn begin_dict(&mut self) {
        self.0.put(EMPTY_DICT);
        self.0.put(MARK);
    }

    pub(super) fn end_dict(&mut self) {
        self.0.put(SET_ITEMS);
    }

    pub(super) fn string(&mut self, text: &str) {
        self.0.put(b"X");
        self.0.put(&(text.len() as u32).to_le_bytes());
        self.0.put(text.as_bytes());
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.0.put(if value { TRUE } else { FALSE });
    }

    pub(super) fn integer(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.0.put(b"J");
                self.0.put(&small.to_le_bytes());
            }
            Err(_) => {
                self.0.put(b"\x8a\x08");
                self.0.put(&value.to_le_bytes());
            }
        }
    }

    /// Writes a number, or `None` for NaN.
    pub(super) fn number(&mut self, value: f64) {
        match value.is_nan() {
            true => self.0.put(b"N"),
            false => {
                self.0.put(b"G");
                self.0.put(&value.to_be_bytes());
            }
        }
    }

    pub(super) fn pair(&mut self) {
        self.0.put(PAIR);
    }
}

pub(super) fn nodes<'n>(out: &mut Json, nodes: &mut dyn Iterator<Item = FoundNode<'n>>, until_s: i64) {
    let mut pickle = Pickle::begin(out);
    pickle.begin_list();
    for node in nodes {
        pickle.begin_dict();
        pickle.string("path");
        pickle.string(node.path);
        pickle.string("is_leaf");
        pickle.boolean(node.is_leaf);
        if node.is_leaf {
            pickle.string("intervals");
            pickle.begin_list();
            pickle.integer(0);
            pickle.integer(until_s);
            pickle.pair();
            pickle.end_list();
        }
        pickle.end_dict();
    }
    pickle.end_list();
    pickle.end();
}
