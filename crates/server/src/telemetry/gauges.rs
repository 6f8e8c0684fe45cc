//! Gauges computed from a node when its metrics are scraped.

use super::{accounts, process, tenants};
use crate::node::Node;
use crate::partition::shared::PartitionShared;
use crate::query_source;
use crate::streams::buffer::Totals;
use admission::Waiting;
use admission::age::Doubt;
use head::TenantHead;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stdx::budget::Account;

/// Limit on the tenants for which a metric says how long they could not be sealed.
const BLOCKED_NAMED_MAX: usize = 100;

pub(crate) fn register_gauges(node: &Node) {
    of_heads(node);
    of_partitions(node);
    of_accounts(node);
    of_clusters(node);
    of_waiting_series(node);
    accounts::register(node);
    of_blocked_tenants(node);
    of_clock(node);
    process::register(node);
    of_streams(node);
    tenants::register(node);
}

fn of_clock(node: &Node) {
    for (doubt, name) in Doubt::ALL {
        let writes = Arc::clone(node.writes());
        let is_doubted = move || f64::from(writes.wall.doubt(&*writes.clock) == Some(doubt));
        let help = "1 while the wall clock is not trusted for this reason. Nothing expires during this time.";
        node.registry().gauge_fn("floodmark_clock_doubt", help, &[("doubt", name)], is_doubted);
    }
}

fn of_heads(node: &Node) {
    let gauge = |name, help, read: fn(&TenantHead) -> usize| {
        let partitions = Arc::clone(&node.reads().partitions);
        let of = move |p: &Arc<PartitionShared>| p.head.read().tenants().map(|(_, h)| read(h)).sum::<usize>();
        let all = move || partitions.iter().map(&of).sum::<usize>() as f64;
        node.registry().gauge_fn(name, help, &[], all);
    };
    gauge("floodmark_head_series", "Series in memory.", TenantHead::series_count);
    let reads = Arc::clone(node.reads());
    node.registry().gauge_fn(
        "floodmark_paths_names",
        "Names in the indexes that Graphite's searches use. A name may count several times.",
        &[],
        move || reads.paths.len() as f64,
    );
    gauge(
        "floodmark_head_active_series",
        "Series that got a sample within series_idle.",
        TenantHead::active_count,
    );
}

fn of_clusters(node: &Node) {
    let tenants = Arc::clone(&node.writes().tenants);
    let clusters =
        move || tenants.all().iter().map(|tenant| tenant.replicas.lock().clusters()).sum::<usize>();
    let help = "Clusters of replicas in memory.";
    node.registry().gauge_fn("floodmark_ha_clusters", help, &[], move || clusters() as f64);
}

fn of_waiting_series(node: &Node) {
    let gauge = |name, help, sum: fn(f64, Waiting) -> f64| {
        let writes = Arc::clone(node.writes());
        let all = move || {
            let now = writes.clock.instant();
            writes.tenants.all().iter().map(|tenant| tenant.waiting(now)).fold(0.0, sum)
        };
        node.registry().gauge_fn(name, help, &[], all);
    };
    gauge(
        "floodmark_write_new_series_waiting",
        "New series left out for now. Their senders are expected to repeat the request.",
        |sum, waiting| sum + waiting.series as f64,
    );
    gauge(
        "floodmark_write_new_series_waiting_seconds",
        "Time since the oldest of the series in floodmark_write_new_series_waiting was first refused with 503.",
        |longest, waiting| longest.max(waiting.longest.as_secs_f64()),
    );
}

fn of_partitions(node: &Node) {
    let gauge = |name, help, read: fn(&PartitionShared) -> u64| {
        let partitions = Arc::clone(&node.reads().partitions);
        let all = move || partitions.iter().map(|p| read(p)).sum::<u64>() as f64;
        node.registry().gauge_fn(name, help, &[], all);
    };
    gauge("floodmark_head_bytes", "Memory that the structures of the heads hold.", |p| {
        p.head_bytes.load(Ordering::Relaxed)
    });
    gauge(
        "floodmark_head_creating_requests",
        "Parts of write requests that wait until their new series are created, one part for each partition.",
        |p| {
            // the owner of the partition updates this number each time it has created some of the series
            p.creating.load(Ordering::Relaxed)
        },
    );
    gauge(
        "floodmark_delta_series",
        "Series whose samples are sums of samples with delta temporality.",
        |p| p.sums.load(Ordering::Relaxed),
    );
    gauge("floodmark_journal_bytes", "Bytes in the journals' segments.", |p| {
        p.journal_bytes.load(Ordering::Relaxed)
    });
    gauge("floodmark_journal_segments", "Journal segments.", |p| p.journal_segments.load(Ordering::Relaxed));
}

