//! The content of a file: the bytes that the process sees, and those that would survive a power loss.

use std::collections::BTreeSet;
use stdx::rng::Rng;

/// A disk writes sectors of this many bytes, each as a whole.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// True after a sync that reported success but did nothing, until the bytes are durable.
    is_lied_about: bool,
}

impl Inode {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.clone(), bytes, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_durable(&self) -> bool {
        self.bytes == self.durable
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        let Some(last) = (at + bytes.len()).checked_sub(1).filter(|_| !bytes.is_empty()) else { return };
        self.grow(last + 1);
        self.bytes[at..=last].copy_from_slice(bytes);
        self.dirty.extend(at / SECTOR..=last / SECTOR);
    }

    pub(super) fn grow(&mut self, len: usize) {
        self.bytes.resize(len.max(self.bytes.len()), 0);
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        self.dirty.retain(|sector| sector * SECTOR < len);
    }

    /// Called instead of [`Self::sync`] when the disk only pretends to sync.
    pub(super) fn lie(&mut self) {
        self.is_lied_about |= !self.is_durable();
    }

    /// True if a power loss may destroy bytes although a sync has reported success.
    pub(super) const fn is_lied_about(&self) -> bool {
        self.is_lied_about
    }

    pub(super) fn sync(&mut self) {
        self.is_lied_about = false;
        self.durable.resize(self.bytes.len(), 0);
        std::mem::take(&mut self.dirty).into_iter().for_each(|sector| self.make_durable(sector));
    }

    /// Makes some of the changed sectors durable. The next sync writes the others, unless the kernel
    /// `gives_up` on them.
    pub(super) fn sync_some(&mut self, rng: &mut Rng, gives_up: bool) {
        for sector in std::mem::take(&mut self.dirty) {
            if rng.chance(0.5) {
                self.make_durable(sector);
            } else if !gives_up {
                self.dirty.insert(sector);
            }
        }
    }

    fn make_durable(&mut self, sector: usize) {
        let range = sector * SECTOR..self.bytes.len().min((sector + 1) * SECTOR);
        if range.is_empty() {
            return;
        }
        if self.durable.len() < range.end {
            self.durable.resize(range.end, 0);
        }
        self.durable[range.clone()].copy_from_slice(&self.bytes[range]);
    }

    /// Decides by chance what is left after a power loss: the length of the file, and for each changed sector
    /// the old or the new content.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        self.is_lied_about = false;
        let (shorter, longer) =
            (self.durable.len().min(self.bytes.len()), self.durable.len().max(self.bytes.len()));
        let len = match rng.below(3) {
            0 => self.durable.len(),
            1 => self.bytes.len(),
            _ => shorter + rng.below((longer - shorter) as u64 + 1) as usize,
        };
        let mut left = std::mem::take(&mut self.durable);
        let durable = left.len();
        left.resize(len, 0);
        let how = rng.below(5);
        let cut = rng.below(longer as u64 + 1) as usize;
        for sector in std::mem::take(&mut self.dirty) {
            let (from, to) = (sector * SECTOR, len.min(self.bytes.len()).min((sector + 1) * SECTOR));
            for (at, byte) in left.iter_mut().enumerate().take(to).skip(from) {
                let is_new = match how {
                    0 => false,
                    1 => true,
                    2 => at < cut,
                    // a sector is written as a whole or not at all
                    _ => stdx::rng::mix(cut as u64 ^ sector as u64) & 1 == 0,
                };
                if is_new {
                    *byte = self.bytes[at];
                } else if how == 4 && at >= durable {
                    *byte = rng.next_u64() as u8;
                }
            }
        }
        self.bytes.clone_from(&left);
        self.durable = left;
    }
}
