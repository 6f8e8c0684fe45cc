//! Why a whole request cannot be decoded.

use crate::Encoding;
use crate::wire::WireError;
use model::ErrorKind;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use stdx::budget::Exhausted;

/// Why a request cannot be decoded at all. Nothing of it may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The Content-Type header names another message.
    #[error(
        "content type {0:?} is not supported; send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
    )]
    ContentType(String),
    /// The Content-Encoding header names another compression.
    #[error("content encoding {got:?} is not supported; send {}", names(accepted))]
    ContentEncoding {
        /// The header.
        got: String,
        /// Encodings accepted by the endpoint.
        accepted: &'static [Encoding],
    },
    /// A compressed body beyond the limit.
    #[error("compressed body has {0} bytes, the limit is {BODY_COMPRESSED_BYTES_MAX}")]
    BodyTooLarge(usize),
    /// The body decompresses to more than the limit, according to its header or to what was decompressed so far.
    #[error("body decompresses to at least {0} bytes, the limit is {BODY_BYTES_MAX}")]
    DecodedTooLarge(u64),
    /// The body is not snappy, or is damaged.
    #[error("invalid snappy block: {0}")]
    Snappy(&'static str),
    /// The body is not in the encoding that the header names, or is damaged.
    #[error("invalid {} body: {error}", encoding.name())]
    Damaged {
        encoding: Encoding,
        /// The library's error.
        error: String,
    },
    /// The body is not a protobuf message, or is damaged.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A 2.0 symbol table that does not begin with the empty string, as the specification requires.
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
    /// There is not enough memory to decode the body: not now, or never.
    #[error(transparent)]
    Memory(#[from] Exhausted),
    /// The request has more of something than one request may have.
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Name of the thing, in the plural.
        what: &'static str,
        /// Maximum number.
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
