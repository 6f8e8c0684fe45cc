//! The overrides file: settings of tenants that can change at run time.

use super::given::{Given, SettingsError};
use super::tenants::Tenants;
use crate::watched;
use std::path::PathBuf;

/// The overrides file, and the values that it overrides.
#[derive(Debug, Clone)]
pub struct OverridesFile {
    pub path: PathBuf,
    given: Given,
}

/// Limit on the size of the file, in bytes.
const BYTES_MAX: u64 = 16 << 20;

impl OverridesFile {
    pub(super) fn new(path: PathBuf, given: &Given) -> Self {
        Self { path, given: given.clone() }
    }

    /// Reads the file's text.
    pub fn text(&self) -> Result<String, SettingsError> {
        watched::read(&self.path, BYTES_MAX)
            .map_err(|source| SettingsError::Read { path: self.path.clone(), source })
    }

    /// All given values, with `text` as the content of the file.
    pub(super) fn with(&self, text: &str) -> Result<Given, SettingsError> {
        self.given.clone().overrides(&self.path, text)
    }

    /// Resolves the settings of all tenants, with `text` as the content of the file.
    pub fn tenants(&self, text: &str) -> Result<Tenants, SettingsError> {
        Tenants::resolve(&self.with(text)?)
    }
}
