//! Options of a run.

use super::stop::Stop;
use crate::http::Access;
use std::path::PathBuf;

/// Options of a run that are not part of its scenario.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub text: String,
    /// Settings changed on the command line.
    pub overrides: Vec<String>,
    /// Folder of the files that the scenario names.
    pub folder: PathBuf,
    pub access: Access,
    /// Number of the part that is generated here, from 1, and number of parts.
    pub part: (u32, u32),
    /// Ends the run early. The result is then marked as partial.
    pub stop: Stop,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            text: String::new(),
            overrides: Vec::new(),
            folder: PathBuf::from("."),
            access: Access::default(),
            part: (1, 1),
            stop: Stop::default(),
        }
    }
}
