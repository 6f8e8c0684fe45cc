//! Views of a result: text, HTML, Markdown, JUnit XML, comparison of two results; and progress of a run.

pub mod compare;
pub mod html;
pub mod junit;
pub(crate) mod live;
pub mod markdown;
pub mod progress;
pub mod summary;
pub mod text;
