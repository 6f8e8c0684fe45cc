//! Generated samples as pure functions, and request bodies that carry them.
//!
//! - [`plan`], [`fleet`], [`naming`], [`values`]: series, times and values by number
//! - [`template`], [`snappy`]: request bodies that are built once and then updated in place
//! - `points`: bodies in OpenTelemetry's protocol; `lines`: in Graphite's protocols and in lines over HTTP; [`protocol`]: names
//!   of all protocols

pub mod fleet;
mod lines;
pub mod naming;
pub mod plan;
pub(crate) mod points;
pub mod protocol;
pub mod snappy;
pub mod template;
pub mod values;
