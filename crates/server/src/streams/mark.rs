//! How far the journal of records was certainly written, and the names under which tables know its batches, in a file of
//! their own.
//!
//! Tables have floodmarks, which are offsets of the journal. If the journal loses its end (a damaged disk, or a power loss
//! without `fsync`), it would assign the lost offsets again, and new batches with these offsets would seem to be in tables
//! already. So before a commit, the loader notes an offset that is not below the floodmark, and the journal never assigns
//! offsets below it.
//!
//! If an older copy of the data directory is put back, or two processes run on copies, no file here shows it. So whenever the
//! journal is opened, it gets a new name for the batches that follow. Batches that were there before keep their names.
//!
//! ```text
//!   file = slot  slot                  each of 16 KiB; the intact one with the greater generation counts
//!   slot = "fmmark2\0"  generation  offset  n  n × (first offset  number)  checksum
//! ```
//!
//! All are u64, little-endian. The slots are overwritten in turn, which needs no disk space. Both have all names.

use journal::disk::{self, Disk, DiskFile, Mode};
use journal::{JournalId, Offset};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::rng::mix;

const MAGIC: u64 = u64::from_le_bytes(*b"fmmark2\0");

const SLOT_BYTES: usize = 16 << 10;

/// Names that fit into a slot. A journal that was opened more often without being truncated keeps its last name.
const NAMES_MAX: usize = 1000;

const _: () = assert!(8 * (5 + 2 * NAMES_MAX) <= SLOT_BYTES);

/// Size of a slot in files of the first version, which have an offset, a checksum and no names.
const OLD_SLOT_BYTES: usize = 512;

#[derive(Debug)]
pub(crate) struct Mark {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// `None` until the file is made.
    file: Option<Box<dyn DiskFile>>,
    noted: Noted,
    /// The slot that is written next.
    slot: usize,
    /// True if a file of the first version was found.
    is_old: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Noted {
    generation: u64,
    upto: u64,
    /// The names in the order of their first offsets. A name ends where the next one begins.
    names: Vec<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    from: u64,
    number: u64,
}

/// What tables call the batches at some offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    /// Batches from this offset on have another name.
    pub(super) end: u64,
}

impl Mark {
    /// Reads the file. If there is none, or it is damaged or of the first version, [`Self::begin_name`] makes it anew.
    pub(crate) fn open(disk: &Arc<dyn Disk>, path: &Path) -> io::Result<Self> {
        let content = match disk::read(&**disk, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content?,
        };
        let slots = [0, 1].map(|slot| content.get(slot * SLOT_BYTES..).and_then(Noted::read));
        let found = slots.iter().flatten().max_by_key(|noted| noted.generation);
        let old = old_upto(&content);
        let file = found.map(|_| disk.open(path, Mode::Change)).transpose()?;
        let noted = Noted { upto: old.unwrap_or(0), ..Noted::default() };
        Ok(Self {
            disk: Arc::clone(disk),
            path: path.into(),
            file,
            slot: usize::from(found.is_some() && slots[0].as_ref() == found),
            noted: found.cloned().unwrap_or(noted),
            is_old: old.is_some(),
        })
    }

    pub(crate) const fn upto(&self) -> Offset {
        Offset(self.noted.upto)
    }

    /// False if there was no file, or one of the first version, or if its content is lost.
    pub(super) const fn has_names(&self) -> bool {
        !self.noted.names.is_empty()
    }

    /// True if the file was made by a version that noted no names.
    pub(super) const fn is_old(&self) -> bool {
        self.is_old
    }

    /// Names all batches, which have no name yet.
    pub(super) fn name_all(&mut self, id: JournalId) {
        assert!(!self.has_names(), "BUG: the batches have names already");
        self.noted.names.push(Name { from: 0, number: id.number });
    }

    /// Gives a new name, durably, to all batches from the offset `from` on, of which there is none yet. Names of batches
    /// below `start` are forgotten. Returns false, and changes nothing, if there are too many names.
    pub(super) fn begin_name(&mut self, start: Offset, from: Offset, number: u64) -> io::Result<bool> {
        let mut names = self.noted.names.clone();
        names.retain(|name| name.from < from.0);
        names.push(Name { from: from.0, number });
        let first = names.partition_point(|name| name.from <= start.0).saturating_sub(1);
        names.drain(..first);
        if names.len() > NAMES_MAX {
            return Ok(false);
        }
        self.noted.names = names;
        // both slots, so that no damage brings back an earlier list
        if self.file.is_some() {
            self.write()?;
            self.write()?;
        } else {
            self.make()?;
        }
        Ok(true)
    }

