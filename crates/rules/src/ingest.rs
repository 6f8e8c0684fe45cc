//! Rules on what is stored, for each tenant: which series are dropped, and how the others are named.
//!
//! ```text
//!   file ─ yaml ─▶ lists of rules: default, classes of tenants, tenants
//!   labels of a series ─▶ rule 1 ─▶ rule 2 ─▶ … ─▶ other labels, or dropped
//! ```
//!
//! - [`relabel`]: Prometheus' `relabel_config`
//! - [`mapping`]: parts of dotted names become labels
//! - [`pattern`], [`template`]: expressions and replacements in Go's syntax

mod label_set;
mod mapping;
mod pattern;
mod relabel;
mod template;
#[cfg(test)]
mod tests;
mod yaml;

pub use label_set::{LabelSet, TooMuch};

use crate::{RULES_MAX, RuleError};
use mapping::Mapping;
use model::{TenantId, TenantPatterns};
use relabel::Relabel;
use std::collections::HashMap;
use yaml::{Content, Field, Node};

/// Limit on the memory of all rules of a file. Most of it is for compiled expressions.
const MEMORY_BYTES_MAX: usize = 16 << 20;

/// Limits on the classes of tenants, and on the patterns of each. The tenant of each request is compared with all of them.
const CLASSES_MAX: usize = 100;
const PATTERNS_MAX: usize = 100;

/// The rules of a file.
#[derive(Debug, Default)]
pub struct IngestRules {
    lists: Vec<RuleList>,
    /// Indexes in `lists`.
    default: Option<usize>,
    tenants: HashMap<TenantId, usize>,
    classes: Vec<(TenantPatterns, usize)>,
    memory_bytes: usize,
}

/// Rules that apply one after the other.
#[derive(Debug)]
pub struct RuleList {
    /// `default`, `class 1` or `tenant team-a`.
    pub name: String,
    /// Counted from 0, unique in the file.
    pub number: usize,
    /// Hash of what the rules say. Lists with the same rules have the same, whatever else their files contain.
    pub fingerprint: u128,
    /// Limit on the steps of the rules for each byte of a series' labels, as long as the rules do not make them longer.
    pub steps_per_byte: usize,
    rules: Vec<IngestRule>,
}

#[derive(Debug)]
pub struct IngestRule {
    /// Line of the file in which the rule begins, counted from 1.
    pub line: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Relabel(Box<Relabel>),
    Mapping(Mapping),
}

/// What rules did to a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Kept,
    /// The index of the rule that dropped it.
    Dropped(usize),
}

/// A rule cannot be applied to a series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule} of list {list:?}: {reason}")]
pub struct NotApplied {
    pub list: String,
    /// Counted from 1.
    pub rule: usize,
    pub reason: TooMuch,
}

