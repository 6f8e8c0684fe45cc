//! Interface between the evaluator and storage.

use crate::Matcher;
use crate::graphite::Glob;
use model::labels::METRIC_NAME;
use model::{ErrorKind, LabelsRef, SeriesSamples, Statistic, TimeRange};

/// One selection: series that satisfy all matchers, with their samples in the range.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// A label that a series does not have counts as empty.
    pub matchers: &'a [Matcher],
    pub range: TimeRange,
}

/// What happens to series without samples in the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silent {
    /// They are series like all others.
    Needed,
    /// A series is left out if less than this would be free after it, in values of 16 bytes.
    KeepFree(u64),
}

/// A selection of the series whose metric name a glob matches.
#[derive(Debug, Clone, Copy)]
pub struct SelectGlob<'a> {
    pub glob: &'a Glob,
    pub range: TimeRange,
    /// Storage may list the names to look them up, if the list takes at most this.
    pub list_bytes_max: u64,
    pub silent: Silent,
}

/// What a query needs from storage.
pub trait SeriesSource: Sync {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError>;

    /// Selects the series whose metric name a glob matches. Of those without labels besides the name, storage may also return series
    /// without samples in the range.
    fn select_glob(&self, select: &SelectGlob<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let SelectGlob { glob, range, .. } = *select;
        self.select(&Select { matchers: &[Matcher::glob(METRIC_NAME, glob)], range })
    }

    /// Starts a pass over rolled-up data, or returns `None` if storage has none. Windows inside
    /// [`Rolled::complete`] are computed from buckets, other windows from samples.
    fn select_rolled(&self, _select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        Ok(None)
    }
}

/// The windows `(end - range, end]` of a range function, such as those of `rate(x[5m])` at all steps of a
/// query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeWindows {
    pub first_ms: i64,
    pub last_ms: i64,
    pub step_ms: i64,
    pub range_ms: i64,
}

impl RangeWindows {
    /// True if all windows consist of whole buckets of `width_ms`.
    pub const fn are_multiples_of(&self, width_ms: i64) -> bool {
        let steps = self.first_ms == self.last_ms || self.step_ms % width_ms == 0;
        steps && self.range_ms % width_ms == 0 && self.first_ms % width_ms == 0
    }

    pub const fn covers(&self) -> TimeRange {
        TimeRange::new(self.first_ms.saturating_sub(self.range_ms - 1), self.last_ms)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct RolledSelect<'a> {
    pub matchers: &'a [Matcher],
    pub statistics: &'a [Statistic],
    pub windows: RangeWindows,
}

pub struct Rolled<'a> {
    pub set: Box<dyn BucketSet + 'a>,
    /// Time range in which the buckets contain all samples.
    pub complete: TimeRange,
    /// Name of the resolution, for example `1h`.
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

/// Aggregates of one series' samples in `(end - width, end]`, without staleness markers. Only requested
/// statistics are set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bucket {
    /// End of the bucket. Two consecutive buckets with the same end each have some of the samples.
    pub end_ms: i64,
    pub count: f64,
    pub first: f64,
    pub first_ms: i64,
    pub increase: f64,
    pub last: f64,
    pub last_ms: i64,
    pub max: f64,
    pub min: f64,
    pub sum: f64,
}

pub trait BucketSet {
    /// Moves to the next series and fills `buckets` with its buckets, in order of time. Returns false at the
    /// end.
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError>;

    fn labels(&mut self) -> LabelsRef<'_>;
}

/// A pass over the selected series, in any order. A series with floats and native histograms is visited
/// twice.
pub trait SeriesSet {
    /// Moves to the next series and replaces `samples` by its samples in the range, ascending, if any.
    /// Returns false at the end.
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError>;

    /// Sets the maximum number of samples that [`Self::next`] may unpack for each later series. If a series
    /// has more, `next` fails before it takes memory. The default implementation has no limit.
    fn limit(&mut self, samples_max: u64) {
        let _ = samples_max;
    }

    /// Labels of the current series. Called only if the query needs them.
    fn labels(&mut self) -> LabelsRef<'_>;

    fn len_hint(&self) -> usize;

    /// Skips series of [`SeriesSource::select_glob`] without samples in the range, because they would take too much memory. The source says
    /// so in a warning.
    fn leave_out_silent(&mut self) {}

    /// Notes that the query has no use for the samples of the current series, so that it is like one without samples in the range.
    fn note_silent(&mut self) {}

    /// Memory that [`SeriesSource::select_glob`] takes for names. It may grow with each series, by at most half of what
    /// [`Self::limit`] allows.
    fn names_bytes(&self) -> u64 {
        0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Tells the caller how to react, for example whether the query may succeed later.
    pub kind: ErrorKind,
    pub message: String,
}
