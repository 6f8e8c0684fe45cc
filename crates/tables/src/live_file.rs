//! A live file of a table, as the log lists it.

use crate::date::Date;
use model::TimeRange;

/// A file that readers of the table see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Path of the file in the table, percent-encoded.
    pub path: String,
    /// Day of the file's samples.
    pub date: Date,
    /// Length of the file.
    pub bytes: u64,
    /// Number of rows; 0 if the log does not say.
    pub rows: u64,
    /// Bounds of the column that leads the sort key (the metric's name), if the log has them.
    pub names: Option<(String, String)>,
    /// Order among the day's early files, or among its other files (see [`crate::delta`]). Files with the same sequence hold different
    /// series.
    pub sequence: i64,
    /// Sequence up to which tombstones have been applied to the file; 0 if none.
    pub applied: i64,
    /// True if the file counts as written before all files of its day that are not early. Files of other engines do.
    pub is_early: bool,
    /// Time range of the samples if the log has it, or else the whole day.
    pub range: TimeRange,
}

/// See [`LiveFile::rank`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    is_late: bool,
    sequence: i64,
}

impl Rank {
    pub(crate) const fn sequence(self) -> i64 {
        self.sequence
    }
}

impl LiveFile {
    /// Position of the file in its day's order of writes: if two files have samples of the same series and time, the sample of
    /// the file with the greater rank wins.
    pub const fn rank(&self) -> Rank {
        Rank { is_late: !self.is_early, sequence: self.sequence }
    }

    /// True if all samples of the file were taken before `before_ms`. The end of `range` may be a millisecond late.
    pub const fn is_before(&self, before_ms: i64) -> bool {
        self.range.end_ms < before_ms || self.date.end_ms() < before_ms
    }
}
