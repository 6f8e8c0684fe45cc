//! Metrics of the memory budget: limit, use and peak of each account.
//!
//! The limits add up to the whole budget. `other` is the memory that the process uses outside the accounts,
//! as counted by the kernel.

use crate::limits::tenant_usage::Peak;
use crate::machine::private_bytes;
use crate::node::Node;
use head::Partition;
use std::sync::Arc;
use stdx::budget::Account;

type Read = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Peaks of the parts of the budget whose memory no single account counts. Each is the highest use that was ever read: for
/// metrics, or for the list of limits.
#[derive(Debug, Default)]
pub(crate) struct SeenPeaks {
    query: Arc<Peak>,
    auth: Arc<Peak>,
    other: Arc<Peak>,
}

struct Part {
    name: &'static str,
    limit_bytes: u64,
    used: Read,
    peak: Read,
}

impl Part {
    fn of(account: &Account) -> Self {
        let (used, peak) = (account.clone(), account.clone());
        Self {
            name: account.name(),
            limit_bytes: account.limit_bytes(),
            used: Arc::new(move || used.used_bytes()),
            peak: Arc::new(move || peak.peak_bytes()),
        }
    }

    /// For a part of the budget that has no account. `seen` is its peak.
    fn seen(name: &'static str, limit_bytes: u64, used: Read, seen: &Arc<Peak>) -> Self {
        let (read, seen) = (Arc::clone(&used), Arc::clone(seen));
        let peak = Arc::new(move || {
            seen.note(read());
            seen.get()
        });
        Self { name, limit_bytes, used, peak }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
}

pub(crate) fn all(node: &Node) -> Vec<(&'static str, Use)> {
    let use_of = |part: Part| {
        let (used_bytes, peak_bytes) = ((part.used)(), (part.peak)());
        (part.name, Use { limit_bytes: part.limit_bytes, used_bytes, peak_bytes })
    };
    with_other(node).into_iter().map(use_of).collect()
}

pub(super) fn register(node: &Node) {
    register_head_parts(node);
    let r = node.registry();
    for Part { name, limit_bytes, used, peak } in with_other(node) {
        let labels = [("account", name)];
        let gauge = |name, help, read: Read| r.gauge_fn(name, help, &labels, move || read() as f64);
        gauge(
            "floodmark_budget_limit_bytes",
            "Limit on the memory of an account.",
            Arc::new(move || limit_bytes),
        );
        gauge("floodmark_budget_used_bytes", "Memory that an account holds.", used);
        gauge("floodmark_budget_peak_bytes", "Peak memory of an account.", peak);
    }
}

fn register_head_parts(node: &Node) {
    let (budget, r) = (node.budget(), node.registry());
    let of_partitions = |read: fn(&Partition) -> usize| -> Read {
        let partitions = Arc::clone(&node.reads().partitions);
        Arc::new(move || partitions.iter().map(|p| read(&p.head.read())).sum::<usize>() as u64)
    };
    let replicas = node.writes().heads.replicas.clone();
    let paths = node.writes().heads.paths.clone();
    let aggregator = node.writes().heads.aggregator.clone();
    let events = node.writes().heads.events.clone();
    let (sums, pieces) = (node.writes().heads.sums.clone(), node.writes().heads.pieces.clone());
    let records = node.writes().heads.records.clone();
    let (ids, names) = (node.writes().heads.record_ids.clone(), node.writes().heads.stream_names.clone());
    let record_names = move || ids.used_bytes() + names.used_bytes();
    let loading = node.writes().heads.loading.clone();
    let parts: [(_, _, Read); 10] = [
        ("exemplars", budget.exemplars_bytes(), of_partitions(Partition::exemplar_bytes)),
        ("metadata", budget.metadata_bytes(), of_partitions(Partition::metadata_bytes)),
        ("replicas", budget.replicas_bytes(), Arc::new(move || replicas.used_bytes())),
        ("paths", budget.paths_bytes(), Arc::new(move || paths.used_bytes())),
        ("aggregator", budget.aggregator_bytes(), Arc::new(move || aggregator.used_bytes())),
        ("sums", budget.sums_bytes(), Arc::new(move || sums.used_bytes() + pieces.used_bytes())),
        ("events", budget.events_bytes(), Arc::new(move || events.used_bytes())),
        ("records", budget.records_bytes(), Arc::new(move || records.used_bytes())),
        ("record names", 2 * budget.record_names_bytes(), Arc::new(record_names)),
        ("loading", budget.loading_bytes(), Arc::new(move || loading.used_bytes())),
    ];
    for (part, limit_bytes, read) in parts {
        let labels = [("account", "head"), ("part", part)];
        let help = "Limit on the memory of a part of an account.";
        r.gauge_fn("floodmark_budget_part_limit_bytes", help, &labels, move || limit_bytes as f64);
        let used = move || read() as f64;
        r.gauge_fn(
            "floodmark_budget_part_used_bytes",
            "Memory that a part of an account holds.",
            &labels,
            used,
        );
    }
}

fn with_other(node: &Node) -> Vec<Part> {
    let mut all = parts(node);
    let used: Vec<_> = all.iter().map(|part| Arc::clone(&part.used)).collect();
    let other = move || private_bytes().saturating_sub(used.iter().map(|used| used()).sum());
    all.push(Part::seen("other", node.budget().other_bytes, Arc::new(other), &node.seen_peaks().other));
    all
}

fn parts(node: &Node) -> Vec<Part> {
    let (budget, reads, writes, seen) = (node.budget(), node.reads(), node.writes(), node.seen_peaks());
    let (heads, peak) = (Arc::clone(&writes.heads), Arc::clone(&writes.heads));
    let held = Arc::clone(reads);
    let query = move || held.answers.used_bytes() + held.lake.cache.stats().held_bytes;
    let callers = Arc::downgrade(node.auth());
    let auth: Read = Arc::new(move || callers.upgrade().map_or(0, |auth| auth.held_bytes()));
    let grpc = node.settings().otlp_grpc.address.map(|_| Part::of(&writes.grpc));
    let all = vec![
        Part {
            name: "head",
            limit_bytes: budget.head_bytes,
            used: Arc::new(move || heads.bytes()),
            peak: Arc::new(move || peak.peak_bytes()),
        },
        Part::of(&writes.inflight),
        Part::seen("query", budget.query_bytes, Arc::new(query), &seen.query),
        Part::of(&writes.lake.flush),
        Part::of(&writes.decoders),
        Part::seen("auth", budget.auth_bytes, auth, &seen.auth),
    ];
    all.into_iter().chain(grpc).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_path::tests::small_node;

    #[test]
    fn the_limits_add_up_to_the_memory_that_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let text = node.registry().render();
        let sum = |metric: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
        };
        assert_eq!(sum("floodmark_budget_limit_bytes"), (64 << 20) as f64);
        let (used, resident) = (sum("floodmark_budget_used_bytes"), private_bytes() as f64);
        assert!(used > 0.0 && used < resident * 2.0, "{used} bytes of {resident}");
        assert!(sum("floodmark_budget_peak_bytes") >= used / 2.0);
        node.stop();
    }

    #[test]
    fn a_peak_that_was_read_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let of_queries = || all(&node).into_iter().find(|(name, _)| *name == "query").unwrap().1;
        let held = node.reads().answers.reserve(1 << 20).unwrap();
        let used_bytes = of_queries().used_bytes;
        drop(held);
        assert!(used_bytes >= 1 << 20);
        assert!(of_queries().peak_bytes >= used_bytes, "read for the list of limits");
        let metrics = node.registry().render();
        let name = r#"floodmark_budget_peak_bytes{account="query"} "#;
        let peak = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert!(peak.parse::<f64>().unwrap() >= used_bytes as f64, "metrics and the list have the same peak");
        node.stop();
    }
}
