//! Integration tests of the crate.

mod deletes;
mod faults;
mod files;
mod fleet;
mod foreign;
mod kinds;
mod leases;
mod model;
mod narrow;
mod other;
mod repair;
mod rollup;
mod stop;
mod table;
mod upkeep;
