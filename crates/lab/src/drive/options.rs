use super::stop::Stop;
use crate::http::Access;
use std::path::PathBuf;

/// Settings of a run that are not part of its scenario, and can differ from machine to machine.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub text: String,
    /// Changes that `--set` makes to the scenario, such as `load.tenants=20`.
    pub overrides: Vec<String>,
    /// Folder in which the files that are mentioned in the scenario are looked up.
    pub folder: PathBuf,
    pub access: Access,
    /// Which part of the load this machine generates, counted from 1, and how many parts there are. `(2, 3)` is the
    /// second of three parts.
    pub part: (u32, u32),
    pub stop: Stop,
    /// True if the ledger is needed, although the scenario reads nothing back. A target of statsd is then asked during the
    /// load what it has stored.
    pub keeps_ledger: bool,
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
            keeps_ledger: false,
        }
    }
}
