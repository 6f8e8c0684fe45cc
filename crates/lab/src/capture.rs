//! Real traffic, captured in a file and replayed.
//!
//! - [`recorder`]: a proxy that passes traffic on and keeps a copy
//! - [`file`]: the format
//! - [`replay`]: sends a recording again, faster or in several copies

pub mod file;
pub mod recorder;
pub mod replay;
