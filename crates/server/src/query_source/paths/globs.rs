//! Selects the paths of a glob through the index of names.

use super::silent::listed::Listed;
use super::silent::matching::Matching;
use super::silent::{Names, WithSilent};
use super::{BuildWait, Snapshot};
use crate::query_source::{Canceled, Context, Source, canceled};
use ::paths::{Pattern, Stopped, find};
use model::labels::METRIC_NAME;
use model::{ErrorKind, TenantId};
use query::graphite::Glob;
use query::{
    Interrupt, Matcher, Rolled, RolledSelect, Select, SelectGlob, SeriesSet, SeriesSource, Silent,
    SourceError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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
    /// The setting that limits the memory of the query.
    limit: &'static str,
    /// A [`Why`] if metrics without samples were left out, otherwise 0.
    left_out_silent: AtomicU8,
    /// Whether memory was taken for metrics without samples that may be left out.
    has_optional: AtomicBool,
    /// Metrics without samples that may not be left out.
    needed: AtomicU64,
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
        let (left_out_silent, has_optional) = (AtomicU8::new(0), AtomicBool::new(false));
        let (limit, needed) = ("query_memory", AtomicU64::new(0));
        Self { source, context, tenant, interrupt, wait, limit, left_out_silent, has_optional, needed }
    }

    /// Names the setting that limits the memory of the query, for messages.
    pub(crate) fn limited_by(self, limit: &'static str) -> Self {
        Self { limit, ..self }
    }

    /// What a list may take of a query's memory, with its copies.
    pub(crate) fn listed_bytes(memory_bytes: u64) -> u64 {
        (memory_bytes / MEMORY_PART).min((COPIES * NAMES_BYTES_MAX) as u64)
    }

    /// A warning, if metrics without samples in the range may be missing.
    pub(crate) fn left_out(&self) -> Option<String> {
        const NO_INDEX: u8 = Why::NoIndex as u8;
        const NO_MEMORY: u8 = Why::NoMemory as u8;
        match self.left_out_silent.load(Ordering::Relaxed) {
            NO_INDEX => Some(
                "metrics without values in the range may be missing, because the index of names is not complete: repeat the request \
                 later; if this persists, raise the setting memory"
                    .to_owned(),
            ),
            NO_MEMORY => Some(format!(
                "metrics without values in the range are left out, because half of the query's memory is kept free for other metrics: \
                 select fewer metrics or a shorter range, or raise the setting {}",
                self.limit
            )),
            _ => None,
        }
    }

    /// True if the query may have been too large only because of metrics that can be left out.
    pub(crate) fn has_optional(&self) -> bool {
        self.has_optional.load(Ordering::Relaxed)
    }

    /// What to add to the error of a query that is too large, if metrics without samples are a reason.
    pub(crate) fn needed(&self) -> Option<String> {
        let count = self.needed.load(Ordering::Relaxed);
        (count > 0).then(|| {
            format!(
                "countSeries counts metrics without values in the range, too, and {count} of them were read: \
                 select fewer metrics or a shorter range, or raise the setting {}",
                self.limit
            )
        })
    }

    /// Notes that a metric without samples was returned (`is_silent`), or that the name of another one takes memory until the silent ones
    /// are found.
    pub(super) fn note_memory(&self, silent: Silent, is_silent: bool) {
        match silent {
            Silent::KeepFree(_) => self.has_optional.store(true, Ordering::Relaxed),
            Silent::Needed => {
                self.needed.fetch_add(u64::from(is_silent), Ordering::Relaxed);
            }
        }
    }

    /// Error if metrics without samples in the range are needed, but there is no memory for the names.
    pub(super) fn too_many_names(&self) -> SourceError {
        let message = format!(
            "countSeries counts metrics without values in the range, too, but the names of the metrics take more than half of the memory that \
             the query has left: select fewer metrics, or raise the setting {}",
            self.limit
        );
        SourceError { kind: ErrorKind::TooLarge, message }
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
        // the two kinds of patterns differ in what a backslash means, in a dot between brackets, and in braces that stand for `**`
        let text = glob.text();
        let mut nodes = text.split('.').zip(glob.segments());
        let is_same = !text.contains('\\')
            && text.split('.').count() == glob.segments().len()
            && nodes.all(|(node, segment)| (node == "**") == segment.is_any_depth());
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
        select: &SelectGlob<'_>,
    ) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let (context, SelectGlob { range, silent, .. }) = (self.context, *select);
        let index = context.paths.of_known(context, self.tenant, &*self.interrupt);
        let index = index.map_err(|Canceled| canceled())?;
        let set = self.source.select(&Select { matchers: std::slice::from_ref(&matcher), range })?;
        let names = Names::Listed(Listed::new(matcher, false, 0));
        Ok(Box::new(WithSilent::new(self, set, range, silent, index, names)))
    }
}

impl SeriesSource for GlobSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        self.source.select(select)
    }

    fn select_glob(&self, select: &SelectGlob<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let SelectGlob { glob, range, list_bytes_max, silent } = *select;
        let (matcher, context) = (Matcher::glob(METRIC_NAME, glob), self.context);
        if matcher.as_glob().is_none() {
            return self.select_listed(matcher, select);
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
                (select(&matcher)?, None, Names::Listed(Listed::new(matcher, true, bytes)))
            }
            None => {
                let matching = Matching::new(glob.clone(), index.is_some());
                (select(&matcher)?, index, Names::Matching(matching))
            }
        };
        Ok(Box::new(WithSilent::new(self, set, range, silent, index, names)))
    }

    fn select_rolled(&self, select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        self.source.select_rolled(select)
    }
}
