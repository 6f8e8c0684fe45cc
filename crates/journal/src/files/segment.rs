//! Name and header of a segment file.
//!
//! ```text
//!   <dir>/<partition>/<first offset, 20 digits>.journal
//!
//!   0                  512                1024
//!   ├───────────────┬──┼───────────────┬──┼───────────── ─ ─ ─┬───────────┤
//!   │ header        │0 │ header again  │0 │ records           │ 0 0 0 …   │
//! ```
//!
//! No record can be read without the header's salt, so there are two copies of the header, in different
//! sectors. Records whose offset belongs to the next segment are ignored.

use super::window::Window;
use crate::{JournalError, Offset};
use std::path::{Path, PathBuf};

pub(super) const RECORDS_START: u64 = 1024;

pub(super) const HEADER_COPIES: [u64; 2] = [0, 512];

pub const SEGMENT_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"FLDMKJNL";
const HEADER_BYTES: usize = 64;
const EXTENSION: &str = "journal";

/// A segment file has this extension until it is complete and gets its name.
pub(super) const UNFINISHED: &str = "new";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) partition: u32,
    pub(super) first: u64,
    /// Random number that protects the checksums of records. It is also the id of the dictionary.
    pub(super) salt: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(HEADER_BYTES);
        copy.extend_from_slice(MAGIC);
        copy.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        copy.extend_from_slice(&[0; 2]);
        copy.extend_from_slice(&self.partition.to_le_bytes());
        copy.extend_from_slice(&self.first.to_le_bytes());
        copy.extend_from_slice(&self.salt.to_le_bytes());
        copy.resize(HEADER_BYTES - 4, 0);
        copy.extend_from_slice(&crc32c::crc32c(&copy).to_le_bytes());
        let mut out = vec![0; RECORDS_START as usize];
        for at in HEADER_COPIES {
            out[at as usize..][..HEADER_BYTES].copy_from_slice(&copy);
        }
        out
    }

    /// Decodes one copy of the header. Returns `None` if the copy is damaged. If its version is unknown,
    /// returns the version as error.
    fn decode(copy: &[u8]) -> Result<Option<Self>, u16> {
        let Some(copy) = copy.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let u32_at = |at: usize| copy[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let u64_at = |at: usize| copy[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        if &copy[..8] != MAGIC || crc32c::crc32c(&copy[..HEADER_BYTES - 4]) != u32_at(HEADER_BYTES - 4) {
            return Ok(None);
        }
        match u32_at(8) as u16 {
            SEGMENT_VERSION => Ok(Some(Self { partition: u32_at(12), first: u64_at(16), salt: u64_at(24) })),
            other => Err(other),
        }
    }
}

#[derive(Debug)]
pub(super) struct Headers {
    /// The header, if at least one copy is intact and belongs to this file.
    pub(super) header: Option<Header>,
    pub(super) damaged: Vec<u64>,
}

impl Headers {
    pub(super) fn read(window: &mut Window, partition: u32, first: u64) -> Result<Self, JournalError> {
        let mut headers = Self { header: None, damaged: Vec::new() };
        for at in HEADER_COPIES {
            let copy = window.get(at, HEADER_BYTES)?;
            let copy = Header::decode(copy).map_err(|found| JournalError::Version {
                place: window.path().display().to_string(),
                found,
                known: SEGMENT_VERSION,
            })?;
            match copy.filter(|h| h.partition == partition && h.first == first) {
                Some(header) => headers.header = headers.header.or(Some(header)),
                None => headers.damaged.push(at),
            }
        }
        Ok(headers)
    }
}

pub(super) fn partition_dir(dir: &Path, partition: u32) -> PathBuf {
    dir.join(partition.to_string())
}

pub(super) fn path(partition_dir: &Path, first: u64) -> PathBuf {
    partition_dir.join(format!("{first:020}.{EXTENSION}"))
}

/// The first offset of a segment, according to its file name. `None` if the name is not that of a segment.
pub(super) fn first_of(name: &str) -> Option<Offset> {
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok().map(Offset) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for first in [0, 7, u64::MAX] {
            let path = path(Path::new("/d"), first);
            assert_eq!(first_of(path.file_name().unwrap().to_str().unwrap()), Some(Offset(first)));
        }
        for other in
            ["7.journal", "0000000000000000000x.journal", "00000000000000000007.journal.new", "a", ""]
        {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn headers_round_trip() {
        let header = Header { partition: 3, first: 1 << 40, salt: 0x0123_4567_89ab_cdef };
        let mut bytes = header.encode();
        assert_eq!(bytes.len() as u64, RECORDS_START);
        for at in HEADER_COPIES {
            assert_eq!(Header::decode(&bytes[at as usize..]), Ok(Some(header)));
        }
        bytes[20] ^= 1;
        assert_eq!(Header::decode(&bytes), Ok(None));
        assert_eq!(Header::decode(&bytes[..63]), Ok(None));
    }

    #[test]
    fn a_later_version_is_not_damage() {
        let mut bytes = Header { partition: 0, first: 0, salt: 1 }.encode();
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(2));
    }
}
