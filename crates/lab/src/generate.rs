//! Generated samples as pure functions, and request bodies that carry them.
//!
//! - [`plan`], [`fleet`], [`naming`], [`values`]: series, times and values by number
//! - [`template`], [`snappy`]: request bodies that are built once and then updated in place
//! - `driver`: how each protocol is sent; [`protocol`]: the protocols by name

pub(crate) mod driver;
pub mod fleet;
pub mod naming;
pub mod plan;
pub mod protocol;
pub mod snappy;
pub mod template;
pub mod values;
