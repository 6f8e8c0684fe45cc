//! Bytes to batches and back: no socket, no clock, no threads.
//!
//! - [`remote_write`]: Prometheus remote write 1.0 and 2.0, decoded without looking into labels
//! - [`tsdb`]: blocks of Prometheus' database
//! - [`jsonl`], [`exposition`]: series and samples as JSON lines and as text, both ways
//! - [`encode`]: the reverse, for the lab and for round trips
//! - [`fuzz`]: one function per fuzz target; ordinary tests run them too

pub mod encode;
pub mod exposition;
pub mod fuzz;
mod json;
pub mod jsonl;
mod number;
pub mod remote_write;
pub mod tsdb;
mod wire;

pub use json::JsonError;

pub use wire::{Fault, WireError};
