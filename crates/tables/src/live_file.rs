use crate::date::Date;
use model::TimeRange;

/// A file that is part of the table, as the log lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Path in the table, percent-encoded.
    pub path: String,
    pub date: Date,
    pub bytes: u64,
    /// Number of rows, or 0 if the log does not say.
    pub rows: u64,
    /// Bounds of the leading sort column (the metric's name), if known.
    pub names: Option<(String, String)>,
    /// Place in the order of writes, among the day's early files or among its other files (see [`crate::delta`]).
    /// Files with the same sequence hold different series.
    pub sequence: i64,
    /// Sequence of the last tombstone that was applied to the file, or 0.
    pub applied: i64,
    /// True if the file counts as written before all others of its day, as files of other engines do.
    pub is_early: bool,
    /// Time range of the samples, or the whole day if unknown.
    pub range: TimeRange,
}

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
    /// Position in the day's order of writes. Of two samples with the same series and time, the one in the file with
    /// the greater rank wins.
    pub const fn rank(&self) -> Rank {
        Rank { is_late: !self.is_early, sequence: self.sequence }
    }

    /// True if all samples are older than `before_ms`. `range` may end a millisecond late.
    pub const fn is_before(&self, before_ms: i64) -> bool {
        self.range.end_ms < before_ms || self.date.end_ms() < before_ms
    }
}
