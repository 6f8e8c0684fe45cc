//! Shows the progress of a run, its result, and comparisons of results.

pub mod compare;
pub mod html;
pub mod junit;
pub(crate) mod live;
pub mod markdown;
pub mod progress;
mod steps;
pub mod summary;
pub mod text;
