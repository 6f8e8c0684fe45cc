//! Encoding and decoding of values in chunks, by kind of value.

use super::{Full, OpenChunk, histograms, reader};
use model::{Histogram, Samples, TimeRange};

/// A type of value that chunks can hold. It is a trait and not an enum, so that code is compiled for each
/// type, which is faster.
pub trait ChunkValue: model::Value {
    fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full>;

    fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples<Self>);

    /// A number that identifies the value, to compare it with [`OpenChunk::newest`]: the bits of a float, or
    /// a hash of a histogram.
    fn fingerprint(&self) -> u64;
}

impl ChunkValue for f64 {
    #[inline]
    fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full> {
        chunk.append(timestamp_ms, *self)
    }

    #[inline]
    fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples) {
        reader::read(bytes, count, range, out);
    }

    #[inline]
    fn fingerprint(&self) -> u64 {
        self.to_bits()
    }
}

impl ChunkValue for Histogram {
    fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full> {
        chunk.append_histogram(timestamp_ms, self)
    }

    fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples<Self>) {
        histograms::read(bytes, count, range, out);
    }

    fn fingerprint(&self) -> u64 {
        histograms::fingerprint(self)
    }
}
