use super::stop::Stop;
use crate::http::Access;
use std::path::PathBuf;

/// Settings of a run that are not part of its scenario, and can differ from machine to machine.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub text: String,
    /// Changes of the scenario by `--set`, such as `load.tenants=20`.
    pub overrides: Vec<String>,
    /// Files that the scenario names are looked up in this folder.
    pub folder: PathBuf,
    pub access: Access,
    /// Number of this machine's part of the load, from 1, and the number of parts.
    pub part: (u32, u32),
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
