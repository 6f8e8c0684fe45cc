//! Loads a target: connections that send, readers that query, faults, and the target's own process.
//!
//! - [`run`]: a scenario, from its tenants to its result
//! - [`send`]: one connection and its retries; [`tally`], [`meter`]: counts of the requests' outcomes
//! - [`target`], [`faults`]: the process under test, and the faults injected into it
//! - [`watch`]: what a target stores at times of its own
//! - [`tenants`], [`addresses`], [`auth`]: senders, their addresses and their credentials

pub(crate) mod addresses;
pub(crate) mod auth;
mod faults;
mod log;
pub(crate) mod meter;
pub mod options;
mod probe;
mod readers;
pub mod run;
pub(crate) mod send;
pub mod stop;
pub(crate) mod tally;
pub mod target;
pub(crate) mod tenants;
pub(crate) mod watch;
