//! What the evaluator asks storage for.

use crate::Matcher;
use model::{ErrorKind, LabelsRef, Samples, TimeRange};

/// One selection: series whose labels satisfy all matchers, and their samples within the range.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// All must match; a label that a series does not have counts as the empty string.
    pub matchers: &'a [Matcher],
    /// Closed, milliseconds.
    pub range: TimeRange,
}

/// Storage, as seen by a query.
pub trait SeriesSource: Sync {
    /// Starts a pass over the selected series.
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError>;
}

/// A streaming pass over the selected series, each visited once, in no particular order.
pub trait SeriesSet {
    /// Moves to the next series and fills `samples` with its samples inside the range, ascending, what was
    /// there before being dropped; false at the end. Series without samples in the range may appear (empty).
    fn next(&mut self, samples: &mut Samples) -> Result<bool, SourceError>;

    /// No series with more samples than this may be unpacked from now on: [`Self::next`] fails instead, before it
    /// takes the memory. It is called before each `next`. Where it is not implemented, what a query holds is
    /// only bounded after a series has been read.
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
    /// What the caller should do.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
}
