//! Evaluation over a source in memory: `cargo bench -p query --bench promql [-- <part of a name>]`. Prints
//! the time of the fastest run of each query, and the time in which the source alone returns the same
//! samples.

mod workload;

use workload::Size;

/// `metric_1.*` selects 111 metrics: 11,100 series.
const FULL: Size = Size { metrics: 200, series: 100, samples: 500, steps: 121 };

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let workload = workload::Workload::new(FULL);
    println!("{} series x {} samples", workload.series(), FULL.samples);
    println!("{:<16} {:>12} {:>12}  {:>7}", "query", "total us", "source us", "rows");
    for case in workload::CASES.iter().filter(|case| case.name.contains(&filter)) {
        let measured = workload.measure(case, 15);
        println!(
            "{:<16} {:>12.1} {:>12.1}  {:>7}",
            case.name,
            measured.total.as_secs_f64() * 1e6,
            measured.source.as_secs_f64() * 1e6,
            measured.rows
        );
    }
}
