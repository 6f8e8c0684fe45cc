//! Which samples there are, as pure functions, and the bytes that carry them.
//!
//! - [`plan`], [`fleet`], [`values`]: series, times and values by number
//! - [`template`], [`snappy`]: request bodies that are made once and then changed in place

pub mod fleet;
pub mod plan;
pub mod snappy;
pub mod template;
pub mod values;
