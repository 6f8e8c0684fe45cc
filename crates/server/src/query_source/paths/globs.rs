//! Selects the paths of a glob through the index of names.

use crate::query_source::{Canceled, Context, Source, canceled};
use ::paths::{Pattern, Stopped, find};
use model::TenantId;
use model::labels::METRIC_NAME;
use query::graphite::Glob;
use query::{Interrupt, Matcher, Rolled, RolledSelect, Select, SeriesSet, SeriesSource, SourceError};
use std::sync::Arc;

/// A list of more names takes as long to look up as testing all names.
const NAMES_MAX: usize = 10_000;

const NAMES_BYTES_MAX: usize = 1 << 20;

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

    /// The paths that the glob matches. `None` if there are too many, or if there is no index.
    fn paths(&self, glob: &Glob) -> Result<Option<Vec<String>>, Canceled> {
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
                bytes += size_of::<String>() + node.path.len();
                is_full = found.len() == NAMES_MAX || bytes > NAMES_BYTES_MAX;
                if !is_full {
                    found.push(node.path.to_owned());
                }
            }
            !is_full
        };
        find(&names.runs, &pattern, select, || !self.interrupt.is_set()).map_err(|Stopped| Canceled)?;
        Ok((!is_full).then_some(found))
    }
}

impl SeriesSource for GlobSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        if let [matcher] = select.matchers
            && matcher.name == METRIC_NAME
            && let Some(glob) = matcher.as_glob()
            && let Some(paths) = self.paths(glob).map_err(|Canceled| canceled())?
        {
            let listed = [Matcher::one_of(METRIC_NAME, paths)];
            return self.source.select(&Select { matchers: &listed, ..*select });
        }
        self.source.select(select)
    }

    fn select_rolled(&self, select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        self.source.select_rolled(select)
    }
}
