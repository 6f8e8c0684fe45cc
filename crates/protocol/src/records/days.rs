//! The days of the records of a request. Each day of a stream is a file, so their number is limited.

use super::Reason;
use std::collections::{HashMap, HashSet};

/// Limit on the days of the records of one stream in one request.
pub const DAYS_MAX: usize = 100;

/// Limit on the days of all streams in one request. At midnight, a request may have all streams.
pub const FILES_MAX: usize = 2 * super::STREAMS_MAX;

const DAY_US: i64 = 86_400_000_000;

#[derive(Debug, Default)]
pub(super) struct Days {
    /// Number of the stream to which records are added.
    pub(super) stream: usize,
    /// The stream and the day of the last record.
    last: Option<(usize, i64)>,
    all: HashMap<usize, Vec<i64>>,
    count: usize,
    /// Streams of which a record was refused.
    refused: HashSet<usize>,
}

impl Days {
    /// Adds the day of a record, unless there are too many.
    #[inline]
    pub(super) fn add(&mut self, time_us: i64) -> Result<(), Reason> {
        let day = time_us.div_euclid(DAY_US);
        if self.last == Some((self.stream, day)) {
            return Ok(());
        }
        let days = self.all.entry(self.stream).or_default();
        if !days.contains(&day) {
            if days.len() == DAYS_MAX || self.count == FILES_MAX {
                self.refused.insert(self.stream);
                return Err(Reason::TooManyDays);
            }
            days.push(day);
            self.count += 1;
        }
        self.last = Some((self.stream, day));
        Ok(())
    }

    /// Whether a record of this stream was refused.
    pub(super) fn has_refused(&self, stream: usize) -> bool {
        self.refused.contains(&stream)
    }
}
