//! Load, measure, verify: any target that speaks the protocols.
//!
//! - [`write()`] loads a target; [`verify()`] reads everything back; both are told what to do by
//!   [`options`] and tell how it goes through an [`observer`]
//! - [`report`]: what was found
//! - [`result`], [`observe`]: the whole of a run as data, and what was seen of the target meanwhile
//! - [`page`], [`summary`], [`compare`], [`figures`]: a result as an HTML file and as text, and two beside each other
//! - [`scenario`]: a run as a person writes it down; [`run`] carries it out, [`verdict`] judges it
//! - [`import`]: queries from dashboards and logs; [`auth`]: who the generator says it is
//! - [`campaign`], [`search`]: several runs, to find a limit or a winner; [`merge`]: results of several machines
//! - [`plan`], [`fleet`], [`values`]: which samples there are, as pure functions
//! - [`template`], [`snappy`]: request bodies that are made once and then changed in place
//! - [`ledger`]: what was acknowledged
//! - [`http`], [`timer`]: one connection, and sleeping precisely
//! - [`record`], [`recording`], [`replay`]: real traffic, kept in a file and played again
//! - [`procfs`]: what the target and the generator cost
//! - [`parse`]: durations, counts, headers, times of the command line

pub mod auth;
pub mod campaign;
pub mod compare;
pub mod figures;
mod files;
pub mod fleet;
pub mod http;
pub mod import;
#[cfg(test)]
mod keys;
pub mod ledger;
pub mod merge;
pub mod observe;
pub mod observer;
pub mod options;
pub mod page;
pub mod parse;
pub mod plan;
pub mod procfs;
pub mod record;
pub mod recording;
pub mod replay;
pub mod report;
pub mod result;
pub mod run;
pub mod scenario;
pub mod search;
pub mod snappy;
pub mod stop;
pub mod summary;
pub mod template;
pub mod timer;
pub mod values;
pub mod verdict;
pub mod verify;
mod warnings;
pub mod write;

pub use ledger::Ledger;
pub use observer::{Observer, Silent, Stderr};
pub use options::{RetryPolicy, WriteOptions};
pub use report::WriteReport;
pub use result::RunResult;
pub use scenario::{Scenario, ScenarioError};
pub use stop::Stop;
pub use template::Version;
pub use values::ValueModel;
pub use verify::{VerifyOptions, VerifyReport, verify};
pub use write::write;
