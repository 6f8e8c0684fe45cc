//! Tests of the crate from outside.

mod files;
mod fleet;
mod foreign;
mod table;
mod upkeep;
