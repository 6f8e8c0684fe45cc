//! Selects the paths of a glob through the index of names.

use crate::query_source::{Canceled, Context, Source, canceled};
use ::paths::{Pattern, Stopped, find};
use model::labels::METRIC_NAME;
use model::{TenantId, TimeRange};
use query::graphite::Glob;
use query::{Interrupt, Matcher, Rolled, RolledSelect, Select, SeriesSet, SeriesSource, SourceError};
use std::sync::Arc;

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
    context: &'a Context,
    tenant: &'a TenantId,
    interrupt: Arc<dyn Interrupt>,
}

impl<'a> GlobSource<'a> {
    pub(crate) const fn new(
        source: &'a Source<'a>,
        context: &'a Context,
        tenant: &'a TenantId,
        interrupt: Arc<dyn Interrupt>,
    ) -> Self {
        Self { source, context, tenant, interrupt }
    }

    /// What a list may take of a query's memory, with its copies.
    pub(crate) fn listed_bytes(memory_bytes: u64) -> u64 {
        (memory_bytes / MEMORY_PART).min((COPIES * NAMES_BYTES_MAX) as u64)
    }

    /// The paths that the glob matches, and the memory of the list with its copies. `None` if it would take more than
    /// `bytes_max`, or if there is no index.
    fn paths(&self, glob: &Glob, bytes_max: u64) -> Result<Option<(Vec<String>, u64)>, Canceled> {
        // the two kinds of patterns differ in what a backslash means
        let Some(pattern) = Pattern::parse(glob.text()).ok().filter(|_| !glob.text().contains('\\')) else {
            return Ok(None);
        };
        let Some(names) = self.context.paths.snapshot(self.context, self.tenant, &*self.interrupt)? else {
            return Ok(None);
        };
        if !names.left_out.is_empty() {
            return Ok(None); // so that the source names what it cannot read
        }
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
    ) -> Result<(Box<dyn SeriesSet + '_>, u64), SourceError> {
        let (mut matcher, mut list_bytes) = (Matcher::glob(METRIC_NAME, glob), 0);
        if matcher.as_glob().is_some()
            && let Some((paths, bytes)) = self.paths(glob, list_bytes_max).map_err(|Canceled| canceled())?
        {
            (matcher, list_bytes) = (Matcher::one_of(METRIC_NAME, paths), bytes);
        }
        Ok((self.source.select(&Select { matchers: &[matcher], range })?, list_bytes))
    }

    fn select_rolled(&self, select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        self.source.select_rolled(select)
    }
}