    /// What tables call the batch at an offset. `None` below [`Self::names_begin`].
    pub(super) fn source_of(&self, offset: Offset) -> Option<Source> {
        let names = &self.noted.names;
        let next = names.partition_point(|name| name.from <= offset.0);
        let name = names.get(next.checked_sub(1)?)?;
        Some(Source {
            name: JournalId { number: name.number, partition: 0 }.to_string(),
            end: names.get(next).map_or(u64::MAX, |next| next.from),
        })
    }

    /// First offset whose name is known. The journal deleted those below it, when tables had them.
    pub(super) fn names_begin(&self) -> Offset {
        Offset(self.noted.names.first().expect("BUG: the journal has no name").from)
    }

    /// Notes durably that the journal has all offsets below `upto`.
    pub(crate) fn raise(&mut self, upto: Offset) -> io::Result<()> {
        if upto.0 <= self.noted.upto {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.noted.upto, upto.0);
        self.write().inspect_err(|_| self.noted.upto = before)
    }

    fn make(&mut self) -> io::Result<()> {
        let mut slot = self.noted.to_bytes();
        slot.resize(SLOT_BYTES, 0);
        disk::replace(&*self.disk, &self.path, &slot.repeat(2))?;
        self.file = Some(self.disk.open(&self.path, Mode::Change)?);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.noted.generation += 1;
        let file = self.file.as_mut().expect("BUG: the mark is raised before the batches have a name");
        file.write_at(&self.noted.to_bytes(), (self.slot * SLOT_BYTES) as u64)?;
        file.sync_data()?;
        self.slot = 1 - self.slot;
        Ok(())
    }
}

impl Noted {
    fn to_bytes(&self) -> Vec<u8> {
        let Self { generation, upto, names } = self;
        let mut words = vec![MAGIC, *generation, *upto, names.len() as u64];
        words.extend(names.iter().flat_map(|name| [name.from, name.number]));
        words.push(checksum(&words));
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `None` if the slot is damaged or was never written.
    fn read(slot: &[u8]) -> Option<Self> {
        let (words, _) = slot.as_chunks::<8>();
        let words: Vec<u64> =
            words.iter().take(SLOT_BYTES / 8).map(|word| u64::from_le_bytes(*word)).collect();
        let [MAGIC, generation, upto, count, ..] = *words.as_slice() else { return None };
        let end = usize::try_from(count).ok().filter(|count| *count <= NAMES_MAX)? * 2 + 4;
        if *words.get(end)? != checksum(&words[..end]) {
            return None;
        }
        let (pairs, _) = words[4..end].as_chunks::<2>();
        let names = pairs.iter().map(|[from, number]| Name { from: *from, number: *number }).collect();
        Some(Self { generation, upto, names })
    }
}

fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0x666c_6f6f_646d_6172, |sum, word| mix(sum ^ word))
}

