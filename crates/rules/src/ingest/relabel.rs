//! Rules of Prometheus' `relabel_config`.

use super::label_set::{ADDED_BYTES_MAX, LabelSet, TooMuch};
use super::pattern::Pattern;
use super::template::Template;
use super::yaml::Field;
use crate::RuleError;
use md5::{Digest, Md5};

/// Limit on the source labels of a rule. A series has at most 128 labels.
const SOURCES_MAX: usize = 128;

/// Limit on the values of the source labels together. An expression is matched against this text.
const SOURCE_BYTES_MAX: usize = 64 << 10;

const METRIC_NAME: &str = "__name__";

#[derive(Debug)]
pub(super) struct Relabel {
    action: Action,
    sources: Vec<String>,
    separator: String,
    pattern: Pattern,
    modulus: u64,
    target: Template,
    target_text: String,
    replacement: Template,
    replacement_text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    HashMod,
    LabelMap,
    LabelDrop,
    LabelKeep,
    Lowercase,
    Uppercase,
}

impl Action {
    const ALL: [(&'static str, Self); 11] = [
        ("replace", Self::Replace),
        ("keep", Self::Keep),
        ("drop", Self::Drop),
        ("keepequal", Self::KeepEqual),
        ("dropequal", Self::DropEqual),
        ("hashmod", Self::HashMod),
        ("labelmap", Self::LabelMap),
        ("labeldrop", Self::LabelDrop),
        ("labelkeep", Self::LabelKeep),
        ("lowercase", Self::Lowercase),
        ("uppercase", Self::Uppercase),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, action)| *action)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }

    /// The keys that have an effect, besides `action`.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Replace => &["source_labels", "separator", "regex", "target_label", "replacement"],
            Self::Keep | Self::Drop => &["source_labels", "separator", "regex"],
            Self::KeepEqual | Self::DropEqual => &["source_labels", "target_label"],
            Self::HashMod => &["source_labels", "separator", "target_label", "modulus"],
            Self::LabelMap => &["regex", "replacement"],
            Self::LabelDrop | Self::LabelKeep => &["regex"],
            Self::Lowercase | Self::Uppercase => &["source_labels", "separator", "target_label"],
        }
    }

    /// Whether Prometheus refuses keys that have no effect. Otherwise, it ignores them.
    const fn is_strict(self) -> bool {
        matches!(self, Self::KeepEqual | Self::DropEqual | Self::LabelDrop | Self::LabelKeep)
    }
}

const KEYS: [&str; 7] =
    ["source_labels", "separator", "regex", "modulus", "target_label", "replacement", "action"];

