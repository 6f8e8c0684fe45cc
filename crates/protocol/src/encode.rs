//! Encodes remote-write request bodies, for the lab and for round-trip tests.
//!
//! An encoder collects series and returns a snappy-compressed body. It keeps its memory between bodies. Like
//! Prometheus' sender, it leaves out numbers that are zero, but not a negative zero.

mod put;
pub mod tsdb;
mod v1;
mod v2;

pub use v1::V1Encoder;
pub use v2::V2Encoder;

use model::{Exemplar, Metadata};

/// Optional parts of a series beside its samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// Examples of counted events.
    pub exemplars: &'a [Exemplar],
    /// Metadata of the series' metric. Version 2.0 only; 1.0 has [`V1Encoder::metadata`].
    pub metadata: Option<&'a Metadata>,
    /// Start time of the samples' counts, in milliseconds since the Unix epoch; 0 if unknown. Version 2.0 only.
    pub start_ms: i64,
}

/// Compresses messages as snappy blocks.
struct BlockCompressor {
    snappy: snap::raw::Encoder,
    /// Buffer for the block, which may be longer than the block.
    bytes: Vec<u8>,
}

impl Default for BlockCompressor {
    fn default() -> Self {
        Self { snappy: snap::raw::Encoder::new(), bytes: Vec::new() }
    }
}

impl std::fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCompressor").field("bytes", &self.bytes.len()).finish()
    }
}

impl BlockCompressor {
    fn compress(&mut self, message: &[u8]) -> &[u8] {
        let bound = snap::raw::max_compress_len(message.len());
        assert!(bound > 0, "BUG: a message of {} bytes is more than a snappy block holds", message.len());
        if self.bytes.len() < bound {
            self.bytes.resize(bound, 0);
        }
        let written = self.snappy.compress(message, &mut self.bytes);
        &self.bytes[..written.expect("BUG: the output is too small for the worst case")]
    }
}
