use crate::caps::QUERY_TENANTS_MAX;
use crate::{TenantError, TenantId};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TenantSet(Arc<[TenantId]>);

const SEPARATOR: char = '|';

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantSetError {
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error("names {0} tenants, the limit is {QUERY_TENANTS_MAX}")]
    TooMany(usize),
}

impl TenantSet {
    /// Parses names separated by `|`. A name that occurs twice counts twice toward the limit.
    pub fn parse(text: &str) -> Result<Self, TenantSetError> {
        let count = text.split(SEPARATOR).count();
        if count > QUERY_TENANTS_MAX {
            return Err(TenantSetError::TooMany(count));
        }
        let mut tenants = text.split(SEPARATOR).map(TenantId::parse).collect::<Result<Vec<_>, _>>()?;
        tenants.sort_unstable();
        tenants.dedup();
        Ok(Self(tenants.into()))
    }

    pub fn only(&self) -> Option<&TenantId> {
        match &*self.0 {
            [one] => Some(one),
            _ => None,
        }
    }

    pub fn first(&self) -> &TenantId {
        self.0.first().expect("BUG: a set of tenants is empty")
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &TenantId> {
        self.0.iter()
    }
}

impl From<TenantId> for TenantSet {
    fn from(tenant: TenantId) -> Self {
        Self(Arc::new([tenant]))
    }
}

impl std::fmt::Display for TenantSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, tenant) in self.iter().enumerate() {
            if i > 0 {
                write!(f, "{SEPARATOR}")?;
            }
            write!(f, "{tenant}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_count_once() {
        let text = |text: &str| TenantSet::parse(text).map(|set| set.to_string());
        assert_eq!(text("a"), Ok("a".into()));
        assert_eq!(text("b|a|b"), Ok("a|b".into()));
        for empty in ["", "a|", "|a", "a||b"] {
            assert_eq!(text(empty), Err(TenantError::Empty.into()), "{empty}");
        }
        assert_eq!(text("a|b/c"), Err(TenantError::Character('/').into()));
        let many = |count| vec!["a"; count].join("|");
        assert_eq!(text(&many(QUERY_TENANTS_MAX)), Ok("a".into()));
        assert_eq!(text(&many(QUERY_TENANTS_MAX + 1)), Err(TenantSetError::TooMany(QUERY_TENANTS_MAX + 1)));
        let set = TenantSet::parse("b|a").unwrap();
        assert_eq!((set.only(), set.first().as_str()), (None, "a"));
        assert_eq!(TenantSet::parse("a|a").unwrap().only(), TenantId::parse("a").ok().as_ref());
    }
}
