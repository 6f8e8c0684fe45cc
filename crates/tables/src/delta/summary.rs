use crate::date::Date;
use model::TimeRange;

/// Facts about a finished file, most of which go into the log, so that readers can do without opening the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    pub date: Date,
    pub bytes: u64,
    pub rows: u64,
    pub samples: u64,
    /// Least value of the first sort column.
    pub name_min: String,
    /// Greatest value of the first sort column.
    pub name_max: String,
    pub range: TimeRange,
    pub start_max_ms: i64,
    pub end_min_ms: i64,
}

impl FileSummary {
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
