//! Real traffic, captured in a file and replayed.
//!
//! - [`recorder`]: a proxy that passes traffic on and keeps a copy
//! - [`file`]: the format
//! - [`replay`]: sends it again, faster or more of it

pub mod file;
pub mod recorder;
pub mod replay;
