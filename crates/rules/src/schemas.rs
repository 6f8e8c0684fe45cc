//! `storage-schemas.conf` and `storage-aggregation.conf`.
//!
//! Of both files, only the first section whose pattern is found in a name is used. The two decide
//! independently of each other.

use crate::archive::{Archive, parse_archives};
use crate::{Method, RuleError, ini, pattern};
use regex::Regex;

/// How a series is kept and consolidated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schema<'a> {
    /// Below [`Schemas::count`]. Equal schemas of the same rules have equal numbers.
    pub number: usize,
    /// The section of `storage-schemas.conf`. Without one, it is `default`.
    pub section: &'a str,
    /// At least one, the finest first.
    pub archives: &'a [Archive],
    pub method: Method,
    /// Share of the values of a slot that must exist. Otherwise the slot at the coarser step has no value. Rounded to 32 bits,
    /// as in a Whisper file: 0.1 becomes slightly more than a tenth, so one value of ten is not enough.
    pub x_files_factor: f64,
}

impl Schema<'_> {
    /// How long values are kept at the coarsest step. `None` means forever.
    #[must_use]
    pub fn retention_s(&self) -> Option<u64> {
        self.archives.last().map(Archive::retention_s).filter(|retention_s| *retention_s < FOREVER_S)
    }

    /// The step at which values of this age are kept. It is the step of the first archive that still has them.
    /// Values older than all archives have none.
    #[must_use]
    pub fn archive_for(&self, age_s: u64) -> Option<&Archive> {
        let forever = self.retention_s().is_none();
        let found = self.archives.iter().find(|archive| archive.retention_s() >= age_s);
        found.or_else(|| self.archives.last().filter(|_| forever))
    }
}

/// The retention of an archive that keeps values forever: more than 100 years.
const FOREVER_S: u64 = u32::MAX as u64;

/// What carbon does with names that match no section.
const UNMATCHED: Archive = Archive { step_s: 60, points: 7 * 24 * 60 };

/// What is done without a file of schemas: values at one-minute steps are kept forever.
const WITHOUT_FILE: Archive = Archive { step_s: 60, points: u32::MAX };

/// The rules of both files.
#[derive(Debug)]
pub struct Schemas {
    retentions: Vec<Retention>,
    /// For names that match no section.
    otherwise: [Archive; 1],
    consolidations: Vec<Consolidation>,
}

#[derive(Debug)]
struct Retention {
    section: String,
    pattern: Regex,
    archives: Vec<Archive>,
    /// By which go-carbon orders sections. It has no effect here.
    priority: i64,
}

#[derive(Debug)]
struct Consolidation {
    pattern: Regex,
    method: Method,
    x_files_factor: f64,
}

const DEFAULT_METHOD: Method = Method::Average;
const DEFAULT_X_FILES_FACTOR: f64 = 0.5;

impl Default for Schemas {
    fn default() -> Self {
        Self { retentions: Vec::new(), otherwise: [WITHOUT_FILE], consolidations: Vec::new() }
    }
}

impl Schemas {
    /// Replaces the rules of `storage-schemas.conf`.
    pub fn with_schemas(mut self, text: &str) -> Result<Self, RuleError> {
        self.retentions = ini::sections(text)?.iter().map(retention).collect::<Result<_, _>>()?;
        self.otherwise = [UNMATCHED];
        Ok(self)
    }

    /// Replaces the rules of `storage-aggregation.conf`.
    pub fn with_aggregation(mut self, text: &str) -> Result<Self, RuleError> {
        self.consolidations = ini::sections(text)?.iter().map(consolidation).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Returns the rules for a name. It compares the name with all patterns, so callers should keep the answer.
    #[must_use]
    pub fn of(&self, name: &str) -> Schema<'_> {
        let first = self.retentions.iter().position(|rule| rule.pattern.is_match(name));
        let second = self.consolidations.iter().position(|rule| rule.pattern.is_match(name));
        self.at(first, second)
    }

