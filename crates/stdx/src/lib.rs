//! General utilities missing from the standard library. Nothing here depends on the domain of metrics.
//!
//! - [`address`]: addresses to listen on, as people write them
//! - [`authority`]: certificates for tests
//! - [`calendar`]: days and dates
//! - [`clock`]: sources of the current time, real or virtual
//! - [`damage`]: damaged bytes for tests
//! - [`rng`]: a seeded random number generator, so that every random run can be repeated
//! - [`skipped`]: scores of tests, and reports of skipped tests with the missing programs
//! - [`budget`]: memory accounting; bytes are reserved before they are allocated
//! - [`units`]: durations and sizes as people write them
//! - [`varint`]: variable-length integers
//! - [`telemetry`]: counters, gauges and histograms in a registry that is passed in

pub mod address;
pub mod authority;
pub mod budget;
pub mod calendar;
pub mod clock;
pub mod damage;
pub mod rng;
pub mod skipped;
pub mod telemetry;
pub mod units;
pub mod varint;
