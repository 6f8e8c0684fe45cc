//! The reference names everything that is there, and nothing else.

use crate::harness::wire::{self, Series};
use crate::harness::{Request, Server, now_ms};
use std::collections::BTreeSet;

const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
const HTTP: &str = include_str!("../../../../docs/reference/http.md");

/// Where metrics are spoken of.
const DOCUMENTS: [&str; 7] = [
    METRICS,
    HTTP,
    include_str!("../../../../README.md"),
    include_str!("../../../../ARCHITECTURE.md"),
    include_str!("../../../../docs/operating.md"),
    include_str!("../../../../docs/reference/configuration.md"),
    include_str!("../../../../docs/benchmarks.md"),
];

/// What stands in backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The words that are a metric's name, or look like one.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("floodmark_") || word.starts_with("process_"))
}

#[test]
fn metrics() {
    let server = Server::new();
    let series = Series::new(&[("__name__", "up")]).sample(now_ms(), 1.0);
    server.send(&Request::write(&wire::v1(&[series]))).expect(204, &[]);
    let text = server.send(&Request::get("/metrics")).expect(200, &[]).text();

    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeSet<_> = types.collect();
    let rows: Vec<_> =
        METRICS.lines().filter(|line| names(line).next().is_some() && line.starts_with("| `")).collect();
    let mut named = BTreeSet::new();
    for row in &rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        named.extend(names(cells[0]).map(|name| (name, cells[1])));
    }
    assert_eq!(named, found, "on the left what docs/reference/metrics.md says");

    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
        let row = rows.iter().find(|row| names(row).any(|name| name == family)).expect(family);
        let labels = rest.split_once('}').expect("labels end").0.split(',');
        for (label, value) in labels.map(|label| label.split_once('=').expect("name and value")) {
            let is_named = row.contains(label) && row.contains(&format!("`{}`", value.trim_matches('"')));
            let is_open = ["le", "version", "revision", "target", "profile"].contains(&label);
            assert!(
                is_named || (is_open && (label == "le" || row.contains(label))),
                "{name}: {label}={value} is not in {row}"
            );
        }
    }

    let families: BTreeSet<_> = found.iter().map(|(name, _)| *name).collect();
    for name in DOCUMENTS.iter().flat_map(|text| names(text)).filter(|name| !name.ends_with('_')) {
        let is_there = ["", "_bucket", "_count", "_sum"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix).is_some_and(|family| families.contains(family)));
        assert!(is_there, "a document speaks of {name}");
    }
}

#[test]
fn paths() {
    let server = Server::new();
    let begins = ["/api/", "/prometheus/", "/-/", "/metrics", "/health", "/ready"];
    let paths = spans(HTTP).map(|span| span.trim_start_matches("GET ").trim_start_matches("POST "));
    let paths: BTreeSet<_> =
        paths.filter(|path| begins.iter().any(|begin| path.starts_with(begin))).collect();
    for path in paths.iter().filter(|path| !path.ends_with("/v1")) {
        let reply = server.send(&Request::get(path.replace("<name>", "job")));
        assert!(![404, 500].contains(&reply.status), "{path}: {}", reply.status);
    }
    let source = include_str!("../../../server/src/http.rs");
    let routes = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().expect("a path"));
    for route in routes {
        let path = route.replace("{name}", "<name>");
        assert!(paths.contains(path.as_str()), "docs/reference/http.md does not name {path}");
    }
}
