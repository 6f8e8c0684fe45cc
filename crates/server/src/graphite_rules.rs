//! Carbon's rule files. They are reloaded when one of them changes.
//!
//! If one file is invalid, all rules stay as they were: they belong together, and half of a change may do harm.

use crate::query_source::Schemas;
use crate::watched::{self, Source, Watched};
use model::SeriesKey;
use rules::{Aggregations, NameList, Rewrites, RuleError};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Paths of the rule files that are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleFiles {
    pub schemas: Option<PathBuf>,
    pub aggregation: Option<PathBuf>,
    /// The rules of carbon-aggregator.
    pub aggregator: Option<PathBuf>,
    pub rewrite: Option<PathBuf>,
    pub allow: Option<PathBuf>,
    pub deny: Option<PathBuf>,
}

/// The rules of all files. Those of files that are not configured have no effect.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) schemas: Schemas,
    pub(crate) rewrites: Rewrites,
    pub(crate) allow: NameList,
    pub(crate) deny: NameList,
    /// Series that are computed from others.
    pub(crate) aggregations: Aggregations,
    /// Hash of all files.
    pub(crate) fingerprint: SeriesKey,
    /// Hash of the files that decide about names.
    pub(crate) names_fingerprint: SeriesKey,
    /// Number of these rules on names. It is given when they are first applied.
    pub(crate) names_version: OnceLock<NonZeroU16>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            schemas: Schemas::default(),
            rewrites: Rewrites::default(),
            allow: NameList::default(),
            deny: NameList::default(),
            aggregations: Aggregations::default(),
            fingerprint: SeriesKey(0),
            names_fingerprint: SeriesKey(0),
            names_version: OnceLock::new(),
        }
    }
}

impl Rules {
    /// True if any of them decides about names.
    pub(crate) fn are_about_names(&self) -> bool {
        !(self.allow.is_empty() && self.deny.is_empty() && self.rewrites.is_empty())
    }
}

pub(crate) type GraphiteRules = Watched<RuleFiles>;

/// The text of each file, in the order of [`RuleFiles::paths`].
pub(crate) type Texts = [Option<String>; 6];

impl RuleFiles {
    const fn paths(&self) -> [&Option<PathBuf>; 6] {
        let Self { schemas, aggregation, aggregator, rewrite, allow, deny } = self;
        [schemas, aggregation, aggregator, rewrite, allow, deny]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.paths().iter().all(|path| path.is_none())
    }

    /// Reads and parses the schemas.
    pub fn schemas(&self) -> Result<Schemas, String> {
        Ok(self.load()?.schemas)
    }

    /// Reads and parses all files.
    pub(crate) fn load(&self) -> Result<Rules, String> {
        self.parse(&self.read()?)
    }
}

impl Source for RuleFiles {
    const NAME: &'static str = "graphite_rules";
    type Raw = Texts;
    type Content = Rules;

    fn read(&self) -> Result<Texts, String> {
        let mut texts = Texts::default();
        for (path, text) in self.paths().into_iter().zip(&mut texts) {
            let Some(path) = path else { continue };
            let read = watched::read(path, rules::FILE_BYTES_MAX);
            *text = Some(read.map_err(|error| format!("cannot read {}: {error}", path.display()))?);
        }
        Ok(texts)
    }

    fn parse(&self, texts: &Texts) -> Result<Rules, String> {
        let [schemas, aggregation, aggregator, rewrite, allow, deny] = texts;
        let mut rules = Rules::default();
        let mut steps = rules::Schemas::default();
        if let Some(text) = schemas {
            steps = in_file(&self.schemas, steps.with_schemas(text))?;
        }
        if let Some(text) = aggregation {
            steps = in_file(&self.aggregation, steps.with_aggregation(text))?;
        }
        rules.schemas = steps.into();
        if let Some(text) = aggregator {
            rules.aggregations = in_file(&self.aggregator, Aggregations::parse(text))?;
        }
        if let Some(text) = rewrite {
            rules.rewrites = in_file(&self.rewrite, Rewrites::parse(text))?;
        }
        if let Some(text) = allow {
            rules.allow = in_file(&self.allow, NameList::parse(text))?;
        }
        if let Some(text) = deny {
            rules.deny = in_file(&self.deny, NameList::parse(text))?;
        }
        rules.fingerprint = fingerprint(texts);
        rules.names_fingerprint = fingerprint(&[rewrite, allow, deny].map(Clone::clone));
        Ok(rules)
    }

    fn warnings(&self, [schemas, ..]: &Texts) -> Vec<String> {
        let parsed = schemas.as_deref().and_then(|text| rules::Schemas::default().with_schemas(text).ok());
        let warning = |(before, after): (&str, &str)| {
            let path = self.schemas.as_deref().unwrap_or(Path::new("")).display();
            format!(
                "{path}: section [{after}] has a higher priority than [{before}], which comes before it. The order of the file counts here, as \
                 in carbon; go-carbon sorts sections by priority. If the file is go-carbon's, put the highest priority first"
            )
        };
        let warning = parsed.as_ref().and_then(rules::Schemas::out_of_priority).map(warning);
        warning.into_iter().collect()
    }
}

fn fingerprint(texts: &[Option<String>]) -> SeriesKey {
    // a byte that text does not have separates the files
    let text = |text: &Option<String>| [text.as_deref().unwrap_or_default().as_bytes(), &[0xff]].concat();
    SeriesKey::of(&texts.iter().flat_map(text).collect::<Vec<u8>>(), 0)
}

fn in_file<T>(path: &Option<PathBuf>, parsed: Result<T, RuleError>) -> Result<T, String> {
    let path = path.as_deref().unwrap_or(Path::new(""));
    parsed.map_err(|RuleError { line, reason }| format!("{}:{line}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::telemetry::Registry;

    #[test]
    fn an_invalid_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("schemas", "[a]\npattern = ^a\nretentions = 10:10\n");
        write("deny", "^x\n");
        let files =
            RuleFiles { schemas: Some(path("schemas")), deny: Some(path("deny")), ..RuleFiles::default() };
        let rules = GraphiteRules::new(Some(files.clone()), files.load().unwrap(), &Registry::new());
        let check = |step_s: u32, denied: &str| {
            rules.reload();
            let rules = rules.current();
            assert_eq!(rules.schemas.rules().of("a").archives[0].step_s, step_s);
            assert_eq!(["x", "y"].map(|name| rules.deny.contains(name)), ["x", "y"].map(|n| n == denied));
        };
        check(10, "x");
        write("schemas", "[a]\npattern = ^a\nretentions = 20:10\n");
        check(20, "x");
        write("schemas", "[a]\npattern = ^a\nretentions = 30\n");
        write("deny", "^y\n");
        check(20, "x");
        let error = files.load().unwrap_err();
        assert!(error.ends_with("schemas:3: archive \"30\" is not of the form step:retention"), "{error}");
        write("schemas", "[a]\npattern = ^a\nretentions = 30:10\n");
        check(30, "y");
        std::fs::remove_file(path("deny")).unwrap();
        check(30, "y");
    }
}
