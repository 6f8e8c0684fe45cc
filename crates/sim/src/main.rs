//! Simulates one seed after the other, and reports those that fail.

use clap::Parser;
use sim::fault::Fault;
use std::process::ExitCode;

/// Simulates nodes under seeded faults, and compares their contents with the expected ones
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Args {
    /// Run this seed alone, and show all its steps
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Number of seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed to run
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run with this fault instead of the default mix
    #[arg(long)]
    fault: Option<Fault>,
    /// Stop after this many failures
    #[arg(long, default_value_t = 10)]
    failures: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported as a failure, with its steps
    if let Some(seed) = args.seed {
        let run = sim::run(seed, args.fault);
        println!("{}", run.trace.text());
        println!("\nfingerprint {:016x}", run.trace.fingerprint());
        if let Some(failure) = &run.failure {
            println!("seed {seed} failed: {failure}");
        }
        return if run.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut failed = 0;
    for seed in args.from..args.from.saturating_add(args.seeds) {
        if let Some(report) = sim::run(seed, args.fault).report(seed, args.fault) {
            failed += 1;
            println!("{report}\n");
        }
        if failed >= args.failures {
            break;
        }
    }
    println!("failed seeds: {failed}");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
