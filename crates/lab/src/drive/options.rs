//! What a run is told beside its scenario.

use super::stop::Stop;
use crate::http::Access;
use std::path::PathBuf;

/// Everything about a run that is no part of its scenario.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The scenario's text, to be kept in the result.
    pub text: String,
    /// What was changed on the command line.
    pub overrides: Vec<String>,
    /// Where the files lie that the scenario names.
    pub folder: PathBuf,
    /// What may be reached.
    pub access: Access,
    /// Which part of the fleet this machine is, from 1, and of how many.
    pub part: (u32, u32),
    /// Ends the run early, with a result that says so.
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
