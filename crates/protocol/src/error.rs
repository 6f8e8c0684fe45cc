//! Why a whole request cannot be decoded.

use crate::Encoding;
use crate::wire::WireError;
use model::ErrorKind;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use stdx::budget::Exhausted;

/// Why a request cannot be decoded at all. Nothing of it may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not a message of this protocol, by the Content-Type header.
    #[error(
        "content type {0:?} is not supported; send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
    )]
    ContentType(String),
    /// Another compression, by the Content-Encoding header.
    #[error("content encoding {got:?} is not supported; send {}", names(accepted))]
    ContentEncoding {
        /// The header.
        got: String,
        /// Encodings accepted by the endpoint.
        accepted: &'static [Encoding],
    },
    /// A compressed body beyond the limit.
    #[error("body has {0} bytes, the limit is {BODY_COMPRESSED_BYTES_MAX}")]
    BodyTooLarge(usize),
    /// A decompressed body beyond the limit, by its own declaration or as far as it was read.
    #[error("body has {0} bytes or more decompressed, the limit is {BODY_BYTES_MAX}")]
    DecodedTooLarge(u64),
    /// Not snappy, or damaged.
    #[error("invalid snappy block: {0}")]
    Snappy(&'static str),
    /// Not of the encoding that the header names, or damaged.
    #[error("invalid {} body: {error}", encoding.name())]
    Damaged {
        encoding: Encoding,
        /// The library's error.
        error: String,
    },
    /// Not a protobuf message, or damaged.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A 2.0 symbol table whose first entry is a text: references would all be off.
    #[error("the first symbol has {0} bytes, it must be the empty string")]
    FirstSymbol(usize),
    /// A message in which nothing is known: most likely of the other version.
    #[error(
        "not a {expected} message: it has fields, but none that this message has; {other} is sent with the content type \
         application/x-protobuf;proto={other}"
    )]
    OtherMessage {
        /// Message type stated in the headers.
        expected: &'static str,
        /// Message type found in the body.
        other: &'static str,
    },
    /// Not enough memory to decode it: not now, or never.
    #[error(transparent)]
    Memory(#[from] Exhausted),
    /// More of something than one request may hold.
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Of what, in the plural.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
}

impl DecodeError {
    /// Reaction expected of the sender.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::ContentType(_) | Self::ContentEncoding { .. } => ErrorKind::Unsupported,
            Self::BodyTooLarge(_) | Self::DecodedTooLarge(_) | Self::TooMany { .. } => ErrorKind::TooLarge,
            Self::Snappy(_)
            | Self::Damaged { .. }
            | Self::Wire(_)
            | Self::FirstSymbol(_)
            | Self::OtherMessage { .. } => ErrorKind::Invalid,
            Self::Memory(full) if full.is_for_good() => ErrorKind::TooLarge,
            Self::Memory(_) => ErrorKind::Unavailable,
        }
    }
}

fn names(encodings: &[Encoding]) -> String {
    encodings.iter().map(|encoding| encoding.name()).collect::<Vec<_>>().join(" or ")
}
