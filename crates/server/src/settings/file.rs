//! Reads the configuration file. Unknown keys are errors, and every value keeps its line number.

use super::given::{Entries, Entry, Given, GivenClass, MISSPELT, Origin, SettingsError};
use super::setting::Setting;
use super::table::{SETTINGS, find};
use super::value::EMPTY_LIST;
use model::{TenantId, TenantPatterns};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Tables that the file could have in earlier versions, each with one setting of several tenants. If one is
/// found, the error tells how to write it as `[tenant.NAME]`.
const RETIRED: [(&str, &str); 4] = [
    ("tenant_query_resolution", "query_resolution"),
    ("tenant_retention", "retention"),
    ("tenant_rollup_retention", "rollup_retention"),
    ("tenant_rollups", "rollups"),
];

impl Given {
    pub fn file(mut self, path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Read { path: path.into(), source })?;
        parse(path, &text, Content::All, &mut self)?;
        Ok(self)
    }

    /// Adds the values of an overrides file. If a tenant matches classes of both files, those of the
    /// overrides file come first. A class has the settings of the configuration file's class of the same name that it does not give
    /// itself: an override of one limit must not undo the retention.
    pub(super) fn overrides(mut self, path: &Path, text: &str) -> Result<Self, SettingsError> {
        let classes = std::mem::take(&mut self.classes);
        parse(path, text, Content::OfTenants, &mut self)?;
        for class in &mut self.classes {
            let of_file = classes.iter().filter(|of_file| of_file.name == class.name);
            for (key, entry) in of_file.flat_map(|of_file| &of_file.entries) {
                class.entries.entry(key).or_insert_with(|| entry.clone());
            }
        }
        self.classes.extend(classes);
        Ok(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    All,
    /// An overrides file, which can contain only settings of tenants.
    OfTenants,
}

pub(super) fn parse(
    path: &Path,
    text: &str,
    content: Content,
    given: &mut Given,
) -> Result<(), SettingsError> {
    let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let file = File { path, text, content, newlines };
    match DeTable::parse(text) {
        Ok(root) => file.add(root.get_ref(), given),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            Err(file.error(at, error.message().to_owned()))
        }
    }
}

pub(super) const PATTERNS: &str = "tenants";

/// Limits on the number of classes, and on the patterns of each class. The tenant of each request is compared
/// with all of them.
const CLASSES_MAX: usize = 100;
const PATTERNS_MAX: usize = 100;

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    content: Content,
    /// Positions of the line breaks. A file of 16 MiB has a hundred thousand values, and the line of each is looked up.
    newlines: Vec<usize>,
}

