//! Evaluation over a source in memory: `cargo bench -p query --bench promql [-- <part of a name>]`.
//!
//! For each query the best of several runs, and beside it what the source alone takes for the same
//! selection (matching and copying samples): the difference is the evaluator's.

mod workload;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let workload = workload::Workload::new(workload::FULL);
    println!("{} series x {} samples", workload.series(), workload::FULL.samples);
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
