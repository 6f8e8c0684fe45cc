//! Recordings of traffic in any protocol that carries samples. `docs/formats/recording.md` draws the bytes.
//!
//! ```text
//!   body ─ request ─▶ series, samples ─ conceal ─▶ writer ─▶ file ─▶ reader ─▶ series, samples, when
//! ```
//!
//! - [`request`]: parses remote-write bodies of both versions, and `lines` Graphite's lines; `parse`: all other protocols,
//!   whose series go through `sink`
//! - [`conceal`]: replaces label values (and names, if requested) with keyed hashes
//! - [`Writer`]: encodes requests into blocks; each series' labels are written once
//! - [`Reader`]: reads requests back, up to the first damaged byte

pub mod conceal;
mod lines;
pub(crate) mod parse;
mod reader;
pub mod request;
mod sink;
mod value;
mod varint;
mod writer;

pub(crate) use lines::LINE_BYTES_MAX;
pub use reader::{Ending, Event, Header, Item, Reader, RequestEvent};
pub use writer::{Appended, Writer};

const MAGIC: [u8; 8] = *b"FLDMKREC";

/// Version of the format. Version 2 also has streams of Graphite, version 3 of most protocols, version 4 of all.
const VERSION: u16 = 4;

const VERSION_MIN: u16 = 1;

const HEADER_BYTES: usize = 32;

const BLOCK_HEADER_BYTES: usize = 12;

/// A block is closed when its uncompressed content reaches this size.
const BLOCK_BYTES: usize = 1 << 20;

/// Maximum uncompressed size of a block. It exceeds [`BLOCK_BYTES`], because the last entry of a block may be large.
const BLOCK_BYTES_MAX: usize = 4 << 20;

const ITEM_SAMPLES_MAX: usize = 4_096;

const ITEM_HISTOGRAMS_MAX: usize = 16;

/// Native histograms with a larger encoding are left out of a recording.
pub const HISTOGRAM_BYTES_MAX: usize = 64 << 10;

pub const DICTIONARY_SERIES_MAX: usize = 1 << 20;

/// Maximum number of streams (pairs of tenant and protocol) in a dictionary.
const STREAMS_MAX: usize = 1 << 12;

const TENANT_BYTES_MAX: usize = 256;

const _: () = assert!(
    BLOCK_BYTES
        + ITEM_SAMPLES_MAX * 21
        + ITEM_HISTOGRAMS_MAX * (HISTOGRAM_BYTES_MAX + 20)
        + model::caps::SERIES_LABEL_BYTES_MAX
        + 1024
        < BLOCK_BYTES_MAX,
    "a block that is almost full has no room for the largest entry"
);

mod kind {
    /// Empties the dictionary. Series that follow are numbered from 0 again.
    pub(super) const FORGET: u64 = 0;
    pub(super) const STREAM: u64 = 1;
    pub(super) const SERIES: u64 = 2;
    pub(super) const REQUEST: u64 = 3;
    /// A gap: some requests at this point could not be recorded.
    pub(super) const GAP: u64 = 4;
}

mod flag {
    pub(super) const VALUES: u16 = 1;
    pub(super) const METRICS: u16 = 2;
    pub(super) const LABELS: u16 = 4;
}

#[cfg(test)]
mod tests;
