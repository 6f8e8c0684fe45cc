//! Sends the same queries to Floodmark and to Prometheus, and compares their answers.

use super::servers::Prometheus;
use crate::harness::read::{Matrix, data, matrix, sample, seconds};
use crate::harness::{Request, Server, wait_for};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A range of time that has passed, and for which both servers have all samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
}

/// Compares all samples of both servers bit by bit. The error describes how they differ.
pub(crate) fn raw_samples(
    server: &Server,
    prometheus: &Prometheus,
    tenant: &str,
    window: Window,
) -> Result<(), String> {
    let query = format!("{{__name__=~\".+\"}}[{}ms]", window.end_ms - window.start_ms + 60_000);
    let params = [("query", query.as_str()), ("time", &seconds(window.end_ms))];
    let request = Request::form("/api/v1/query", &params).tenant(tenant);
    let theirs = matrix(&data(&prometheus.send(&request)));
    let ours = matrix(&data(&server.send(&request)));
    let samples: usize = theirs.values().map(Vec::len).sum();
    assert!(
        theirs.len() > 300 && samples > 1000,
        "{} series, {samples} samples: too few to compare",
        theirs.len()
    );
    let differences = differences(&ours, &theirs);
    if differences.is_empty() {
        eprintln!("{} series, {samples} samples: all equal", theirs.len());
        return Ok(());
    }
    eprintln!("not equal yet: {} series differ, such as {}", differences.len(), differences[0]);
    Err(differences.join("\n"))
}

fn differences(ours: &Matrix, theirs: &Matrix) -> Vec<String> {
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let of = |all: &Matrix, name: &str| all.get(name).cloned().unwrap_or_default();
    let differs = |name: &&&String| of(ours, name) != of(theirs, name);
    let describe = |name: &String| {
        let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) =
            (of(ours, name).into_iter().collect(), of(theirs, name).into_iter().collect());
        let missing: Vec<_> = theirs.difference(&ours).take(3).collect();
        let extra: Vec<_> = ours.difference(&theirs).take(3).collect();
        format!("{name}: {} here, {} there; missing {missing:?}, extra {extra:?}", ours.len(), theirs.len())
    };
    names.iter().filter(differs).map(|n| describe(n)).collect()
}

/// Queries to which both servers must give equal answers. Their ranges are chosen for one scrape per second.
const QUERIES: &[&str] = &[
    "up",
    "count({__name__=~\".+\"})",
    "count by (__name__) ({job=\"node\"})",
    "rate(prometheus_http_requests_total[10s])",
    "sum by (handler) (rate(prometheus_http_request_duration_seconds_count[8s]))",
    "histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket[12s])))",
    "histogram_quantile(0.5, rate(prometheus_http_request_duration_seconds_bucket[12s]))",
    "histogram_quantile(0.99, sum by (le, handler) (prometheus_http_response_size_bytes_bucket))",
    "node_cpu_seconds_total{mode=\"idle\"}",
    "avg by (mode) (irate(node_cpu_seconds_total[5s]))",
    "100 - avg(rate(node_cpu_seconds_total{mode=\"idle\"}[6s])) * 100",
    "topk(3, node_cpu_seconds_total)",
    "bottomk(2, process_start_time_seconds)",
    "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes",
    "1 - node_filesystem_avail_bytes / node_filesystem_size_bytes",
    "quantile by (job) (0.9, scrape_duration_seconds)",
    "stddev(go_goroutines) + stdvar(go_goroutines)",
    "max_over_time(go_goroutines[10s]) - min_over_time(go_goroutines[10s])",
    "avg_over_time(scrape_duration_seconds[10s])",
    "stddev_over_time(scrape_duration_seconds[10s])",
    "quantile_over_time(0.7, scrape_duration_seconds[10s])",
    "increase(process_cpu_seconds_total[9s])",
    "delta(process_resident_memory_bytes[9s])",
    // the slope is scaled and increased by 1, because near 0, rounding errors would dominate
    "deriv(process_resident_memory_bytes[9s]) / 2 ^ 20 + 1",
    "predict_linear(node_memory_MemFree_bytes[9s], 60)",
    "changes(go_memstats_alloc_bytes[10s])",
    "resets(go_memstats_alloc_bytes[10s])",
    "last_over_time(up[5s]) + count_over_time(up[5s]) + present_over_time(up[5s])",
    "max_over_time(rate(process_cpu_seconds_total[4s])[10s:2s])",
    "up offset 4s",
    "up @ end()",
    "rate(process_cpu_seconds_total[5s] offset 3s)",
    "up and on (job) go_goroutines",
    "up unless on (job) node_uname_info",
    "up or vector(7)",
    "up == 1",
    "up == bool 0",
    "go_goroutines > on (job) group_left () (up * 5)",
    "up * on (instance) group_left (release, machine) node_uname_info",
    "sum without (cpu, mode) (node_cpu_seconds_total)",
    "count_values(\"value\", up)",
    "label_replace(up, \"host\", \"$1\", \"instance\", \"(.*):.*\")",
    "label_join(up, \"both\", \"/\", \"job\", \"instance\")",
    "absent(nothing_there)",
    "absent_over_time(up[2s])",
    "sort_desc(go_goroutines)",
    "clamp(go_goroutines, 10, 30) + abs(-go_threads) + ln(go_threads) + sqrt(go_threads)",
    "round(scrape_duration_seconds, 0.001)",
    "timestamp(up) - time()",
    "day_of_week() + hour()",
    "scalar(count(up)) ^ 2 % 3",
    "{job=~\"no.*|prom.*\", __name__=~\"go_gc.*|process_.*\", instance!=\"\"}",
    "group by (job) ({__name__=~\"node_cpu.*\"})",
];