impl File<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.newlines.partition_point(|newline| *newline < at)
    }

    fn error(&self, at: usize, reason: String) -> SettingsError {
        SettingsError::File { path: self.path.into(), line: self.line(at), reason }
    }

    fn add(&self, root: &DeTable<'_>, given: &mut Given) -> Result<(), SettingsError> {
        for (key, at, value) in in_order(root) {
            match key {
                "tables_options" if self.content == Content::All => {
                    for (name, _, value) in in_order(self.table("[tables_options]", value)?) {
                        given.store_options.insert(name.to_ascii_lowercase(), self.entry(name, value)?);
                    }
                }
                "tenant" => {
                    for (name, at, value) in in_order(self.table("[tenant.NAME]", value)?) {
                        let title = format!("[tenant.{}]", quoted(name));
                        let tenant = TenantId::parse(name)
                            .map_err(|error| self.error(at, format!("{title}: {error}")))?;
                        let entries = self.of_tenants("a tenant", in_order(self.table(&title, value)?))?;
                        given.tenants.entry(tenant).or_default().extend(entries);
                    }
                }
                "class" => {
                    for (name, _, value) in in_order(self.table("[class.NAME]", value)?) {
                        given.classes.push(self.class(name, value)?);
                    }
                    if given.classes.len() > CLASSES_MAX {
                        return Err(self.error(at, format!("there are more than {CLASSES_MAX} classes")));
                    }
                }
                _ => match find(key) {
                    Some(setting) if setting.is_per_tenant || self.content == Content::All => {
                        given.general.insert(setting.key, self.entry(key, value)?);
                    }
                    Some(_) => {
                        let reason =
                            format!("{key} cannot be changed at run time: {}", settings_of_tenants());
                        return Err(self.error(at, reason));
                    }
                    None => return Err(self.error(at, self.unknown(key, root))),
                },
            }
        }
        Ok(())
    }

    fn table<'t>(
        &self,
        title: &str,
        value: &'t Spanned<DeValue<'t>>,
    ) -> Result<&'t DeTable<'t>, SettingsError> {
        let table = value.get_ref().as_table();
        table.ok_or_else(|| self.error(value.span().start, format!("{title} must be a table")))
    }

    fn class(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<GivenClass, SettingsError> {
        let title = format!("[class.{}]", quoted(name));
        let table = self.table(&title, value)?;
        let at = value.span().start;
        let given = table.get(PATTERNS);
        let patterns = given.and_then(|patterns| patterns.get_ref().as_array());
        let patterns = patterns.into_iter().flatten().map(|item| scalar(item.get_ref()));
        let patterns = patterns.collect::<Option<Vec<_>>>().filter(|patterns| !patterns.is_empty());
        let patterns = patterns.ok_or_else(|| {
            let reason =
                format!("{title} needs {PATTERNS} = [\"PATTERN\", ...], in which * stands for any text");
            self.error(at, reason)
        })?;
        if patterns.len() > PATTERNS_MAX {
            return Err(self.error(at, format!("{title} has more than {PATTERNS_MAX} patterns")));
        }
        let settings = in_order(table).into_iter().filter(|(key, ..)| *key != PATTERNS);
        let patterns = TenantPatterns::new(patterns);
        let line = self.line(given.map_or(at, |patterns| patterns.span().start));
        let origin = Origin::File { path: self.path.into(), line };
        let entries = self.of_tenants("a class", settings)?;
        Ok(GivenClass { name: name.to_owned(), patterns, origin, entries })
    }

    fn of_tenants<'t>(
        &self,
        whose: &str,
        settings: impl IntoIterator<Item = (&'t str, usize, &'t Spanned<DeValue<'t>>)>,
    ) -> Result<Entries, SettingsError> {
        let mut entries = Entries::new();
        for (key, at, value) in settings {
            let Some(setting) = find(key).filter(|setting| setting.is_per_tenant) else {
                let reason = format!("{whose} has no setting {key}: {}", settings_of_tenants());
                return Err(self.error(at, reason));
            };
            entries.insert(setting.key, self.entry(key, value)?);
        }
        Ok(entries)
    }

    /// Converts a value to the form it would have as a flag. The elements of an array are separated by
    /// commas.
    fn entry(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Entry, SettingsError> {
        let at = value.span().start;
        let text = match value.get_ref() {
            DeValue::Array(items) => {
                let items = items.iter().map(|item| scalar(item.get_ref()));
                let items = items.collect::<Option<Vec<_>>>();
                if let Some(item) =
                    items.iter().flatten().find(|item| item.trim().is_empty() || item.contains(','))
                {
                    return Err(self.error(
                        at,
                        format!("{key} has the item \"{item}\": items must not be empty or contain commas"),
                    ));
                }
                items.map(|items| if items.is_empty() { EMPTY_LIST.into() } else { items.join(",") })
            }
            value => scalar(value),
        };
        let text = text.ok_or_else(|| {
            self.error(at, format!("{key} must be a string, a number, true, false, or an array of these"))
        })?;
        let origin = Origin::File { path: self.path.into(), line: self.line(at) };
        Ok(Entry { text: text.into(), origin })
    }

    fn unknown(&self, key: &str, root: &DeTable<'_>) -> String {
        if RETIRED.iter().any(|(name, _)| *name == key) {
            return format!(
                "[{key}] is no longer supported; use [tenant.NAME] instead:\n{}",
                self.replacement(root)
            );
        }
        let near = SETTINGS.iter().map(|setting| (strsim::jaro_winkler(setting.key, key), setting.key));
        match near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(similarity, _)| *similarity > MISSPELT) {
            Some((_, near)) => format!("unknown setting {key}; did you mean {near}?"),
            None => format!("unknown setting {key}; floodmark config print lists all settings"),
        }
    }

    fn replacement(&self, root: &DeTable<'_>) -> String {
        let mut tenants: BTreeMap<&str, String> = BTreeMap::new();
        for (retired, key) in RETIRED {
            let Some(DeValue::Table(table)) = root.get(retired).map(Spanned::get_ref) else { continue };
            for (tenant, _, value) in in_order(table) {
                let lines = tenants.entry(tenant).or_default();
                writeln!(lines, "{key} = {}", &self.text[value.span()])
                    .expect("BUG: cannot write to a string");
            }
        }
        tenants.iter().fold(String::new(), |text, (tenant, lines)| {
            format!("{text}\n[tenant.{}]\n{lines}", quoted(tenant))
        })
    }
}

pub(super) fn quoted(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_bare) {
        true => name.to_owned(),
        false => toml::Value::from(name).to_string(),
    }
}

pub(super) fn per_tenant() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().copied().filter(|setting| setting.is_per_tenant)
}

fn settings_of_tenants() -> String {
    let known: Vec<_> = per_tenant().map(|setting| setting.key).collect();
    format!("settings of tenants are {}", known.join(", "))
}

fn in_order<'a>(table: &'a DeTable<'_>) -> Vec<(&'a str, usize, &'a Spanned<DeValue<'a>>)> {
    let mut rows: Vec<_> =
        table.iter().map(|(key, value)| (&**key.get_ref(), key.span().start, value)).collect();
    rows.sort_by_key(|(_, at, _)| *at);
    rows
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}
