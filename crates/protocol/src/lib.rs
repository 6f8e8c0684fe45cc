//! Bytes to batches and back: no socket, no clock, no threads.
//!
//! - [`remote_write`]: Prometheus remote write 1.0 and 2.0, decoded without looking into labels
//! - [`encode`]: the reverse, for the lab and for round trips
//! - [`fuzz`]: one function per fuzz target; ordinary tests run them too

pub mod encode;
pub mod fuzz;
pub mod remote_write;
mod wire;

pub use wire::{Fault, WireError};
