//! Names of metrics as paths, such as `servers.web-1.cpu`, and globs over them.
//!
//! ```text
//!   pattern ─▶ parts, one for each level          names ─▶ batch ─▶ run ─▶ runs, merged now and then
//!                │                                                            │
//!                └───────────────▶ find: a skip scan ◀────────────────────────┘
//! ```
//!
//! A *node* is a name (a leaf), or what precedes a dot in a name (a branch). A [`Pattern`] selects nodes, as
//! graphite-web's globs do. [`Runs`] hold sorted names in little memory. [`find()`] walks over them: it seeks the first
//! name under a node, and then what follows the node's last name, so it never visits the names below a node that it does
//! not need.
//!
//! There are no threads, locks or clocks. Memory is reserved in an account of the caller.

mod batch;
mod cursor;
mod find;
mod glob;
mod key;
mod pattern;
mod run;
mod runs;
mod steps;

pub use batch::Batch;
pub use find::{Node, find, find_after};
pub use pattern::{Pattern, PatternError};
pub use run::{Full, Run};
pub use runs::{Merge, Runs};
pub use steps::{Steps, Stopped};
