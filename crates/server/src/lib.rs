//! The shell around the parts: wiring, HTTP, threads.
//!
//! ```text
//!   listen ─▶ http::ingest ─▶ ingest ─▶ partition (one owner, a thread each) ─▶ journal ─▶ head
//!                             decode,    create, journal, sync,                             │
//!                             resolve    apply, answer                          seal ─▶ tables
//!   listen ─▶ http::prometheus ─▶ query ◀── query_source ◀──────────────────────────┴──────┘
//! ```
//!
//! - [`settings`]: what can be configured, resolved once; `limits`: the memory budget, gates, thresholds
//! - [`node`]: opens a data directory, assembles the parts and starts their threads
//! - `listen`: accepts connections; [`http`]: routes, and the only place where errors become statuses
//! - `ingest`: from a request to what each partition's owner gets
//! - `partition`: the owner of a partition: journal, head, replay, eviction
//! - `seal`: what is no longer fresh goes into tables, and out of the journal; `upkeep`: what becomes of it there
//! - `query_source`: heads and tables as one source for queries

pub mod http;
mod node;
pub mod settings;
#[doc(hidden)]
pub mod sim;

mod datadir;
mod ingest;
mod limits;
mod listen;
mod machine;
mod partition;
mod query_source;
mod refusal;
mod seal;
mod shared;
mod telemetry;
mod threads;
mod upkeep;
mod wallclock;
mod world;

pub use datadir::{DataDirError, series_seed};
pub use machine::raise_files;
pub use node::{Node, StartError};
pub use refusal::Refusal;
pub use settings::{Given, Settings};
