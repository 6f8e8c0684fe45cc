//! k6 with its outputs for OpenTelemetry and remote write. What is stored is compared with k6's own summary.

use super::{GRPC, HTTP, TEAM, have, page, server_with_grpc, value_of};
use crate::harness::pages::{run, with};
use crate::harness::{Options, Server};
use serde_json::Value;

/// Runs the script of the page with the commands below a heading, and returns k6's summary. `None` if k6 is missing.
fn k6(server: &Server, heading: &str, address: (&str, String)) -> Option<Value> {
    if !have("k6", "Go") {
        return None;
    }
    let (page, dir) = (page("k6"), tempfile::tempdir().unwrap());
    let script = with(page.block("A script", "js"), &[(HTTP, server.address.to_string())]);
    std::fs::write(dir.path().join("script.js"), script).unwrap();
    let commands = with(page.block(heading, "sh"), &[address]);
    let text = run(
        &format!("export K6_SUMMARY_EXPORT=summary.json K6_NO_USAGE_REPORT=true\n{commands}"),
        dir.path(),
    );
    assert!(!text.contains("level=error"), "{text}");
    let summary = std::fs::read_to_string(dir.path().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    Some(summary["metrics"].clone())
}

#[track_caller]
fn number(summary: &Value, metric: &str, key: &str) -> f64 {
    summary[metric][key].as_f64().unwrap_or_else(|| panic!("no {key} of {metric} in {summary}"))
}

/// Compares the result of a query with a figure of the summary. Sums may have been added up in another order.
#[track_caller]
fn same(server: &Server, query: &str, expected: f64) {
    let found = value_of(server, TEAM, query).unwrap_or_else(|| panic!("no {query}"));
    assert!((found - expected).abs() <= expected.abs() * 1e-9, "{query} is {found} instead of {expected}");
}

/// Counters have the same names in both protocols, except those of bytes.
fn counters(server: &Server, summary: &Value) {
    assert_eq!(number(summary, "iterations", "count"), 20.0);
    for name in ["iterations", "http_reqs"] {
        same(server, &format!("sum(k6_{name}_total)"), number(summary, name, "count"));
    }
}

fn opentelemetry(server: &Server, heading: &str, address: (&str, String)) {
    let Some(summary) = k6(server, heading, address) else { return };
    counters(server, &summary);
    for name in ["data_sent", "data_received"] {
        same(server, &format!("sum(k6_{name}_bytes_total)"), number(&summary, name, "count"));
    }
    same(server, r#"sum(k6_checks_total{condition="nonzero"})"#, number(&summary, "checks", "passes"));
    let requests = number(&summary, "http_reqs", "count");
    same(server, "sum(k6_http_req_duration_milliseconds_count)", requests);
    same(server, r#"sum(k6_http_req_duration_milliseconds_bucket{le="+Inf"})"#, requests);
    let sum = number(&summary, "http_req_duration", "avg") * requests;
    same(server, "sum(k6_http_req_duration_milliseconds_sum)", sum);
    same(server, "max(max_over_time(k6_vus_max[5m]))", 2.0);
}

#[test]
fn k6_sends_opentelemetry_over_http() {
    let server = Server::new();
    opentelemetry(&server, "OpenTelemetry over HTTP", (HTTP, server.address.to_string()));
}

#[test]
fn k6_sends_opentelemetry_over_grpc() {
    let (server, grpc) = server_with_grpc(Options::default());
    opentelemetry(&server, "OpenTelemetry over gRPC", (GRPC, grpc));
}

#[test]
fn k6_sends_remote_write() {
    let server = Server::new();
    let address = (HTTP, server.address.to_string());
    let Some(summary) = k6(&server, "Remote write", address) else { return };
    counters(&server, &summary);
    for name in ["data_sent", "data_received"] {
        same(&server, &format!("sum(k6_{name}_total)"), number(&summary, name, "count"));
    }
    same(&server, "sum(k6_checks_rate)", number(&summary, "checks", "value"));
    for (series, key) in
        [("max(k6_http_req_duration_max)", "max"), ("max(k6_http_req_duration_p95)", "p(95)")]
    {
        same(&server, series, number(&summary, "http_req_duration", key) / 1000.0);
    }
}
