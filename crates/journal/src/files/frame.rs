//! How a record is stored in a segment file.
//!
//! ```text
//!   0      4      8               16              24            28           32
//!   ├──────┼──────┼───────────────┼───────────────┼─────────────┼────────────┼───────── ─ ─ ─┤
//!   │ len  │ nth  │ offset        │ payload hash  │ payload crc │ header crc │ payload       │
//! ```
//!
//! All numbers are little-endian. The header has a checksum of its own, so that the next record can be found
//! behind a damaged payload. That checksum also covers the segment's salt and the position of the frame, so
//! that neither an old or misplaced header nor bytes sent by a client can pass for a header. The payload's
//! hash (XXH3-64) confirms a [repair](super::repair).
//!
//! `nth` is the position of the record in its group, counted from 0. All records before `offset - nth` were
//! durable when this record was written.

use super::repair;
use crate::RECORD_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

pub(super) const FRAME_HEADER_BYTES: usize = 32;

pub(super) type HeaderBytes = [u8; FRAME_HEADER_BYTES];

const HEADER_CRC_AT: usize = FRAME_HEADER_BYTES - 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) len: u32,
    nth: u32,
    pub(super) offset: u64,
    payload_hash: u64,
    payload_crc: u32,
}

/// All header checksums of a segment start from this value, which depends on the segment's salt.
pub(super) fn crc_seed(salt: u64) -> u32 {
    crc32c::crc32c(&salt.to_le_bytes())
}

fn header_crc(seed: u32, at: u64, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &at.to_le_bytes()), header)
}

/// Appends a record's frame to `out`. The frame will be at byte `at` of the file. `group` is the offset of
/// the first record in the group.
pub(super) fn put(out: &mut Vec<u8>, seed: u32, at: u64, group: u64, offset: u64, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("BUG: a record is longer than its limit");
    // if the number does not fit, the start of the group is unknown to readers
    let nth = u32::try_from(offset - group).unwrap_or(u32::MAX);
    let start = out.len();
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&nth.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&xxh3_64(payload).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let header_crc = header_crc(seed, at, &out[start..]);
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(payload);
}

fn u32_at(header: &HeaderBytes, at: usize) -> u32 {
    header[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four))
}

