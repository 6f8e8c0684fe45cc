//! Label queries over several tenants. Answers include the label that names a series' tenant.
//!
//! All tenants' results together may take as much memory as the answer of one query.

use super::{ExemplarsBySeries, Found, LabelQueries, LabelRequest, Limited, in_label_order, is_tagged};
use crate::query_source::tenant_label::{ORIGINAL_LABEL, TENANT_LABEL, matchers_for, put_labels, shown_name};
use crate::refusal::Refusal;
use head::TenantHead;
use model::labels::METRIC_NAME;
use model::{LabelsRef, Metadata, TenantId};
use query::Matcher;
use query::graphite::label_source::write_name;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy)]
pub(super) enum Shown<'a> {
    AsStored,
    /// A label name. If a stored label has the name of the tenant label, it is shown under a different name.
    Name,
    /// The labels of a series of this tenant, to which the tenant label is added.
    SeriesOf(&'a TenantId),
    /// The labels of a series, shown as Graphite's full name. Untagged series are not shown.
    TaggedName,
    /// The labels of a series, of which only the metric name is shown. Untagged series are not shown.
    MetricIfTagged,
}

impl Shown<'_> {
    pub(super) fn put(self, text: &[u8], found: &mut Found<'_>) -> Result<(), Refusal> {
        match self {
            Self::AsStored => found.add(text),
            Self::Name => found.add(match std::str::from_utf8(text) {
                Ok(name) => shown_name(name).as_bytes(),
                Err(_) => text,
            }),
            Self::TaggedName | Self::MetricIfTagged if !is_tagged(LabelsRef::from_canonical(text)) => Ok(()),
            Self::TaggedName => {
                let mut name = String::new();
                write_name(&mut name, LabelsRef::from_canonical(text));
                found.add(name.as_bytes())
            }
            Self::MetricIfTagged => {
                let metric = LabelsRef::from_canonical(text).get(METRIC_NAME);
                metric.map_or(Ok(()), |metric| found.add(metric.as_bytes()))
            }
            Self::SeriesOf(tenant) => {
                let mut labels = Vec::new();
                put_labels(LabelsRef::from_canonical(text), tenant, &mut labels);
                found.add(&labels)
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct LabelsAcross<'a>(pub(crate) Vec<LabelQueries<'a>>);

impl LabelsAcross<'_> {
    /// Lists label names. Includes the tenant label if there are several tenants.
    pub(crate) fn label_names(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.label_names(request);
        }
        self.answer(request, Ord::cmp, |queries, found, request| {
            let left_out = queries.add_names(found, request, Shown::Name)?;
            if found.texts.len() > 0 {
                found.add(TENANT_LABEL.as_bytes())?;
            }
            Ok(left_out)
        })
    }

    /// Lists values of a label. Includes values of the tenant label if there are several tenants.
    pub(crate) fn label_values(&self, name: &str, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.label_values(name, request);
        }
        let stored = if name == ORIGINAL_LABEL { TENANT_LABEL } else { name };
        self.answer(request, Ord::cmp, |queries, found, request| {
            if name == TENANT_LABEL {
                found.add(queries.tenant.as_str().as_bytes())?;
                return Ok(Vec::new());
            }
            queries.add_values(found, stored, request)
        })
    }

    /// Lists series, with the tenant label if there are several tenants.
    pub(crate) fn series(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.series(request);
        }
        self.answer(request, in_label_order, |queries, found, request| {
            queries.add_stored_series(found, request, Shown::SeriesOf(queries.tenant))
        })
    }

    /// Lists series in memory that are active, with the tenant label if there are several tenants.
    pub(crate) fn active_series(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.active_series(request);
        }
        self.answer(request, in_label_order, |queries, found, request| {
            queries.add_series(found, request, Shown::SeriesOf(queries.tenant), TenantHead::is_active)?;
            Ok(Vec::new())
        })
    }

    /// Lists exemplars by series, with the tenant label if there are several tenants.
    pub(crate) fn exemplars(&self, request: &LabelRequest<'_>) -> Result<ExemplarsBySeries, Refusal> {
        if let [one] = &*self.0 {
            return one.exemplars(request);
        }
        let (mut all, mut room) = (BTreeMap::new(), self.first().room());
        for queries in &self.0 {
            let Some(selectors) = selectors_for(queries.tenant, request) else { continue };
            let request = LabelRequest { selectors: &selectors, ..*request };
            queries.add_exemplars(&mut all, &mut room, &request, |labels| {
                let mut shown = Vec::new();
                put_labels(labels, queries.tenant, &mut shown);
                LabelsRef::from_canonical(&shown).to_owned()
            })?;
        }
        Ok(all)
    }

    /// Lists the metadata of metrics. A metric has each different entry once, however many tenants have it.
    pub(crate) fn metadata(
        &self,
        metric: Option<&str>,
        limit: usize,
    ) -> Result<BTreeMap<String, Vec<Metadata>>, Refusal> {
        let (mut all, mut room) = (BTreeMap::<String, Vec<Metadata>>::new(), self.first().room());
        for queries in &self.0 {
            for (name, metadata) in queries.metadata_within(metric, limit, &mut room)? {
                let of_metric = all.entry(name).or_default();
                if !of_metric.contains(&metadata) {
                    of_metric.push(metadata);
                }
            }
            while all.len() > limit {
                all.pop_last();
            }
        }
        Ok(all)
    }

    pub(super) fn first(&self) -> &LabelQueries<'_> {
        self.0.first().expect("BUG: a request has no tenant")
    }

    fn answer(
        &self,
        request: &LabelRequest<'_>,
        order: fn(&[u8], &[u8]) -> std::cmp::Ordering,
        add: impl Fn(&LabelQueries<'_>, &mut Found<'_>, &LabelRequest<'_>) -> Result<Vec<String>, Refusal>,
    ) -> Result<Limited, Refusal> {
        let (mut found, mut left_out) = (self.first().found(request, order), BTreeSet::new());
        for queries in &self.0 {
            if found.is_cut() {
                break;
            }
            let Some(selectors) = selectors_for(queries.tenant, request) else { continue };
            left_out.extend(add(queries, &mut found, &LabelRequest { selectors: &selectors, ..*request })?);
        }
        Ok(found.answer(left_out.into_iter().collect()))
    }
}

/// Translates the request's selectors into those for the stored series of one tenant. Returns `None` if all of them exclude the
/// tenant.
fn selectors_for(tenant: &TenantId, request: &LabelRequest<'_>) -> Option<Vec<Vec<Matcher>>> {
    let of_tenant = |matchers: &Vec<Matcher>| matchers_for(tenant, matchers);
    let selectors: Vec<_> = request.selectors.iter().filter_map(of_tenant).collect();
    (request.selectors.is_empty() || !selectors.is_empty()).then_some(selectors)
}
