//! The server: connects protocols, journals, heads, tables and queries, and owns HTTP and threads.
//!
//! ```text
//!   listen ─▶ http::ingest ─▶ write_path ─▶ partition (one owner, a thread each) ─▶ journal ─▶ head
//!                             decode,        create, journal, sync,                             │
//!                             resolve        apply, answer                          seal ─▶ tables
//!   listen ─▶ http::prometheus ─▶ query ◀── query_source ◀──────────────────────────────┴──────┘
//! ```
//!
//! - [`settings`]: configuration, resolved once; `limits`: the memory budget, gates, thresholds
//! - [`node`]: opens a data directory, assembles the parts and starts their threads
//! - `listen`: accepts connections; `tls`: certificates; `auth`: callers and their rights; `audit`: the audit log
//! - `serve`: serves a node on its sockets
//! - `http`: routes, and the only place where errors become HTTP statuses
//! - `write_path`: splits a request into one submission for each partition's owner
//! - `partition`: the owner of a partition: journal, head, replay, eviction
//! - `seal`: flushes heads into tables and truncates the journal; `upkeep`: background maintenance of the tables
//! - `graphite_rules`: carbon's rule files; `ingest_rules`: rules on what is stored; `events`: events of dashboards
//! - `heap`: statistics and profiles of the allocator
//! - `self_monitoring`: stores the node's own metrics as series
//! - `query_source`: heads and tables as one source for queries; `sql`: what a tenant has, as tables of SQL

pub mod settings;
#[doc(hidden)]
pub mod sim;

mod audit;
mod auth;
mod datadir;
mod deletes;
mod events;
mod graphite_rules;
mod heap;
mod http;
mod ingest_rules;
mod limits;
mod listen;
mod machine;
mod node;
mod outgoing;
mod partition;
mod query_source;
mod readiness;
mod refusal;
mod retention;
mod seal;
mod self_monitoring;
mod serve;
#[cfg(feature = "sql")]
mod sql;
mod streams;
mod telemetry;
mod threads;
mod tls;
mod upkeep;
mod wallclock;
mod watched;
mod world;
mod write_path;

pub use datadir::{DataDirError, SeriesSeed, series_seed};
pub use graphite_rules::RuleFiles;
pub use heap::{Allocator, HeapStatistics};
pub use ingest_rules::IngestRulesFile;
pub use listen::{GraphiteSockets, TenantSockets};
pub use machine::raise_files;
pub use node::{Node, StartError};
pub use query_source::Schemas as GraphiteSchemas;
pub use refusal::Refusal;
pub use serve::{Sockets, serve};
pub use settings::{Given, Settings};
pub use threads::prefer_short_slices;
