//! Views of a result, of a comparison and of a run's progress.

pub mod compare;
pub mod html;
pub mod junit;
pub(crate) mod live;
pub mod markdown;
pub mod progress;
pub mod summary;
pub mod text;
