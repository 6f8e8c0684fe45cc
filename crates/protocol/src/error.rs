use crate::Encoding;
use crate::graphite::pickle::PickleError;
use crate::json::JsonError;
use crate::wire::WireError;
use model::ErrorKind;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use stdx::budget::Exhausted;

/// Reason why a request cannot be decoded at all. None of its samples is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "content type {0:?} is not supported; send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
    )]
    ContentType(String),
    #[error("content type {0:?} is not supported; send application/x-protobuf or application/json")]
    OtlpContentType(String),
    #[error("content encoding {got:?} is not supported; send {}", names(accepted))]
    ContentEncoding {
        /// The header's value, cut to a readable length.
        got: String,
        accepted: &'static [Encoding],
    },
    #[error("compressed body has {0} bytes, the limit is {BODY_COMPRESSED_BYTES_MAX}")]
    BodyTooLarge(usize),
    #[error("body decompresses to at least {0} bytes, the limit is {BODY_BYTES_MAX}")]
    DecodedTooLarge(u64),
    #[error("invalid snappy block: {0}")]
    Snappy(&'static str),
    #[error("invalid {} body: {error}", encoding.name())]
    Damaged {
        encoding: Encoding,
        /// The message of the library that decompresses this encoding.
        error: String,
    },
    /// The body is damaged, or it is not a protobuf message.
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Pickle(#[from] PickleError),
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A line of a bulk request of Elasticsearch is no action.
    #[error("malformed action in line {line}: {error}")]
    BulkAction { line: usize, error: JsonError },
    /// The first line of a table does not name its columns.
    #[error("the header of the table cannot be read: {0}")]
    TableHeader(String),
    /// In a 2.0 request, the first entry of the symbol table must be the empty string.
    #[error("the first symbol has {0} bytes, it must be the empty string")]
    FirstSymbol(usize),
    /// No field of the message belongs to the expected version, so the sender probably meant the other
    /// version.
    #[error(
        "not a {expected} message: none of its fields belongs to that type; send a {other} message with the content type \
         application/x-protobuf;proto={other}"
    )]
    OtherMessage {
        /// The message type according to the headers.
        expected: &'static str,
        other: &'static str,
    },
    /// There is not enough memory. [`Exhausted::is_for_good`] tells whether it can help to retry later.
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Plural noun for the message, such as `lines`.
        what: &'static str,
        limit: usize,
    },
}

impl DecodeError {
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::ContentType(_) | Self::OtlpContentType(_) | Self::ContentEncoding { .. } => {
                ErrorKind::Unsupported
            }
            Self::BodyTooLarge(_) | Self::DecodedTooLarge(_) | Self::TooMany { .. } => ErrorKind::TooLarge,
            Self::Snappy(_)
            | Self::Damaged { .. }
            | Self::Wire(_)
            | Self::Pickle(_)
            | Self::Json(_)
            | Self::BulkAction { .. }
            | Self::TableHeader(_)
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
