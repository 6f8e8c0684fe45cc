//! The lab against a target that lies on request.

mod benches;
mod faults;
mod load;
mod scenario;
mod target;
mod tls;
