//! Rules that turn the parts of a dotted name into labels.
//!
//! ```text
//! match: servers.*.cpu.*       servers.web1.cpu.user
//!                │     └─ $2           └─ $1   └─ $2
//! ```

use super::label_set::{LabelSet, TooMuch};
use super::template::Template;
use super::yaml::{Field, Node};
use crate::RuleError;

const METRIC_NAME: &str = "__name__";

/// Limit on the labels that a rule sets. A series has at most 128.
const LABELS_MAX: usize = 128;

/// Limit on the parts of a name.
const PARTS_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct Mapping {
    glob: String,
    /// The parts between the dots. `None` stands for any part.
    parts: Vec<Option<String>>,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Drop,
    Map { name: Template, name_text: String, labels: Vec<(String, Template)> },
}

impl Mapping {
    pub(super) fn is_mapping(fields: &[Field]) -> bool {
        fields.iter().any(|field| field.key == "match")
    }

    /// Parses the mapping of a rule, which begins in line `line`.
    pub(super) fn parse(line: usize, fields: &[Field]) -> Result<Self, RuleError> {
        const KEYS: [&str; 4] = ["match", "name", "labels", "action"];
        if let Some(unknown) = fields.iter().find(|field| !KEYS.contains(&field.key.as_str())) {
            let reason = format!("unknown key {:?}; a rule with match has {}", unknown.key, KEYS.join(", "));
            return Err(RuleError::new(unknown.line, reason));
        }
        let field = |key: &str| fields.iter().find(|field| field.key == key && !field.value.is_null());
        let glob = field("match").ok_or_else(|| RuleError::new(line, "match is empty"))?;
        let (glob, parts) = parts(&glob.value)?;
        let stars = parts.iter().filter(|part| part.is_none()).count();
        let template = |node: &Node, what: &str| template(node, what, stars);
        let action = field("action").map_or(Ok("map"), |field| field.value.text("action"))?;
        let outcome = match (action, field("name"), field("labels")) {
            ("drop", None, None) => Outcome::Drop,
            ("drop", ..) => return Err(RuleError::new(line, "action drop has neither name nor labels")),
            ("map", Some(name), labels) => {
                let fields = labels.map_or(Ok(&[][..]), |labels| labels.value.map("labels"))?;
                if fields.len() > LABELS_MAX {
                    return Err(RuleError::new(line, format!("more than {LABELS_MAX} labels")));
                }
                let mut labels = Vec::with_capacity(fields.len());
                for Field { line, key, value } in fields {
                    if key == METRIC_NAME {
                        return Err(RuleError::new(*line, "the metric's name belongs in name"));
                    }
                    labels.push((key.clone(), template(value, "a label")?));
                }
                let name_text = name.value.text("name")?.to_owned();
                Outcome::Map { name: template(&name.value, "name")?, name_text, labels }
            }
            ("map", None, _) => {
                return Err(RuleError::new(line, "a rule with match needs a name, or action: drop"));
            }
            (other, ..) => {
                let reason = format!("unknown action {other:?}; a rule with match has map or drop");
                return Err(RuleError::new(line, reason));
            }
        };
        Ok(Self { glob, parts, outcome })
    }

    /// Changes the labels if the name matches. Returns false if the series is dropped.
    pub(super) fn apply(&self, labels: &mut LabelSet<'_>) -> Result<bool, TooMuch> {
        let path = labels.get(METRIC_NAME).to_owned();
        labels.steps.take(labels.count() + path.len())?;
        let Some(stars) = self.stars(&path) else { return Ok(true) };
        let Outcome::Map { name, labels: set, .. } = &self.outcome else { return Ok(false) };
        let group = |number: usize| if number == 0 { &*path } else { stars[number - 1] };
        labels.set(METRIC_NAME, &name.expand(group)?)?;
        for (name, value) in set {
            labels.set(name, &value.expand(group)?)?;
        }
        Ok(true)
    }

    /// The parts of a path that the stars stand for. `None` if the path does not match.
    fn stars<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let (mut stars, mut found) = (Vec::new(), path.split('.'));
        for part in &self.parts {
            let found = found.next()?;
            match part {
                Some(part) if part != found => return None,
                Some(_) => {}
                None => stars.push(found),
            }
        }
        found.next().is_none().then_some(stars)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // templates take little more than their texts
        size_of::<Self>()
            + 4 * self.glob.len()
            + self.parts.len() * size_of::<Option<String>>()
            + match &self.outcome {
                Outcome::Drop => 0,
                Outcome::Map { name_text, labels, .. } => 4 * name_text.len() + 256 * labels.len(),
            }
    }

    /// The rule on one line, for people.
    pub(super) fn summary(&self) -> String {
        match &self.outcome {
            Outcome::Drop => format!("drop {}", self.glob),
            Outcome::Map { name_text, .. } => format!("map {} to {name_text}", self.glob),
        }
    }
}

/// A glob, with its parts.
fn parts(node: &Node) -> Result<(String, Vec<Option<String>>), RuleError> {
    let glob = node.text("match")?;
    let part = |part: &str| match part {
        "*" => Ok(None),
        part if part.contains('*') => {
            Err(node.error(format!("{part:?}: a star stands for a whole part between dots")))
        }
        part => Ok(Some(part.to_owned())),
    };
    let parts = glob.split('.').map(part).collect::<Result<Vec<_>, _>>()?;
    match parts.len() {
        0..=PARTS_MAX => Ok((glob.to_owned(), parts)),
        _ => Err(node.error(format!("match has more than {PARTS_MAX} parts"))),
    }
}

fn template(node: &Node, what: &str, stars: usize) -> Result<Template, RuleError> {
    let text = node.text(what)?;
    // with more groups than there can be, so that a missing one is found
    let template = Template::parse(text, PARTS_MAX + 1, |_| None);
    match template.last_group() {
        last if last > stars => {
            Err(node.error(format!("{what} {text:?} has ${last}, but match has {stars} stars")))
        }
        _ => Ok(template),
    }
}
