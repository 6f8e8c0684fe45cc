//! Tests decoders against independent code: the crates prost and snap.

mod bad_input;
#[path = "../../benches/decode.rs"]
mod bench_decode;
mod fuzz;
mod memory;
mod oracle;
mod otlp;
mod proto;
mod records;
mod round_trip;

use protocol::remote_write::Version;
use protocol::{Body, Request};

fn plenty() -> stdx::budget::Reservation {
    stdx::budget::Account::new("test", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes")
}

fn request(version: Version, body: &[u8]) -> Request<'_, Version> {
    Request { format: version, body: Body::snappy(body) }
}

#[test]
fn benchmarks_run() {
    bench_decode::run(&bench_decode::PARTS, 1, 1);
}
