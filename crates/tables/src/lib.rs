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
//! - [`write`]: stretches of series to rows and files, in bounded memory; [`stage`]: a block to staged files
//! - [`decimal`]: values as integers over a power of ten, exact to the bit
//! - [`store`]: where files lie, and their names
//! - [`delta`]: which files are live, commits, floodmarks, the order of writes
//! - `parquet`: encodings, by hand; [`read`]: one file to rows; `merge`: many files to series
//! - [`scan`]: a table to series; [`labels`]: a table to labels
//! - [`compact`]: small files to large ones; [`upkeep`]: periodic maintenance of a table
//! - [`rollup`]: the same series in less detail, as tables of their own
//! - [`tombstone`]: deletes, which hide samples until the files are rewritten
//!
//! Nothing here starts a thread or reads a clock. Functions that access an object store block their caller, and run the requests
//! on a runtime passed in by the shell. Call them from a thread that may block, never from an async task.
//!
//! # How to use it
//!
//! One [`Location`] for each tenant, one [`Table`] for each [`Kind`] in it, shared by `Arc`; one [`Cache`] for all.
//!
//! Writing: for each partition, a [`BlockStager`] gets the frozen series in table order
//! ([`model::LabelsRef::cmp_in_tables`]). Its files go into a [`StagedBlock`], with the source's name and the
//! offsets at which the block begins and ends. [`Table::commit`] commits the blocks of all partitions in one
//! log entry. After a crash, [`Table::floodmarks`] returns the offsets up to which the table has the data of
//! each source.
//!
//! Reading: [`Scan::open`] with a [`Select`], then [`Scan::next_series`] and [`Scan::read`] for each. Without
//! [`Select::samples`], a scan returns only series, from the small columns. [`labels`] returns labels of any number of files, one
//! after the other.
//!
//! Upkeep: [`upkeep::Upkeep`] plans steps, and the shell runs each. Every step may be interrupted at any point.
//!
//! Memory: `held_bytes()` of each type returns what it holds, and the type's limits bound it.

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
pub use merge::Merge;
pub use read::{Cache, LabelScan, Matcher, Select, Stop};
pub use scan::{Scan, ScanLimits, labels};
pub use store::{FileStem, Location};
pub use tombstone::Delete;
pub use write::{BlockStager, Stretch, WriteLimits, stage};
