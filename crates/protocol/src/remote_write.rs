//! Prometheus remote write 1.0 and 2.0: a request body in, a [`Batch`] out.
//!
//! ```text
//!   headers ─ negotiate ─▶ Version
//!   body ─ decoded_len ─▶ how much memory to reserve
//!   body ─ Decoder::decode ─▶ Batch { label bytes, keys, samples }
//!                                  └─ unknown key ─ labels_of ─▶ Labels
//! ```
//!
//! What travels is a snappy block (never the framed format) around one protobuf message:
//! `prometheus.WriteRequest` in 1.0, `io.prometheus.write.v2.Request` in 2.0. Sources: `prompb/` in
//! Prometheus, and <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! A series whose key is known costs a walk over field headers and a hash; its labels are not looked at.
//! Both versions give the same key to the same labels in the same order: 1.0 sends the canonical form of
//! [`model::labels`] already, and 2.0 is brought into it from the symbol table.
//!
//! The borders of a request and of a series are different things. What breaks the message (truncated,
//! not protobuf, beyond a limit) fails the request and yields a [`DecodeError`]. What is wrong with one
//! series leaves that series out, counted in [`Batch::refused_series`], and the others go on.

mod error;
mod exemplar;
mod labels;
mod metadata;
mod negotiate;
mod sample;
mod snappy;
mod v1;
mod v2;

pub use error::DecodeError;
pub use labels::{describe_labels, labels_of};
pub use negotiate::negotiate;
pub use snappy::{decoded_len, decompress};

use model::{Batch, LabelsBuilder, SeriesHasher};
use stdx::budget::{Purse, Reservation};

/// The two messages that the protocol knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

impl Version {
    /// The message's full name.
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

/// Which fields a request has at the top. The two messages share none, and protobuf passes over what it does
/// not know: one taken for the other is an empty request.
#[derive(Debug, Default)]
struct Seen {
    known: bool,
    unknown: bool,
}

impl Seen {
    /// Refuses a message that is certainly not what its sender said.
    fn check(&self, version: Version) -> Result<(), DecodeError> {
        if self.unknown && !self.known {
            let (expected, other) = (version.message(), version.other().message());
            return Err(DecodeError::OtherMessage { expected, other });
        }
        Ok(())
    }
}

/// Decodes bodies; keeps its working memory from one to the next, so that a warm one does not allocate.
///
/// What it keeps is bounded by [`Decoder::KEPT_BYTES_MAX`].
#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
    /// The decompressed body of a 2.0 request (that of a 1.0 request is the batch's own arena).
    body: Vec<u8>,
    /// Labels that a 1.0 request sent in pieces.
    gathered: Vec<u8>,
    /// For the labels of exemplars.
    labels: LabelsBuilder,
    v2: v2::Scratch,
}

impl Decoder {
    /// Working memory beyond this is given back after the request that needed it.
    pub const KEPT_BYTES_MAX: usize = 8 << 20;

    /// A decoder that hashes labels with `seed` (see [`model::SeriesKey`]).
    pub fn new(seed: u64) -> Self {
        Self {
            hasher: SeriesHasher::new(seed),
            seed,
            body: Vec::new(),
            gathered: Vec::new(),
            labels: LabelsBuilder::new(),
            v2: v2::Scratch::default(),
        }
    }

    /// Decodes a snappy-compressed `body` into `batch`, whose former content is dropped.
    ///
    /// What the decoder or the batch grow by is bought with `memory` first; what they have already is not.
    /// `memory` never gets smaller, and afterwards holds at least what was asked of it. After an error the batch
    /// is empty.
    pub fn decode(
        &mut self,
        version: Version,
        body: &[u8],
        batch: &mut Batch,
        memory: &mut Reservation,
    ) -> Result<(), DecodeError> {
        batch.clear();
        let decoded = self.decode_bought(version, body, batch, &mut Purse::new(memory));
        if decoded.is_err() {
            batch.clear();
        }
        self.give_back();
        decoded
    }

    fn decode_bought(
        &mut self,
        version: Version,
        body: &[u8],
        batch: &mut Batch,
        purse: &mut Purse<'_>,
    ) -> Result<(), DecodeError> {
        match version {
            Version::V1 => {
                snappy::decompress_bought(body, &mut batch.bytes, purse)?;
                v1::decode(self, batch, purse)
            }
            Version::V2 => {
                snappy::decompress_bought(body, &mut self.body, purse)?;
                v2::decode(self, batch, purse)
            }
        }
    }

    /// Bytes of memory that the decoder holds between requests.
    pub fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.gathered.capacity() + self.v2.memory_bytes()
    }

    fn give_back(&mut self) {
        if self.memory_bytes() > Self::KEPT_BYTES_MAX {
            *self = Self::new(self.seed);
        }
    }
}

#[cfg(test)]
mod tests;
