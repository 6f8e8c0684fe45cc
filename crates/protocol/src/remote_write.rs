//! Decodes Prometheus remote write 1.0 and 2.0 into a [`Batch`].
//!
//! ```text
//!   Content-Type ─ version_of ─▶ Version
//!   Body ─ Decoder::decode ─▶ Batch { label bytes, keys, samples }
//!                                  └─ unknown key ─ labels_of ─▶ Labels
//! ```
//!
//! A body is a snappy block (from vmagent, a zstd frame) with one protobuf message. Sources: `prompb/` in
//! Prometheus, and <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! A key is a hash of label bytes in the layout of [`model::labels`]. Version 1.0 sends this layout; for 2.0,
//! the decoder rebuilds it. A broken message fails the request ([`DecodeError`]). A fault in a series leaves
//! out the series.

mod exemplar;
mod metadata;
mod negotiate;
mod sample;
mod v1;
mod v2;

pub use negotiate::version_of;

use crate::{DecodeError, Encoding, Request};
use model::{Batch, LabelsBuilder, SeriesHasher};
use stdx::budget::IncrementalReservation;

/// Accepted compressions. Without `Content-Encoding`, a body is snappy, as in Prometheus. vmagent sends zstd.
pub const ENCODINGS: &[Encoding] = &[Encoding::Snappy, Encoding::Zstd];

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

impl Version {
    const fn message(self) -> &'static str {
        match self {
            Self::V1 => "prometheus.WriteRequest",
            Self::V2 => "io.prometheus.write.v2.Request",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::V1 => Self::V2,
            Self::V2 => Self::V1,
        }
    }
}

/// Top-level fields found in a request. A message of the other version has only unknown fields.
#[derive(Debug, Default)]
struct Seen {
    known: bool,
    unknown: bool,
}

impl Seen {
    /// Fails if the message has only unknown fields.
    fn check(&self, version: Version) -> Result<(), DecodeError> {
        if self.unknown && !self.known {
            let (expected, other) = (version.message(), version.other().message());
            return Err(DecodeError::OtherMessage { expected, other });
        }
        Ok(())
    }
}

/// Decodes bodies. Keeps up to [`Decoder::KEPT_BYTES_MAX`] bytes of memory between bodies.
#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
    /// Decompressed body of a 2.0 request. A 1.0 body is decompressed into the batch.
    body: Vec<u8>,
    /// Labels of series whose label fields are not contiguous, in 1.0.
    gathered: Vec<u8>,
    labels: LabelsBuilder,
    v2: v2::Scratch,
}

impl Decoder {
    /// Limit on memory kept between requests. A decoder with more memory frees all of it.
    pub const KEPT_BYTES_MAX: usize = 8 << 20;

    fn give_back(&mut self) {
        if crate::Decoder::memory_bytes(self) > Self::KEPT_BYTES_MAX {
            *self = crate::Decoder::new(self.seed);
        }
    }
}

impl crate::Decoder for Decoder {
    type Format = Version;

    fn new(seed: u64) -> Self {
        Self {
            hasher: SeriesHasher::new(seed),
            seed,
            body: Vec::new(),
            gathered: Vec::new(),
            labels: LabelsBuilder::new(),
            v2: v2::Scratch::default(),
        }
    }

    fn fill(
        &mut self,
        request: Request<'_, Version>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let body = request.body;
        let filled = match request.format {
            Version::V1 => body
                .decompress(&mut batch.bytes, reservation)
                .and_then(|()| v1::decode(self, batch, reservation)),
            Version::V2 => body
                .decompress(&mut self.body, reservation)
                .and_then(|()| v2::decode(self, batch, reservation)),
        };
        self.give_back();
        filled
    }

    fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.gathered.capacity() + self.v2.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
