//! Generated samples as pure functions, and request bodies that carry them.
//!
//! - [`plan`], [`fleet`], [`values`]: series, times and values by number
//! - [`template`], [`snappy`]: request bodies that are built once and then updated in place

pub mod fleet;
pub mod plan;
pub mod snappy;
pub mod template;
pub mod values;
