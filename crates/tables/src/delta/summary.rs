use crate::date::Date;
use crate::kind::attributes::AttributeColumn;
use model::TimeRange;
use std::sync::Arc;

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
    /// Least and greatest time in microseconds, if the kind's times are of microseconds.
    pub range_us: Option<[i64; 2]>,
    /// Attributes for which the file has a column.
    pub attributes: Arc<[AttributeColumn]>,
}

impl FileSummary {
    pub(crate) fn new(date: Date) -> Self {
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
            range_us: None,
            attributes: Arc::default(),
        }
    }
}
