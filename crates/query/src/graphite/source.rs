//! Interface between the evaluator and storage.

use super::Glob;
use crate::matcher::Matcher;
use crate::source::{Silent, SourceError};

/// What a target selects.
#[derive(Debug, Clone, Copy)]
pub enum Pick<'a> {
    /// Untagged paths, which are the series with no label but the metric name.
    Paths(&'a Glob),
    /// Tagged series. A label that a series does not have counts as empty. Untagged paths are not tagged series.
    Tagged(&'a [Matcher]),
    /// The series with exactly these labels, of which the metric name is one.
    Named(&'a [Matcher]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By [`Stored::name`], in byte order.
    ByName,
    Any,
}

/// One selection, with the times of its values as in [`super::Options`].
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    pub pick: Pick<'a>,
    pub from_s: i64,
    pub until_s: i64,
    pub now_s: i64,
    /// The order that the query needs. Storage that cannot return series in this order returns them in another:
    /// see [`Selection::is_ordered`].
    pub order: Order,
    /// Memory that storage may take for the list of paths that a glob with wildcards matches.
    pub list_bytes_max: u64,
    /// What happens to paths without samples in the range. Tagged series without samples are treated like all others.
    pub silent: Silent,
}

/// What the evaluator needs from storage.
pub trait Source {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn Selection + '_>, SourceError>;

    /// Passes the times of events to `each`, in seconds since 1970: those from `from_s` to `until_s`, exclusive, that
    /// have all of the tags. A source without events has none.
    fn events(
        &self,
        tags: &[&str],
        from_s: i64,
        until_s: i64,
        each: &mut dyn FnMut(i64),
    ) -> Result<(), SourceError> {
        let _ = (tags, from_s, until_s, each);
        Ok(())
    }
}

/// A pass over the selected series.
pub trait Selection {
    /// Moves to the next series that has an archive for the range, and replaces `stored` by it. Returns false at
    /// the end. Series with native histograms are skipped.
    fn next(&mut self, stored: &mut Stored) -> Result<bool, SourceError>;

    /// Sets how many values of 16 bytes the next series and the samples it is computed from may take. If they
    /// take more, `next` fails before it allocates them.
    fn limit(&mut self, values_max: u64);

    /// Memory of the names that the glob matches: at first that of a list, at most [`Select::list_bytes_max`]. It may grow with
    /// each series, by at most half of what [`Self::limit`] allows.
    fn names_bytes(&self) -> u64 {
        0
    }

    /// True if the series come in the order that was asked for. Otherwise the evaluator sorts them, and holds all
    /// of them for it.
    fn is_ordered(&self) -> bool {
        false
    }
}

/// A series as it is stored. The evaluator reuses the memory of its name, and takes its values.
#[derive(Debug, Default)]
pub struct Stored {
    /// The path, or the full tagged name: `name;k=v;k2=v2`, with its tags in order.
    pub name: String,
    pub start_s: i64,
    /// Exclusive.
    pub end_s: i64,
    pub step_s: i64,
    /// One value for each step. NaN means that the value is missing.
    pub values: Vec<f64>,
    /// Number of samples that were read.
    pub samples: u64,
}
