//! SQL over tables of any store. No other crate knows DataFusion.
//!
//! ```text
//!   text ─ limits ─▶ statement ─ Catalog ─▶ plan ─▶ batches ─▶ Answer: JSON, CSV, Arrow
//!                                  │                  ▲
//!                                  └─ Source ─ scan ──┘  on blocking threads, a batch at a time
//! ```
//!
//! - [`source`]: the traits that storage implements
//! - [`run`]: runs one statement on the calling thread
//! - `text`: limits on a statement's text, and which statements are allowed
//! - `session`: DataFusion's settings, and what of it is left out
//! - `provider`: a [`Source`] as a table of DataFusion
//! - `plan`: limits on plans
//! - `functions`: which functions there are, and limits on those whose result can be large
//! - `dialect`: ends a parser that takes too long
//! - `literals`: long texts, which must not be copied for each row
//! - `prepare`: changes a physical plan, so that it keeps within its memory and can be canceled
//! - `memory`: the limit on a query's memory
//! - [`answer`]: encodes results
//!
//! A query reads only the tables that its [`Catalog`] has: there are no files, no URLs, and no statements that write.

pub mod answer;
mod dialect;
mod error;
mod functions;
mod literals;
mod memory;
mod plan;
mod prepare;
mod provider;
pub mod run;
mod session;
pub mod source;
mod text;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Format};
pub use datafusion::arrow::array::RecordBatch;
pub use datafusion::arrow::datatypes::{Schema, SchemaRef};
pub use error::SqlError;
pub use run::{Done, Interrupt, Limits, Observer, Runner, STACK_BYTES};
pub use source::{Batches, Catalog, Memory, Select, Source, SourceError, Stop, Times};
