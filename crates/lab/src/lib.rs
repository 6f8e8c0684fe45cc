//! Loads, measures and verifies any target that speaks remote write and PromQL.
//!
//! ```text
//!   scenario ─▶ drive ─┬─ generate: the samples        ─▶ result ─▶ show
//!                      ├─ observe: the target meanwhile
//!                      └─ verify: everything read back
//! ```
//!
//! - [`scenario`]: description of a run, as a user writes it
//! - [`generate`]: the samples, and the request bodies that carry them
//! - [`drive`]: connections, readers, faults, the target's process
//! - [`http`]: client of one connection; `grpc`: the same for gRPC; [`socket`]: client of a connection without answers
//! - [`observe`]: resource usage of target and generator
//! - [`verify()`]: reads every acknowledged sample back
//! - [`result`]: results of a run as data: figures, verdict, timeline
//! - [`show`]: reports, comparisons and progress, as text and HTML
//! - [`capture`]: real traffic in a file, and its replay
//! - [`campaign`]: several runs, to find a limit or a winner

pub mod campaign;
pub mod capture;
pub mod drive;
mod fields;
pub mod generate;
mod grpc;
pub mod http;
mod json;
pub mod observe;
pub mod result;
pub mod scenario;
pub mod show;
mod socket;
pub mod verify;

pub use drive::stop::Stop;
pub use generate::protocol::Protocol;
pub use generate::template::Version;
pub use generate::values::ValueModel;
pub use result::RunResult;
pub use scenario::{Scenario, ScenarioError};
pub use show::progress::{Observer, Silent, Stderr};
pub use verify::ledger::Ledger;
pub use verify::{VerifyOptions, VerifyReport, verify};
