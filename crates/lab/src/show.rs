//! Views of a result: text, a page, Markdown, JUnit XML, two beside each other; and progress while a run goes on.

pub mod compare;
pub mod html;
pub mod junit;
pub(crate) mod live;
pub mod markdown;
pub mod progress;
pub mod summary;
pub mod text;
