//! Converts request bodies and files into batches of samples, and batches back into bytes. This crate opens
//! no sockets, reads no clock and starts no threads.
//!
//! - [`remote_write`]: Prometheus remote write 1.0 and 2.0
//! - [`otlp`]: metrics of OpenTelemetry
//! - [`graphite`]: Graphite's plaintext protocol, with tags
//! - [`influx`]: Influx' line protocol
//! - [`Body`], [`Encoding`]: compressed bodies; [`Decoder`]: the trait of all decoders
//! - [`labels`]: the labels of unknown series
//! - [`statsd`]: lines of statsd
//! - [`tsdb`]: blocks of Prometheus' database
//! - [`whisper`]: Whisper files, Graphite's database
//! - [`jsonl`], [`exposition`]: series and samples as JSON lines and as text; [`csv`]: tables of text
//! - [`records`]: records of any shape, as JSON, tables of text, or raw lines
//! - [`encode`]: encoders, for the lab and for tests
//! - [`fuzz`]: the code of the fuzz targets

mod body;
pub mod csv;
mod decimal;
mod decoder;
pub mod encode;
mod error;
pub mod exposition;
pub mod fuzz;
pub mod graphite;
pub mod influx;
mod json;
pub mod jsonl;
pub mod labels;
mod line_batch;
mod line_fault;
mod number;
pub mod otlp;
mod raw_keys;
pub mod records;
pub mod remote_write;
mod rfc3339;
mod scan;
mod shared_labels;
pub mod statsd;
pub mod tsdb;
pub mod whisper;
mod wire;

pub use body::{Body, Encoding, INFLATED_BYTES_MAX, Inflater, decompress_snappy};
pub use decoder::{Decoder, EncodedLabels, LabelForm, Request};
pub use error::DecodeError;
pub use json::JsonError;
pub use shared_labels::SharedLabels;
pub use wire::{Fault, WireError};
