//! Sealed data: Parquet files in Delta tables. The only crate that knows either.
//!
//! ```text
//!   stretches ──▶ stage ──▶ Parquet files ──▶ delta: one commit of many files
//!   (model)       (block, write)  (staged)          + the floodmarks of their partitions
//!                                                         │
//!   samples  ◀── scan ◀── merge ◀── read ◀── cache ◀── live files ──▶ compact ──▶ fewer, larger files
//!                                                         └──▶ rollup tables
//! ```
//!
//! - [`schema`]: the columns of the metrics table, their encodings, and why
//! - [`block`]: what goes in: stretches of series, in order; how they become rows
//! - [`decimal`]: values as integers over a power of ten, exact to the bit
//! - [`write`]: rows to files, in bounded memory; [`stage`]: a block to staged files
//! - [`store`]: where files lie; [`names`]: how they are called
//! - [`delta`]: which files are live, commits, floodmarks, the order of writes
//! - [`read`]: one file to rows; [`merge`]: many files to series; [`cache`]; [`scan`]: a table to series; [`list`]: a table to labels
//! - [`compact`]: small files to large ones; [`upkeep`]: all that a table needs now and then
//! - [`rollup`]: the same series in less detail, as tables of their own
//!
//! Nothing here starts a thread or reads a clock. What waits for an object store blocks its caller and
//! runs its requests on a runtime that it is handed: call from a thread that may block, never from a task.
//!
//! # How to use it
//!
//! One [`Location`] and one [`Table`] for each tenant, shared by `Arc`; one [`Cache`] for all.
//!
//! Writing: for each partition a [`BlockStager`] gets the frozen series in table order
//! ([`model::LabelsRef::cmp_in_tables`]); its files go into a [`StagedBlock`] with the source's name and the
//! offsets it reaches from and to; [`Table::commit`] takes the blocks of all partitions in one log entry. After a
//! crash, [`Table::floodmarks`] says up to where each source is in the table.
//!
//! Reading: [`Scan::open`] with a [`Select`], then [`Scan::next_series`] and [`Scan::read`] for each. With
//! [`Select::samples`] off it gives series alone, from the small columns. [`list`] gives labels
//! of any number of files, one after the other.
//!
//! Upkeep: [`upkeep::Upkeep`] plans steps; the shell runs each. Everything may die at any point.
//!
//! Memory: each of these says what it holds by `held_bytes()`, and its limits say how much that can become.

pub mod block;
pub mod cache;
pub mod compact;
pub mod decimal;
pub mod delta;
pub mod error;
mod fault;
pub mod list;
pub mod merge;
pub mod names;
pub mod read;
pub mod rollup;
mod run;
pub mod scan;
pub mod schema;
pub mod stage;
pub mod store;
pub mod upkeep;
pub mod write;

pub use block::{Date, Stretch};
pub use cache::Cache;
pub use delta::{Outcome, StagedBlock, Table};
pub use error::TableError;
pub use names::Stem;
pub use read::{Listing, Matcher, Select, Stop};
pub use scan::{Scan, ScanLimits};
pub use stage::BlockStager;
pub use store::Location;
pub use write::WriteLimits;
