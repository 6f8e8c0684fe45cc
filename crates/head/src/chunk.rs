//! Compressed samples of one series: appended one by one, read as columns.
//!
//! ```text
//!   chunk   = first timestamp (i64 LE) · exponent (u8) · first value (8 bytes LE) · token*
//!   token   = control (u8) · [change of interval] · [value]
//!   control = time class (bits 7-6) · length n of the value part (bits 5-2) · variant (bits 1-0)
//! ```
//!
//! - The time of a sample is stored as the difference between its interval and the previous interval. It
//!   takes 0, 1, 4 or 8 bytes, depending on the time class (0 to 3).
//! - In a decimal chunk, a value is `mantissa / 10^exponent`, exact to the bit. A token has the change of the
//!   mantissa (zigzag) in `n` bytes. Variant 2 marks a value without such a mantissa, which is stored as the
//!   8 bytes of the float.
//! - In a float chunk (exponent [`FLOAT`]), a token has the XOR with the previous value's bits: `n` bytes,
//!   after `variant` leading zero bytes. Trailing zero bytes are left out.
//! - `n = 0` with variant 1 is a run. The next byte counts further samples with the same value and interval.
//!
//! Everything is a whole number of bytes, so a chunk decodes faster than the bit stream of Gorilla (Pelkonen
//! et al., 2015).

mod decimal;
mod histograms;
mod open;
mod reader;
#[cfg(test)]
mod tests;
mod value;

pub use open::{Full, OpenChunk};
pub(crate) use value::ChunkValue;

use model::{Samples, TimeRange};

/// A chunk with this many samples is full. It covers an hour at one sample every 15 seconds.
pub const SAMPLES_MAX: u16 = 240;

const FLOAT: u8 = 0xff;

const HISTOGRAM: u8 = 0xfe;

const HEADER_BYTES: usize = 17;
const VARIANT_RUN: u8 = 1;
const VARIANT_RAW: u8 = 2;

/// Footer of a finished chunk: last timestamp (i64 LE) and number of samples (u16 LE).
const FOOTER_BYTES: usize = 10;

/// A finished chunk: one allocation of its exact size.
#[derive(Debug, Clone)]
pub struct Chunk {
    bytes: Box<[u8]>,
}

impl Chunk {
    pub fn count(&self) -> u16 {
        let count = self.bytes.len() - 2;
        u16::from_le_bytes([self.bytes[count], self.bytes[count + 1]])
    }

    pub fn range(&self) -> TimeRange {
        let footer = self.bytes.len() - FOOTER_BYTES;
        TimeRange::new(
            i64::from_le_bytes(array(&self.bytes[..8])),
            i64::from_le_bytes(array(&self.bytes[footer..footer + 8])),
        )
    }

    /// Size of this struct and of the heap memory that it owns.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    /// Encoded size without the footer.
    pub const fn data_bytes(&self) -> usize {
        self.bytes.len() - FOOTER_BYTES
    }

    /// Appends the samples inside `range` to `out`. `V` must be the type that the chunk holds, floats or
    /// histograms.
    pub fn read<V: ChunkValue>(&self, range: TimeRange, out: &mut Samples<V>) {
        if self.range().overlaps(&range) {
            V::read(&self.bytes, self.count(), range, out);
        }
    }
}

#[inline]
fn array(bytes: &[u8]) -> [u8; 8] {
    bytes.try_into().expect("BUG: not eight bytes")
}

const _: () = assert!(SAMPLES_MAX <= u8::MAX as u16 + 1, "a run's length does not fit a byte");
