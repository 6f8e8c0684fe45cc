//! Metrics that a glob matches, but that have no sample in the range.
//!
//! Whisper has a file for them, so graphite-web answers with nulls, and alerts on metrics that have fallen silent depend on it.
//! Heads return their series whatever the range, tables only those of files that reach into it. The names of the others are in the
//! index. Without it they are left out, with a warning: finding them in the table would take longer than the query itself. They are also
//! left out if they would leave less than half of the memory of the query to others, unless a function counts them ([`Silent`]).
//!
//! - [`listed`]: names of a list
//! - [`matching`]: names that a glob matches, in any number

pub(super) mod listed;
pub(super) mod matching;
#[cfg(test)]
mod tests;

use super::Snapshot;
use super::globs::{GlobSource, Why};
use crate::query_source::canceled;
use listed::Listed;
use matching::{Matching, Unfound};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, SeriesKey, SeriesSamples, TimeRange, ValueKind};
use query::{SeriesSet, Silent, SourceError};

/// A pass over series, and then over the names of metrics of which it had no series.
pub(super) struct WithSilent<'a> {
    globs: &'a GlobSource<'a>,
    set: Box<dyn SeriesSet + 'a>,
    range: TimeRange,
    silent: Silent,
    /// Taken before the series were selected: a series born later may have samples in the range. For a list of names it may be taken
    /// later; then [`Listed::next`] also looks into the heads.
    index: Option<Snapshot>,
    names: Names,
    is_at_silent: bool,
    builder: LabelsBuilder,
    /// The silent metric.
    current: Labels,
}

/// What is known of the names that are selected.
pub(super) enum Names {
    Listed(Listed),
    Matching(Matching),
}

impl Names {
    /// Leaves out silent metrics.
    fn give_up(&mut self) {
        match self {
            Self::Listed(listed) => listed.give_up(),
            Self::Matching(matching) => matching.give_up(),
        }
    }
}

impl<'a> WithSilent<'a> {
    pub(super) fn new(
        globs: &'a GlobSource<'a>,
        set: Box<dyn SeriesSet + 'a>,
        range: TimeRange,
        silent: Silent,
        index: Option<Snapshot>,
        names: Names,
    ) -> Self {
        let (builder, current) = (LabelsBuilder::new(), Labels::empty());
        Self { globs, set, range, silent, index, names, is_at_silent: false, builder, current }
    }

    /// Notes that there is a series, which has samples in the range or none.
    fn see(&mut self, is_silent: bool) -> Result<(), SourceError> {
        let labels = self.set.labels();
        if labels.iter().count() != 1 {
            return Ok(());
        }
        let (is_seen, takes_memory) = match &mut self.names {
            Names::Listed(listed) => {
                listed.see(labels);
                (true, is_silent)
            }
            Names::Matching(matching) => {
                let key = SeriesKey::of(labels.as_bytes(), self.globs.context.seed);
                (matching.see(key), is_silent || matching.is_remembering())
            }
        };
        if takes_memory {
            self.globs.note_memory(self.silent, is_silent);
        }
        if is_seen { Ok(()) } else { self.lack_memory() }
    }

    /// Names are an extra: without memory for them, silent metrics are left out.
    fn lack_memory(&mut self) -> Result<(), SourceError> {
        self.names.give_up();
        match self.silent {
            Silent::Needed => Err(self.globs.too_many_names()),
            Silent::KeepFree(_) => {
                self.globs.leave_out_silent(Why::NoMemory);
                Ok(())
            }
        }
    }

    /// After all series: checks whether the index has all silent metrics that the glob matches.
    fn begin_silent(&mut self) {
        self.is_at_silent = true;
        match (&mut self.names, &self.index) {
            (Names::Matching(_), Some(index)) => self.globs.check(index),
            (Names::Matching(matching), None) => {
                matching.give_up();
                self.globs.leave_out_silent(Why::NoIndex);
            }
            (Names::Listed(_), _) => {}
        }
    }

    /// Moves to the next silent metric.
    fn next_silent(&mut self) -> Result<bool, SourceError> {
        let Self { globs, index, builder, .. } = self;
        let next = match &mut self.names {
            Names::Listed(listed) => {
                if index.is_none() && listed.needs_index() {
                    *index = globs.late_index()?;
                }
                listed.next(globs, self.range, index.as_ref(), builder).map_err(Unfound::Failed)
            }
            Names::Matching(matching) => match index {
                Some(index) => matching.next(globs, index, builder),
                None => Ok(None),
            },
        };
        match next {
            Ok(Some(labels)) => {
                self.current = labels;
                self.globs.note_memory(self.silent, true);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(Unfound::Full) => self.lack_memory().map(|()| false),
            Err(Unfound::Failed(error)) => Err(error),
        }
    }
}

impl SeriesSet for WithSilent<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        if !self.is_at_silent {
            if self.set.next(samples)? {
                if samples.kind() == ValueKind::Float {
                    self.see(samples.timestamps().is_empty())?;
                }
                return Ok(true);
            }
            self.begin_silent();
        }
        if self.globs.interrupt.is_set() {
            return Err(canceled());
        }
        samples.clear_for(ValueKind::Float);
        self.next_silent()
    }

    fn limit(&mut self, samples_max: u64) {
        if let Names::Matching(matching) = &mut self.names {
            // a sample takes 16 bytes, and names take at most half of them
            let half_bytes = samples_max.saturating_mul(8);
            matching.limit(match self.silent {
                Silent::Needed => half_bytes,
                Silent::KeepFree(kept) => half_bytes.min(samples_max.saturating_sub(kept).saturating_mul(16)),
            });
        }
        self.set.limit(samples_max);
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        if self.is_at_silent { self.current.as_ref() } else { self.set.labels() }
    }

    fn len_hint(&self) -> usize {
        self.set.len_hint()
    }

    fn note_silent(&mut self) {
        self.globs.note_memory(self.silent, true);
    }

    fn leave_out_silent(&mut self) {
        self.globs.leave_out_silent(Why::NoMemory);
        self.names.give_up();
    }

    fn names_bytes(&self) -> u64 {
        match &self.names {
            Names::Listed(listed) => listed.bytes(),
            Names::Matching(matching) => matching.bytes(),
        }
    }
}

/// The labels of a metric. `None` if no metric can have this name.
fn labels_of(builder: &mut LabelsBuilder, name: &str) -> Option<Labels> {
    builder.clear();
    builder.push(METRIC_NAME, name);
    builder.build_series().ok()
}
