//! The file of rules on what is stored (setting `ingest_rules`). It is reloaded when it changes.

use crate::watched::{self, Source, Watched};
use model::TenantId;
use rules::ingest::RuleList;
use rules::{IngestRules, RuleError};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestRulesFile {
    pub path: PathBuf,
}

pub(crate) type WatchedRules = Watched<IngestRulesFile>;

/// The rules of one tenant, as they were when this was made.
#[derive(Debug, Clone)]
pub(crate) struct TenantList {
    loaded: Arc<IngestRules>,
    number: usize,
}

impl TenantList {
    /// Returns `None` if the tenant has no rules.
    pub(crate) fn of(loaded: Arc<IngestRules>, tenant: &TenantId) -> Option<Self> {
        let number = loaded.of(tenant)?.number;
        Some(Self { loaded, number })
    }

    pub(crate) fn list(&self) -> &RuleList {
        &self.loaded.lists()[self.number]
    }
}

impl IngestRulesFile {
    /// Reads and parses the file.
    pub fn load(&self) -> Result<IngestRules, String> {
        self.parse(&self.read()?)
    }
}

impl Source for IngestRulesFile {
    const NAME: &'static str = "ingest_rules";
    type Raw = String;
    type Content = IngestRules;

    fn read(&self) -> Result<String, String> {
        let read = watched::read(&self.path, rules::FILE_BYTES_MAX);
        read.map_err(|error| format!("cannot read {}: {error}", self.path.display()))
    }

    fn parse(&self, text: &String) -> Result<IngestRules, String> {
        IngestRules::parse(text)
            .map_err(|RuleError { line, reason }| format!("{}:{line}: {reason}", self.path.display()))
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
        let watched = WatchedRules::new(Some(file.clone()), IngestRules::default(), &registry);
        let check = |expected: Option<&str>, is_current: bool| {
            watched.reload();
            let found = TenantList::of(watched.current(), &TenantId::anonymous());
            assert_eq!(found.map(|rules| rules.list().rules()[0].summary()).as_deref(), expected);
            let text = registry.render();
            let line = format!("floodmark_file_current{{file=\"ingest_rules\"}} {}\n", u8::from(is_current));
            assert!(text.contains(&line), "{text}");
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
    }
}
