//! Filters on the labels of a series.

/// Predicate on one label, translated from a query's matcher.
#[derive(Debug)]
pub struct Filter<'a> {
    pub name: &'a str,
    /// A missing label has the empty value.
    pub kind: FilterKind<'a>,
}

#[derive(Clone, Copy)]
pub enum FilterKind<'a> {
    Equal(&'a str),
    OneOf(&'a [String]),
    /// All values for which the function is true. The function runs under the head's lock, so it must be
    /// quick.
    Predicate(&'a dyn Fn(&str) -> bool),
    /// All values for which `matches` is true. It may take long, so it never runs under the lock, and only for values that
    /// begin with `prefix`. Other values must pass exactly if the empty value does.
    Pattern {
        prefix: &'a str,
        matches: &'a dyn Fn(&str) -> bool,
    },
}

impl std::fmt::Debug for FilterKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => write!(f, "Equal({value:?})"),
            Self::OneOf(values) => write!(f, "OneOf({values:?})"),
            Self::Predicate(_) => f.write_str("Predicate"),
            Self::Pattern { prefix, .. } => write!(f, "Pattern({prefix:?})"),
        }
    }
}

impl FilterKind<'_> {
    pub(crate) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equal(v) => *v == value,
            Self::OneOf(values) => values.binary_search_by(|v| v.as_str().cmp(value)).is_ok(),
            Self::Predicate(matches) | Self::Pattern { matches, .. } => matches(value),
        }
    }
}
