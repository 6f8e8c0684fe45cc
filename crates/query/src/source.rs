//! Interface between the evaluator and storage.

use crate::Matcher;
use model::{ErrorKind, LabelsRef, SeriesSamples, Statistic, TimeRange};

/// One selection: series whose labels satisfy all matchers, and their samples within the range.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// Matchers, all of which must match; a label that a series does not have counts as the empty string.
    pub matchers: &'a [Matcher],
    /// Closed, milliseconds.
    pub range: TimeRange,
}

/// Storage, as seen by a query.
pub trait SeriesSource: Sync {
    /// Starts a pass over the selected series.
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError>;

    /// The same in less detail, where storage has that for some of the time and may give it: then windows that lie wholly
    /// in [`Rolled::complete`] are answered from it, and the others from samples.
    fn select_rolled(&self, _select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        Ok(None)
    }
}

/// The windows of a function over a range: `(end - range, end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeWindows {
    /// The first end, and the last.
    pub first_ms: i64,
    /// The last end; the first if there is only one.
    pub last_ms: i64,
    /// Step from one end to the next.
    pub step_ms: i64,
    /// Length of each window.
    pub range_ms: i64,
}

impl RangeWindows {
    /// True where all windows begin and end at multiples of `width_ms`: then each is a number of whole buckets.
    pub const fn are_multiples_of(&self, width_ms: i64) -> bool {
        let steps = self.first_ms == self.last_ms || self.step_ms % width_ms == 0;
        steps && self.range_ms % width_ms == 0 && self.first_ms % width_ms == 0
    }

    /// All times that lie in any window.
    pub const fn covers(&self) -> TimeRange {
        TimeRange::new(self.first_ms.saturating_sub(self.range_ms - 1), self.last_ms)
    }
}

/// Request for rolled up series.
#[derive(Debug, Clone, Copy)]
pub struct RolledSelect<'a> {
    /// Matchers, as in [`Select`].
    pub matchers: &'a [Matcher],
    /// Statistics that the function needs of each bucket.
    pub statistics: &'a [Statistic],
    pub windows: RangeWindows,
}

/// Series in less detail.
pub struct Rolled<'a> {
    /// A pass over them.
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
    /// The end: a window has the bucket where it has its end. Two buckets in a row may have the same end, each with a part.
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

/// A streaming pass over rolled up series, as [`SeriesSet`].
pub trait BucketSet {
    /// Moves to the next series and fills `buckets` with those in the complete range, in order of time; false at the end.
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError>;

    /// Labels of the current series.
    fn labels(&mut self) -> LabelsRef<'_>;
}

/// A streaming pass over the selected series, each visited once, in no particular order. Labels that have both floats and
/// native histograms are two series.
pub trait SeriesSet {
    /// Moves to the next series and fills `samples` with its samples inside the range, ascending, what was
    /// there before being dropped; false at the end. Series without samples in the range may appear (empty).
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError>;

    /// Limits the samples of a series that may be unpacked from now on: [`Self::next`] fails before it takes more
    /// memory. It is called before each `next`. Without an implementation, what a query holds is only bounded after
    /// a series has been read.
    fn limit(&mut self, samples_max: u64) {
        let _ = samples_max;
    }

    /// Labels of the current series. Called only where they are needed: `count(x)` never does.
    fn labels(&mut self) -> LabelsRef<'_>;

    /// About how many series are still to come.
    fn len_hint(&self) -> usize;
}

/// Storage could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Reaction expected of the caller.
    pub kind: ErrorKind,
    /// Description of the failure.
    pub message: String,
}
