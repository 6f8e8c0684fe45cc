//! PromQL semantics as text: scripts in the language of Prometheus' `promql/promqltest`, over a source in
//! memory. `testdata` has our scripts. Prometheus' scripts are in `FLOODMARK_CACHE` (see
//! `scripts/test-servers.sh`) or `FLOODMARK_PROMQL_TESTDATA`. `make test` prints the score.

mod graphite;
mod notation;
mod report;
mod runner;
mod script;
#[path = "../../benches/promql/workload.rs"]
mod workload;

use report::Report;
use runner::Names;
use std::path::{Path, PathBuf};

/// Prometheus' scripts about features behind its feature flags: durations as expressions, `smoothed` and
/// `anchored`, `info()`, start timestamps.
const EXPERIMENTAL: [&str; 4] =
    ["duration_expression.test", "extended_vectors.test", "info.test", "start_timestamps.test"];

fn run_directory(directory: &Path, names: Names) -> Vec<Report> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("cannot read {}: {e}", directory.display()))
        .map(|entry| entry.expect("cannot read a directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "test"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", directory.display());
    paths.iter().map(|path| runner::run_file(path, names)).collect()
}

#[test]
fn our_scripts_pass() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let reports = run_directory(&directory, Names::Early);
    reports.iter().for_each(|report| println!("{report}"));
    for report in reports {
        assert!(report.failed.is_empty() && report.excluded == 0, "{report}");
    }
}

/// Directory of Prometheus' scripts, if available.
fn prometheus_scripts() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FLOODMARK_PROMQL_TESTDATA") {
        return Some(named.into());
    }
    let cache = std::env::var_os("FLOODMARK_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/floodmark")))?;
    let entries = std::fs::read_dir(cache).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("promqltest-") && !name.ends_with(".new")
    };
    entries.filter(is_copy).max()
}

#[test]
fn scripts_of_prometheus_pass() {
    let Some(directory) = prometheus_scripts() else {
        stdx::skipped::for_want_of("Prometheus' scripts (scripts/test-servers.sh)");
        return;
    };
    let reports = run_directory(&directory, Names::Late);
    for report in &reports {
        println!("{report}");
    }
    let (experimental, stable): (Vec<_>, Vec<_>) =
        reports.iter().partition(|report| EXPERIMENTAL.contains(&report.name.as_str()));
    let (experimental, stable) = (Score::of(&experimental), Score::of(&stable));
    let name = directory.file_name().unwrap_or_default().display();
    stdx::skipped::score(&format!(
        "PromQL, {name}: {stable} of stable syntax ({} about native histograms left out); \
         {experimental} behind feature flags",
        stable.excluded
    ));
    assert_eq!(stable.failed, 0);
    assert!(stable.passed > 500, "{} evaluations are too few to be all", stable.passed);
}

#[derive(Debug)]
struct Score {
    passed: usize,
    failed: usize,
    /// Number of evaluations that fail because they need unsupported features.
    excluded: usize,
}

impl Score {
    fn of(reports: &[&Report]) -> Self {
        Self {
            passed: reports.iter().map(|r| r.passed).sum(),
            failed: reports.iter().map(|r| r.failed.len()).sum(),
            excluded: reports.iter().map(|r| r.excluded).sum(),
        }
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} evaluations", self.passed, self.passed + self.failed)
    }
}

#[test]
fn benchmark_runs() {
    let size = workload::Size { metrics: 12, series: 10, samples: 60, steps: 5 };
    let workload = workload::Workload::new(size);
    assert_eq!(workload.series(), 120);
    for case in &workload::CASES {
        let measured = workload.measure(case, 1);
        let (total, source) = (measured.total, measured.source);
        println!("{}: {total:?}, source {source:?}, {} rows", case.name, measured.rows);
        assert!(measured.rows > 0, "{}", case.name);
    }
}
