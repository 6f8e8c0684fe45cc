//! Load, measure, verify: any target that speaks the protocols.
//!
//! ```text
//!   scenario ─▶ drive ─┬─ generate: the samples        ─▶ result ─▶ show
//!                      ├─ observe: the target meanwhile
//!                      └─ verify: everything read back
//! ```
//!
//! - [`scenario`]: what to do, as a person writes it down
//! - [`generate`]: which samples there are, and their bytes
//! - [`drive`]: connections, readers, faults, the target's process
//! - [`http`]: one connection
//! - [`observe`]: what the target and the generator cost
//! - [`verify()`]: whether every acknowledged sample is there
//! - [`result`]: all that was found, as data: figures, verdict, timeline
//! - [`show`]: text, pages, comparisons, progress
//! - [`capture`]: real traffic in a file, and its replay
//! - [`campaign`]: several runs, to find a limit or a winner

pub mod campaign;
pub mod capture;
pub mod drive;
pub mod generate;
pub mod http;
pub mod observe;
pub mod result;
pub mod scenario;
pub mod show;
pub mod verify;

pub use drive::stop::Stop;
pub use generate::template::Version;
pub use generate::values::ValueModel;
pub use result::RunResult;
pub use scenario::{Scenario, ScenarioError};
pub use show::progress::{Observer, Silent, Stderr};
pub use verify::ledger::Ledger;
pub use verify::{VerifyOptions, VerifyReport, verify};
