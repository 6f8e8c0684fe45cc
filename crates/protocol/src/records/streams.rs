//! Records of several streams in one request.

use super::days::Days;
use super::{Fault, Reason, Refusals, Rows, Times};
use crate::DecodeError;
use model::caps::{BODY_BYTES_MAX, STREAM_BYTES_MAX};
use model::{Records, RecordsBuilder, StreamName};
use std::collections::HashMap;
use stdx::budget::{IncrementalReservation, Reservation};

/// Limit on the streams in one request. Each is a batch in the journal, and at least one file.
pub const STREAMS_MAX: usize = 200;

/// Memory of a stream of a request, besides its records.
const STREAM_MEMORY_BYTES: usize = 1 << 10;

const _: () = assert!(
    2 * (size_of::<RecordsBuilder>() + 4 * size_of::<StreamName>()) + STREAM_BYTES_MAX < STREAM_MEMORY_BYTES
);

/// A body that is not compressed any more.
#[derive(Debug, Clone, Copy)]
pub struct StreamsRequest<'a> {
    pub body: &'a [u8],
    /// The time of records without a time, in microseconds since the Unix epoch.
    pub arrival_us: i64,
    /// The times that records may have.
    pub times: Times,
    /// The stream of all records, if the client names one for the whole request.
    pub stream: Option<&'a StreamName>,
    /// Streams whose records are refused, if the endpoint can refuse some records of a request.
    pub left_out: &'a LeftOut,
    /// Limit on the memory of the records. Without it, a small body whose records have much in common could take any amount.
    pub records_bytes_max: usize,
}

/// Streams whose records are refused, with the reason.
pub type LeftOut = HashMap<StreamName, Reason>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodedStreams {
    /// Streams that have records, each once.
    pub streams: Vec<(StreamName, Records)>,
    /// Streams that have no records only because the request has records of too many days.
    pub without_days: Vec<StreamName>,
    pub refused: Refusals,
}

impl StreamsRequest<'_> {
    /// Decodes the body with `read`. In the end, as much memory is reserved as the records take.
    pub(super) fn decode(
        self,
        memory: &mut Reservation,
        read: impl FnOnce(&mut Streams<'_, '_>) -> Result<(), DecodeError>,
    ) -> Result<DecodedStreams, DecodeError> {
        let before = memory.bytes();
        let decoded = self.decode_keeping(memory, read)?;
        let records = decoded.streams.iter().map(|(_, records)| records.memory_bytes() as u64);
        memory.resize(before + records.sum::<u64>())?;
        Ok(decoded)
    }

    /// Decodes like [`Self::decode`], and keeps all memory that was reserved.
    pub(super) fn decode_keeping(
        self,
        memory: &mut Reservation,
        read: impl FnOnce(&mut Streams<'_, '_>) -> Result<(), DecodeError>,
    ) -> Result<DecodedStreams, DecodeError> {
        // the texts of a batch have less than 4 GiB, because the limit on the records is lower
        if self.body.len() > BODY_BYTES_MAX {
            return Err(DecodeError::DecodedTooLarge(self.body.len() as u64));
        }
        let mut reservation = IncrementalReservation::new(memory);
        let mut rows = Rows::limited(self.arrival_us, self.times, self.records_bytes_max, &mut reservation);
        rows.days = Some(Days::default());
        let mut streams = Streams {
            rows,
            all: Vec::new(),
            numbers: HashMap::new(),
            current: None,
            named: self.stream,
            left_out: self.left_out,
        };
        read(&mut streams)?;
        Ok(streams.finish())
    }
}

/// Reads records of several streams. One of them is the current one, to which [`Self::rows`] adds records.
pub(super) struct Streams<'a, 'm> {
    pub(super) rows: Rows<'a, 'm>,
    /// The records of all streams but the current one.
    all: Vec<(StreamName, RecordsBuilder)>,
    numbers: HashMap<StreamName, usize>,
    current: Option<usize>,
    named: Option<&'a StreamName>,
    left_out: &'a LeftOut,
}

