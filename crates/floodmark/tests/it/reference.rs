//! Checks that the reference pages name exactly those metrics, paths and refusals that exist, and that links
//! are valid.

use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
const HTTP: &str = include_str!("../../../../docs/reference/http.md");
const REFUSALS: &str = include_str!("../../../../docs/reference/refusals.md");

const DOCUMENTS: [&str; 11] = [
    METRICS,
    HTTP,
    REFUSALS,
    include_str!("../../../../docs/upgrading.md"),
    include_str!("../../../../README.md"),
    include_str!("../../../../ARCHITECTURE.md"),
    include_str!("../../../../docs/operating.md"),
    include_str!("../../../../docs/reference/configuration.md"),
    include_str!("../../../../docs/benchmarks.md"),
    include_str!("../../../../deploy/grafana/floodmark.json"),
    include_str!("../../../../deploy/prometheus/floodmark-rules.yml"),
];

fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("floodmark_") || word.starts_with("process_"))
}

fn reasons<'a>(metrics: &'a str, counter: &str) -> Vec<&'a str> {
    let prefix = format!("{counter}{{reason=\"");
    let counters = metrics.lines().filter_map(|line| line.strip_prefix(&prefix));
    counters.filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
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
    assert_eq!(named, found, "on the left the metrics in docs/reference/metrics.md");

    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
        let row = rows.iter().find(|row| names(row).any(|name| name == family)).expect(family);
        let labels = rest.split_once('}').expect("labels end").0.split(',');
        for (label, value) in labels.map(|label| label.split_once('=').expect("name and value")) {
            let is_named = row.contains(label) && row.contains(&format!("`{}`", value.trim_matches('"')));
            let is_open = ["le", "tenant", "version", "revision", "target", "profile"].contains(&label);
            assert!(
                is_named || (is_open && (label == "le" || row.contains(label))),
                "{name}: {label}={value} is not in {row}"
            );
        }
    }

    let families: BTreeSet<_> = found.iter().map(|(name, _)| *name).collect();
    let reasons = reasons(&text, "floodmark_refusals_total");
    for name in DOCUMENTS.iter().flat_map(|text| names(text)).filter(|name| !name.ends_with('_')) {
        let is_there = ["", "_bucket", "_count", "_sum"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix).is_some_and(|family| families.contains(family)));
        assert!(is_there || reasons.contains(&name), "a document mentions {name}, which does not exist");
    }
}

#[test]
fn paths() {
    let server = Server::start(Options::default().config("sql = true"));
    let begins = ["/api/", "/prometheus/", "/loki/", "/compactor/", "/distributor/", "/purger/", "/-/"];
    let begins = [&begins[..], &["/metrics", "/health", "/ready", "/config", "/runtime_config"]].concat();
    let paths = spans(HTTP).map(|span| span.trim_start_matches("GET ").trim_start_matches("POST "));
    let paths: BTreeSet<_> =
        paths.filter(|path| *path == "/" || begins.iter().any(|begin| path.starts_with(begin))).collect();
    let is_built = |path: &str| cfg!(feature = "sql") || path != "/api/v1/sql";
    for path in paths.iter().filter(|path| !path.ends_with("/v1") && is_built(path)) {
        let reply = server.send(&Request::get(path.replace("<name>", "job").replace("<id>", "0")));
        assert!(![404, 500].contains(&reply.status), "{path}: {}", reply.status);
    }
    for path in routes() {
        assert!(paths.contains(path.as_str()), "docs/reference/http.md does not name {path}");
    }
}

/// Returns the paths of all routes, in the form in which pages show them, such as
/// `/api/v1/label/<name>/values`.
pub(crate) fn routes() -> BTreeSet<String> {
    let source = root().join("crates/server/src");
    let modules = std::fs::read_dir(source.join("http")).expect("a folder");
    let modules = modules.map(|entry| entry.expect("an entry").path());
    let modules = modules.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut routes = BTreeSet::new();
    for module in modules.chain([source.join("http.rs")]) {
        let text = std::fs::read_to_string(module).expect("a module");
        // the paths of Graphite's API are in a table, and in a section of their own
        let routes_in = text.split(".route(").skip(1);
        let paths = routes_in.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        routes.extend(paths.map(|path| path.replace('{', "<").replace('}', ">")));
    }
    assert!(routes.contains("/-/ready") && routes.contains("/api/v1/query"), "{routes:?}");
    routes
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn pages() -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    let mut folders = vec![PathBuf::new(), "docs".into(), "bench".into()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() && path.starts_with("docs") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path);
            }
        }
    }
    pages
}

fn text_of(page: &Path) -> String {
    std::fs::read_to_string(root().join(page)).expect("a page")
}

/// Returns the lines of a page that are not in fenced code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn links(page: &Path) -> Vec<(PathBuf, Option<String>)> {
    let text = text_of(page);
    let targets = prose(&text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let targets = targets.filter(|target| !target.contains("://"));
    let resolved = targets.map(|target| {
        let (path, anchor) = target.split_once('#').map_or((target, None), |(path, to)| (path, Some(to)));
        let mut at = page.to_path_buf();
        if !path.is_empty() {
            at.pop();
        }
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match part {
                ".." => assert!(at.pop(), "{}: {target} leaves the repository", page.display()),
                part => at.push(part),
            }
        }
        (at, anchor.map(str::to_owned))
    });
    resolved.collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
}

pub(crate) fn anchors(page: &Path) -> impl Iterator<Item = String> {
    let text = text_of(page);
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect::<Vec<_>>().into_iter()
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    for page in pages() {
        for (target, wanted) in links(&page) {
            let place = format!("{}: {}", page.display(), target.display());
            assert!(root().join(&target).exists(), "{place} does not exist");
            let Some(wanted) = wanted else { continue };
            assert!(anchors(&target).any(|found| found == wanted), "{place} has no heading #{wanted}");
        }
    }
}

#[test]
fn every_page_is_in_the_index() {
    let listed =
        |index: &str| links(Path::new(index)).into_iter().map(|(page, _)| page).collect::<BTreeSet<_>>();
    let (index, decisions) = (listed("docs/README.md"), listed("docs/adr/README.md"));
    let is_decision = |page: &Path| page.starts_with("docs/adr") && !page.ends_with("README.md");
    for page in pages().iter().filter(|page| page.starts_with("docs") && *page != Path::new("docs/README.md"))
    {
        let (name, index) = match is_decision(page) {
            true => ("docs/adr/README.md", &decisions),
            false => ("docs/README.md", &index),
        };
        assert!(index.contains(page), "{name} does not link {}", page.display());
    }
    assert!(links(Path::new("README.md")).iter().any(|(page, _)| page == Path::new("docs/README.md")));
}

#[test]
fn refusals() {
    let server = Server::new();
    let text = server.send(&Request::get("/metrics")).expect(200, &[]).text();
    let (before, rest) = REFUSALS.split_once("\n## Graphite\n").expect("a section on Graphite");
    let (graphite, after) = rest.split_once("\n## ").expect("a section after it");
    let named = |text: &[&'static str]| {
        let lines = text.iter().flat_map(|text| text.lines());
        let rows = lines.filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        rows.map(|(id, _)| id).collect::<BTreeSet<_>>()
    };
    let counted = |counter| reasons(&text, counter).into_iter().collect::<BTreeSet<_>>();
    let expected = counted("floodmark_refusals_total");
    assert_eq!(named(&[before, after]), expected, "on the left the refusals in docs/reference/refusals.md");
    let expected = counted("floodmark_graphite_dropped_points_total");
    assert_eq!(named(&[graphite]), expected, "on the left the section on Graphite");
}
