//! Integration tests of the crate.

mod deletes;
mod faults;
mod files;
mod fleet;
mod foreign;
mod kinds;
mod leases;
mod mend;
mod model;
mod narrow;
mod other;
mod rollup;
mod stop;
mod table;
mod upkeep;