impl<'a> Streams<'a, '_> {
    /// The stream of all records, if the client names one.
    pub(super) const fn named(&self) -> Option<&'a StreamName> {
        self.named
    }

    /// Makes a stream the current one like [`Self::select`], unless its records are refused, or the request has too many streams.
    pub(super) fn try_select(&mut self, name: &StreamName) -> Result<(), Fault> {
        if let Some(reason) = self.left_out.get(self.named.unwrap_or(name)) {
            return Err((*reason).into());
        }
        let is_new = self.named.is_none() && !self.numbers.contains_key(name);
        // those that are refused count, so that no others take their place
        if is_new && self.all.len() + self.left_out.len() >= STREAMS_MAX {
            return Err(Reason::TooManyStreamsAtOnce.into());
        }
        Ok(self.select(name)?)
    }

    /// Makes a stream the current one like [`Self::select`], or `spare` if the request has too many streams.
    pub(super) fn select_or(&mut self, name: &StreamName, spare: &StreamName) -> Result<(), DecodeError> {
        // the spare stream may be one more
        let is_new = self.named.is_none() && !self.numbers.contains_key(name);
        self.select(if is_new && self.all.len() >= STREAMS_MAX - 1 { spare } else { name })
    }

    /// Makes a stream the current one, unless the client names one for the whole request. No record may be unfinished.
    pub(super) fn select(&mut self, name: &StreamName) -> Result<(), DecodeError> {
        let name = self.named.unwrap_or(name);
        if self.current.is_some_and(|current| self.all[current].0 == *name) {
            return Ok(());
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add(name)?,
        };
        if let Some(current) = self.current {
            self.swap(current);
        }
        self.swap(number);
        self.current = Some(number);
        if let Some(days) = &mut self.rows.days {
            days.stream = number;
        }
        Ok(())
    }

    fn add(&mut self, name: &StreamName) -> Result<usize, DecodeError> {
        let number = self.all.len();
        if number == STREAMS_MAX {
            return Err(DecodeError::TooMany { what: "streams", limit: STREAMS_MAX });
        }
        self.rows.memory.reserve(STREAM_MEMORY_BYTES)?;
        self.all.push((name.clone(), RecordsBuilder::new()));
        self.numbers.insert(name.clone(), number);
        Ok(number)
    }

    fn swap(&mut self, number: usize) {
        std::mem::swap(&mut self.rows.builder, &mut self.all[number].1);
    }

    fn finish(mut self) -> DecodedStreams {
        if let Some(current) = self.current {
            self.swap(current);
        }
        let (mut streams, mut without_days) = (Vec::with_capacity(self.all.len()), Vec::new());
        for (number, (name, builder)) in self.all.into_iter().enumerate() {
            let records = builder.finish();
            if !records.is_empty() {
                streams.push((name, records));
            } else if self.rows.days.as_ref().is_some_and(|days| days.has_refused(number)) {
                without_days.push(name);
            }
        }
        DecodedStreams { streams, without_days, refused: self.rows.into_refused() }
    }
}

/// Makes the name of a stream of a text: characters that a name cannot have become `_`, those at the beginning that are no
/// letter or digit are left out, and it is cut to the length that it may have. `otherwise` is the name if nothing is left.
pub fn stream_name(text: &[u8], otherwise: &str) -> StreamName {
    let is_first = |c: &char| c.is_ascii_alphanumeric();
    let chars = text.utf8_chunks().flat_map(|chunk| {
        chunk.valid().chars().chain((!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER))
    });
    let name: String = chars
        .skip_while(|c| !is_first(c))
        .take(STREAM_BYTES_MAX)
        .map(|c| if is_first(&c) || "-_.".contains(c) { c } else { '_' })
        .collect();
    let name = if name.is_empty() { otherwise } else { &name };
    StreamName::parse(name).expect("BUG: the name is not valid")
}

impl Fault {
    /// The error of the request. No fault of a record may be left.
    pub(super) fn into_error(self) -> DecodeError {
        match self {
            Self::Request(error) => error,
            Self::Record(reason) => panic!("BUG: a record was not refused: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_names_of_streams() {
        let check = |text: &[u8], expected: &str| {
            assert_eq!(stream_name(text, "logs").as_str(), expected, "{text:?}");
        };
        check(b"shop", "shop");
        check(b"unknown_service:python", "unknown_service_python");
        check("größe/α b".as_bytes(), "gr__e___b");
        check(b"__x", "x");
        check(b"..", "logs");
        check(b"", "logs");
        check(b"\xffa\xffb", "a_b");
        check(&[b'x'; 200], &"x".repeat(100));
    }
}
