//! PromQL semantics as text: scripts in the language of Prometheus' `promqltest` (documented in
//! `promql/promqltest/README.md` there), run against a source in memory.
//!
//! `testdata/*.test` are ours. Where `FLOODMARK_PROMQL_TESTDATA` names a directory, the scripts in it are
//! run too; it is meant for Prometheus' own ones. `--nocapture` shows the counts and each failing case.

mod notation;
mod report;
mod runner;
mod script;
#[path = "../../benches/promql/workload.rs"]
mod workload;

use report::Report;
use runner::Names;
use std::path::Path;

/// Prometheus' scripts about syntax behind its feature flags, which does not exist here: expressions of
/// durations, `smoothed` and `anchored`, `info()`, start timestamps.
const EXPERIMENTAL: [&str; 4] =
    ["duration_expression.test", "extended_vectors.test", "info.test", "start_timestamps.test"];

fn run_directory(directory: &Path, names: Names) -> Vec<Report> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("read {}: {e}", directory.display()))
        .map(|entry| entry.expect("read a directory entry").path())
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

#[test]
fn scripts_of_prometheus_pass() {
    let Some(directory) = std::env::var_os("FLOODMARK_PROMQL_TESTDATA") else {
        stdx::skipped::for_want_of("Prometheus' scripts (FLOODMARK_PROMQL_TESTDATA names their directory)");
        return;
    };
    let reports = run_directory(Path::new(&directory), Names::Late);
    for report in &reports {
        println!("{report}");
    }
    let known = |report: &&Report| EXPERIMENTAL.contains(&report.name.as_str());
    let count = |reports: &[&Report]| -> (usize, usize) {
        (reports.iter().map(|r| r.passed).sum(), reports.iter().map(|r| r.failed.len()).sum())
    };
    let (experimental, stable): (Vec<&Report>, Vec<&Report>) = reports.iter().partition(known);
    println!("stable: {:?} passed and failed; experimental: {:?}", count(&stable), count(&experimental));
    assert_eq!(count(&stable).1, 0);
}

/// The benchmark, small, so that it never rots.
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
