//! The shell around the parts: wiring, HTTP, threads.
//!
//! ```text
//!   http ──▶ pipeline ──▶ owner (one thread a partition) ──▶ journal ──▶ head
//!             decode,       create, journal, sync,             │
//!             resolve       apply, answer                      │
//!   http ──▶ query ◀── source ◀────────────────────────────────┘
//! ```
//!
//! - [`settings`]: what can be configured, resolved once; the memory budget as a sum
//! - [`node`]: opens a data directory and starts the owners
//! - [`pipeline`]: the path of a written batch, top to bottom
//! - `lake`: what is no longer fresh goes into tables, and out of the journal
//! - [`http`]: listeners, routes, and the only place where errors become statuses

pub mod http;
pub mod new_tenants;
mod node;
pub mod pipeline;
pub mod settings;
#[doc(hidden)]
pub mod sim;

mod budget;
mod catalog;
mod courtesy;
mod datadir;
mod fill;
mod headroom;
mod lake;
mod machine;
mod owner;
mod refusal;
mod shortage;
mod source;
mod submission;
mod telemetry;
mod wallclock;
mod world;

pub use datadir::{DataDirError, series_seed};
pub use machine::raise_files;
pub use node::{Node, StartError};
pub use refusal::Refusal;
pub use settings::{ConfigFile, EffectiveSetting, Flags, Origin, Settings, TablesUrl};
