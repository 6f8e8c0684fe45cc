//! Facts about a new file for the log.

use crate::date::Date;
use model::TimeRange;

/// Facts about a finished file, known without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// Its day.
    pub date: Date,
    /// Its length in bytes.
    pub bytes: u64,
    pub rows: u64,
    /// Samples in all rows.
    pub samples: u64,
    /// The least value of the column that leads the sort key.
    pub name_min: String,
    /// The greatest, likewise.
    pub name_max: String,
    /// From the first to the last sample.
    pub range: TimeRange,
    /// The largest time at which a row begins, for the statistics of that column.
    pub start_max_ms: i64,
    /// The smallest time at which a row ends, likewise.
    pub end_min_ms: i64,
}

impl FileSummary {
    /// Summary of a file without rows.
    pub(crate) const fn new(date: Date) -> Self {
        Self {
            date,
            bytes: 0,
            rows: 0,
            samples: 0,
            name_min: String::new(),
            name_max: String::new(),
            range: TimeRange::new(i64::MAX, i64::MIN),
            start_max_ms: i64::MIN,
            end_min_ms: i64::MAX,
        }
    }
}
