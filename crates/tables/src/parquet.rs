//! Hand-written Parquet decoder for the encodings that Floodmark's own files use. It does no I/O.
//!
//! ```text
//!   column chunk ─▶ pages (header, zstd) ─▶ levels: rle          values: delta_packed, rle (dictionary), plain
//! ```
//!
//! The Parquet library keeps no state between reads of a page. Here a page is opened once and read from any position.
//!
//! - [`page`]: a page's header, and its decompressed bytes
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
