//! Encodes the bodies of remote-write requests, gauges of OpenTelemetry ([`OtlpEncoder`]), and points for carbon
//! ([`graphite`]) and InfluxDB ([`influx`]), for the lab and for tests.
//! An encoder of remote write collects series, and returns them as one snappy-compressed body. Like Prometheus, it
//! omits fields that are zero, except for a negative zero.

pub mod graphite;
pub mod influx;
mod otlp;
mod put;
pub mod tsdb;
mod v1;
mod v2;

pub use otlp::OtlpEncoder;
pub use v1::V1Encoder;
pub use v2::V2Encoder;

use model::{Exemplar, Metadata};

#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    pub exemplars: &'a [Exemplar],
    /// Only version 2.0 sends metadata with a series.
    pub metadata: Option<&'a Metadata>,
    /// When the series started counting, in milliseconds since the Unix epoch. 0 means unknown. Only version
    /// 2.0 has this field.
    pub start_ms: i64,
}

struct BlockCompressor {
    snappy: snap::raw::Encoder,
    bytes: Vec<u8>,
}

impl Default for BlockCompressor {
    fn default() -> Self {
        Self { snappy: snap::raw::Encoder::new(), bytes: Vec::new() }
    }
}

impl std::fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCompressor").field("bytes", &self.bytes.len()).finish()
    }
}

impl BlockCompressor {
    fn compress(&mut self, message: &[u8]) -> &[u8] {
        let bound = snap::raw::max_compress_len(message.len());
        assert!(bound > 0, "BUG: a message of {} bytes is more than a snappy block holds", message.len());
        if self.bytes.len() < bound {
            self.bytes.resize(bound, 0);
        }
        let written = self.snappy.compress(message, &mut self.bytes);
        &self.bytes[..written.expect("BUG: the output is too small for the worst case")]
    }
}
