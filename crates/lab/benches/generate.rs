//! Benchmark of generating requests, without sending them.
//!
//! `cargo bench -p lab` prints a line for each case; `cargo test` runs the same bodies on a small fleet.

#[path = "generate/cases.rs"]
mod cases;

fn main() {
    // `cargo test` runs benchmarks too, to see that they still work
    let size = if std::env::args().any(|a| a == "--bench") { cases::Size::LARGE } else { cases::Size::SMALL };
    for line in cases::run_all(size) {
        println!("{line}");
    }
}