pub(crate) fn answers(server: &Server, prometheus: &Prometheus, tenant: &str, window: Window) {
    let (start, end) = (seconds(window.start_ms), seconds(window.end_ms));
    let mut wrong = Vec::new();
    for query in QUERIES {
        let instant = [("query", *query), ("time", end.as_str())];
        let range = [("query", *query), ("start", start.as_str()), ("end", end.as_str()), ("step", "700ms")];
        for (path, params) in [("/api/v1/query", &instant[..]), ("/api/v1/query_range", &range[..])] {
            let request = Request::form(path, params).tenant(tenant);
            let (ours, theirs) = (data(&server.send(&request)), data(&prometheus.send(&request)));
            if let Err(why) = same(&ours, &theirs) {
                wrong.push(format!("{path} {query}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

pub(crate) fn catalogs(server: &Server, prometheus: &Prometheus, tenant: &str, window: Window) {
    let (start, end) = (seconds(window.start_ms), seconds(window.end_ms));
    let window = [("start", start.as_str()), ("end", end.as_str())];
    let check = |path: &str, params: &[(&str, &str)]| {
        let request = Request::ask(path, params).tenant(tenant);
        // repeated until the answers are equal, because Prometheus applies the time range only roughly
        wait_for(&format!("{path} {params:?} to be equal"), || {
            let (ours, theirs) =
                (texts(&data(&server.send(&request))), texts(&data(&prometheus.send(&request))));
            let different: Vec<_> = ours.symmetric_difference(&theirs).take(3).collect();
            different.is_empty().then_some(()).or_else(|| {
                eprintln!("{path} {params:?}: only on one side: {different:?}");
                None
            })
        });
    };
    for path in ["/api/v1/labels", "/api/v1/label/__name__/values", "/api/v1/label/le/values"] {
        check(path, &window);
    }
    check("/api/v1/series", &[&window[..], &[("match[]", "{job=\"prometheus\"}")]].concat());
    for metric in ["node_cpu_seconds_total", "go_goroutines", "node_uname_info"] {
        check("/api/v1/metadata", &[("metric", metric)]);
    }
}

fn texts(data: &Value) -> BTreeSet<String> {
    match data {
        Value::Array(list) => list.iter().map(Value::to_string).collect(),
        Value::Object(entries) => entries.iter().map(|(k, v)| format!("{k}: {v}")).collect(),
        other => panic!("neither a list nor an object: {other}"),
    }
}

/// Compares two answers. Type, series and times must be equal, but values may differ by rounding errors.
pub(crate) fn same(ours: &Value, theirs: &Value) -> Result<(), String> {
    if ours["resultType"] != theirs["resultType"] {
        return Err(format!("{} is not {}", ours["resultType"], theirs["resultType"]));
    }
    if ours == theirs {
        return Ok(());
    }
    if ours["resultType"] == "string" {
        return Err(format!("{ours} is not {theirs}"));
    }
    let (ours, theirs) = (points(ours), points(theirs));
    if !ours.keys().eq(theirs.keys()) {
        let only = |a: &Points, b: &Points| a.keys().find(|k| !b.contains_key(*k)).cloned();
        return Err(format!(
            "series only here: {:?}, only there: {:?}",
            only(&ours, &theirs),
            only(&theirs, &ours)
        ));
    }
    for (name, ours) in &ours {
        let theirs = &theirs[name];
        if ours.len() != theirs.len() {
            return Err(format!("{name}: {} points, not {}", ours.len(), theirs.len()));
        }
        let different = ours.iter().zip(theirs).find(|(a, b)| a != b && !is_close(a, b));
        if let Some((a, b)) = different {
            return Err(format!("{name}: {a} is not {b}"));
        }
    }
    Ok(())
}

type Points = BTreeMap<String, Vec<Value>>;

fn points(data: &Value) -> Points {
    let Some(series) = data["result"].as_array().filter(|r| r.iter().all(Value::is_object)) else {
        return Points::from([(String::new(), vec![data["result"].clone()])]);
    };
    let one = |s: &Value| {
        let values = s["values"].as_array().cloned().unwrap_or_else(|| vec![s["value"].clone()]);
        (s["metric"].to_string(), values)
    };
    series.iter().map(one).collect()
}

fn is_close(a: &Value, b: &Value) -> bool {
    let ((a_ms, x), (b_ms, y)) = (sample(a), sample(b));
    a_ms == b_ms && x != y && (x - y).abs() <= 1e-10 * x.abs().max(y.abs())
}
