//! Decodes Prometheus remote write 1.0 and 2.0 into a [`Batch`].
//!
//! ```text
//!   Content-Type ─ version_of ─▶ Version
//!   Body ─ Decoder::decode ─▶ Batch { label bytes, keys, samples }
//!                                  └─ unknown key ─ labels_of ─▶ Labels
//! ```
//!
//! A body is one protobuf message, compressed as a snappy block. vmagent compresses it as a zstd frame
//! instead. Sources: `prompb/` in Prometheus, and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! A series' key is a hash of its label bytes in the layout of [`model::labels`]. Version 1.0 sends labels in
//! this layout. For version 2.0, the decoder rebuilds it, so that a series has the same key in both versions.
//! If the message is broken, the whole request fails ([`DecodeError`]). If only one series is invalid, that
//! series is left out.

pub(crate) mod exemplar;
pub(crate) mod metadata;
mod negotiate;
mod sample;
mod v1;
mod v2;

pub use negotiate::version_of;

use crate::{DecodeError, Encoding, Request};
use model::{Batch, LabelsBuilder, SeriesHasher};
use stdx::budget::IncrementalReservation;

/// The encodings of bodies that are accepted. vmagent sends zstd. Without `Content-Encoding`, a body is taken
/// for snappy, as in Prometheus.
pub const ENCODINGS: &[Encoding] = &[Encoding::Snappy, Encoding::Zstd];

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

/// Which kinds of top-level fields a request has. If all of them are unknown, the message probably belongs to
/// the other version.
#[derive(Debug, Default)]
struct Seen {
    known: bool,
    unknown: bool,
}

impl Seen {
    fn check(&self, version: Version) -> Result<(), DecodeError> {
        if self.unknown && !self.known {
            let (expected, other) = (version.message(), version.other().message());
            return Err(DecodeError::OtherMessage { expected, other });
        }
        Ok(())
    }
}

/// Decodes the bodies of remote-write requests of both versions. Between requests, it keeps up to
/// [`Decoder::KEPT_BYTES_MAX`] bytes of memory.
#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
    /// The decompressed body of a 2.0 request. The body of a 1.0 request is decompressed into the batch,
    /// because its label bytes can be used as they are.
    body: Vec<u8>,
    /// In a 1.0 request, label fields may be interrupted by other fields. The labels of such series are
    /// copied together here.
    gathered: Vec<u8>,
    labels: LabelsBuilder,
    v2: v2::Scratch,
}

impl Decoder {
    /// A decoder that has more memory than this after a request frees all of it.
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
