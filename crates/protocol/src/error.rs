//! Errors that make a whole request undecodable.

use crate::Encoding;
use crate::wire::WireError;
use model::ErrorKind;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use stdx::budget::Exhausted;

/// Reason why a whole request cannot be decoded. No part of it may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The Content-Type header names a message that is not supported.
    #[error(
        "content type {0:?} is not supported; send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
    )]
    ContentType(String),
    /// The Content-Encoding header names a compression that is not accepted.
    #[error("content encoding {got:?} is not supported; send {}", names(accepted))]
    ContentEncoding {
        /// The header, shortened.
        got: String,
        /// Encodings accepted by the endpoint.
        accepted: &'static [Encoding],
    },
    /// The compressed body exceeds the limit.
    #[error("compressed body has {0} bytes, the limit is {BODY_COMPRESSED_BYTES_MAX}")]
    BodyTooLarge(usize),
    /// The body decompresses to more than the limit, according to its header or to the bytes decompressed so far.
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
    /// The symbol table of a 2.0 request does not begin with the empty string, as the specification requires.
    #[error("the first symbol has {0} bytes, it must be the empty string")]
    FirstSymbol(usize),
    /// The message has only unknown fields. Most likely it is a message of the other protocol version.
    #[error(
        "not a {expected} message: none of its fields belongs to that type; send a {other} message with the content type \
         application/x-protobuf;proto={other}"
    )]
    OtherMessage {
        /// Message type stated in the headers.
        expected: &'static str,
        /// Message type that the body most likely has.
        other: &'static str,
    },
    /// Memory is insufficient to decode the body, either now or in any case ([`Exhausted::is_for_good`]).
    #[error(transparent)]
    Memory(#[from] Exhausted),
    /// The request has too many items of a kind.
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Plural name of the items.
        what: &'static str,
        /// Maximum number.
        limit: usize,
    },
}

impl DecodeError {
    /// Kind of error, which determines what the sender should do.
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
