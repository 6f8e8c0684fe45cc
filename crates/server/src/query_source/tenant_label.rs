//! The label that names a series' tenant in queries over several tenants, as in Cortex and Mimir.
//!
//! The label is not stored. It is added to series when they are read, and matchers on it select tenants. If a stored
//! label has the same name, it is shown under a different name.

use model::labels::put_label;
use model::{LabelsRef, TenantId};
use query::Matcher;

pub(crate) const TENANT_LABEL: &str = "__tenant_id__";

/// If a series has a stored label called [`TENANT_LABEL`], queries over several tenants see it under this name.
pub(crate) const ORIGINAL_LABEL: &str = "original___tenant_id__";

/// Translates a query's matchers into those for the stored series of one tenant. Returns `None` if the matchers
/// exclude the tenant.
pub(crate) fn matchers_for(tenant: &TenantId, matchers: &[Matcher]) -> Option<Vec<Matcher>> {
    let (of_tenants, of_series): (Vec<_>, Vec<_>) =
        matchers.iter().partition(|matcher| matcher.name == TENANT_LABEL);
    let is_wanted = of_tenants.iter().all(|matcher| matcher.matches(tenant.as_str()));
    let stored = |matcher: &Matcher| {
        let mut matcher = matcher.clone();
        if matcher.name == ORIGINAL_LABEL {
            TENANT_LABEL.clone_into(&mut matcher.name);
        }
        matcher
    };
    is_wanted.then(|| of_series.into_iter().map(stored).collect())
}

pub(crate) fn shown_name(stored: &str) -> &str {
    if stored == TENANT_LABEL { ORIGINAL_LABEL } else { stored }
}

/// Writes the labels of a series to `out` as a query over several tenants sees them.
pub(crate) fn put_labels(labels: LabelsRef<'_>, tenant: &TenantId, out: &mut Vec<u8>) {
    let own = labels.get(TENANT_LABEL).map(|value| (ORIGINAL_LABEL, value));
    let others =
        labels.iter().filter(|(name, _)| *name != TENANT_LABEL && (own.is_none() || *name != ORIGINAL_LABEL));
    let mut all: Vec<_> = others.chain(own).chain([(TENANT_LABEL, tenant.as_str())]).collect();
    all.sort_unstable();
    out.clear();
    for (name, value) in all {
        put_label(out, name.as_bytes(), value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;
    use query::MatchOp;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn the_label_is_added_and_one_of_that_name_is_kept() {
        for (stored, shown) in [
            (&[][..], &[(TENANT_LABEL, "a")][..]),
            (&[("__name__", "up"), ("z", "1")], &[("__name__", "up"), (TENANT_LABEL, "a"), ("z", "1")]),
            (&[(TENANT_LABEL, "x"), ("b", "1")], &[(TENANT_LABEL, "a"), (ORIGINAL_LABEL, "x"), ("b", "1")]),
            (&[(TENANT_LABEL, "x"), (ORIGINAL_LABEL, "y")], &[(TENANT_LABEL, "a"), (ORIGINAL_LABEL, "x")]),
            (&[(ORIGINAL_LABEL, "y")], &[(TENANT_LABEL, "a"), (ORIGINAL_LABEL, "y")]),
        ] {
            let mut out = b"before".to_vec();
            put_labels(Labels::from_pairs(stored).as_ref(), &tenant("a"), &mut out);
            assert_eq!(LabelsRef::from_canonical(&out).to_owned(), Labels::from_pairs(shown));
        }
    }

    #[test]
    fn matchers_of_the_label_choose_tenants() {
        let matcher = |name, op, value| Matcher::new(name, op, value).unwrap();
        let of = |name: &str, matchers: &[Matcher]| {
            let found = matchers_for(&tenant(name), matchers)?;
            Some(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        let up = Matcher::equal("__name__", "up");
        let only_a = [up.clone(), matcher(TENANT_LABEL, MatchOp::Equal, "a")];
        assert_eq!((of("a", &only_a), of("b", &only_a)), (Some("__name__=\"up\"".into()), None));
        let not_a = [matcher(TENANT_LABEL, MatchOp::NotEqual, "a")];
        assert_eq!((of("a", &not_a), of("b", &not_a)), (None, Some(String::new())));
        let both =
            [matcher(TENANT_LABEL, MatchOp::Regex, "a|b"), matcher(TENANT_LABEL, MatchOp::NotRegex, "b.*")];
        assert_eq!((of("a", &both), of("b", &both)), (Some(String::new()), None));
        let own = [matcher(ORIGINAL_LABEL, MatchOp::Equal, "x")];
        assert_eq!(of("a", &own), Some("__tenant_id__=\"x\"".into()));
    }
}
