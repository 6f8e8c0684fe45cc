//! How far the journal of records was certainly written, in a file of its own.
//!
//! Tables have floodmarks, which are offsets of the journal. If the journal loses its end (a damaged disk, or a power loss
//! without `fsync`), it would assign the lost offsets again, and new batches with these offsets would seem to be in tables
//! already. So before a commit, the loader notes an offset that is not below the floodmark, and the journal never assigns
//! offsets below it.
//!
//! ```text
//!   file = slot  slot            each of 512 bytes; the intact one with the greater offset counts
//!   slot = offset  checksum      u64, little-endian; the rest is 0
//! ```
//!
//! The slots are overwritten in turn, which needs no disk space.

use journal::Offset;
use journal::disk::{self, Disk, DiskFile, Mode};
use std::io;
use std::path::Path;
use stdx::rng::mix;

const SLOT_BYTES: u64 = 512;

#[derive(Debug)]
pub(crate) struct Mark {
    file: Box<dyn DiskFile>,
    upto: Offset,
    /// The slot that is written next.
    slot: u64,
}

impl Mark {
    /// Opens the file, or creates it.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let content = match disk::read(disk, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = disk.open(path, Mode::Create)?;
                file.allocate(0, 2 * SLOT_BYTES)?;
                file.sync_data()?;
                Vec::new()
            }
            content => content?,
        };
        // the process that made the file may have died before it synced the directory
        if let Some(dir) = path.parent() {
            disk.sync_dir(dir)?;
        }
        let file = disk.open(path, Mode::Change)?;
        let slots = [0, 1].map(|slot| read(&content, slot));
        let upto = slots.iter().flatten().max().copied().unwrap_or(0);
        let slot = u64::from(slots[0] == Some(upto));
        Ok(Self { file, upto: Offset(upto), slot })
    }

    pub(crate) const fn upto(&self) -> Offset {
        self.upto
    }

    /// Notes durably that the journal has all offsets below `upto`.
    pub(crate) fn raise(&mut self, upto: Offset) -> io::Result<()> {
        if upto <= self.upto {
            return Ok(());
        }
        let mut bytes = upto.0.to_le_bytes().to_vec();
        bytes.extend(checksum(upto.0).to_le_bytes());
        self.file.write_at(&bytes, self.slot * SLOT_BYTES)?;
        self.file.sync_data()?;
        (self.upto, self.slot) = (upto, 1 - self.slot);
        Ok(())
    }
}

/// The offset in a slot, or `None` if the slot is damaged or was never written.
fn read(content: &[u8], slot: usize) -> Option<u64> {
    let (offset, rest) = content.get(slot * SLOT_BYTES as usize..)?.split_first_chunk()?;
    let offset = u64::from_le_bytes(*offset);
    let found = u64::from_le_bytes(*rest.first_chunk()?);
    (found == checksum(offset)).then_some(offset)
}

fn checksum(offset: u64) -> u64 {
    mix(offset ^ 0x666c_6f6f_646d_6172)
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::Os;

    #[test]
    fn a_torn_write_leaves_the_offset_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let mut mark = Mark::open(&Os, &path).unwrap();
        assert_eq!(mark.upto(), Offset(0));
        for upto in [5, 3, 9, 12] {
            mark.raise(Offset(upto)).unwrap();
        }
        assert_eq!(Mark::open(&Os, &path).unwrap().upto(), Offset(12));
        let whole = std::fs::read(&path).unwrap();
        let torn = whole.windows(8).position(|bytes| bytes == 12_u64.to_le_bytes()).unwrap();
        let mut bytes = whole.clone();
        bytes[torn] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let mut mark = Mark::open(&Os, &path).unwrap();
        assert_eq!(mark.upto(), Offset(9));
        mark.raise(Offset(20)).unwrap();
        assert_eq!(Mark::open(&Os, &path).unwrap().upto(), Offset(20));
        std::fs::write(&path, [0; 3]).unwrap();
        assert_eq!(Mark::open(&Os, &path).unwrap().upto(), Offset(0));
    }
}
