//! Micro-benchmarks of the head: `cargo bench -p head [-- ARGUMENTS]`.
//!
//! ```text
//!   (none)                 every case: best of several runs
//!   PART                   only cases whose name contains PART
//!   --json                 a line of JSON for each result instead of a table
//!   --once                 one run of each case
//!   --instructions         instructions of each case, counted by valgrind's callgrind (slow)
//!   --formats              compare the chunk format with bit-packed XOR chunks (the table of ADR 0004)
//!   --memory [SERIES]      memory per series, as counted by the head, the allocator and the kernel
//!   --tenants [TENANTS]    memory per tenant with one series, as counted by the head and the allocator
//!   --leaving [SERIES]     duration of freezing, sorting, releasing and evicting, stage by stage
//! ```
//!
//! To count by hand: `valgrind --tool=callgrind --toggle-collect='*cases::measured*' BENCHMARK --once NAME`.
//! `cargo bench -p head --no-run` prints the path of BENCHMARK.

#[allow(dead_code, reason = "the tests use the rest")]
mod cases;

use cases::{Case, Size, build_fleet, build_tenants, compare_formats, freeze_and_evict};
use std::process::Command;
use std::time::{Duration, Instant};

/// The allocator of the `floodmark` binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let word = args.iter().find(|a| !a.starts_with("--")).cloned().unwrap_or_default();
    let json = has("--json");
    if has("--formats") {
        formats(json);
    } else if has("--memory") {
        memory(word.parse().unwrap_or(1_000_000));
    } else if has("--tenants") {
        tenants(word.parse().unwrap_or(10_000));
    } else if has("--leaving") {
        run_freeze_and_evict(word.parse().unwrap_or(1_000_000));
    } else {
        // an exact name selects only its case
        let exact = Case::all().any(|c| c.name == word);
        let cases = Case::all().filter(|c| if exact { c.name == word } else { c.name.contains(&word) });
        match (has("--instructions"), has("--once")) {
            (true, _) => cases.for_each(|case| instructions(case, json)),
            (_, true) => cases.for_each(once),
            _ => times(cases, json),
        }
    }
}

fn times<'a>(cases: impl Iterator<Item = &'a Case>, json: bool) {
    if !json {
        println!("{:40} {:>10} {:>12}  per", "case", "ns", "bytes");
    }
    for case in cases {
        let mut prepared = case.prepare(Size::FULL);
        let units = prepared.units as f64;
        let (mut best, mut runs, began) = (f64::MAX, 0, Instant::now());
        while runs < 5 || (began.elapsed() < Duration::from_millis(1500) && runs < 100) {
            let run = Instant::now();
            std::hint::black_box(prepared.run());
            best = best.min(run.elapsed().as_nanos() as f64 / units);
            runs += 1;
        }
        let bytes = prepared.bytes.map(|b| b as f64 / units);
        if json {
            let bytes = bytes.map_or("null".into(), |b| format!("{b:.3}"));
            println!(r#"{{"case":"{}","unit":"{}","ns":{best:.3},"bytes":{bytes}}}"#, case.name, case.unit);
        } else {
            let bytes = bytes.map_or(String::new(), |b| format!("{b:.2}"));
            println!("{:40} {best:>10.2} {bytes:>12}  {}", case.name, case.unit);
        }
    }
}

fn once(case: &Case) {
    let mut prepared = case.prepare(Size::FULL);
    let checksum = prepared.run();
    println!("{} {} {checksum:x}", case.name, prepared.units);
}

/// Runs this program under callgrind, for one case.
fn instructions(case: &Case, json: bool) {
    let exe = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*cases::measured*")
        .arg(exe)
        .args(["--once", case.name])
        .output()
        .expect("valgrind is installed");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last_number = |text: &str, of: &str| {
        let line = text.lines().find(|l| l.contains(of))?;
        line.split_whitespace().rev().find_map(|w| w.parse::<f64>().ok())
    };
    let units = stdout.split_whitespace().rev().nth(1).and_then(|w| w.parse::<f64>().ok());
    let (Some(counted), Some(units)) = (last_number(&stderr, "Collected"), units) else {
        eprintln!("{}: no instruction count in valgrind's output:\n{stderr}", case.name);
        return;
    };
    let each = counted / units;
    if json {
        println!(r#"{{"case":"{}","unit":"{}","instructions":{each:.2}}}"#, case.name, case.unit);
    } else {
        println!("{:40} {each:>12.2} instructions per {}", case.name, case.unit);
    }
}

fn formats(json: bool) {
    let rows = compare_formats(1000, 1000, 15);
    if !json {
        println!("{:24} {:10} {:>8} {:>10} {:>8}", "data", "format", "bytes", "append ns", "scan ns");
    }
    for r in rows {
        if json {
            println!(
                r#"{{"data":"{}","format":"{}","bytes_per_sample":{:.3},"append_ns":{:.2},"scan_ns":{:.2}}}"#,
                r.data, r.format, r.bytes_per_sample, r.append_ns, r.scan_ns
            );
        } else {
            println!(
                "{:24} {:10} {:>8.3} {:>10.2} {:>8.2}",
                r.data, r.format, r.bytes_per_sample, r.append_ns, r.scan_ns
            );
        }
    }
}

fn memory(series: usize) {
    // a first small fleet takes the memory that does not depend on the number of series
    drop(build_fleet(10, 1));
    let (resident_before, allocated_before) = (resident_bytes(), allocated_bytes());
    let report = build_fleet(series, 4);
    let each = |bytes: usize| bytes as f64 / report.series as f64;
    println!("{series} series of 10 labels, 4 samples each; bytes per series");
    report.parts.iter().for_each(|(part, bytes)| println!("  {part:24} {:>8.1}", each(*bytes)));
    let said = report.parts.iter().map(|(_, bytes)| bytes).sum();
    println!("  {:24} {:>8.1}", "counted by the head", each(said));
    println!("  {:24} {:>8.1}", "allocated (jemalloc)", each(allocated_bytes() - allocated_before));
    println!("  {:24} {:>8.1}", "resident (kernel)", each(resident_bytes().saturating_sub(resident_before)));
}

fn tenants(count: usize) {
    drop(build_tenants(10));
    let allocated_before = allocated_bytes();
    let partition = build_tenants(count);
    let each = |bytes: usize| bytes as f64 / count as f64;
    println!("{count} tenants of one series; bytes per tenant");
    println!("  {:24} {:>8.1}", "counted by the head", each(partition.memory_bytes()));
    println!("  {:24} {:>8.1}", "allocated (jemalloc)", each(allocated_bytes() - allocated_before));
}

fn run_freeze_and_evict(series: usize) {
    println!("{:32} {:>12} {:>16} {:>14}", "stage", "ns a series", "p99 turn us", "bytes a series");
    for row in freeze_and_evict(series, 20) {
        println!("{:32} {:>12.1} {:>16.0} {:>14.1}", row.stage, row.ns, row.turn_us_p99, row.bytes);
    }
}

/// Resident memory of the process; 0 without procfs.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).map_or(0, |pages| pages * 4096)
}

fn allocated_bytes() -> usize {
    use tikv_jemalloc_ctl::{epoch, stats};
    epoch::advance().and_then(|_| stats::allocated::read()).unwrap_or(0)
}
