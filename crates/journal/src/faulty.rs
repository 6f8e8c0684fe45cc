//! Faults for tests. [`Faulty`] makes random operations of any journal fail. [`flip_bit`] and [`tear`] damage
//! files as a bad disk or a power loss would.

use crate::{DictionaryId, Identity, Journal, JournalError, JournalStats, Offset, Reader};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::rng::Rng;

#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub append_error: f64,
    pub sync_error: f64,
    /// The disk becomes full and stays so for [`Self::full_calls`] calls.
    pub full: f64,
    /// How many calls of `begin` and `append` fail while the disk is full.
    pub full_calls: u64,
}

/// A journal whose operations fail at random. The same seed gives the same faults.
#[derive(Debug)]
pub struct Faulty {
    inner: Box<dyn Journal>,
    faults: Faults,
    rng: Rng,
    full_left: u64,
    injected: u64,
}

impl Faulty {
    pub fn new(inner: Box<dyn Journal>, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, rng: Rng::new(seed), full_left: 0, injected: 0 }
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.full_left = 0;
    }

    pub fn injected(&self) -> u64 {
        self.injected
    }

    /// Fails with probability `chance`, and then discards the unsynced records of the group.
    fn strike(&mut self, chance: f64, what: &'static str) -> Result<(), JournalError> {
        if self.rng.chance(chance) {
            return Err(self.fail(JournalError::Injected(what)));
        }
        Ok(())
    }

    fn strike_full(&mut self) -> Result<(), JournalError> {
        if self.full_left == 0 && self.rng.chance(self.faults.full) {
            self.full_left = self.faults.full_calls;
        }
        if self.full_left == 0 {
            return Ok(());
        }
        self.full_left -= 1;
        let source = io::Error::from(io::ErrorKind::StorageFull);
        Err(self.fail(JournalError::Full { operation: "write", place: "injected".into(), source }))
    }

    fn fail(&mut self, error: JournalError) -> JournalError {
        self.injected += 1;
        self.inner.abandon();
        error
    }
}

impl Journal for Faulty {
    fn identity(&self) -> Arc<dyn Identity> {
        self.inner.identity()
    }

    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError> {
        self.inner.skip_to(offset)
    }

    fn begin(&mut self) -> Result<DictionaryId, JournalError> {
        self.strike_full()?;
        self.inner.begin()
    }

    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError> {
        self.strike_full()?;
        self.strike(self.faults.append_error, "append")?;
        self.inner.append(payload)
    }

    fn sync(&mut self) -> Result<Offset, JournalError> {
        self.strike(self.faults.sync_error, "sync")?;
        self.inner.sync()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn end_dictionary(&mut self) {
        self.inner.end_dictionary();
    }

    fn start(&self) -> Offset {
        self.inner.start()
    }

    fn durable_end(&self) -> Offset {
        self.inner.durable_end()
    }

    fn dictionary_start(&self, offset: Offset) -> Offset {
        self.inner.dictionary_start(offset)
    }

    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError> {
        self.inner.read(from)
    }

    fn truncate(&mut self, before: Offset) -> Result<(), JournalError> {
        self.inner.truncate(before)
    }

    fn stats(&self) -> JournalStats {
        self.inner.stats()
    }
}

pub fn segment_files(dir: &Path, partition: u32) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir.join(partition.to_string()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "journal") {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Flips one random bit within a range of a file. Returns the position of the byte.
pub fn flip_bit(path: &Path, within: Range<u64>, rng: &mut Rng) -> io::Result<u64> {
    let at = within.start + rng.below(within.end - within.start);
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1 << rng.below(8);
    file.write_all_at(&byte, at)?;
    Ok(at)
}

/// Does to a file what a power loss can do: each block behind the first `durable` bytes is left intact,
/// zeroed or filled with garbage, or the end of the file is missing.
pub fn tear(path: &Path, durable: u64, rng: &mut Rng) -> io::Result<()> {
    const BLOCK: u64 = 512;
    let file = File::options().write(true).open(path)?;
    let mut len = file.metadata()?.len();
    if len <= durable {
        return Ok(());
    }
    if rng.chance(0.3) {
        len = durable + rng.below(len - durable + 1);
        file.set_len(len)?;
    }
    // bytes that were not synced may be lost without harm to synced bytes in the same block
    let mut at = durable;
    while at < len {
        let end = ((at / BLOCK + 1) * BLOCK).min(len);
        let block: Option<Vec<u8>> = match rng.below(3) {
            0 => None,
            1 => Some(vec![0; (end - at) as usize]),
            _ => Some((at..end).map(|_| rng.next_u64() as u8).collect()),
        };
        if let Some(block) = block {
            file.write_all_at(&block, at)?;
        }
        at = end;
    }
    Ok(())
}
