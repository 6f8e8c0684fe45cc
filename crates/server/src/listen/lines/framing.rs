//! Finds where messages end in the bytes of a connection.

use protocol::graphite::LINE_BYTES_MAX;

/// How the messages of a connection are separated.
#[derive(Debug)]
pub(super) enum Framing {
    Lines {
        /// True while the rest of a line is skipped because it is too long.
        skips: bool,
    },
}

/// What can be done with the bytes of a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Number of bytes at the start that belong to a skipped message.
    pub(super) skip: usize,
    /// End of the last complete message.
    pub(super) end: usize,
    /// True if the unfinished message at the end is too long already. All of it is skipped.
    pub(super) is_too_long: bool,
}

impl Framing {
    /// Limit on the bytes after the last complete message that are kept.
    pub(super) const UNFINISHED_BYTES_MAX: usize = LINE_BYTES_MAX;

    pub(super) const fn lines() -> Self {
        Self::Lines { skips: false }
    }

    pub(super) fn find(&mut self, bytes: &[u8]) -> Found {
        match self {
            Self::Lines { skips } => lines(skips, bytes),
        }
    }
}

fn lines(skips: &mut bool, bytes: &[u8]) -> Found {
    let is_newline = |byte: &u8| *byte == b'\n';
    let mut skip = 0;
    if *skips {
        let Some(end) = bytes.iter().position(is_newline) else {
            return Found { skip: bytes.len(), end: bytes.len(), is_too_long: false };
        };
        (*skips, skip) = (false, end + 1);
    }
    let end = bytes[skip..].iter().rposition(is_newline).map_or(skip, |at| skip + at + 1);
    let is_too_long = bytes.len() - end > LINE_BYTES_MAX;
    *skips = is_too_long;
    Found { skip, end, is_too_long }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_may_be_unfinished() {
        let check = |bytes: &[u8], skips: bool, expected: (usize, usize)| {
            let mut framing = Framing::Lines { skips };
            let Found { skip, end, is_too_long } = framing.find(bytes);
            assert_eq!((skip, end, is_too_long), (expected.0, expected.1, false), "{bytes:?}");
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
        let long = [b"a 1 1\n".to_vec(), vec![b'x'; LINE_BYTES_MAX + 1]].concat();
        assert_eq!(framing.find(&long), Found { skip: 0, end: 6, is_too_long: true });
        assert_eq!(framing.find(b"xxx"), Found { skip: 3, end: 3, is_too_long: false });
        assert_eq!(framing.find(b"x\nb 1 1\n"), Found { skip: 2, end: 8, is_too_long: false });
        assert_eq!(framing.find(b"c 1 1\n"), Found { skip: 0, end: 6, is_too_long: false });
    }
}
