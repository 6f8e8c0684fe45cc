//! Interface between the evaluator and storage.

use crate::Matcher;
use model::{ErrorKind, LabelsRef, SeriesSamples, Statistic, TimeRange};

/// One selection: series whose labels satisfy all matchers, and their samples within the range.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// Matchers, all of which must match. A label that a series does not have counts as the empty string.
    pub matchers: &'a [Matcher],
    /// Time range, both ends included.
    pub range: TimeRange,
}

/// Storage, as seen by a query.
pub trait SeriesSource: Sync {
    /// Starts a pass over the selected series.
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError>;

    /// Starts a pass over rolled-up data of the selected series; `None` if storage has no rolled-up data for
    /// this request. Windows that lie wholly in [`Rolled::complete`] are computed from buckets, other windows
    /// from samples.
    fn select_rolled(&self, _select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        Ok(None)
    }
}

/// The windows of a function over a range: `(end - range, end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeWindows {
    /// End of the first window.
    pub first_ms: i64,
    /// End of the last window; equal to `first_ms` if there is only one.
    pub last_ms: i64,
    /// Step from one end to the next.
    pub step_ms: i64,
    /// Length of each window.
    pub range_ms: i64,
}

impl RangeWindows {
    /// True if all windows begin and end at multiples of `width_ms`, so that each consists of whole buckets.
    pub const fn are_multiples_of(&self, width_ms: i64) -> bool {
        let steps = self.first_ms == self.last_ms || self.step_ms % width_ms == 0;
        steps && self.range_ms % width_ms == 0 && self.first_ms % width_ms == 0
    }

    /// Time range that covers all windows.
    pub const fn covers(&self) -> TimeRange {
        TimeRange::new(self.first_ms.saturating_sub(self.range_ms - 1), self.last_ms)
    }
}

/// Request for rolled-up series.
#[derive(Debug, Clone, Copy)]
pub struct RolledSelect<'a> {
    /// Matchers, as in [`Select`].
    pub matchers: &'a [Matcher],
    /// Statistics that the function needs of each bucket.
    pub statistics: &'a [Statistic],
    pub windows: RangeWindows,
}

/// Rolled-up series.
pub struct Rolled<'a> {
    /// A pass over the series.
    pub set: Box<dyn BucketSet + 'a>,
    /// Range in which the buckets account for all samples.
    pub complete: TimeRange,
    /// Name of the resolution: `1h`.
    pub resolution: &'static str,
}

impl std::fmt::Debug for Rolled<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rolled")
            .field("complete", &self.complete)
            .field("resolution", &self.resolution)
            .finish()
    }
}

/// Aggregates of one series' samples in `(end - width, end]`, without staleness markers. Only the requested statistics are
/// set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bucket {
    /// End of the bucket. A window contains the bucket if it contains this time. Two consecutive buckets may
    /// have the same end; then each has some of the samples.
    pub end_ms: i64,
    /// [`Statistic::Count`].
    pub count: f64,
    /// [`Statistic::First`].
    pub first: f64,
    /// Time of the first sample.
    pub first_ms: i64,
    /// [`Statistic::Increase`].
    pub increase: f64,
    /// [`Statistic::Last`].
    pub last: f64,
    /// Time of the last sample.
    pub last_ms: i64,
    /// [`Statistic::Max`].
    pub max: f64,
    /// [`Statistic::Min`].
    pub min: f64,
    /// [`Statistic::Sum`].
    pub sum: f64,
}

/// A streaming pass over rolled-up series, as [`SeriesSet`].
pub trait BucketSet {
    /// Moves to the next series and fills `buckets` with its buckets in the complete range, in order of time; false at the end.
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError>;

    /// Labels of the current series.
    fn labels(&mut self) -> LabelsRef<'_>;
}

/// A streaming pass over the selected series, in no particular order. Each series is visited once. Labels
/// that have both floats and native histograms are visited as two series.
pub trait SeriesSet {
    /// Moves to the next series and replaces the content of `samples` by its samples inside the range,
    /// ascending; false at the end. Series without samples in the range may appear (empty).
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError>;

    /// Limits the number of samples that may be unpacked for each following series. [`Self::next`] fails
    /// before it takes more memory. Called before each `next`. The default implementation sets no limit; then
    /// the memory of a query is only checked after a series has been read.
    fn limit(&mut self, samples_max: u64) {
        let _ = samples_max;
    }

    /// Labels of the current series. Called only if the query needs the labels: `count(x)` does not.
    fn labels(&mut self) -> LabelsRef<'_>;

    /// Approximate number of remaining series.
    fn len_hint(&self) -> usize;
}

/// Error of storage that could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Reaction expected from the caller.
    pub kind: ErrorKind,
    pub message: String,
}
