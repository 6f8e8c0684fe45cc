//! Imports blocks that a real Prometheus wrote, and compares Floodmark's answers with those of that
//! Prometheus.

use super::same_data;
use super::servers::Prometheus;
use crate::harness::read::{data, seconds};
use crate::harness::{Options, Request, Server};
use crate::transfer::{Content, import, stored};
use model::Labels;
use protocol::exposition::{self, Dialect};
use serde_json::Value;
use std::path::Path;

/// Noon on 2026-11-20, in UTC.
const NOON_MS: i64 = 1_795_176_000_000;

/// Imports ten minutes of data that are either within a two-hour block, or in two blocks, or on both sides of
/// midnight.
#[test]
fn imported_blocks_have_what_their_prometheus_answers() {
    for after_noon_min in [90, 125, 12 * 60 + 4] {
        let Some(prometheus) = Prometheus::find() else { return };
        let end_ms = NOON_MS + after_noon_min * 60_000;
        let Some(blocks) = prometheus.make_blocks(&openmetrics(end_ms)) else {
            stdx::skipped::for_want_of("promtool 3 (scripts/test-servers.sh)");
            return;
        };
        compare(prometheus, &blocks, end_ms);
    }
}

fn compare(prometheus: Prometheus, blocks: &Path, end_ms: i64) {
    let prometheus = prometheus.start_quiet();
    // delete samples; they remain in the chunks of the block
    let (from, to) = (seconds(end_ms - 300_000), seconds(end_ms - 100_000));
    let gone = [
        ("match[]", "by_code{code=\"404\"}"),
        ("match[]", "odd"),
        ("start", from.as_str()),
        ("end", to.as_str()),
    ];
    prometheus.send(&Request::form("/api/v1/admin/tsdb/delete_series", &gone)).expect(204, &[]);
    let dir = tempfile::tempdir().unwrap();
    let report = import("tsdb", blocks, dir.path());
    let skipped = |source: &Value| source["skipped"]["deleted samples"].as_u64().unwrap_or(0);
    let deleted: u64 = report["sources"].as_array().unwrap().iter().map(skipped).sum();
    assert!(deleted > 50, "{report:#}");
    let request = Request::form(
        "/api/v1/query",
        &[("query", "{__name__=~\".+\"}[1h]"), ("time", &seconds(end_ms + 1000))],
    );
    let theirs = content(&data(&prometheus.send(&request)));
    let ours = stored(dir.path());
    assert!(!theirs.is_empty());
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (series, samples) in &theirs {
        assert_eq!(&ours[series], samples, "{series}");
    }
    let samples: usize = theirs.values().map(|samples| samples.len()).sum();
    assert_eq!(report["samples"], samples);
    assert_eq!(import("tsdb", blocks, dir.path())["samples"], 0);

    let server = Server::start(Options::default().data_dir(dir.path()));
    let (asked, wrong) = same_data::ask(&server, &prometheus, end_ms);
    assert!(wrong.is_empty(), "{} of {asked} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the test data as OpenMetrics text, without the samples that text cannot express.
fn openmetrics(end_ms: i64) -> Vec<u8> {
    let mut all = Vec::new();
    for series in same_data::everything(end_ms) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let pairs: Vec<_> = series.labels.iter().map(|(n, v)| (text(n), text(v))).collect();
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        all.push((Labels::from_pairs(&pairs), series.samples));
    }
    all.sort_by(|a, b| a.0.get("__name__").cmp(&b.0.get("__name__")));
    let mut out = Vec::new();
    for (labels, samples) in all {
        let (times, values): (Vec<i64>, Vec<f64>) = samples.into_iter().unzip();
        exposition::put_samples(&mut out, Dialect::OpenMetrics, labels.as_ref(), &times, &values);
    }
    out.extend_from_slice(exposition::end(Dialect::OpenMetrics));
    out
}

fn content(data: &Value) -> Content {
    let mut content = Content::new();
    for series in data["result"].as_array().unwrap() {
        let metric = series["metric"].as_object().unwrap();
        let pairs: Vec<_> = metric.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())).collect();
        let samples = series["values"].as_array().unwrap().iter().map(crate::harness::read::sample);
        let samples = samples.map(|(t, v)| (t, if v.is_nan() { 0x7ff8_0000_0000_0001 } else { v.to_bits() }));
        content.insert(Labels::from_pairs(&pairs).to_string(), samples.collect());
    }
    content
}
