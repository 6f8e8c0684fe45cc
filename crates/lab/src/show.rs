//! A result for people: text, a page, two beside each other, and progress while a run goes on.

pub mod compare;
pub mod page;
pub mod progress;
pub mod summary;
pub(crate) mod text;
