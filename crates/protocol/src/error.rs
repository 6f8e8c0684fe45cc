use crate::Encoding;
use crate::wire::WireError;
use model::ErrorKind;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use stdx::budget::Exhausted;

/// Reason why a whole request cannot be decoded. No part of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "content type {0:?} is not supported; send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
    )]
    ContentType(String),
    /// The header `Content-Encoding` names a compression that is not accepted.
    #[error("content encoding {got:?} is not supported; send {}", names(accepted))]
    ContentEncoding {
        /// The header, cut.
        got: String,
        accepted: &'static [Encoding],
    },
    #[error("compressed body has {0} bytes, the limit is {BODY_COMPRESSED_BYTES_MAX}")]
    BodyTooLarge(usize),
    #[error("body decompresses to at least {0} bytes, the limit is {BODY_BYTES_MAX}")]
    DecodedTooLarge(u64),
    #[error("invalid snappy block: {0}")]
    Snappy(&'static str),
    /// The body is damaged, or has another encoding than the header says.
    #[error("invalid {} body: {error}", encoding.name())]
    Damaged {
        encoding: Encoding,
        /// The library's error.
        error: String,
    },
    /// The body is damaged, or is no protobuf message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The symbol table of a 2.0 request does not begin with the empty string.
    #[error("the first symbol has {0} bytes, it must be the empty string")]
    FirstSymbol(usize),
    /// The message has only unknown fields. Probably it belongs to the other version.
    #[error(
        "not a {expected} message: none of its fields belongs to that type; send a {other} message with the content type \
         application/x-protobuf;proto={other}"
    )]
    OtherMessage {
        /// Message type of the headers.
        expected: &'static str,
        /// Message type that the body probably has.
        other: &'static str,
    },
    /// There is not enough memory, now or ever ([`Exhausted::is_for_good`]).
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Name of the items, in the plural.
        what: &'static str,
        /// Maximum number.
        limit: usize,
    },
}

impl DecodeError {
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
