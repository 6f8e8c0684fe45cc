//! Benchmark of generating requests, without sending them.

#[path = "generate/cases.rs"]
mod cases;

fn main() {
    let size = if std::env::args().any(|a| a == "--bench") { cases::Size::LARGE } else { cases::Size::SMALL };
    for line in cases::run_all(size) {
        println!("{line}");
    }
}
