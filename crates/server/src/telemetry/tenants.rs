//! Metrics of single tenants.
//!
//! The first of these metrics chooses the tenants, and reads the numbers of all of them. The others follow it in the
//! registry, so all name the same tenants.

use crate::limits::tenant_state::TenantState;
use crate::node::Node;
use crate::write_path::Context;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::sync::Arc;

/// What the names of all these metrics begin with.
pub(crate) const METRICS_OF_TENANTS: &str = "floodmark_tenant_";

/// Limit on the tenants that have rows. Those with the most active series have them.
const TENANTS_MAX: usize = 1000;

#[derive(Debug)]
struct Row {
    tenant: String,
    active_series: u64,
    active_series_limit: Option<usize>,
    stored_samples: u64,
    refused_samples: u64,
}

pub(super) fn register(node: &Node) {
    let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
    let r = node.registry();
    let (writes, kept) = (Arc::clone(node.writes()), Arc::clone(&rows));
    r.gauges_fn(
        "floodmark_tenant_active_series",
        "Active series of the tenant, for the 1000 tenants that have the most.",
        "tenant",
        move || {
            let mut rows = kept.lock();
            *rows = largest(&writes);
            rows.iter().map(|row| (row.tenant.clone(), row.active_series as f64)).collect()
        },
    );
    let kept = Arc::clone(&rows);
    r.gauges_fn(
        "floodmark_tenant_active_series_limit",
        "Limit on the active series of the tenant. Tenants without a limit have no row.",
        "tenant",
        move || {
            let rows = kept.lock();
            let limits = rows.iter().map(|row| (row.tenant.clone(), row.active_series_limit));
            limits.filter_map(|(tenant, limit)| Some((tenant, limit? as f64))).collect()
        },
    );
    let counter = |name, help, count: fn(&Row) -> u64| {
        let kept = Arc::clone(&rows);
        r.counters_fn(name, help, move || {
            let rows = kept.lock();
            let labels = |row: &Row| vec![("tenant".to_owned(), row.tenant.clone())];
            rows.iter().map(|row| (labels(row), count(row) as f64)).collect()
        });
    };
    counter(
        "floodmark_tenant_samples_total",
        "Samples of the tenant that were acknowledged, since the tenant was loaded.",
        |row| row.stored_samples,
    );
    counter(
        "floodmark_tenant_refused_samples_total",
        "Samples of the tenant left out of requests whose rest was stored, since the tenant was loaded. If such a request is repeated, they count again.",
        |row| row.refused_samples,
    );
}

/// The tenants with the most active series, in the order of their names.
fn largest(writes: &Context) -> Vec<Row> {
    let all = writes.tenants.all();
    let mut tenants: Vec<_> = all.into_iter().map(|tenant| (tenant.series(), tenant)).collect();
    if tenants.len() > TENANTS_MAX {
        tenants.select_nth_unstable_by(TENANTS_MAX, by_series);
        tenants.truncate(TENANTS_MAX);
    }
    tenants.sort_unstable_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    let settings = writes.overrides.current();
    let rows = tenants.iter().map(|(active_series, tenant)| Row {
        tenant: tenant.id.to_string(),
        active_series: *active_series,
        active_series_limit: settings.of(&tenant.id).limits.active_series,
        stored_samples: tenant.samples.stored.get(),
        refused_samples: tenant.samples.refused.get(),
    });
    rows.collect()
}

/// The most series first. Among equal numbers, names decide, so that the same tenants have rows each time.
fn by_series((a_series, a): &(u64, Arc<TenantState>), (b_series, b): &(u64, Arc<TenantState>)) -> Ordering {
    b_series.cmp(a_series).then_with(|| a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_path::tests::{small_node, write_series};
    use model::TenantId;

    fn values<'a>(text: &'a str, metric: &str) -> Vec<(&'a str, &'a str)> {
        let prefix = format!("{metric}{{tenant=\"");
        let rows = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"} "));
        rows.collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn samples_and_series_are_those_of_the_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        for _ in 0..2 {
            write_series(&node, (0..30).map(|i| format!("m{i}"))).await;
        }
        let text = node.registry().render();
        assert_eq!(values(&text, "floodmark_tenant_active_series"), [("anonymous", "30")]);
        assert_eq!(values(&text, "floodmark_tenant_samples_total"), [("anonymous", "60")]);
        assert_eq!(values(&text, "floodmark_tenant_refused_samples_total"), [("anonymous", "0")]);
        let limit = node.settings().tenants.general.limits.active_series.unwrap().to_string();
        let expected = [("anonymous", limit.as_str())];
        assert_eq!(values(&text, "floodmark_tenant_active_series_limit"), expected);
        node.stop();
    }

    #[test]
    fn the_tenants_with_the_most_series_have_rows() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let (tenants, now) = (&node.writes().tenants, node.writes().clock.instant());
        let id = |number: usize| TenantId::parse(&format!("t{number:04}")).unwrap();
        for number in 0..TENANTS_MAX + 5 {
            // the last ones have the most, and of the others, all have the same number
            let series = if number < TENANTS_MAX { 1 } else { number };
            tenants.of(&id(number), || true, now).hold(0, series, 100);
        }
        let text = node.registry().render();
        for metric in ["floodmark_tenant_active_series", "floodmark_tenant_samples_total"] {
            let found = values(&text, metric);
            let named: Vec<_> = found.iter().map(|(tenant, _)| (*tenant).to_owned()).collect();
            let kept = (0..TENANTS_MAX - 5).chain(TENANTS_MAX..TENANTS_MAX + 5);
            assert_eq!(named, kept.map(|number| id(number).to_string()).collect::<Vec<_>>());
        }
        node.stop();
    }
}
