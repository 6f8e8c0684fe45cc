//! The record that is being read.

use super::days::Days;
use super::{Decoded, Place, Reason, Refusals, Times, time};
use crate::{DecodeError, JsonError, WireError};
use model::caps::{ATTRIBUTE_PATH_BYTES_MAX, REQUEST_RECORDS_MAX};
use model::{AttributeValue, PutError, RecordsBuilder};
use stdx::budget::{Exhausted, IncrementalReservation};

pub(super) struct Rows<'a, 'm> {
    pub(super) builder: RecordsBuilder,
    pub(super) memory: &'a mut IncrementalReservation<'m>,
    arrival_us: i64,
    times: Times,
    /// Records that are complete, also those of other builders.
    count: usize,
    /// Limit on [`Self::memory`], with what it had before.
    bytes_max: u64,
    /// How much of it the records may have.
    records_bytes_max: usize,
    /// Bytes of the values that records have in common with others, see [`Self::share`].
    shared_bytes: usize,
    /// The best time of the record so far, with its rank.
    time: Option<(u8, i64)>,
    /// The days of the records, if the request may have several streams.
    pub(super) days: Option<Days>,
    refused: Refusals,
}

/// Why a record is left out, or why decoding ends.
#[derive(Debug)]
pub(super) enum Fault {
    Record(Reason),
    Request(DecodeError),
}

impl<'a, 'm> Rows<'a, 'm> {
    pub(super) fn new(arrival_us: i64, times: Times, memory: &'a mut IncrementalReservation<'m>) -> Self {
        Self::limited(arrival_us, times, usize::MAX, memory)
    }

    /// The records may take at most this much memory.
    pub(super) fn limited(
        arrival_us: i64,
        times: Times,
        records_bytes_max: usize,
        memory: &'a mut IncrementalReservation<'m>,
    ) -> Self {
        Self {
            builder: RecordsBuilder::new(),
            bytes_max: memory.bytes().saturating_add(records_bytes_max as u64),
            records_bytes_max,
            shared_bytes: 0,
            memory,
            arrival_us,
            times,
            count: 0,
            time: None,
            days: None,
            refused: Refusals::default(),
        }
    }

    /// Adds a value to the record. It is also the record's time if it has a rank, and no better one was added.
    #[inline]
    pub(super) fn put(
        &mut self,
        path: &str,
        rank: Option<u8>,
        value: AttributeValue<'_>,
    ) -> Result<(), Fault> {
        if let Some(rank) = rank
            && self.time.is_none_or(|(best, _)| rank <= best)
            && let Some(time_us) = time::time_us(value)
        {
            self.time = Some((rank, time_us));
        }
        self.builder.put_reserved(path, value, self.memory)?;
        Ok(())
    }

    /// Counts values with their paths that the record has in common with others, so that the body has them only once. Has to be
    /// called before they are added. They count also if the record is left out, because copying them takes time.
    pub(super) fn share(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.shared_bytes = self.shared_bytes.saturating_add(bytes);
        self.check_bytes(self.shared_bytes <= self.records_bytes_max)
    }

    /// Completes the record.
    #[inline]
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let time_us = match self.time.take() {
            Some((rank, time_us)) if !time::is_within_bounds(time_us) => {
                return Err(Fault::Record(Reason::Time(time::PATHS[usize::from(rank)])));
            }
            found => found.map_or(self.arrival_us, |(_, time_us)| time_us),
        };
        self.end_at(time_us)
    }

    /// Completes the record with this time, which must be within the bounds of times.
    #[inline]
    pub(super) fn end_at(&mut self, time_us: i64) -> Result<(), Fault> {
        self.time = None;
        self.check_limits()?;
        self.times.check(time_us)?;
        if let Some(days) = &mut self.days {
            days.add(time_us)?;
        }
        self.builder.end_reserved(time_us, self.memory)?;
        self.count += 1;
        Ok(())
    }

    /// Leaves the record out, unless decoding ends.
    #[cold]
    pub(super) fn refuse(&mut self, place: Place, fault: Fault) -> Result<(), DecodeError> {
        let Fault::Record(reason) = fault else { return fault.into_request() };
        self.abandon();
        self.check_limits()?;
        self.refused.add(place, reason);
        Ok(())
    }

    /// Drops the values of the record.
    pub(super) fn abandon(&mut self) {
        self.builder.abandon();
        self.time = None;
    }

    fn check_limits(&self) -> Result<(), DecodeError> {
        if self.count + self.refused.count as usize >= REQUEST_RECORDS_MAX {
            return Err(DecodeError::TooMany { what: "records", limit: REQUEST_RECORDS_MAX });
        }
        self.check_bytes(self.memory.bytes() <= self.bytes_max)
    }

    const fn check_bytes(&self, fit: bool) -> Result<(), DecodeError> {
        match fit {
            true => Ok(()),
            false => Err(DecodeError::TooMany { what: "bytes of records", limit: self.records_bytes_max }),
        }
    }

    pub(super) fn into_refused(self) -> Refusals {
        self.refused
    }

    pub(super) fn finish(self) -> Decoded {
        Decoded { records: self.builder.finish(), refused: self.refused }
    }
}

/// Fails if the path is too long.
#[inline]
pub(super) fn check_path(bytes: usize) -> Result<(), Reason> {
    if bytes > ATTRIBUTE_PATH_BYTES_MAX { Err(Reason::PathTooLong(bytes)) } else { Ok(()) }
}

impl Fault {
    fn into_request(self) -> Result<(), DecodeError> {
        match self {
            Self::Record(_) => Ok(()),
            Self::Request(error) => Err(error),
        }
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Record(reason)
    }
}

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        Self::Record(error.into())
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Request(error)
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Request(error.into())
    }
}

impl From<Exhausted> for Fault {
    fn from(full: Exhausted) -> Self {
        Self::Request(full.into())
    }
}

impl From<PutError> for Fault {
    fn from(error: PutError) -> Self {
        match error {
            PutError::TooManyAttributes(error) => Self::Record(error.into()),
            PutError::Memory(full) => full.into(),
        }
    }
}
