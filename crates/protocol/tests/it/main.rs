//! Remote write against foreign code: messages made and read by prost, bodies packed by the snap crate.

mod bad_input;
#[path = "../../benches/decode.rs"]
mod bench_decode;
mod fuzz;
mod oracle;
mod proto;
mod round_trip;

#[test]
fn benchmarks_run() {
    bench_decode::run(&bench_decode::PARTS, 1, 1);
}