impl IngestRules {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let root = yaml::parse(text)?;
        let mut found = Self::default();
        if matches!(root.content, Content::List(_)) {
            found.default = found.list("default".into(), &root)?;
            return Ok(found);
        }
        for Field { line, key, value } in root.map("the file")? {
            match key.as_str() {
                "default" => found.default = found.list("default".into(), value)?,
                "classes" => found.add_classes(value)?,
                "tenants" => {
                    for Field { line, key, value } in value.map("tenants")? {
                        let tenant = TenantId::parse(key);
                        let tenant = tenant.map_err(|error| RuleError::new(*line, error.to_string()))?;
                        let list = found.list(format!("tenant {key}"), value)?;
                        // a tenant with an empty list has no rules, not even the default ones
                        let list = match list {
                            Some(list) => list,
                            None => found.push(format!("tenant {key}"), value, Vec::new()),
                        };
                        found.tenants.insert(tenant, list);
                    }
                }
                other => {
                    let reason = format!("unknown key {other:?}; there are default, classes and tenants");
                    return Err(RuleError::new(*line, reason));
                }
            }
        }
        Ok(found)
    }

    fn add_classes(&mut self, classes: &Node) -> Result<(), RuleError> {
        let items = classes.list("classes")?;
        if items.len() > CLASSES_MAX {
            return Err(classes.error(format!("more than {CLASSES_MAX} classes")));
        }
        for (number, class) in (1..).zip(items) {
            let (mut patterns, mut rules) = (Vec::new(), None);
            for Field { line, key, value } in class.map("a class")? {
                match key.as_str() {
                    "tenants" => {
                        for pattern in value.list("tenants")? {
                            patterns.push(pattern.text("a pattern of tenants")?.to_owned());
                        }
                    }
                    "rules" => rules = Some(value),
                    other => {
                        let reason = format!("unknown key {other:?}; a class has tenants and rules");
                        return Err(RuleError::new(*line, reason));
                    }
                }
            }
            if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
                return Err(class.error(format!("a class needs 1 to {PATTERNS_MAX} patterns in tenants")));
            }
            let rules = rules.ok_or_else(|| class.error("a class needs rules"))?;
            let name = format!("class {number}");
            let list = match self.list(name.clone(), rules)? {
                Some(list) => list,
                None => self.push(name, rules, Vec::new()),
            };
            self.classes.push((TenantPatterns::new(patterns), list));
        }
        Ok(())
    }

    /// Parses a list, and returns its number. Returns `None` if it is empty.
    fn list(&mut self, name: String, list: &Node) -> Result<Option<usize>, RuleError> {
        let mut rules = Vec::new();
        let before = self.lists.iter().map(|list| list.rules.len()).sum::<usize>();
        for rule in list.list("a list of rules")? {
            if before + rules.len() == RULES_MAX {
                return Err(rule.error(format!("more than {RULES_MAX} rules")));
            }
            let rule = IngestRule::parse(rule)?;
            self.memory_bytes += rule.kind.memory_bytes();
            if self.memory_bytes > MEMORY_BYTES_MAX {
                let reason = format!("the rules take more than {} MiB of memory", MEMORY_BYTES_MAX >> 20);
                return Err(RuleError::new(rule.line, reason));
            }
            rules.push(rule);
        }
        Ok((!rules.is_empty()).then(|| self.push(name, list, rules)))
    }

    /// Adds the list of these rules, parsed from `node`, and returns its number.
    fn push(&mut self, name: String, node: &Node, rules: Vec<IngestRule>) -> usize {
        let number = self.lists.len();
        let steps_per_byte = rules.iter().fold(0, |steps: usize, rule| match &rule.kind {
            Kind::Relabel(relabel) => steps.saturating_add(relabel.steps_per_byte()),
            Kind::Mapping(_) => steps + 1,
        });
        let fingerprint = node.fingerprint();
        self.lists.push(RuleList { name, number, fingerprint, steps_per_byte, rules });
        number
    }

    /// The rules for a tenant: its own, or else those of the first class that it matches, or else the default ones. Returns
    /// `None` if there are none.
    pub fn of(&self, tenant: &TenantId) -> Option<&RuleList> {
        let class =
            || self.classes.iter().find(|(patterns, _)| patterns.matches(tenant)).map(|(_, list)| *list);
        let list = self.tenants.get(tenant).copied().or_else(class).or(self.default)?;
        Some(&self.lists[list]).filter(|list| !list.rules.is_empty())
    }

    pub fn lists(&self) -> &[RuleList] {
        &self.lists
    }
}

impl RuleList {
    pub fn rules(&self) -> &[IngestRule] {
        &self.rules
    }

    /// Applies the rules in order, until one drops the series.
    pub fn apply(&self, labels: &mut LabelSet<'_>) -> Result<Decision, NotApplied> {
        self.apply_those(labels, |_| true)
    }

    /// Applies the rules that look only at a metric's name and decide only about it, for metadata. `labels` has only the name.
    pub fn apply_to_name(&self, labels: &mut LabelSet<'_>) -> Result<Decision, NotApplied> {
        self.apply_those(labels, |rule| match &rule.kind {
            Kind::Relabel(relabel) => relabel.is_about_name(),
            Kind::Mapping(_) => true,
        })
    }

    fn apply_those(
        &self,
        labels: &mut LabelSet<'_>,
        is_applied: impl Fn(&IngestRule) -> bool,
    ) -> Result<Decision, NotApplied> {
        for (number, rule) in self.rules.iter().enumerate().filter(|(_, rule)| is_applied(rule)) {
            let applied = rule.apply(labels);
            let is_kept =
                applied.map_err(|reason| NotApplied { list: self.name.clone(), rule: number + 1, reason })?;
            if !is_kept {
                return Ok(Decision::Dropped(number));
            }
        }
        Ok(Decision::Kept)
    }
}

impl IngestRule {
    fn parse(node: &Node) -> Result<Self, RuleError> {
        let fields = node.map("a rule")?;
        if fields.is_empty() {
            return Err(node.error("a rule is empty"));
        }
        let kind = match Mapping::is_mapping(fields) {
            true => Kind::Mapping(Mapping::parse(node.line, fields)?),
            false => Kind::Relabel(Box::new(Relabel::parse(node.line, fields)?)),
        };
        Ok(Self { line: node.line, kind })
    }

    /// Changes the labels. Returns false if the series is dropped.
    pub fn apply(&self, labels: &mut LabelSet<'_>) -> Result<bool, TooMuch> {
        match &self.kind {
            Kind::Relabel(relabel) => relabel.apply(labels),
            Kind::Mapping(mapping) => mapping.apply(labels),
        }
    }

    /// The rule on one line, for people.
    pub fn summary(&self) -> String {
        match &self.kind {
            Kind::Relabel(relabel) => relabel.summary(),
            Kind::Mapping(mapping) => mapping.summary(),
        }
    }
}

impl Kind {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Relabel(relabel) => relabel.memory_bytes(),
            Self::Mapping(mapping) => mapping.memory_bytes(),
        }
    }
}
