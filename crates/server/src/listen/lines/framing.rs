//! Finds where messages end in the bytes of a connection.

use protocol::graphite::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, LINE_BYTES_MAX};

/// How the messages of a connection are separated.
#[derive(Debug)]
pub(super) enum Framing {
    Lines {
        /// True until the first line of the connection is complete.
        is_first: bool,
        /// True while the rest of a line is skipped because it is too long.
        skips: bool,
    },
    /// Length-prefixed messages.
    Frames,
}

/// What can be done with the bytes of a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Number of bytes at the start that belong to a skipped message.
    pub(super) skip: usize,
    /// End of the last complete message.
    pub(super) end: usize,
    /// Length of the unfinished message at the end, if it is known.
    pub(super) needs: usize,
    pub(super) fault: Option<FramingFault>,
}

/// What is wrong with the unfinished message at the end of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramingFault {
    /// The line is too long already. All of it is skipped.
    LongLine,
    /// The frame is too long, or it is not a frame. Nothing that follows can be read.
    LongFrame,
    /// The connection begins like an HTTP request. A web page in a browser can send one to any address that its machine can
    /// reach, so the lines in its body must not be stored.
    Http,
}

impl Framing {
    /// Limit on the bytes after the last complete message, unless this message alone is longer than a body.
    pub(super) const UNFINISHED_BYTES_MAX: usize = super::buffer::BODY_BYTES;

    pub(super) const fn lines() -> Self {
        Self::Lines { is_first: true, skips: false }
    }

    pub(super) fn find(&mut self, bytes: &[u8]) -> Found {
        match self {
            Self::Lines { is_first, skips } => lines(is_first, skips, bytes),
            Self::Frames => frames(bytes),
        }
    }
}

fn lines(is_first: &mut bool, skips: &mut bool, bytes: &[u8]) -> Found {
    if *is_first && is_http(bytes) {
        return Found { fault: Some(FramingFault::Http), ..Found::default() };
    }
    let is_newline = |byte: &u8| *byte == b'\n';
    let mut skip = 0;
    if *skips {
        let Some(end) = bytes.iter().position(is_newline) else {
            return Found { skip: bytes.len(), end: bytes.len(), ..Found::default() };
        };
        (*skips, skip) = (false, end + 1);
    }
    let end = bytes[skip..].iter().rposition(is_newline).map_or(skip, |at| skip + at + 1);
    *skips = bytes.len() - end > LINE_BYTES_MAX;
    *is_first &= end == 0 && !*skips;
    Found { skip, end, needs: 0, fault: skips.then_some(FramingFault::LongLine) }
}

/// True if the bytes begin with the method and path of an HTTP request, such as `POST /`. A line never does, because its
/// second word is a number.
fn is_http(bytes: &[u8]) -> bool {
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    method > 0 && bytes[method..].starts_with(b" /")
}

fn frames(bytes: &[u8]) -> Found {
    let mut end = 0;
    while let Some(header) = bytes[end..].first_chunk::<FRAME_HEADER_BYTES>() {
        let length = u32::from_be_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Found { end, fault: Some(FramingFault::LongFrame), ..Found::default() };
        }
        let needs = FRAME_HEADER_BYTES + length;
        if bytes.len() - end < needs {
            return Found { end, needs, ..Found::default() };
        }
        end += needs;
    }
    Found { end, ..Found::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_may_be_unfinished() {
        let check = |bytes: &[u8], skips: bool, expected: (usize, usize)| {
            let Found { skip, end, fault, .. } = Framing::Lines { is_first: !skips, skips }.find(bytes);
            assert_eq!((skip, end, fault), (expected.0, expected.1, None), "{bytes:?}");
        };
        check(b"", false, (0, 0));
        check(b"a 1", false, (0, 0));
        check(b"a 1 1\n", false, (0, 6));
        check(b"a 1 1\nb 2 2\nc", false, (0, 12));
        check(b"rest\na 1 1\nb", true, (5, 11));
        check(b"rest\nb", true, (5, 5));
        check(b"rest", true, (4, 4));
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let mut framing = Framing::lines();
        let mut found = |bytes: &[u8]| {
            let Found { skip, end, fault, .. } = framing.find(bytes);
            (skip, end, fault.is_some())
        };
        let long = [b"a 1 1\n".to_vec(), vec![b'x'; LINE_BYTES_MAX + 1]].concat();
        assert_eq!(found(&long), (0, 6, true));
        assert_eq!(found(b"xxx"), (3, 3, false));
        assert_eq!(found(b"x\nb 1 1\n"), (2, 8, false));
        assert_eq!(found(b"c 1 1\n"), (0, 6, false));
    }

    #[test]
    fn only_the_beginning_of_a_connection_may_be_http() {
        let check = |parts: &[&str], expected: bool| {
            let mut framing = Framing::lines();
            let faults = parts.iter().map(|part| framing.find(part.as_bytes()).fault);
            let is_http = faults.last().flatten() == Some(FramingFault::Http);
            assert_eq!(is_http, expected, "{parts:?}");
        };
        check(&["POST / HTTP/1.1\r\n"], true);
        check(&["OPTIONS /a"], true);
        // an unfinished line is found again, with what follows
        check(&["PO", "POST", "POST /"], true);
        check(&["POST 1 1\n"], false);
        check(&["POST/ 1 1\n"], false);
        check(&["post / 1\n"], false);
        check(&["/ 1 1\n"], false);
        check(&[""], false);
        check(&["a 1 1\n", "POST / HTTP/1.1\r\n"], false);
        check(&["\n", "POST / HTTP/1.1\r\n"], false);
        let long = format!("GET /{}", "x".repeat(LINE_BYTES_MAX));
        check(&[&long], true);
        check(&[&long[1..]], true);
        check(&[&long[4..], "GET /"], false);
    }

    #[test]
    fn frames_are_length_prefixed() {
        let check = |bytes: &[u8], end, needs, is_fault| {
            let found = Framing::Frames.find(bytes);
            assert_eq!(
                (found.skip, found.end, found.needs, found.fault.is_some()),
                (0, end, needs, is_fault),
                "{bytes:?}"
            );
        };
        check(b"", 0, 0, false);
        check(b"\0\0\0", 0, 0, false);
        check(b"\0\0\0\x02a", 0, 6, false);
        check(b"\0\0\0\x02ab", 6, 0, false);
        check(b"\0\0\0\0\0\0\0\x01a\0\0", 9, 0, false);
        check(b"\0\0\0\x01a\0\x10\0\0", 5, (1 << 20) + 4, false);
        check(b"\0\0\0\x01a\0\x10\0\x01", 5, 0, true);
        check(b"GET / HTTP/1.1", 0, 0, true);
    }
}
