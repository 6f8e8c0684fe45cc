//! The file of rules on what is stored (setting `ingest_rules`). It is reloaded when it changes.

use crate::watched::{self, Source, Watched};
use model::{SeriesKey, TenantId};
use rules::ingest::RuleList;
use rules::{IngestRules, RuleError};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestRulesFile {
    pub path: PathBuf,
}

/// The rules of a file, which may have none.
#[derive(Debug)]
pub(crate) struct LoadedRules {
    rules: IngestRules,
    /// Hash of the file.
    fingerprint: SeriesKey,
}

pub(crate) type WatchedRules = Watched<IngestRulesFile>;

impl Default for LoadedRules {
    fn default() -> Self {
        Self { rules: IngestRules::default(), fingerprint: SeriesKey(0) }
    }
}

impl LoadedRules {
    /// The rules for a tenant, with a number that differs between lists and between versions of the file.
    pub(crate) fn of(&self, tenant: &TenantId) -> Option<(&RuleList, u128)> {
        let list = self.rules.of(tenant)?;
        // the factor is arbitrary and odd, so that each list has another number
        let salt = self.fingerprint.0
            ^ (list.number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        Some((list, salt))
    }
}

impl IngestRulesFile {
    /// Reads and parses the file.
    pub fn load(&self) -> Result<IngestRules, String> {
        Ok(self.parse(&self.read()?)?.rules)
    }
}

impl Source for IngestRulesFile {
    const NAME: &'static str = "ingest_rules";
    type Raw = String;
    type Content = LoadedRules;

    fn read(&self) -> Result<String, String> {
        let read = watched::read(&self.path, rules::FILE_BYTES_MAX);
        read.map_err(|error| format!("cannot read {}: {error}", self.path.display()))
    }

    fn parse(&self, text: &String) -> Result<LoadedRules, String> {
        let rules = IngestRules::parse(text)
            .map_err(|RuleError { line, reason }| format!("{}:{line}: {reason}", self.path.display()))?;
        Ok(LoadedRules { rules, fingerprint: SeriesKey::of(text.as_bytes(), 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::telemetry::Registry;

    #[test]
    fn an_invalid_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let file = IngestRulesFile { path: path.clone() };
        let registry = Registry::new();
        let watched = WatchedRules::new(Some(file.clone()), LoadedRules::default(), &registry);
        let mut salts = Vec::new();
        let mut check = |expected: Option<&str>, is_current: bool| {
            watched.reload();
            let current = watched.current();
            let found = current.of(&TenantId::anonymous());
            assert_eq!(found.map(|(list, _)| list.rules()[0].summary()).as_deref(), expected);
            let text = registry.render();
            let line = format!("floodmark_file_current{{file=\"ingest_rules\"}} {}\n", u8::from(is_current));
            assert!(text.contains(&line), "{text}");
            salts.push(found.map(|(_, salt)| salt));
        };
        check(None, false);
        write("- {regex: a, action: labeldrop}\n");
        check(Some("labeldrop a"), true);
        write("- {regex: b, action: labeldrop}\n");
        check(Some("labeldrop b"), true);
        write("- {regex: 'c(', action: labeldrop}\n");
        check(Some("labeldrop b"), false);
        let error = file.load().unwrap_err();
        assert!(error.ends_with("rules.yml:1: expression \"c(\": unclosed group"), "{error}");
        std::fs::remove_file(&path).unwrap();
        check(Some("labeldrop b"), false);
        write("");
        check(None, true);
        assert!(salts[1] != salts[2] && salts[2] == salts[3]);
    }
}
