//! Single values, as people write them.

use model::TenantId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stdx::units;

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what it should be; the text names the line.
    #[error("{}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: Box<toml::de::Error>,
    },
    /// One value is out of bounds.
    #[error("{name} = {value}: {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        reason: String,
    },
}

pub(super) fn wrong(name: &'static str, value: &str, reason: impl Into<String>) -> SettingsError {
    SettingsError::Value { name, value: value.into(), reason: reason.into() }
}

/// A size in bytes.
pub(super) fn size(name: &'static str, text: &str) -> Result<u64, SettingsError> {
    units::bytes(text).ok_or_else(|| wrong(name, text, "a size such as 512MiB or 2GiB"))
}

/// A duration in milliseconds, above 0.
pub(super) fn duration(name: &'static str, text: &str) -> Result<i64, SettingsError> {
    let ms = units::duration_ms(text).filter(|ms| (1..i64::MAX).contains(ms));
    ms.ok_or_else(|| wrong(name, text, "a duration such as 30s, 5m or 1h30m"))
}

/// The same, where one is given.
pub(super) fn duration_or(
    name: &'static str,
    given: Option<&String>,
    default_ms: i64,
) -> Result<i64, SettingsError> {
    given.map_or(Ok(default_ms), |text| duration(name, text))
}

/// A number from 1 to `max`, where one is given.
pub(super) fn count_or(
    name: &'static str,
    given: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, SettingsError> {
    match given {
        Some(n) if n == 0 || n > max => Err(wrong(name, &n.to_string(), format!("1 to {max}"))),
        n => Ok(n.unwrap_or(default)),
    }
}

/// What is given for single tenants.
pub(super) fn of_tenants<T, V>(
    name: &'static str,
    given: &BTreeMap<String, T>,
    parse: impl Fn(&'static str, &T) -> Result<V, SettingsError>,
) -> Result<BTreeMap<TenantId, V>, SettingsError> {
    let tenant = |text: &str| TenantId::parse(text).map_err(|e| wrong(name, text, e.to_string()));
    given.iter().map(|(text, value)| Ok((tenant(text)?, parse(name, value)?))).collect()
}
