//! Reads the series of several tenants as if they were one tenant's. Each series gets a label that names its tenant.
//!
//! The tenants are read one after the other, so the query can use all of its memory for each of them. Rollups are not
//! used.

use super::tenant_label::{matchers_for, put_labels};
use super::{Context, Source};
use model::{LabelsRef, SeriesSamples, TenantId, TenantSet, TimeRange, ValueKind};
use query::{Interrupt, Matcher, Select, SeriesSet, SeriesSource, SourceError};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Across<'a>(Vec<(TenantId, Source<'a>)>);

impl<'a> Across<'a> {
    /// Creates the source. The metrics that are selected from it count as queried.
    pub(crate) fn new(
        context: &'a Arc<Context>,
        tenants: &TenantSet,
        samples_max: u64,
        canceled: &Arc<dyn Interrupt>,
    ) -> Self {
        let Self(sources) = Self::unrecorded(context, tenants, samples_max, canceled);
        Self(sources.into_iter().map(|(tenant, source)| (tenant, source.recording())).collect())
    }

    /// See [`Source::leasing`].
    pub(crate) fn leasing(self) -> Self {
        Self(self.0.into_iter().map(|(tenant, source)| (tenant, source.leasing())).collect())
    }

    pub(crate) fn may_repeat_series(&self) -> bool {
        self.0.iter().any(|(_, source)| source.may_repeat_series())
    }

    /// Like [`Self::new`], but nothing counts as queried.
    pub(crate) fn unrecorded(
        context: &'a Arc<Context>,
        tenants: &TenantSet,
        samples_max: u64,
        canceled: &Arc<dyn Interrupt>,
    ) -> Self {
        let source = |tenant: &TenantId| {
            (tenant.clone(), Source::new(context, tenant.clone(), samples_max, Arc::clone(canceled)))
        };
        Self(tenants.iter().map(source).collect())
    }

    pub(crate) fn left_out(&self) -> Vec<String> {
        let texts: BTreeSet<_> = self.0.iter().flat_map(|(_, source)| source.left_out()).collect();
        texts.into_iter().take(super::union::LEFT_OUT_MAX).collect()
    }

    pub(crate) fn has_lost_files(&self) -> bool {
        self.0.iter().any(|(_, source)| source.has_lost_files())
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.0.iter().any(|(_, source)| source.is_expired())
    }
}

impl SeriesSource for Across<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        Ok(Box::new(AcrossSet {
            left: self.0.iter().rev().collect(),
            matchers: select.matchers.to_vec(),
            current: None,
            range: select.range,
            samples_max: None,
            labels: Vec::new(),
        }))
    }
}

struct AcrossSet<'a> {
    /// The tenants that are still to be read. The last one is next.
    left: Vec<&'a (TenantId, Source<'a>)>,
    matchers: Vec<Matcher>,
    current: Option<(&'a TenantId, Box<dyn SeriesSet + 'a>)>,
    range: TimeRange,
    /// Limit on the samples of each series, if it has been changed since the start.
    samples_max: Option<u64>,
    labels: Vec<u8>,
}

impl SeriesSet for AcrossSet<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        loop {
            if let Some((_, set)) = &mut self.current
                && set.next(samples)?
            {
                return Ok(true);
            }
            self.current = None; // must be freed before the next tenant's series are opened
            let Some((tenant, source)) = self.left.pop() else {
                samples.clear_for(ValueKind::Float);
                return Ok(false);
            };
            let Some(matchers) = matchers_for(tenant, &self.matchers) else { continue };
            let mut set = source.select(&Select { matchers: &matchers, range: self.range })?;
            if let Some(samples_max) = self.samples_max {
                set.limit(samples_max);
            }
            self.current = Some((tenant, set));
        }
    }

    fn limit(&mut self, samples_max: u64) {
        self.samples_max = Some(samples_max);
        if let Some((_, set)) = &mut self.current {
            set.limit(samples_max);
        }
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        let (tenant, set) = self.current.as_mut().expect("BUG: labels() was called before next()");
        put_labels(set.labels(), tenant, &mut self.labels);
        LabelsRef::from_canonical(&self.labels)
    }

    fn len_hint(&self) -> usize {
        self.current.as_ref().map_or(0, |(_, set)| set.len_hint())
    }
}
