//! Parquet by hand: the encodings that our own files use, from bytes to values, without I/O.
//!
//! ```text
//!   column chunk ─▶ pages (header, zstd) ─▶ levels: rle          values: delta_packed, rle (dictionary), plain
//! ```
//!
//! The Parquet library decodes a page from its first value and knows nothing between two reads. Here a page is opened
//! once and read from the middle, many times.
//!
//! - [`page`]: a page's header and its bytes, unpacked
//! - [`bits`], [`rle`], [`delta_packed`]: encodings
//! - [`column`]: a small column, decoded whole; [`sample_page`]: one page of a column of samples

mod bits;
pub(crate) mod column;
pub(crate) mod delta_packed;
pub(crate) mod page;
pub(crate) mod rle;
mod sample_page;

pub(crate) use column::{Chunk, Texts};
pub(crate) use page::Damage;
pub(crate) use sample_page::Expected;
pub(crate) use sample_page::SamplePage;
