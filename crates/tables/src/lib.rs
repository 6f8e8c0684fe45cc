//! Sealed data: Parquet files in Delta tables. No other crate uses these formats.
//!
//! ```text
//!   stretches ──▶ write ──▶ Parquet files ──▶ delta: one commit of many files
//!   (model)       (stage)     (staged)        + the floodmarks of their partitions
//!                                                         │
//!   samples  ◀── scan ◀── merge ◀── read ◀── parquet ◀── live files ──▶ compact ──▶ fewer, larger files
//!                                                         └──▶ rollup tables
//! ```
//!
//! - [`kind`]: the differences between tables: columns by format version, sort key, statistics, merge policy
//! - [`write`]: writes stretches of series as rows of files, in bounded memory; [`stage`]: stages a block as files
//! - [`decimal`]: values as integers over a power of ten, exact to the bit
//! - [`store`]: where files lie, and their names
//! - [`delta`]: which files are live, commits, floodmarks, the order of writes
//! - `parquet`: hand-written decoders; [`read`]: reads the rows of a file; `merge`: merges the rows of many files
//! - [`scan`]: reads the series of a table; [`labels`]: lists its labels
//! - [`compact`]: merges small files into large ones; [`upkeep`]: periodic maintenance of a table
//! - [`rollup`]: the same series in less detail, as tables of their own
//! - [`tombstone`]: deletes, which hide samples until the files are rewritten
//!
//! Nothing here starts a thread or reads a clock. Functions that access a store block their caller: never call them
//! from an async task.
//!
//! # How to use it
//!
//! There is one [`Location`] for each tenant, one shared [`Table`] for each [`Kind`] in it, and one [`Cache`] for all.
//!
//! - Writing: a [`BlockStager`] gets a partition's frozen series in table order ([`model::LabelsRef::cmp_in_tables`]).
//!   Its files go into a [`StagedBlock`], and [`Table::commit`] commits the blocks of all partitions. After a crash,
//!   [`Table::floodmarks`] says what the table has.
//!   Records go through a [`RecordsStager`] in the same way.
//! - Reading: [`Scan::open`] with a [`Select`], [`Scan::next_series`], and [`Scan::read`]. Without [`Select::samples`],
//!   a scan returns only series. [`labels`] returns labels.
//!   A [`RecordScan`] returns records as batches of Arrow.
//! - Upkeep: [`upkeep::Upkeep`] plans steps, which the caller runs. Each may be interrupted at any point.
//! - Memory: `held_bytes()` of each type returns its memory, which the type's limits bound.

pub mod compact;
mod date;
pub mod decimal;
pub mod delta;
pub mod error;
mod fault;
pub mod kind;
pub mod live_file;
mod merge;
mod parquet;
pub mod read;
pub mod rollup;
pub mod scan;
pub mod store;
pub mod tombstone;
pub mod upkeep;
pub mod write;

pub use date::{DAY_MS, Date};
pub use delta::{Outcome, StagedBlock, Table};
pub use error::TableError;
pub use kind::Kind;
pub use kind::metrics::{METRICS, ROLLUP};
pub use kind::records::RECORDS;
pub use merge::Merge;
pub use read::{Cache, LabelScan, Matcher, RecordScan, RecordSelect, Select, Stop};
pub use scan::{Scan, ScanLimits, labels};
pub use store::{FileStem, Location};
pub use tombstone::Delete;
pub use write::{BlockStager, RecordLimits, RecordsStager, Stretch, WriteLimits, stage};
