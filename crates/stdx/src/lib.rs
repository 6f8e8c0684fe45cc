//! Missing batteries. Nothing here knows what a metric is.
//!
//! - [`address`]: addresses to listen on, as people write them
//! - [`calendar`]: days and dates
//! - [`clock`]: where "now" comes from, real or virtual
//! - [`damage`]: damaged bytes for tests
//! - [`rng`]: a seeded generator, so that every random run can be repeated
//! - [`skipped`]: scores of tests, and which could not run for want of what
//! - [`budget`]: memory that is bought before it is used
//! - [`units`]: durations and sizes as people write them
//! - [`varint`]: numbers of as many bytes as they need
//! - [`telemetry`]: counters, gauges and histograms in a registry that is passed in

pub mod address;
pub mod budget;
pub mod calendar;
pub mod clock;
pub mod damage;
pub mod rng;
pub mod skipped;
pub mod telemetry;
pub mod units;
pub mod varint;
