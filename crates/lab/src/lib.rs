//! Load, measure, verify: any target that speaks the protocols.
//!
//! - [`plan`], [`fleet`], [`values`]: which samples there are, as pure functions
//! - [`template`], [`snappy`]: request bodies that are made once and then changed in place
//! - [`ledger`]: what was acknowledged
//! - [`http`], [`timer`]: one connection, and sleeping precisely
//! - [`procfs`]: what the target and the generator cost
//! - [`parse`]: durations, counts, headers, times of the command line

pub mod fleet;
pub mod http;
pub mod ledger;
pub mod parse;
pub mod plan;
pub mod procfs;
pub mod snappy;
pub mod template;
pub mod timer;
pub mod values;
