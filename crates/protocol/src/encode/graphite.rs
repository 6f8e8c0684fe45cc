//! Encodes points for carbon: lines of text, and pickled lists of points.
//!
//! ```text
//!   line    path value time\n
//!   frame   length (u32, big-endian), pickle of [(path, (time, value)), …]
//! ```
//!
//! A path is given in pieces, which are joined, so that callers do not have to build it for each point.
//! Source: <https://graphite.readthedocs.io/en/latest/feeding-carbon.html>; the opcodes are described in
//! `pickletools.py` of Python.

use std::io::Write;

/// A frame is closed when it has this many bytes. Carbon refuses frames of more than 1 MiB.
const FRAME_BYTES: usize = 512 << 10;

/// Bytes of the length before a frame.
const LENGTH_BYTES: usize = 4;

/// `PROTO 2`, `EMPTY_LIST`, `MARK`.
const BEGIN: [u8; 4] = [0x80, 2, b']', b'('];

/// `APPENDS`, `STOP`.
const END: [u8; 2] = [b'e', b'.'];

/// Appends a line. The value is written as the shortest decimal that parses to the same bits.
pub fn line(out: &mut Vec<u8>, path: &[&str], value: f64, time_s: i64) {
    for piece in path {
        out.extend_from_slice(piece.as_bytes());
    }
    writeln!(out, " {value} {time_s}").expect("BUG: writing to memory failed");
}

/// Appends pickled points (protocol 2) in one or more frames.
#[derive(Debug)]
pub struct PickleEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Where the open frame begins.
    frame: Option<usize>,
}

impl<'a> PickleEncoder<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, frame: None }
    }

    /// Panics if the path has 4 GiB or more.
    pub fn point(&mut self, path: &[&str], value: f64, time_s: i64) {
        if self.frame.is_some_and(|frame| self.out.len() - frame >= FRAME_BYTES) {
            self.close();
        }
        if self.frame.is_none() {
            self.frame = Some(self.out.len());
            self.out.extend_from_slice(&[0; LENGTH_BYTES]);
            self.out.extend_from_slice(&BEGIN);
        }
        let out = &mut *self.out;
        let bytes: usize = path.iter().map(|piece| piece.len()).sum();
        out.push(b'X'); // BINUNICODE
        out.extend_from_slice(&u32::try_from(bytes).expect("BUG: a path of 4 GiB").to_le_bytes());
        for piece in path {
            out.extend_from_slice(piece.as_bytes());
        }
        match i32::try_from(time_s) {
            Ok(time_s) => {
                out.push(b'J'); // BININT
                out.extend_from_slice(&time_s.to_le_bytes());
            }
            Err(_) => {
                out.extend_from_slice(&[0x8a, 8]); // LONG1
                out.extend_from_slice(&time_s.to_le_bytes());
            }
        }
        out.push(b'G'); // BINFLOAT
        out.extend_from_slice(&value.to_be_bytes());
        out.extend_from_slice(&[0x86, 0x86]); // TUPLE2 of time and value, then of path and that
    }

    /// Ends the last frame.
    pub fn finish(mut self) {
        self.close();
    }

    fn close(&mut self) {
        let Some(frame) = self.frame.take() else { return };
        self.out.extend_from_slice(&END);
        let content = self.out.len() - frame - LENGTH_BYTES;
        let length = u32::try_from(content).expect("BUG: a frame of 4 GiB").to_be_bytes();
        self.out[frame..frame + LENGTH_BYTES].copy_from_slice(&length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_shortest_values() {
        let mut out = Vec::new();
        line(&mut out, &["a.", "b", ";host=web1"], 0.1 + 0.2, 1_795_284_000);
        line(&mut out, &["c"], 42.0, -1);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a.b;host=web1 0.30000000000000004 1795284000\nc 42 -1\n"
        );
    }

    /// The expected bytes were disassembled by `pickletools.dis` of Python.
    #[test]
    fn a_frame_is_a_pickled_list() {
        let mut out = Vec::new();
        let mut frames = PickleEncoder::new(&mut out);
        frames.point(&["a", ".b"], 0.5, 1_795_284_000);
        frames.point(&["c"], -1.0, 1 << 33);
        frames.finish();
        let expected: &[&[u8]] = &[
            &[0, 0, 0, 57, 0x80, 2, b']', b'('],
            b"X\x03\0\0\0a.bJ",
            &1_795_284_000_i32.to_le_bytes(),
            b"G\x3f\xe0\0\0\0\0\0\0\x86\x86",
            b"X\x01\0\0\0c\x8a\x08\0\0\0\0\x02\0\0\0",
            b"G\xbf\xf0\0\0\0\0\0\0\x86\x86",
            b"e.",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn frames_are_never_larger_than_carbon_accepts() {
        let mut out = Vec::new();
        let mut frames = PickleEncoder::new(&mut out);
        let path = "p".repeat(1_000);
        (0..2_000).for_each(|n| frames.point(&[&path], f64::from(n), 0));
        frames.finish();
        let mut rest = out.as_slice();
        let mut count = 0;
        while let Some((length, content)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            assert!(length <= 1 << 20, "{length}");
            assert!(content[..length].starts_with(&BEGIN) && content[..length].ends_with(&END));
            rest = &content[length..];
            count += 1;
        }
        assert_eq!((rest.len(), count), (0, 4));
        let mut nothing = Vec::new();
        PickleEncoder::new(&mut nothing).finish();
        assert!(nothing.is_empty());
    }
}
