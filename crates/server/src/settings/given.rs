//! Values of settings as given, before parsing, each with its origin.

use super::secret::{StoreOptions, without_secrets};
use super::setting::Setting;
use super::table::{SETTINGS, find};
use model::{TenantId, TenantPatterns};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// A default that is derived from the machine or from other settings, with an explanation.
    Derived(String),
    File {
        path: PathBuf,
        line: usize,
    },
    Environment(String),
    Flag(String),
}

impl Origin {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Derived(_) => "derived",
            Self::File { .. } => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }

    /// Tells where exactly the value comes from: the line, the variable or the flag, or how a default was
    /// derived.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::File { path, line } => Some(format!("{}:{line}", path.display())),
            Self::Derived(detail) | Self::Environment(detail) | Self::Flag(detail) => Some(detail.clone()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not valid TOML, or its content is invalid.
    #[error("{}:{line}: {reason}", path.display())]
    File { path: PathBuf, line: usize, reason: String },
    #[error("{}: {reason}", assignment(origin, key, value))]
    Value { origin: Origin, key: String, value: String, reason: String },
}

/// Writes a value as it was given, for example `--memory 1MiB`, `FLOODMARK_MEMORY=1MiB`, or
/// `floodmark.toml:3: memory = 1MiB`.
fn assignment(origin: &Origin, key: &str, value: &str) -> String {
    let value = if value.is_empty() { "\"\"" } else { value };
    match origin {
        Origin::Flag(flag) => format!("{flag} {value}"),
        Origin::Environment(variable) => format!("{variable}={value}"),
        Origin::File { path, line } => format!("{}:{line}: {key} = {value}", path.display()),
        Origin::Default | Origin::Derived(_) => format!("{key} = {value}"),
    }
}

/// A value as it was given, before it is parsed.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) text: OsString,
    pub(super) origin: Origin,
}

impl Entry {
    pub(super) fn error(&self, key: String, setting: &Setting, reason: String) -> SettingsError {
        let text = self.text.to_string_lossy();
        let value = if setting.is_secret { without_secrets(&text) } else { text.into_owned() };
        SettingsError::Value { origin: self.origin.clone(), key, value, reason }
    }
}

/// The value is left out, because it may be a secret.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(f)
    }
}

/// A name counts as a misspelling of another if their Jaro-Winkler similarity is above this.
pub(super) const MISSPELT: f64 = 0.8;

/// Environment variables of Floodmark that are not settings of the server.
const OTHERS: [&str; 2] = ["FLOODMARK_CONFIG", "FLOODMARK_CACHE"];

/// Returns a warning if a variable looks like a misspelled setting, or like a setting of a single tenant.
/// Ignores variables such as `FLOODMARK_PORT_9009_TCP`, which Kubernetes sets.
fn misnamed<'a>(name: &str, settings: impl Iterator<Item = &'a String>) -> Option<String> {
    let rest = name.strip_prefix("FLOODMARK_").filter(|_| !OTHERS.contains(&name))?;
    if rest.starts_with("TENANT_") {
        return Some(format!(
            "{name} has no effect: settings of single tenants can only be given in the configuration file or the overrides file"
        ));
    }
    if ["SERVICE_HOST", "SERVICE_PORT", "PORT"].iter().any(|of_kubernetes| rest.starts_with(of_kubernetes)) {
        return None;
    }
    let prefix = name.len() - rest.len();
    let near = settings.map(|setting| (strsim::jaro_winkler(&setting[prefix..], rest), setting));
    let (similarity, near) = near.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (similarity > MISSPELT)
        .then(|| format!("{name} has no effect: there is no such setting; did you mean {near}?"))
}

pub(super) type Entries = BTreeMap<&'static str, Entry>;

#[derive(Debug, Clone)]
pub(super) struct GivenClass {
    pub(super) name: String,
    pub(super) patterns: TenantPatterns,
    /// Where the patterns come from.
    pub(super) origin: Origin,
    pub(super) entries: Entries,
}

/// All given values. Values added later take precedence: the file, then the environment, then flags.
///
/// ```ignore
/// Given::default().file(path)?.environment(std::env::vars_os())?.flag("memory", "2GiB")
/// ```
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub(super) general: Entries,
    pub(super) tenants: BTreeMap<TenantId, Entries>,
    pub(super) classes: Vec<GivenClass>,
    /// Options of the object store, by name in lower case.
    pub(super) store_options: BTreeMap<String, Entry>,
    /// Warnings about environment variables that look like settings but are not. They do not contain the
    /// values.
    pub(super) warnings: Vec<String>,
}

impl Given {
    /// Adds the values in variables `FLOODMARK_…`, and options of object stores in variables such as `AWS_…`.
    /// An option that the file contains, too, is taken from the file.
    pub fn environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let named: BTreeMap<_, _> = SETTINGS.iter().map(|setting| (setting.variable(), *setting)).collect();
        for (name, text) in variables {
            let Ok(name) = name.into_string() else { continue };
            if let Some(setting) = named.get(&name) {
                let entry = Entry { text, origin: Origin::Environment(name) };
                if entry.text.is_empty() {
                    return Err(entry.error(
                        setting.key.into(),
                        setting,
                        "must not be empty; unset the variable".into(),
                    ));
                }
                self.general.insert(setting.key, entry);
            } else if ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix)) {
                let entry = Entry { text, origin: Origin::Environment(name.clone()) };
                self.store_options.entry(name.to_ascii_lowercase()).or_insert(entry);
            } else {
                self.warnings.extend(misnamed(&name, named.keys()));
            }
        }
        Ok(self)
    }

    pub fn flag(mut self, key: &str, text: impl AsRef<OsStr>) -> Self {
        let setting = find(key).unwrap_or_else(|| panic!("BUG: there is no setting {key}"));
        let entry = Entry { text: text.as_ref().to_owned(), origin: Origin::Flag(setting.flag()) };
        self.general.insert(setting.key, entry);
        self
    }

    pub(super) fn store_options(&self) -> StoreOptions {
        // a value that is not valid Unicode is ignored
        let text = |(name, entry): (&String, &Entry)| Some((name.clone(), entry.text.to_str()?.to_owned()));
        StoreOptions(self.store_options.iter().filter_map(text).collect())
    }
}
