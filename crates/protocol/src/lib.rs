//! Bytes to batches and back: no socket, no clock, no threads.
//!
//! - [`remote_write`]: Prometheus remote write 1.0 and 2.0, decoded without looking into labels
//! - [`graphite`]: Graphite's plaintext protocol, with tags
//! - [`Body`], [`Encoding`]: compressed bodies; [`Decoder`]: what the decoders of requests have in common;
//!   [`labels`]: the labels of series that are not known
//! - [`tsdb`]: blocks of Prometheus' database
//! - [`jsonl`], [`exposition`]: series and samples as JSON lines and as text, both ways
//! - [`encode`]: the reverse, for the lab and for round trips
//! - [`fuzz`]: one function per fuzz target; ordinary tests run them too

mod body;
mod decoder;
pub mod encode;
mod error;
pub mod exposition;
pub mod fuzz;
pub mod graphite;
mod json;
pub mod jsonl;
pub mod labels;
mod number;
pub mod remote_write;
pub mod tsdb;
mod wire;

pub use body::{Body, Encoding, decompress_snappy};
pub use decoder::{Decoder, Request};
pub use error::DecodeError;
pub use json::JsonError;
pub use wire::{Fault, WireError};
