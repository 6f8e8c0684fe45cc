//! Real remote-write traffic in a file, and back. `docs/formats/recording.md` draws the bytes.
//!
//! ```text
//!   body ─ request ─▶ series, samples ─ conceal ─▶ writer ─▶ file ─▶ reader ─▶ series, samples, when
//! ```
//!
//! - [`request`]: what a remote-write body of either version says
//! - [`conceal`]: label values (and names, if asked) replaced by keyed hashes
//! - [`Writer`]: encodes requests into blocks; each series' labels are written once
//! - [`Reader`]: reads them again, up to the first byte that cannot be trusted

pub mod conceal;
mod reader;
pub mod request;
mod value;
mod varint;
mod writer;

pub use reader::{Ending, Event, Header, Item, Reader, RequestEvent};
pub use writer::{Appended, Writer};

/// Magic number at the start of a file.
const MAGIC: [u8; 8] = *b"FLDMKREC";

/// Version of the format in `docs/formats/recording.md`.
const VERSION: u16 = 1;

/// Length of the header, before the first block.
const HEADER_BYTES: usize = 32;

/// Length of a block's header, before its payload.
const BLOCK_HEADER_BYTES: usize = 12;

/// A block is closed when it has as many bytes, uncompressed.
const BLOCK_BYTES: usize = 1 << 20;

/// The most that a block can have: it is closed after the entry that fills it, and an entry holds at most
/// [`ITEM_SAMPLES_MAX`] samples of at most 21 bytes each, or [`ITEM_HISTOGRAMS_MAX`] histograms, or labels.
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Maximum number of samples in an item; more take several items.
const ITEM_SAMPLES_MAX: usize = 4_096;

/// Maximum number of native histograms in an item.
const ITEM_HISTOGRAMS_MAX: usize = 16;

/// A longer native histogram is left out: thousands of buckets fit.
pub const HISTOGRAM_BYTES_MAX: usize = 64 << 10;

/// Series in a dictionary; the one after them begins another, so that neither writing nor reading takes
/// more memory than this many series do.
pub const DICTIONARY_SERIES_MAX: usize = 1 << 20;

/// Streams (tenant and protocol version) in a dictionary.
const STREAMS_MAX: usize = 1 << 12;

/// A tenant's name, longer ones are cut.
const TENANT_BYTES_MAX: usize = 256;

const _: () = assert!(
    BLOCK_BYTES
        + ITEM_SAMPLES_MAX * 21
        + ITEM_HISTOGRAMS_MAX * (HISTOGRAM_BYTES_MAX + 20)
        + model::caps::SERIES_LABEL_BYTES_MAX
        + 1024
        < BLOCK_BYTES_MAX,
    "an entry that begins in a block ends in it"
);

/// Kinds of entries in a block.
mod kind {
    /// The dictionary is empty from here on.
    pub(super) const FORGET: u64 = 0;
    /// The next stream.
    pub(super) const STREAM: u64 = 1;
    /// The next series.
    pub(super) const SERIES: u64 = 2;
    /// A request, or a part of one.
    pub(super) const REQUEST: u64 = 3;
    /// Requests that are not in the file.
    pub(super) const GAP: u64 = 4;
}

/// Flags in the file header, as bits.
mod flag {
    /// Label values are hashes.
    pub(super) const VALUES: u16 = 1;
    /// Metric names are hashes.
    pub(super) const METRICS: u16 = 2;
    /// Label names are hashes.
    pub(super) const LABELS: u16 = 4;
}

#[cfg(test)]
mod tests;
