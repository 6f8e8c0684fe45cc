use super::days::{DAYS_MAX, FILES_MAX};
use super::streams::STREAMS_MAX;
use crate::JsonError;
use model::TooManyAttributes;
use model::caps::{ATTRIBUTE_PATH_BYTES_MAX, SERIES_LABELS_MAX, STREAM_BYTES_MAX};

/// Records of a request that were left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Number of all of them.
    pub count: u64,
    /// The first [`Refusals::KEPT_MAX`] of them.
    pub first: Vec<Refusal>,
}

/// Where a record is in its body, and why it was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct Refusal {
    pub place: Place,
    pub reason: Reason,
}

/// Counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Line(usize),
    /// An element of a list.
    Record(usize),
}

/// Why a record is left out. It has no text of its own, because a body may have very many wrong records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("the record is not an object")]
    NotAnObject,
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    TooManyAttributes(#[from] TooManyAttributes),
    #[error("the path of an attribute has {0} bytes, the limit is {ATTRIBUTE_PATH_BYTES_MAX}")]
    PathTooLong(usize),
    /// The time of the attribute with this path.
    #[error("the time in {0:?} is before 1970 or after 9999")]
    Time(&'static str),
    #[error("the time is too far before that of arrival (setting past_limit)")]
    TooOld,
    #[error("the time is too far after that of arrival; it may be one day later")]
    TooNew,
    #[error("the action names no index")]
    NoIndex,
    #[error(
        "the name of an index must have 1 to {STREAM_BYTES_MAX} of the characters A-Z a-z 0-9 - _ . and begin with a letter or digit"
    )]
    IndexName,
    #[error("the tenant has as many streams as it may have (setting streams)")]
    TooManyStreams,
    #[error("the request has more than {STREAMS_MAX} streams")]
    TooManyStreamsAtOnce,
    #[error("the name of the stream differs only in case from one that exists")]
    StreamCase,
    #[error(
        "the records have more than {DAYS_MAX} days in one stream, or {FILES_MAX} in all streams of the request"
    )]
    TooManyDays,
    #[error("records can only be added: the actions are index and create")]
    OnlyAdditions,
    #[error("the labels cannot be read at byte {at}: {what}")]
    Labels { at: usize, what: &'static str },
    #[error("there are more than {SERIES_LABELS_MAX} labels")]
    TooManyLabels,
    #[error("lists and maps of a value are nested too deeply")]
    ValueTooDeep,
    #[error("the ID has {0} bytes")]
    IdTooLong(usize),
    #[error("the row has {found} columns, but the header has {expected}")]
    Columns { found: usize, expected: usize },
    #[error("the quoted text of column {0} does not end")]
    OpenQuote(usize),
    #[error("column {0} has more text behind its quoted text")]
    BehindQuote(usize),
}

impl Refusals {
    pub const KEPT_MAX: usize = 10;

    pub(super) fn add(&mut self, place: Place, reason: Reason) {
        self.count += 1;
        if self.first.len() < Self::KEPT_MAX {
            self.first.push(Refusal { place, reason });
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Record(number) => write!(f, "record {number}"),
        }
    }
}
