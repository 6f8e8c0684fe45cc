//! How a record lies in a segment file.
//!
//! ```text
//!   0      4               12      16             20            24
//!   ├──────┼───────────────┼───────┼──────────────┼─────────────┼───────── ─ ─ ─┤
//!   │ len  │ offset        │ nth   │ payload crc  │ header crc  │ payload       │
//! ```
//!
//! Little-endian. The header has a checksum of its own, so that a damaged payload leaves the way to the next
//! record known, and no length is believed (and no memory taken) unchecked. It covers the segment's salt and
//! the frame's place in the file too, so that neither stale or misplaced bytes nor anything a stranger wrote
//! into a payload can pass for a header. The payload's checksum is guarded by the header's.
//!
//! `nth` is how many records come before this one in its group, so everything before `offset - nth` was
//! durable when this was written.

use crate::RECORD_BYTES_MAX;

/// Bytes before a payload.
pub(super) const FRAME_HEADER_BYTES: usize = 24;

/// What stands before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of the payload.
    pub(super) len: u32,
    /// The record's position.
    pub(super) offset: u64,
    /// Records before it in its group.
    nth: u32,
    payload_crc: u32,
}

/// Where header checksums of a segment with that salt begin.
pub(super) fn crc_seed(salt: u64) -> u32 {
    crc32c::crc32c(&salt.to_le_bytes())
}

fn header_crc(seed: u32, at: u64, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &at.to_le_bytes()), header)
}

/// Adds the frame of record `offset` to `out`, for byte `at` of the file. Its group begins with `group`.
pub(super) fn put(out: &mut Vec<u8>, seed: u32, at: u64, group: u64, offset: u64, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("BUG: a record is within its limit");
    // a group of more records than that merely tells less about where it begins
    let nth = u32::try_from(offset - group).unwrap_or(u32::MAX);
    let start = out.len();
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&nth.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let header_crc = header_crc(seed, at, &out[start..]);
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(payload);
}

/// The offset that a header would have, for a first look.
#[inline]
pub(super) fn offset_of(header: &[u8; FRAME_HEADER_BYTES]) -> u64 {
    let (_, rest) = header.split_at(4);
    rest.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
}

impl FrameHeader {
    /// Checks the header at byte `at`; `None` where it is not one of this segment and for this place.
    pub(super) fn parse(seed: u32, at: u64, header: &[u8; FRAME_HEADER_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| header[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        let len = u32_at(0);
        let sound = header_crc(seed, at, &header[..20]) == u32_at(20);
        (sound && len as usize <= RECORD_BYTES_MAX).then(|| Self {
            len,
            offset: offset_of(header),
            nth: u32_at(12),
            payload_crc: u32_at(16),
        })
    }

    /// Everything before this offset was durable when the record was written.
    pub(super) fn group(&self) -> u64 {
        match self.nth {
            u32::MAX => 0,
            nth => self.offset.saturating_sub(nth.into()),
        }
    }

    /// True where these are the bytes that were written.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.len as usize && crc32c::crc32c(payload) == self.payload_crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed() {
        let seed = crc_seed(77);
        let mut bytes = Vec::new();
        put(&mut bytes, seed, 1024, 7, 9, b"payload");
        let check = |bytes: &[u8], seed: u32, at: u64| {
            let (header, payload) = bytes.split_first_chunk().unwrap();
            FrameHeader::parse(seed, header)
                .is_some_and(|h| (h.offset, h.group()) == (9, 7) && h.matches(payload))
        };
        assert!(check(&bytes, seed, 1024));
        assert!(!check(&bytes, crc_seed(78), 1024), "another segment's");
        assert!(!check(&bytes, seed, 1025), "another place's");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!check(&bytes, seed, 1024), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(FrameHeader::parse(seed, 1024, &[0; FRAME_HEADER_BYTES]), None, "zeros end a segment");
    }
}