/// The offset in a file of the first version. It is 0 until the first commit.
fn old_upto(content: &[u8]) -> Option<u64> {
    let slot = |slot: usize| {
        let (offset, rest) = content.get(slot * OLD_SLOT_BYTES..)?.split_first_chunk()?;
        let offset = u64::from_le_bytes(*offset);
        let found = u64::from_le_bytes(*rest.first_chunk()?);
        (found == mix(offset ^ 0x666c_6f6f_646d_6172)).then_some(offset)
    };
    if content.len() != 2 * OLD_SLOT_BYTES {
        return None;
    }
    if content.iter().all(|byte| *byte == 0) { Some(0) } else { slot(0).max(slot(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::Os;
    use std::fs;

    fn open(path: &Path) -> Mark {
        Mark::open(&(Arc::new(Os) as _), path).unwrap()
    }

    #[test]
    fn a_torn_write_leaves_the_offset_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let mut mark = open(&path);
        assert_eq!((mark.upto(), mark.has_names()), (Offset(0), false));
        mark.begin_name(Offset(0), Offset(0), 7).unwrap();
        for upto in [5, 3, 9, 12] {
            mark.raise(Offset(upto)).unwrap();
        }
        assert_eq!(open(&path).upto(), Offset(12));
        let mut bytes = fs::read(&path).unwrap();
        let torn = bytes.windows(8).position(|bytes| bytes == 12_u64.to_le_bytes()).unwrap();
        bytes[torn] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let mut mark = open(&path);
        assert_eq!(mark.upto(), Offset(9));
        assert_eq!(mark.source_of(Offset(3)).unwrap().name, "0000000000000007/0");
        mark.raise(Offset(20)).unwrap();
        assert_eq!(open(&path).upto(), Offset(20));
        for lost in [vec![], vec![0; 3], vec![1; 2 * SLOT_BYTES], vec![0; 2 * SLOT_BYTES]] {
            fs::write(&path, lost).unwrap();
            let mark = open(&path);
            assert_eq!((mark.upto(), mark.has_names(), mark.is_old()), (Offset(0), false, false));
        }
    }

    #[test]
    fn batches_keep_the_names_that_they_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let check = |of: &[(u64, u64, u64)]| {
            let mark = open(&path);
            for (offset, number, end) in of {
                let source = mark.source_of(Offset(*offset)).unwrap();
                assert_eq!((source.name, source.end), (format!("{number:016x}/0"), *end), "{offset}");
            }
            assert_eq!(mark.noted.names.len(), of.len());
        };
        let begin =
            |start, from, number| open(&path).begin_name(Offset(start), Offset(from), number).unwrap();
        assert!(begin(0, 0, 1));
        check(&[(0, 1, u64::MAX)]);
        // a name without batches is replaced
        assert!(begin(0, 0, 2));
        check(&[(5, 2, u64::MAX)]);
        assert!(begin(0, 10, 3));
        assert!(begin(3, 20, 4));
        check(&[(9, 2, 10), (10, 3, 20), (20, 4, u64::MAX)]);
        // the journal has lost its end
        assert!(begin(9, 15, 5));
        check(&[(9, 2, 10), (14, 3, 15), (15, 5, u64::MAX)]);
        // the journal was truncated
        assert!(begin(10, 30, 6));
        check(&[(10, 3, 15), (29, 5, 30), (99, 6, u64::MAX)]);
        let mark = open(&path);
        assert_eq!((mark.names_begin(), mark.source_of(Offset(9))), (Offset(10), None));
        assert!(begin(30, 30, 7));
        check(&[(30, 7, u64::MAX)]);
        let begun = (31..).take_while(|from| begin(30, *from, *from)).count();
        assert_eq!(begun, NAMES_MAX - 1);
        assert_eq!(open(&path).source_of(Offset(1 << 40)).unwrap().name, format!("{:016x}/0", 30 + begun));
        // damage to either slot loses no name
        let whole = fs::read(&path).unwrap();
        for slot in 0..2 {
            let mut bytes = whole.clone();
            bytes[slot * SLOT_BYTES + 50] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(open(&path).noted.names.len(), NAMES_MAX);
        }
    }

    #[test]
    fn a_file_of_the_first_version_has_an_offset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let mut bytes = vec![0; 2 * OLD_SLOT_BYTES];
        for (slot, offset) in [(0, 41_u64), (1, 43)] {
            let checksum = mix(offset ^ 0x666c_6f6f_646d_6172);
            let slot = &mut bytes[slot * OLD_SLOT_BYTES..];
            slot[..8].copy_from_slice(&offset.to_le_bytes());
            slot[8..16].copy_from_slice(&checksum.to_le_bytes());
        }
        fs::write(&path, &bytes).unwrap();
        let mark = open(&path);
        assert_eq!((mark.upto(), mark.has_names(), mark.is_old()), (Offset(43), false, true));
        open(&path).begin_name(Offset(0), Offset(44), 1).unwrap();
        let mark = open(&path);
        assert_eq!((mark.upto(), mark.has_names(), mark.is_old()), (Offset(43), true, false));
        fs::write(&path, [0; 2 * OLD_SLOT_BYTES]).unwrap();
        assert!(open(&path).is_old(), "no batch was committed yet");
    }
}
