//! Tests of the lab against a target that misbehaves on request.

mod benches;
mod campaign;
mod faults;
mod graphite;
mod load;
#[path = "../../../protocol/tests/it/proto.rs"]
#[allow(dead_code, reason = "the protocol's own tests use all of it")]
mod proto;
mod reference;
mod scenario;
mod target;
mod tls;
