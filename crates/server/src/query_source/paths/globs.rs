//! Selects the paths of a glob through the index of names.

use super::silent::{Found, Names, WithSilent};
use super::{BuildWait, Snapshot};
use crate::query_source::{Canceled, Context, Source, canceled};
use ::paths::{Pattern, Stopped, find};
use model::labels::METRIC_NAME;
use model::{TenantId, TimeRange};
use query::graphite::Glob;
use query::{Interrupt, Matcher, Rolled, RolledSelect, Select, SeriesSet, SeriesSource, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A list of more names takes as long to look up as testing all names.
const NAMES_MAX: usize = 10_000;

const NAMES_BYTES_MAX: usize = 1 << 20;

/// A list is copied when it becomes a matcher: its text, its values, and the copies that the tables make.
const COPIES: usize = 4;

/// Part of a query's memory that a list and its copies may take. Several globs can be read at the same time.
const MEMORY_PART: u64 = 16;

/// Memory of a short name on the heap.
const ALLOCATION_BYTES_MIN: usize = 16;

/// A source in which a glob of metric names becomes the list of the names that it matches, so that the heads and tables
/// need not test every name that they have.
#[derive(Debug)]
pub(crate) struct GlobSource<'a> {
    source: &'a Source<'a>,
    pub(super) context: &'a Context,
    pub(super) tenant: &'a TenantId,
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) wait: &'a BuildWait,
    /// A [`Why`] if metrics without samples were left out, otherwise 0.
    left_out_silent: AtomicU8,
}

/// Why metrics without samples in the range are left out. The largest of several reasons is shown.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Why {
    /// There is no index, or names are missing in it.
    NoIndex = 1,
    NoMemory = 2,
}

impl<'a> GlobSource<'a> {
    pub(crate) const fn new(
        source: &'a Source<'a>,
        context: &'a Context,
        tenant: &'a TenantId,
        interrupt: Arc<dyn Interrupt>,
        wait: &'a BuildWait,
    ) -> Self {
        Self { source, context, tenant, interrupt, wait, left_out_silent: AtomicU8::new(0) }
    }

    /// What a list may take of a query's memory, with its copies.
    pub(crate) fn listed_bytes(memory_bytes: u64) -> u64 {
        (memory_bytes / MEMORY_PART).min((COPIES * NAMES_BYTES_MAX) as u64)
    }

    /// A warning, if metrics without samples in the range may be missing.
    pub(crate) fn left_out(&self) -> Option<String> {
        const NO_INDEX: u8 = Why::NoIndex as u8;
        const NO_MEMORY: u8 = Why::NoMemory as u8;
        let text = match self.left_out_silent.load(Ordering::Relaxed) {
            NO_INDEX => {
                "metrics without values in the range may be missing, because the index of names is not complete: repeat the request \
                 later; if this persists, raise the setting memory"
            }
            NO_MEMORY => {
                "metrics without values in the range are missing, because they would take more than half of the query's memory: \
                 select fewer metrics or a shorter range, or raise the setting query_memory"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    pub(super) fn leave_out_silent(&self, why: Why) {
        self.left_out_silent.fetch_max(why as u8, Ordering::Relaxed);
    }

    /// Notes it if the index lacks names.
    pub(super) fn check(&self, index: &Snapshot) {
        if !index.is_fresh || !index.left_out.is_empty() {
            self.leave_out_silent(Why::NoIndex);
        }
    }

    /// The glob as a pattern of the index. `None` if the index has no such patterns.
    pub(super) fn pattern_of(glob: &Glob) -> Option<Pattern> {
        // the two kinds of patterns differ in what a backslash means, and in a dot between brackets
        let text = glob.text();
        let is_same = !text.contains('\\') && text.split('.').count() == glob.segments().len();
        Pattern::parse(text).ok().filter(|_| is_same)
    }

    /// The paths that the glob matches, and the memory of the list with its copies. `None` if it would take more than
    /// `bytes_max`.
    fn paths(
        &self,
        glob: &Glob,
        names: &Snapshot,
        bytes_max: u64,
    ) -> Result<Option<(Vec<String>, u64)>, Canceled> {
        let Some(pattern) = Self::pattern_of(glob) else { return Ok(None) };
        let (mut found, mut bytes, mut is_full) = (Vec::new(), 0, false);
        let select = |node: ::paths::Node<'_>| {
            if node.is_leaf && glob.matches(node.path) {
                bytes += (COPIES * (size_of::<String>() + node.path.len().max(ALLOCATION_BYTES_MIN))) as u64;
                is_full = found.len() == NAMES_MAX || bytes > bytes_max;
                if !is_full {
                    found.push(node.path.to_owned());
                }
            }
            !is_full
        };
        find(&names.runs, &pattern, select, || !self.interrupt.is_set()).map_err(|Stopped| Canceled)?;
        Ok((!is_full).then_some((found, bytes)))
    }

    /// Selects the series of a list of names. They are looked up, so this needs no index.
    fn select_listed(
        &self,
        matcher: Matcher,
        range: TimeRange,
    ) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let context = self.context;
        let index = context.paths.of_known(context, self.tenant, &*self.interrupt);
        let index = index.map_err(|Canceled| canceled())?;
        let set = self.source.select(&Select { matchers: std::slice::from_ref(&matcher), range })?;
        Ok(Box::new(WithSilent::new(self, set, range, index, Names::listed(matcher, false, 0))))
    }
}

impl SeriesSource for GlobSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        self.source.select(select)
    }

    fn select_glob(
        &self,
        glob: &Glob,
        range: TimeRange,
        list_bytes_max: u64,
    ) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let (matcher, context) = (Matcher::glob(METRIC_NAME, glob), self.context);
        if matcher.as_glob().is_none() {
            return self.select_listed(matcher, range);
        }
        let index = context.paths.awaited(context, self.tenant, &*self.interrupt, self.wait);
        let index = index.map_err(|Canceled| canceled())?;
        // a list without some of the names would hide the source's warning of what it cannot read
        let complete = index.as_ref().filter(|index| index.is_fresh && index.left_out.is_empty());
        if complete.is_none() {
            context.paths.scans.inc();
        }
        let listed = complete.map(|index| self.paths(glob, index, list_bytes_max)).transpose();
        let select = |matcher| self.source.select(&Select { matchers: std::slice::from_ref(matcher), range });
        let (set, index, names) = match listed.map_err(|Canceled| canceled())?.flatten() {
            Some((paths, bytes)) => {
                let matcher = Matcher::one_of(METRIC_NAME, paths);
                (select(&matcher)?, None, Names::listed(matcher, true, bytes))
            }
            None => {
                let found = Found::new(index.is_some());
                (select(&matcher)?, index, Names::Matching(glob.clone(), found))
            }
        };
        Ok(Box::new(WithSilent::new(self, set, range, index, names)))
    }

    fn select_rolled(&self, select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        self.source.select_rolled(select)
    }
}
