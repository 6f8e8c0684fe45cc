//! Label queries over several tenants, whose answers include the label that names the tenant.
//!
//! The texts of all tenants go into one set, so an answer is limited to the memory of one query.

use super::{Ask, Found, LabelQueries, Limited, in_label_order};
use crate::query_source::tenant_label::{ORIGINAL_LABEL, TENANT_LABEL, matchers_for, put_labels, shown_name};
use crate::refusal::Refusal;
use model::{LabelsRef, TenantId};
use query::Matcher;
use std::collections::BTreeSet;

/// Conversion of a stored text into a text of the answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown<'a> {
    AsStored,
    /// A label name. A stored label with the name of the tenant label gets another name.
    Name,
    /// Labels of a series of this tenant, to which the tenant label is added.
    SeriesOf(&'a TenantId),
}

impl Shown<'_> {
    pub(super) fn put(self, text: &[u8], found: &mut Found<'_>) -> Result<(), Refusal> {
        match self {
            Self::AsStored => found.add(text),
            Self::Name => found.add(match std::str::from_utf8(text) {
                Ok(name) => shown_name(name).as_bytes(),
                Err(_) => text,
            }),
            Self::SeriesOf(tenant) => {
                let mut labels = Vec::new();
                put_labels(LabelsRef::from_canonical(text), tenant, &mut labels);
                found.add(&labels)
            }
        }
    }
}

/// Queries for the labels and series of one or several tenants.
#[derive(Debug)]
pub(crate) struct LabelsAcross<'a>(pub(crate) Vec<LabelQueries<'a>>);

impl LabelsAcross<'_> {
    /// As [`LabelQueries::label_names`], with the tenant label if there are several tenants.
    pub(crate) fn label_names(&self, ask: &Ask<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.label_names(ask);
        }
        self.answer(ask, Ord::cmp, |queries, found, ask| {
            let left_out = queries.add_names(found, ask, Shown::Name)?;
            if found.texts.len() > 0 {
                found.add(TENANT_LABEL.as_bytes())?;
            }
            Ok(left_out)
        })
    }

    /// As [`LabelQueries::label_values`], including the values of the tenant label if there are several tenants.
    pub(crate) fn label_values(&self, name: &str, ask: &Ask<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.label_values(name, ask);
        }
        let stored = if name == ORIGINAL_LABEL { TENANT_LABEL } else { name };
        self.answer(ask, Ord::cmp, |queries, found, ask| {
            if name == TENANT_LABEL {
                found.add(queries.tenant.as_str().as_bytes())?;
                return Ok(Vec::new());
            }
            queries.add_values(found, stored, ask)
        })
    }

    /// As [`LabelQueries::series`], with the tenant label if there are several tenants.
    pub(crate) fn series(&self, ask: &Ask<'_>) -> Result<Limited, Refusal> {
        if let [one] = &*self.0 {
            return one.series(ask);
        }
        self.answer(ask, in_label_order, |queries, found, ask| {
            queries.add_stored_series(found, ask, Shown::SeriesOf(queries.tenant))
        })
    }

    /// Collects what `add` finds for each tenant that matches the selectors.
    fn answer(
        &self,
        ask: &Ask<'_>,
        order: fn(&[u8], &[u8]) -> std::cmp::Ordering,
        add: impl Fn(&LabelQueries<'_>, &mut Found<'_>, &Ask<'_>) -> Result<Vec<String>, Refusal>,
    ) -> Result<Limited, Refusal> {
        let first = self.0.first().expect("BUG: a request has no tenant");
        let (mut found, mut left_out) = (first.found(ask, order), BTreeSet::new());
        for queries in &self.0 {
            if found.is_cut() {
                break;
            }
            let of_tenant = |matchers: &Vec<Matcher>| matchers_for(queries.tenant, matchers);
            let selectors: Vec<_> = ask.selectors.iter().filter_map(of_tenant).collect();
            if selectors.is_empty() && !ask.selectors.is_empty() {
                continue;
            }
            left_out.extend(add(queries, &mut found, &Ask { selectors: &selectors, ..*ask })?);
        }
        Ok(found.answer(left_out.into_iter().collect()))
    }
}
