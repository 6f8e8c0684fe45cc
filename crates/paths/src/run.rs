//! An immutable, sorted list of front-coded names.
//!
//! ```text
//!   starts   ●──────────────────────────────┐ ●───── …   where each block begins
//!   chunks   │17 servers.web-1.cpu│12 3 load│ 17 …       each name after the first of a block: how many bytes it shares
//!            └──────── block of 16 names ───┘            with the name before it, how many follow, and these
//! ```

use stdx::budget::{Account, Exhausted, Reservation};

/// Names in a block. The first name of a block is stored whole.
const BLOCK_NAMES: usize = 16;

/// Size of a chunk. A block is never split, so a chunk may be a bit longer.
const CHUNK_BYTES: usize = 1 << 20;

/// A block that is this long ends early, so that long names do not make a block longer than a chunk.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Limit on the chunks of a run, because a position in them is a number of 32 bits.
const CHUNKS_MAX: usize = 1 << 12;

/// The low bits of a position are the offset in its chunk, which is below [`CHUNK_BYTES`] wherever a block begins.
const OFFSET_BITS: u32 = 20;

const _: () = assert!(CHUNK_BYTES == 1 << OFFSET_BITS && CHUNKS_MAX << OFFSET_BITS == 1 << 32);

/// Memory of a run without names.
const EMPTY_BYTES: usize = 256;

/// Sorted names without duplicates.
#[derive(Debug)]
pub struct Run {
    chunks: Vec<Vec<u8>>,
    starts: Vec<u32>,
    len: usize,
    memory: Reservation,
}

/// Why a run cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Full {
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("the names take more than {} GiB", (CHUNKS_MAX * CHUNK_BYTES) >> 30)]
    Places,
}

impl Run {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(crate) const fn block_count(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn block(&self, block: usize) -> &[u8] {
        let position = |start: u32| ((start >> OFFSET_BITS) as usize, start as usize % CHUNK_BYTES);
        let (chunk, from) = position(self.starts[block]);
        let chunk_bytes = &self.chunks[chunk];
        match self.starts.get(block + 1).map(|next| position(*next)) {
            Some((same, to)) if same == chunk => &chunk_bytes[from..to],
            _ => &chunk_bytes[from..],
        }
    }

    pub(crate) fn first_of(&self, block: usize) -> &[u8] {
        let mut bytes = self.block(block);
        let len = take_number(&mut bytes);
        &bytes[..len]
    }
}

/// Builds a run from names in ascending order.
#[derive(Debug)]
pub(crate) struct Builder {
    run: Run,
    last: Vec<u8>,
    /// Names in the block that is not full yet, and where it begins in its chunk.
    in_block: usize,
    block_at: usize,
    /// Bytes that the names will take, about.
    expected_bytes: usize,
}

impl Builder {
    pub(crate) fn new(account: &Account, expected_bytes: usize) -> Result<Self, Full> {
        let memory = account.reserve(EMPTY_BYTES as u64)?;
        let run = Run { chunks: Vec::new(), starts: Vec::new(), len: 0, memory };
        Ok(Self { run, last: Vec::new(), in_block: 0, block_at: 0, expected_bytes })
    }

    /// Adds a key that is not smaller than the ones before. A repeated key is left out.
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<(), Full> {
        if self.run.len > 0 && self.last == key {
            return Ok(());
        }
        debug_assert!(self.run.len == 0 || self.last.as_slice() < key, "BUG: keys are not sorted");
        let is_block_full = |chunk: &Vec<u8>| chunk.len() - self.block_at >= BLOCK_BYTES_MAX;
        let begins = self.in_block == 0
            || self.in_block == BLOCK_NAMES
            || self.run.chunks.last().is_none_or(is_block_full);
        let shared = if begins { 0 } else { shared_len(&self.last, key) };
        self.make_room(begins, key.len() - shared + 2 * NUMBER_BYTES_MAX)?;
        let at = self.run.chunks.len() - 1;
        let chunk = &mut self.run.chunks[at];
        if begins {
            self.in_block = 0;
            self.block_at = chunk.len();
            self.run.starts.push((at as u32) << OFFSET_BITS | chunk.len() as u32);
        } else {
            put_number(chunk, shared);
        }
        put_number(chunk, key.len() - shared);
        chunk.extend_from_slice(&key[shared..]);
        self.in_block += 1;
        self.run.len += 1;
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        Ok(())
    }

    /// Makes room for `more` bytes in the last chunk. A new block may begin a new chunk.
    fn make_room(&mut self, begins_block: bool, more: usize) -> Result<(), Full> {
        let is_chunk_full = |chunk: &Vec<u8>| chunk.len() >= CHUNK_BYTES;
        if begins_block && self.run.chunks.last().is_none_or(is_chunk_full) {
            if self.run.chunks.len() == CHUNKS_MAX {
                return Err(Full::Places);
            }
            if let Some(chunk) = self.run.chunks.last_mut() {
                chunk.shrink_to_fit();
            }
            let room = (CHUNK_BYTES + CHUNK_BYTES / 64).min(self.expected_bytes).max(more);
            self.run.memory.resize(self.run.memory.bytes() + room as u64)?;
            self.expected_bytes = self.expected_bytes.saturating_sub(CHUNK_BYTES);
            self.run.chunks.push(Vec::with_capacity(room));
        }
        let chunk = self.run.chunks.last_mut().expect("BUG: the first block has no chunk");
        if chunk.capacity() - chunk.len() < more {
            let grown = more.max(chunk.capacity() / 2);
            // the old and the new bytes exist at the same time while they are copied
            let before = self.run.memory.bytes();
            self.run.memory.resize(before + (chunk.capacity() + grown) as u64)?;
            chunk.reserve_exact(grown);
            self.run.memory.resize(before + grown as u64)?;
        }
        if begins_block && self.run.starts.len() == self.run.starts.capacity() {
            let grown = (self.run.starts.len() / 4).max(16);
            let bytes = self.run.memory.bytes() + (grown * size_of::<u32>()) as u64;
            self.run.memory.resize(bytes)?;
            self.run.starts.reserve_exact(grown);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Run {
        let mut run = self.run;
        run.chunks.iter_mut().for_each(Vec::shrink_to_fit);
        run.starts.shrink_to_fit();
        let chunks: usize = run.chunks.iter().map(Vec::capacity).sum();
        let places = run.starts.capacity() * size_of::<u32>();
        let bytes = chunks + places + run.chunks.capacity() * size_of::<Vec<u8>>() + EMPTY_BYTES;
        // smaller than what was reserved, except for the list of chunks, which is negligible
        let _ = run.memory.resize(bytes as u64);
        run
    }
}

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Numbers below 2^21 take at most three bytes of seven bits each. Names are shorter.
const NUMBER_BYTES_MAX: usize = 3;

fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(crate) fn take_number(bytes: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("BUG: a run ends within a number");
        *bytes = rest;
        number |= usize::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}
