//! Finding series by their labels, and listing labels.

use super::{Case, Prepared, Size, fleet};
use head::{Filter, FilterKind, TenantHead};
use model::SeriesRef;

pub(super) const CASES: &[Case] = &[
    Case { name: "select/name equal/200k", unit: "query", prepare: |s| select(s, &name_equal) },
    Case { name: "select/name and job equal/200k", unit: "query", prepare: |s| select(s, &name_and_job) },
    Case { name: "select/name predicate/200k", unit: "query", prepare: |s| select(s, &name_predicate) },
    Case { name: "select/name, not pod/200k", unit: "query", prepare: |s| select(s, &name_not_pod) },
    Case { name: "select/region equal/200k", unit: "query", prepare: |s| select(s, &region) },
    Case { name: "labels/values of pod/200k", unit: "query", prepare: |s| values(s, "pod", None) },
    Case { name: "labels/values of name/200k", unit: "query", prepare: |s| values(s, "__name__", None) },
    Case {
        name: "labels/values of pod of a name/200k",
        unit: "query",
        prepare: |s| values(s, "pod", Some("metric_7")),
    },
    Case { name: "labels/of a series/200k", unit: "series", prepare: write_labels },
];

type Query = dyn Fn(&TenantHead) -> u64 + Sync;

fn select(size: Size, query: &'static Query) -> Prepared {
    let (head, _) = fleet::head(size.of(200_000));
    Prepared::new(1, move || query(&head))
}

fn count(head: &TenantHead, filters: &[(&str, FilterKind<'_>)]) -> u64 {
    let filters: Vec<_> = filters.iter().map(|(name, kind)| Filter { name, kind: *kind }).collect();
    head.select(&filters).len()
}

fn name_equal(head: &TenantHead) -> u64 {
    count(head, &[("__name__", FilterKind::Equal("metric_7"))])
}

fn name_and_job(head: &TenantHead) -> u64 {
    let job = FilterKind::Equal("sensor-gateway");
    count(head, &[("__name__", FilterKind::Equal("metric_7")), ("job", job)])
}

/// Selects a tenth of the metrics, like the pattern `metric_.*7`.
fn name_predicate(head: &TenantHead) -> u64 {
    count(head, &[("__name__", FilterKind::Predicate(&|name| name.ends_with('7')))])
}

fn name_not_pod(head: &TenantHead) -> u64 {
    let pod = FilterKind::Predicate(&|pod| !pod.starts_with("ferry"));
    count(head, &[("__name__", FilterKind::Equal("metric_7")), ("pod", pod)])
}

fn region(head: &TenantHead) -> u64 {
    count(head, &[("region", FilterKind::Equal("eu-central-1"))])
}

fn values(size: Size, label: &'static str, of: Option<&'static str>) -> Prepared {
    let (head, _) = fleet::head(size.of(200_000));
    Prepared::new(1, move || {
        let among = of.map(|name| head.select(&[Filter { name: "__name__", kind: FilterKind::Equal(name) }]));
        head.label_values(label, among.as_ref()).map(|v| v.len() as u64).sum()
    })
}

fn write_labels(size: Size) -> Prepared {
    let (head, refs) = fleet::head(size.of(200_000));
    let mut out = Vec::new();
    let write = move |out: &mut Vec<u8>, s: &SeriesRef| {
        out.clear();
        head.write_labels(*s, out);
        out.len() as u64
    };
    Prepared::new(refs.len(), move || refs.iter().map(|s| write(&mut out, s)).sum())
}