fn u64_at(header: &HeaderBytes, at: usize) -> u64 {
    header[at..].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// Reads only the offset field, for a quick check of bytes that may be a header.
#[inline]
pub(super) fn offset_of(header: &HeaderBytes) -> u64 {
    u64_at(header, 8)
}

impl FrameHeader {
    /// Decodes the header at byte `at` of the file. `None` if the bytes are no header, or one that belongs to
    /// another segment or position.
    ///
    /// Zeros are refused explicitly: preallocated space is full of them, and their checksum may be zero for
    /// some salt.
    pub(super) fn parse(seed: u32, at: u64, header: &HeaderBytes) -> Option<Self> {
        let sound = header_crc(seed, at, &header[..HEADER_CRC_AT]) == u32_at(header, HEADER_CRC_AT)
            && header.iter().any(|byte| *byte != 0);
        let len = u32_at(header, 0);
        (sound && len as usize <= RECORD_BYTES_MAX).then(|| Self {
            len,
            nth: u32_at(header, 4),
            offset: offset_of(header),
            payload_hash: u64_at(header, 16),
            payload_crc: u32_at(header, 24),
        })
    }

    /// Decodes a header that has one wrong byte. `None` if more bytes are wrong. Random bytes pass with a
    /// probability of 1 in 600,000, so the caller must confirm the header.
    pub(super) fn parse_repaired(seed: u32, at: u64, header: &HeaderBytes) -> Option<Self> {
        let (body, crc) = (&header[..HEADER_CRC_AT], u32_at(header, HEADER_CRC_AT));
        let difference = header_crc(seed, at, body) ^ crc;
        let mut repaired = *header;
        match repair::wrong_byte(difference, body.len()) {
            Some((i, mask)) => repaired[i] ^= mask,
            // the payload and the rest of the header are right, and only the checksum has a wrong byte
            None if difference.to_le_bytes().iter().filter(|b| **b != 0).count() == 1 => {
                let sound = header_crc(seed, at, body).to_le_bytes();
                repaired[HEADER_CRC_AT..].copy_from_slice(&sound);
            }
            None => return None,
        }
        Self::parse(seed, at, &repaired)
    }

    /// Offset of the first record in this record's group. All earlier records were durable when this one was
    /// written. Returns 0 if the start is unknown.
    pub(super) fn group(&self) -> u64 {
        match self.nth {
            u32::MAX => 0,
            nth => self.offset.saturating_sub(nth.into()),
        }
    }

    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.len as usize && crc32c::crc32c(payload) == self.payload_crc
    }

    /// Repairs a payload in which at most one byte is wrong. Returns false if more bytes are wrong.
    pub(super) fn repair(&self, payload: &mut [u8]) -> bool {
        let difference = crc32c::crc32c(payload) ^ self.payload_crc;
        match repair::wrong_byte(difference, payload.len()) {
            Some((i, mask)) => payload[i] ^= mask,
            None if difference == 0 => {}
            None => return false,
        }
        self.matches(payload) && xxh3_64(payload) == self.payload_hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], seed: u32, at: u64) -> bool {
        let (header, payload) = bytes.split_first_chunk().unwrap();
        FrameHeader::parse(seed, at, header)
            .is_some_and(|h| (h.offset, h.group()) == (9, 7) && h.matches(payload))
    }

    fn repair(bytes: &[u8], seed: u32, at: u64) -> Option<Vec<u8>> {
        let (header, payload) = bytes.split_first_chunk().unwrap();
        let header =
            FrameHeader::parse(seed, at, header).or_else(|| FrameHeader::parse_repaired(seed, at, header))?;
        let mut payload = payload.to_vec();
        (payload.len() == header.len as usize && header.repair(&mut payload)).then_some(payload)
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_any_wrong_byte_repaired() {
        let seed = crc_seed(77);
        let mut bytes = Vec::new();
        put(&mut bytes, seed, 1024, 7, 9, b"payload");
        assert!(check(&bytes, seed, 1024));
        assert!(!check(&bytes, crc_seed(78), 1024), "a frame of another segment");
        assert!(!check(&bytes, seed, 1025), "a frame at another position");
        for i in 0..bytes.len() {
            for mask in 1..=255 {
                bytes[i] ^= mask;
                assert!(!check(&bytes, seed, 1024), "byte {i} ^ {mask}");
                assert_eq!(repair(&bytes, seed, 1024).as_deref(), Some(&b"payload"[..]), "byte {i} ^ {mask}");
                bytes[i] ^= mask;
            }
        }
        assert_eq!(FrameHeader::parse(seed, 1024, &[0; FRAME_HEADER_BYTES]), None, "zeros end a segment");
        assert_eq!(FrameHeader::parse_repaired(seed, 1024, &[0; FRAME_HEADER_BYTES]), None);
    }

    #[test]
    fn zeros_whose_checksum_is_zero_are_no_header() {
        // with this salt, the checksum of zeros is zero; it was found by solving equations, because CRCs are
        // linear
        let seed = crc_seed(0x4e3e_c807);
        let zeros = [0; FRAME_HEADER_BYTES];
        assert_eq!(header_crc(seed, 1024, &zeros[..HEADER_CRC_AT]), 0);
        assert_eq!(FrameHeader::parse(seed, 1024, &zeros), None);
        assert_eq!(FrameHeader::parse_repaired(seed, 1024, &zeros), None);
    }

    #[test]
    fn more_than_one_wrong_byte_is_not_repaired() {
        let seed = crc_seed(1);
        let payload: Vec<u8> = (0..4000).map(|i| (i * i) as u8).collect();
        let mut bytes = Vec::new();
        put(&mut bytes, seed, 1024, 7, 9, &payload);
        let mut rng = stdx::rng::Rng::new(5);
        for _ in 0..300 {
            let mut harmed = bytes.clone();
            let (a, b) = (rng.below(4000) as usize, rng.below(4000) as usize);
            harmed[FRAME_HEADER_BYTES + a] ^= 1 + rng.below(255) as u8;
            if a != b {
                harmed[FRAME_HEADER_BYTES + b] ^= 1 + rng.below(255) as u8;
                assert_eq!(repair(&harmed, seed, 1024), None, "bytes {a} and {b}");
            }
        }
    }
}
