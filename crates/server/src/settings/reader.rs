//! Parses given values into settings, and records the origin of each.

use super::given::{Entries, Entry, Given, Origin, SettingsError};
use super::secret::option_shown;
use super::setting::{DefaultValue, Setting};
use super::setting_builder::TypedSetting;
use super::value::Value;
use serde_json::Value as Json;

#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveSetting {
    /// Key in the configuration file, such as `seal_after`, `tables_options.NAME` or `tenant.NAME.retention`.
    pub key: String,
    /// Value as it would be written in the file. Secrets are redacted.
    pub value: Json,
    pub origin: Origin,
}

pub(super) fn store_options(given: &Given) -> impl Iterator<Item = EffectiveSetting> {
    given.store_options.iter().map(|(name, entry)| EffectiveSetting {
        key: format!("tables_options.{name}"),
        value: option_shown(name, &entry.text.to_string_lossy()).into(),
        origin: entry.origin.clone(),
    })
}

/// Parses the general settings, or the settings of one tenant or class.
pub(super) struct Reader<'a> {
    entries: &'a Entries,
    /// What precedes each key in messages: `tenant.NAME.`, `class.NAME.`, or nothing for general settings.
    prefix: String,
    rows: Vec<EffectiveSetting>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(entries: &'a Entries, prefix: String) -> Self {
        Self { entries, prefix, rows: Vec::new() }
    }

    pub(super) fn into_rows(self) -> Vec<EffectiveSetting> {
        self.rows
    }

    /// Returns the given value, or else the fixed default.
    pub(super) fn read<T: Value>(&mut self, typed: &TypedSetting<T>) -> Result<T, SettingsError> {
        let DefaultValue::Fixed(text) = typed.setting.default else {
            panic!("BUG: the default of {} is derived", typed.setting.key)
        };
        let default = T::parse(text, &typed.setting).expect("BUG: a default is out of bounds");
        self.read_or(typed, default, Origin::Default)
    }

    /// Returns the given value, or else `default`, which depends on the machine or on other settings.
    pub(super) fn derive<T: Value>(
        &mut self,
        typed: &TypedSetting<T>,
        default: T,
    ) -> Result<T, SettingsError> {
        let DefaultValue::Derived(how) = typed.setting.default else {
            panic!("BUG: the default of {} is fixed", typed.setting.key)
        };
        self.read_or(typed, default, Origin::Derived(how.into()))
    }

    /// Returns the value given for this tenant or class, or else the inherited value `general`.
    pub(super) fn inherit<T: Value + Clone>(
        &mut self,
        typed: &TypedSetting<T>,
        general: &T,
    ) -> Result<T, SettingsError> {
        match self.given(typed)? {
            Some((value, entry)) => Ok(self.noted(typed, value, entry.origin.clone())),
            None => Ok(general.clone()),
        }
    }

    fn read_or<T: Value>(
        &mut self,
        typed: &TypedSetting<T>,
        default: T,
        origin: Origin,
    ) -> Result<T, SettingsError> {
        Ok(match self.given(typed)? {
            Some((value, entry)) => self.noted(typed, value, entry.origin.clone()),
            None => self.noted(typed, default, origin),
        })
    }

    fn given<T: Value>(&self, typed: &TypedSetting<T>) -> Result<Option<(T, &'a Entry)>, SettingsError> {
        let Some(entry) = self.entries.get(typed.setting.key) else { return Ok(None) };
        match T::parse_os(&entry.text, &typed.setting) {
            Ok(value) => Ok(Some((value, entry))),
            Err(reason) => Err(entry.error(self.key(&typed.setting), &typed.setting, reason)),
        }
    }

    fn noted<T: Value>(&mut self, typed: &TypedSetting<T>, value: T, origin: Origin) -> T {
        let (key, shown) = (self.key(&typed.setting), value.show(&typed.setting));
        self.rows.push(EffectiveSetting { key, value: shown, origin });
        value
    }

    fn key(&self, setting: &Setting) -> String {
        format!("{}{}", self.prefix, setting.key)
    }

    /// The given value of a setting that is false by default. Does not list the setting.
    pub(super) fn is_true(&self, typed: &TypedSetting<bool>) -> Result<bool, SettingsError> {
        Ok(self.given(typed)?.is_some_and(|(value, _)| value))
    }

    pub(super) fn is_given<T>(&self, typed: &TypedSetting<T>) -> bool {
        self.entries.contains_key(typed.setting.key)
    }

    /// Creates an error for two settings whose values conflict. The error is about one that was set
    /// explicitly, because at most one of them can be a default.
    pub(super) fn conflict<T>(&self, both: [&TypedSetting<T>; 2], reason: &str) -> SettingsError {
        let given = both.into_iter().find_map(|typed| Some((typed, self.entries.get(typed.setting.key)?)));
        let (typed, entry) = given.expect("BUG: values conflict although neither is given");
        entry.error(self.key(&typed.setting), &typed.setting, reason.into())
    }

    pub(super) fn adjust<T: Value>(&mut self, typed: &TypedSetting<T>, value: &T) {
        self.row(typed).value = value.show(&typed.setting);
    }

    pub(super) fn explain<T>(&mut self, typed: &TypedSetting<T>, how: &str) {
        if let Origin::Derived(reason) = &mut self.row(typed).origin {
            how.clone_into(reason);
        }
    }

    fn row<T>(&mut self, typed: &TypedSetting<T>) -> &mut EffectiveSetting {
        let found = self.rows.iter_mut().rev().find(|row| row.key == typed.setting.key);
        found.expect("BUG: the setting has not been read")
    }

    pub(super) fn error<T: Value>(&mut self, typed: &TypedSetting<T>, reason: String) -> SettingsError {
        let EffectiveSetting { key, value, origin } = self.row(typed).clone();
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        SettingsError::Value { origin, key, value, reason }
    }
}