fn of_accounts(node: &Node) {
    let r = node.registry();
    let gauge = |name, help, account: &Account, read: fn(&Account) -> u64| {
        let account = account.clone();
        r.gauge_fn(name, help, &[], move || read(&account) as f64);
    };
    let (answers, inflight) = (&node.reads().answers, &node.writes().inflight);
    let help = "Memory of answers until they are sent.";
    gauge("floodmark_query_answers_bytes", help, answers, Account::used_bytes);
    let help = "Memory of write requests in progress.";
    gauge("floodmark_write_inflight_bytes", help, inflight, Account::used_bytes);
    let help = "Peak memory of write requests in progress.";
    gauge("floodmark_write_inflight_peak_bytes", help, inflight, Account::peak_bytes);
}

/// Age of the oldest sample that is not in a table yet, or 0 if there is none.
pub(crate) fn floodmark_lag_ms(reads: &query_source::Context) -> i64 {
    let in_rounds = reads.lake.in_rounds_since_ms.load(Ordering::Relaxed);
    match reads.partitions.unsealed_since_ms().unwrap_or(i64::MAX).min(in_rounds) {
        i64::MAX => 0,
        since_ms => reads.clock.now_ms().saturating_sub(since_ms).max(0),
    }
}

fn of_blocked_tenants(node: &Node) {
    let reads = Arc::clone(node.reads());
    node.registry().gauge_fn(
        "floodmark_seal_floodmark_lag_seconds",
        "Age of the oldest sample that is not yet in a table.",
        &[],
        move || floodmark_lag_ms(&reads) as f64 / 1000.0,
    );
    let reads = Arc::clone(node.reads());
    node.registry().gauges_fn(
        "floodmark_seal_tenant_behind_seconds",
        "Time for which the tenant could not be sealed; the log says why.",
        "tenant",
        move || {
            let now_ms = reads.clock.now_ms();
            let behind = reads.lake.blocked.all().into_iter().take(BLOCKED_NAMED_MAX);
            let seconds = |since_ms| now_ms.saturating_sub(since_ms).max(0) as f64 / 1000.0;
            behind.map(|(tenant, since_ms)| (tenant.to_string(), seconds(since_ms))).collect()
        },
    );
    let lake = Arc::clone(&node.reads().lake);
    node.registry().gauge_fn(
        "floodmark_seal_tenants_behind",
        "Tenants that cannot be sealed.",
        &[],
        move || lake.blocked.all().len() as f64,
    );
}

fn of_streams(node: &Node) {
    let gauge = |name, help, read: fn(Totals) -> f64| {
        let (shared, clock) = (Arc::clone(&node.streams().shared), Arc::clone(&node.reads().clock));
        node.registry().gauge_fn(name, help, &[], move || read(shared.buffer.totals(clock.instant())));
    };
    gauge("floodmark_records_waiting_streams", "Streams with records that wait to be loaded.", |all| {
        all.streams as f64
    });
    gauge("floodmark_records_waiting_batches", "Requests with records that wait to be loaded.", |all| {
        all.batches as f64
    });
    gauge("floodmark_records_waiting_bytes", "Memory of records that wait to be loaded.", |all| {
        all.bytes as f64
    });
    gauge(
        "floodmark_records_lag_seconds",
        "How long the stream that waits longest to be loaded has waited.",
        |all| all.lag.as_secs_f64(),
    );
    let shared = Arc::clone(&node.streams().shared);
    node.registry().gauge_fn(
        "floodmark_records_ready",
        "1 once the journal of records is replayed.",
        &[],
        move || f64::from(*shared.ready.borrow()),
    );
}
