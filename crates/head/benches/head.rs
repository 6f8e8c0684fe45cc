//! Micro-benchmarks of the head; see `head::bench`.

fn main() {}