impl Relabel {
    /// Parses the mapping of a rule, which begins in line `line`.
    pub(super) fn parse(line: usize, fields: &[Field]) -> Result<Self, RuleError> {
        if let Some(unknown) = fields.iter().find(|field| !KEYS.contains(&field.key.as_str())) {
            let reason = format!("unknown key {:?}; a rule has {}, or match", unknown.key, KEYS.join(", "));
            return Err(RuleError::new(unknown.line, reason));
        }
        let field = |key: &str| fields.iter().find(|field| field.key == key && !field.value.is_null());
        let text = |key: &str, default: &'static str| -> Result<String, RuleError> {
            field(key).map_or(Ok(default), |field| field.value.text(key)).map(str::to_owned)
        };
        let action = match field("action") {
            None => Action::Replace,
            Some(field) => {
                let name = field.value.text("action")?;
                Action::named(name).ok_or_else(|| {
                    let known = Action::ALL.map(|(name, _)| name).join(", ");
                    field.value.error(format!("unknown action {name:?}; there are {known}"))
                })?
            }
        };
        if action.is_strict()
            && let Some(field) = fields.iter().find(|field| {
                field.key != "action"
                    && !field.value.is_null()
                    && !action.keys().contains(&field.key.as_str())
            })
        {
            let reason = format!(
                "action {} has only {}, not {}",
                action.name(),
                action.keys().join(" and "),
                field.key
            );
            return Err(RuleError::new(field.line, reason));
        }
        let sources = sources(field("source_labels"))?;
        let regex = text("regex", "(.*)")?;
        let at = |key: &str| field(key).map_or(line, |field| field.value.line);
        let pattern = Pattern::compile(&regex).map_err(|reason| RuleError::new(at("regex"), reason))?;
        let modulus = match field("modulus") {
            None => 0,
            Some(field) => {
                let number = field.value.text("modulus")?;
                let number = number.parse().ok();
                number.ok_or_else(|| field.value.error("modulus is not a whole number below 2^64"))?
            }
        };
        if action == Action::HashMod && modulus == 0 {
            return Err(RuleError::new(at("modulus"), "action hashmod needs a modulus above 0"));
        }
        let (target_text, replacement_text) = (text("target_label", "")?, text("replacement", "$1")?);
        if action.keys().contains(&"target_label") && target_text.is_empty() {
            let reason = format!("action {} needs a target_label", action.name());
            return Err(RuleError::new(at("target_label"), reason));
        }
        let template =
            |text: &str| Template::parse(text, pattern.group_count(), |name| pattern.group_named(name));
        let (target, replacement) = (template(&target_text), template(&replacement_text));
        Ok(Self {
            action,
            sources,
            separator: text("separator", ";")?,
            pattern,
            modulus,
            target,
            target_text,
            replacement,
            replacement_text,
        })
    }

    /// Changes the labels. Returns false if the series is dropped.
    pub(super) fn apply(&self, labels: &mut LabelSet<'_>) -> Result<bool, TooMuch> {
        match self.action {
            Action::Keep => return self.pattern.is_match(&self.source(labels)?, &labels.steps),
            Action::Drop => return Ok(!self.pattern.is_match(&self.source(labels)?, &labels.steps)?),
            Action::KeepEqual => return Ok(self.source(labels)? == labels.get(&self.target_text)),
            Action::DropEqual => return Ok(self.source(labels)? != labels.get(&self.target_text)),
            Action::Replace => self.replace(labels)?,
            Action::HashMod => {
                let hash = Md5::digest(self.source(labels)?);
                // as in Prometheus, the second half of the hash
                let half = hash[8..].try_into().expect("BUG: half a hash does not have eight bytes");
                let shard = u64::from_be_bytes(half) % self.modulus;
                labels.set(&self.target_text, &shard.to_string())?;
            }
            Action::Lowercase => labels.set(&self.target_text, &lowercase(&self.source(labels)?))?,
            Action::Uppercase => labels.set(&self.target_text, &uppercase(&self.source(labels)?))?,
            Action::LabelDrop => labels.retain(|name, steps| Ok(!self.pattern.is_match(name, steps)?))?,
            Action::LabelKeep => labels.retain(|name, steps| self.pattern.is_match(name, steps))?,
            Action::LabelMap => {
                let (mut mapped, mut bytes) = (Vec::new(), 0);
                for (name, value) in labels.iter() {
                    if let Some(groups) = self.pattern.groups(name, &labels.steps)? {
                        let new = self.replacement.expand(|number| groups.get(number))?;
                        bytes += new.len() + value.len();
                        if bytes > ADDED_BYTES_MAX {
                            return Err(TooMuch::Bytes);
                        }
                        mapped.push((new, value.to_owned()));
                    }
                }
                for (name, value) in mapped {
                    labels.set(&name, &value)?;
                }
            }
        }
        Ok(true)
    }

    fn replace(&self, labels: &mut LabelSet<'_>) -> Result<(), TooMuch> {
        let source = self.source(labels)?;
        let Some(groups) = self.pattern.groups(&source, &labels.steps)? else { return Ok(()) };
        let target = self.target.expand(|number| groups.get(number))?;
        if target.is_empty() {
            return Ok(()); // not the name of a label
        }
        let value = self.replacement.expand(|number| groups.get(number))?;
        labels.set(&target, &value)
    }

    fn source(&self, labels: &LabelSet<'_>) -> Result<String, TooMuch> {
        let mut source = String::new();
        for (number, name) in self.sources.iter().enumerate() {
            if number > 0 {
                source.push_str(&self.separator);
            }
            source.push_str(labels.get(name));
            if source.len() > SOURCE_BYTES_MAX {
                return Err(TooMuch::Source(SOURCE_BYTES_MAX));
            }
        }
        labels.steps.take(self.sources.len() * labels.count() + source.len())?;
        Ok(source)
    }

    /// Limit on the steps for each byte of the labels.
    pub(super) fn steps_per_byte(&self) -> usize {
        let has_groups = matches!(self.action, Action::Replace | Action::LabelMap);
        self.pattern.steps_per_byte(has_groups).saturating_mul(self.sources.len().max(1))
    }

    /// True if the rule looks only at the name of the metric, and decides only about it. Such rules also apply to metadata.
    pub(super) fn is_about_name(&self) -> bool {
        let is_decision = match self.action {
            Action::Keep | Action::Drop => true,
            Action::Replace | Action::Lowercase | Action::Uppercase => self.target_text == METRIC_NAME,
            _ => false,
        };
        is_decision && self.sources == [METRIC_NAME]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let sources = self.sources.iter().map(|source| source.len() + size_of::<String>()).sum::<usize>();
        let texts = self.separator.len() + 2 * self.target_text.len() + 2 * self.replacement_text.len();
        size_of::<Self>() + sources + texts + self.pattern.memory_bytes()
    }

    /// The rule on one line, for people.
    pub(super) fn summary(&self) -> String {
        let (action, regex) = (self.action.name(), self.pattern.text());
        let sources = self.sources.join(&self.separator);
        match self.action {
            Action::Keep | Action::Drop => format!("{action} {sources} =~ {regex}"),
            Action::KeepEqual | Action::DropEqual => format!("{action} {sources} == {}", self.target_text),
            Action::Replace => {
                format!("{action} {} = {} if {sources} =~ {regex}", self.target_text, self.replacement_text)
            }
            Action::HashMod => format!("{action} {} = {sources} mod {}", self.target_text, self.modulus),
            Action::LabelMap => format!("{action} {regex} to {}", self.replacement_text),
            Action::LabelDrop | Action::LabelKeep => format!("{action} {regex}"),
            Action::Lowercase | Action::Uppercase => format!("{action} {} = {sources}", self.target_text),
        }
    }
}

fn sources(field: Option<&Field>) -> Result<Vec<String>, RuleError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let items = field.value.list("source_labels")?;
    if items.len() > SOURCES_MAX {
        return Err(field.value.error(format!("more than {SOURCES_MAX} source labels")));
    }
    let name = |item: &super::yaml::Node| match item.text("a source label")? {
        "" => Err(item.error("a source label is empty")),
        name => Ok(name.to_owned()),
    };
    items.iter().map(name).collect()
}

/// As Go's `strings.ToLower`, which changes each character to one other character.
fn lowercase(text: &str) -> String {
    text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect()
}

/// As Go's `strings.ToUpper`: characters whose upper case are several characters stay as they are, except for Greek letters
/// with iota, whose upper case is one character in Go.
fn uppercase(text: &str) -> String {
    let upper = |c: char| {
        let mut all = c.to_uppercase();
        match (all.next(), all.next()) {
            (Some(only), None) => only,
            _ => greek_with_iota(c).unwrap_or(c),
        }
    };
    text.chars().map(upper).collect()
}

fn greek_with_iota(c: char) -> Option<char> {
    let upper = match c {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => u32::from(c) + 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => u32::from(c) + 9,
        _ => return None,
    };
    char::from_u32(upper)
}
