//! General utilities, independent of metrics.
//!
//! - [`address`]: addresses to listen on
//! - [`authority`]: certificates for tests
//! - [`calendar`]: days and dates
//! - [`clock`]: sources of the current time, real or virtual
//! - [`damage`]: damaged bytes for tests
//! - [`excerpt`]: excerpts of what somebody sent
//! - [`rng`]: a seeded random number generator
//! - [`skipped`]: reports of skipped tests, and scores
//! - [`budget`]: memory accounting
//! - [`units`]: durations and sizes as people write them
//! - [`varint`]: variable-length integers
//! - [`telemetry`]: counters, gauges and histograms

pub mod address;
pub mod authority;
pub mod budget;
pub mod calendar;
pub mod clock;
pub mod damage;
pub mod excerpt;
pub mod rng;
pub mod skipped;
pub mod telemetry;
pub mod units;
pub mod varint;
