//! Names that a glob matches, in any number: those that had a series, and then the others.

use super::labels_of;
use crate::query_source::canceled;
use crate::query_source::paths::Snapshot;
use crate::query_source::paths::globs::GlobSource;
use ::paths::{Node, Pattern, Stopped, find_after};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, SeriesKey};
use query::SourceError;
use query::graphite::Glob;
use std::collections::HashSet;

pub(in crate::query_source::paths) struct Matching {
    glob: Glob,
    /// Names seen so far. `None` if silent metrics are left out.
    seen: Option<HashSet<SeriesKey>>,
    /// The next silent metrics. The last one comes first.
    silent: Vec<Labels>,
    silent_bytes: u64,
    /// The search in the index, if it has begun and is not at its end.
    search: Search,
    /// What the names may take at most.
    bytes_max: u64,
}

enum Search {
    New,
    /// With the last name that was found.
    Begun(Pattern, String),
    Ended,
}

/// Why silent metrics are not found.
pub(super) enum Unfound {
    /// There is no memory for the names.
    Full,
    Failed(SourceError),
}

/// Memory for each key that a hash table has room for: 7/8 of its places, and it has another byte for each place.
const KEY_BYTES: u64 = (8 * (size_of::<SeriesKey>() as u64 + 1)).div_ceil(7);

/// Memory of a name in a list that grows by doubling, besides its text.
const NAME_BYTES: u64 = 3 * size_of::<Labels>() as u64 + 16;

/// Memory of the silent metrics that are searched for at a time.
const SILENT_BYTES_MAX: u64 = 64 << 10;

impl Matching {
    /// Names have to be `remembered` to find those that are silent.
    pub(in crate::query_source::paths) fn new(glob: Glob, remembered: bool) -> Self {
        let seen = remembered.then(HashSet::new);
        let (silent, search) = (Vec::new(), Search::New);
        Self { glob, seen, silent, silent_bytes: 0, search, bytes_max: u64::MAX }
    }

    pub(super) const fn is_remembering(&self) -> bool {
        self.seen.is_some()
    }

    /// Forgets the names. Those that are silent are left out.
    pub(super) fn give_up(&mut self) {
        (self.seen, self.silent, self.silent_bytes) = (None, Vec::new(), 0);
    }

    /// Lets the names take `more_bytes` than now.
    pub(super) fn limit(&mut self, more_bytes: u64) {
        self.bytes_max = self.bytes().saturating_add(more_bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.seen_bytes() + self.silent_bytes
    }

    fn seen_bytes(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.capacity() as u64 * KEY_BYTES)
    }

    /// Notes that there was a series. False if there is no memory for its name.
    pub(super) fn see(&mut self, key: SeriesKey) -> bool {
        // the old table is there until all keys are in one of twice the size
        let grown_bytes = self.bytes() + 2 * self.seen_bytes();
        let Some(seen) = &mut self.seen else { return true };
        if seen.len() == seen.capacity() && grown_bytes > self.bytes_max && !seen.contains(&key) {
            return false;
        }
        seen.insert(key);
        true
    }

    /// The next metric without a series.
    pub(super) fn next(
        &mut self,
        globs: &GlobSource<'_>,
        index: &Snapshot,
        builder: &mut LabelsBuilder,
    ) -> Result<Option<Labels>, Unfound> {
        if self.silent.is_empty() {
            self.search(globs, index, builder)?;
        }
        Ok(self.silent.pop())
    }

    /// Finds as many silent metrics as may be held at a time.
    fn search(
        &mut self,
        globs: &GlobSource<'_>,
        index: &Snapshot,
        builder: &mut LabelsBuilder,
    ) -> Result<(), Unfound> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let (pattern, last) = match std::mem::replace(&mut self.search, Search::Ended) {
            Search::Begun(pattern, last) => (pattern, Some(last)),
            Search::New => {
                let pattern = GlobSource::pattern_of(&self.glob).or_else(|| Pattern::parse("**").ok());
                (pattern.expect("BUG: there is no pattern of all names"), None)
            }
            Search::Ended => return Ok(()),
        };
        let room_bytes = self.bytes_max.saturating_sub(self.seen_bytes()).min(SILENT_BYTES_MAX);
        let (mut silent, mut silent_bytes, mut is_full) = (Vec::new(), 0, false);
        let select = |node: Node<'_>| {
            if node.is_leaf
                && self.glob.matches(node.path)
                && let Some(labels) = labels_of(builder, node.path)
                && !seen.contains(&SeriesKey::of(labels.as_bytes(), globs.context.seed))
            {
                let bytes = NAME_BYTES + labels.as_bytes().len() as u64;
                is_full = silent_bytes + bytes > room_bytes;
                if !is_full {
                    silent_bytes += bytes;
                    silent.push(labels);
                }
            }
            !is_full
        };
        let go_on = || !globs.interrupt.is_set();
        let found = find_after(&index.runs, &pattern, last.as_deref(), select, go_on);
        found.map_err(|Stopped| Unfound::Failed(canceled()))?;
        if is_full {
            let last = silent.last().and_then(|labels: &Labels| labels.get(METRIC_NAME));
            self.search = Search::Begun(pattern, last.ok_or(Unfound::Full)?.to_owned());
        }
        silent.reverse();
        (self.silent, self.silent_bytes) = (silent, silent_bytes);
        Ok(())
    }
}
