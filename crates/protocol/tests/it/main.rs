//! Remote write against foreign code: messages made and read by prost, bodies packed by the snap crate.

mod bad_input;
#[path = "../../benches/decode.rs"]
mod bench_decode;
mod fuzz;
mod memory;
mod oracle;
mod proto;
mod round_trip;

use protocol::remote_write::Version;
use protocol::{Body, Request};

/// Memory that never ends.
fn plenty() -> stdx::budget::Reservation {
    stdx::budget::Account::new("test", u64::MAX).reserve(0).expect("an empty account")
}

/// A request of remote write that is compressed with snappy.
fn request(version: Version, body: &[u8]) -> Request<'_, Version> {
    Request { format: version, body: Body::snappy(body) }
}

#[test]
fn benchmarks_run() {
    bench_decode::run(&bench_decode::PARTS, 1, 1);
}
