//! Which events a reader asks for.

use super::file::Record;

/// How many of the wanted tags an event must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagSet {
    All,
    Any,
}

#[derive(Debug, Clone)]
pub(crate) struct EventQuery {
    pub(crate) from_ms: i64,
    /// Inclusive.
    pub(crate) until_ms: i64,
    /// If there are none, tags do not matter.
    pub(crate) tags: Vec<String>,
    pub(crate) set: TagSet,
}

impl EventQuery {
    pub(super) fn matches(&self, record: &Record<'_>) -> bool {
        if !(self.from_ms..=self.until_ms).contains(&record.when_ms) {
            return false;
        }
        let mut wanted = self.tags.iter();
        let has = |tag: &String| record.tags.split_ascii_whitespace().any(|own| own == tag);
        match self.set {
            TagSet::All => wanted.all(has),
            TagSet::Any => self.tags.is_empty() || wanted.any(has),
        }
    }
}
