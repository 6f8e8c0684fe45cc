//! All names of a tenant, in a few runs.
//!
//! New names form a small run. Runs of similar size are merged, so that their number grows with the logarithm of the
//! number of names, as in a log-structured merge tree.

use crate::cursor::Cursor;
use crate::run::{Builder, Full, Run};
use std::sync::Arc;
use stdx::budget::Account;

/// A run is merged with the run before it, unless that one has at least this many times as many names.
const RATIO: usize = 4;

/// Runs, the longest first. Clones share the runs, so a clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<Arc<Run>>);

impl Runs {
    pub fn push(&mut self, run: Run) {
        if !run.is_empty() {
            self.0.push(Arc::new(run));
        }
    }

    /// Number of names. A name that is in several runs counts several times.
    pub fn len(&self) -> usize {
        self.0.iter().map(|run| run.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|run| run.memory_bytes()).sum()
    }

    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self.0.iter().map(|run| &**run))
    }

    /// The position of two adjacent runs that should be merged, and the number of names of both.
    fn due(&self) -> Option<(usize, usize)> {
        let pairs = self.0.windows(2).enumerate().rev();
        let mut due = pairs.filter(|(_, pair)| pair[0].len() < RATIO * pair[1].len());
        due.next().map(|(at, pair)| (at, pair[0].len() + pair[1].len()))
    }

    /// Merges runs until no more is due, or until the next merge would be of more than `names_max` names. Returns false
    /// in the latter case.
    pub fn merge_small(&mut self, account: &Account, names_max: usize) -> Result<bool, Full> {
        while let Some((at, names)) = self.due() {
            if names > names_max {
                return Ok(false);
            }
            let merged = merge(&self.0[at], &self.0[at + 1], account, &mut || true)?;
            self.0.splice(at..at + 2, merged.map(Arc::new));
        }
        Ok(true)
    }

    /// Returns the next merge, if one is due. It may take long, so the caller runs it without the lock of the list, and then
    /// calls [`Self::replace`].
    pub fn plan(&self) -> Option<Merge> {
        let (at, _) = self.due()?;
        Some(Merge { runs: [Arc::clone(&self.0[at]), Arc::clone(&self.0[at + 1])] })
    }

    /// Replaces the merged runs. Does nothing if they were replaced since the merge was planned.
    pub fn replace(&mut self, merge: &Merge, merged: Run) {
        let is_planned = |pair: &[Arc<Run>]| pair.iter().zip(&merge.runs).all(|(a, b)| Arc::ptr_eq(a, b));
        if let Some(at) = self.0.windows(2).position(is_planned) {
            self.0.splice(at..at + 2, [Arc::new(merged)]);
        }
    }
}

/// Two runs to be merged, without holding the lock of their list.
#[derive(Debug)]
pub struct Merge {
    runs: [Arc<Run>; 2],
}

impl Merge {
    /// Merges the runs. `None` if `go_on` returned false, which is asked now and then.
    pub fn run(&self, account: &Account, mut go_on: impl FnMut() -> bool) -> Result<Option<Run>, Full> {
        merge(&self.runs[0], &self.runs[1], account, &mut go_on)
    }
}

/// Names that are merged between two checks for cancellation. They take about a tenth of a millisecond.
pub(crate) const CHECK_NAMES: usize = 1024;

fn merge(a: &Run, b: &Run, account: &Account, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Run>, Full> {
    let expected_bytes = (a.memory_bytes() + b.memory_bytes()) as usize;
    let mut builder = Builder::new(account, expected_bytes)?;
    let (mut cursor, mut count) = (Cursor::new([a, b]), 0_usize);
    while let Some(key) = cursor.current() {
        builder.push(key)?;
        cursor.advance();
        count += 1;
        if count.is_multiple_of(CHECK_NAMES) && !go_on() {
            return Ok(None);
        }
    }
    Ok(Some(builder.finish()))
}
