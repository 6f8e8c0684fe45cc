use super::Stop;
use model::{SeriesKey, TimeRange};
use std::collections::HashSet;
use std::sync::Arc;

/// Test of a label's value. The value is empty for series without the label.
pub type ValueTest = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Clone)]
pub struct Matcher {
    /// Label name, perhaps `__name__`.
    pub label: String,
    pub test: ValueTest,
}

impl Matcher {
    pub fn new(label: &str, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { label: label.into(), test: Arc::new(test) }
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Matcher").field(&self.label).finish()
    }
}

/// Rows and samples that a read returns.
#[derive(Debug, Clone)]
pub struct Select {
    /// Names of the wanted metrics, sorted; `None` for all.
    pub names: Option<Vec<String>>,
    /// What the names of all wanted metrics begin with, by which files, row groups and pages are excluded. Rows of other
    /// metrics may still be returned, so a matcher must test the names, too. Empty if nothing is known.
    pub name_prefix: String,
    /// Keys of the wanted series; `None` for all.
    pub series: Option<Arc<HashSet<SeriesKey>>>,
    /// A series must pass all of these matchers.
    pub matchers: Vec<Matcher>,
    pub range: TimeRange,
    /// If `false`, only the labels of rows that overlap the range are read.
    pub samples: bool,
    pub stop: Stop,
}

impl Select {
    pub const ALL: Self = Self {
        names: None,
        name_prefix: String::new(),
        series: None,
        matchers: Vec::new(),
        range: TimeRange::ALL,
        samples: true,
        stop: Stop::NEVER,
    };

    pub(crate) const fn takes_all_series(&self) -> bool {
        !self.restricts_names() && self.series.is_none() && self.matchers.is_empty()
    }

    /// True if [`Self::names_may_match`] may return false.
    pub(crate) const fn restricts_names(&self) -> bool {
        self.names.is_some() || !self.name_prefix.is_empty()
    }

    /// True if a name between `min` and `max` may be wanted.
    pub(crate) fn names_may_match(&self, min: Option<&[u8]>, max: Option<&[u8]>) -> bool {
        self.a_name_is_between(min, max) && self.prefix_is_between(min, max)
    }

    fn a_name_is_between(&self, min: Option<&[u8]>, max: Option<&[u8]>) -> bool {
        self.names.as_ref().is_none_or(|names| {
            let first = names.partition_point(|n| min.is_some_and(|min| n.as_bytes() < min));
            names.get(first).is_some_and(|n| max.is_none_or(|max| n.as_bytes() <= max))
        })
    }

    /// True if a name that begins with the prefix may be between `min` and `max`.
    fn prefix_is_between(&self, min: Option<&[u8]>, max: Option<&[u8]>) -> bool {
        let prefix = self.name_prefix.as_bytes();
        min.is_none_or(|min| min <= prefix || min.starts_with(prefix)) && max.is_none_or(|max| max >= prefix)
    }
}