    /// The rules of a section of each file, or the default rules.
    fn at(&self, retention: Option<usize>, consolidation: Option<usize>) -> Schema<'_> {
        let number = retention.unwrap_or(self.retentions.len()) * (self.consolidations.len() + 1)
            + consolidation.unwrap_or(self.consolidations.len());
        let (section, archives) = match retention.map(|at| &self.retentions[at]) {
            Some(rule) => (rule.section.as_str(), rule.archives.as_slice()),
            None => ("default", self.otherwise.as_slice()),
        };
        let (method, x_files_factor) = match consolidation.map(|at| &self.consolidations[at]) {
            Some(rule) => (rule.method, rule.x_files_factor),
            None => (DEFAULT_METHOD, DEFAULT_X_FILES_FACTOR),
        };
        Schema { number, section, archives, method, x_files_factor }
    }

    /// Two sections that go-carbon would use in the other order because of their `priority`. `None` if there are none.
    #[must_use]
    pub fn out_of_priority(&self) -> Option<(&str, &str)> {
        let pairs = self.retentions.iter().zip(self.retentions.iter().skip(1));
        let mut pairs = pairs.filter(|(before, after)| before.priority < after.priority);
        pairs.next().map(|(before, after)| (before.section.as_str(), after.section.as_str()))
    }

    /// Number of combinations of both files' rules.
    #[must_use]
    pub const fn count(&self) -> usize {
        (self.retentions.len() + 1) * (self.consolidations.len() + 1)
    }

    /// The longest step of all rules.
    #[must_use]
    pub fn longest_step_s(&self) -> u32 {
        self.archives().map(|archive| archive.step_s).max().unwrap_or(1)
    }

    /// The longest retention of all rules. `None` means forever.
    #[must_use]
    pub fn longest_retention_s(&self) -> Option<u64> {
        let longest_s = self.archives().map(Archive::retention_s).max()?;
        Some(longest_s).filter(|longest_s| *longest_s < FOREVER_S)
    }

    /// The archives of each rule, the finest first.
    pub fn retentions(&self) -> impl Iterator<Item = &[Archive]> {
        self.retentions.iter().map(|rule| rule.archives.as_slice()).chain([self.otherwise.as_slice()])
    }

    fn archives(&self) -> impl Iterator<Item = &Archive> {
        self.retentions().flatten()
    }
}

fn retention(section: &ini::Section) -> Result<Retention, RuleError> {
    let text = section.require("pattern")?;
    let pattern = pattern::compile(&text.value).map_err(|reason| RuleError::new(text.line, reason))?;
    let retentions = section.require("retentions")?;
    let archives =
        parse_archives(&retentions.value).map_err(|reason| RuleError::new(retentions.line, reason))?;
    let priority = section.get("priority").and_then(|option| option.value.parse().ok()).unwrap_or(0);
    Ok(Retention { section: section.name.clone(), pattern, archives, priority })
}

fn consolidation(section: &ini::Section) -> Result<Consolidation, RuleError> {
    let text = section.require("pattern")?;
    let pattern = pattern::compile(&text.value).map_err(|reason| RuleError::new(text.line, reason))?;
    let x_files_factor = match section.get("xfilesfactor") {
        None => DEFAULT_X_FILES_FACTOR,
        Some(option) => {
            let factor = option.value.parse::<f32>().ok().filter(|factor| (0.0..=1.0).contains(factor));
            factor.map(f64::from).ok_or_else(|| {
                let reason = format!("xFilesFactor {:?} is not a number from 0 to 1", option.value);
                RuleError::new(option.line, reason)
            })?
        }
    };
    let method = match section.get("aggregationmethod") {
        None => DEFAULT_METHOD,
        Some(option) => Method::named(&option.value).ok_or_else(|| {
            let names = Method::ALL.map(Method::name).join(", ");
            let reason = format!("unknown aggregationMethod {:?}; Whisper has {names}", option.value);
            RuleError::new(option.line, reason)
        })?,
    };
    Ok(Consolidation { pattern, method, x_files_factor })
}

#[cfg(test)]
mod tests;
