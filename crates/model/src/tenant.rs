use crate::caps::TENANT_BYTES_MAX;
use std::sync::Arc;

/// Valid name of a tenant: 1 to 150 of the characters `A-Z a-z 0-9 ! - _ . * ' ( )`, but not `.` or
/// `..`. These are the rules of Mimir. Names are safe as path segments and in HTTP headers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    #[error("tenant ID is empty")]
    Empty,
    #[error("tenant ID is too long: max {TENANT_BYTES_MAX} characters, got {0}")]
    TooLong(usize),
    #[error("tenant ID contains unsupported character {0:?}")]
    Character(char),
    #[error("tenant ID is '.' or '..'")]
    PathSegment,
}

impl TenantId {
    /// The name of the tenant for requests that do not name one.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// Stands for all tenants without data where requests are counted by tenant. This is not a valid name, so no tenant
    /// has it. It is never stored.
    pub fn without_data() -> Self {
        Self("?".into())
    }

    pub fn parse(text: &str) -> Result<Self, TenantError> {
        if text.is_empty() {
            return Err(TenantError::Empty);
        }
        if text.len() > TENANT_BYTES_MAX {
            return Err(TenantError::TooLong(text.len()));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!-_.*'()".contains(c);
        if let Some(c) = text.chars().find(|c| !allowed(*c)) {
            return Err(TenantError::Character(c));
        }
        if text == "." || text == ".." {
            return Err(TenantError::PathSegment);
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, f)
    }
}

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_names_are_validated() {
        for good in ["a", "team-a", "(x)*'!_.", "...", &"x".repeat(150)] {
            assert_eq!(TenantId::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(TenantId::parse(""), Err(TenantError::Empty));
        assert_eq!(TenantId::parse(".."), Err(TenantError::PathSegment));
        assert_eq!(TenantId::parse("a/b"), Err(TenantError::Character('/')));
        assert_eq!(TenantId::parse("a|b"), Err(TenantError::Character('|')));
        assert_eq!(TenantId::parse("é"), Err(TenantError::Character('é')));
        assert!(TenantId::parse(TenantId::without_data().as_str()).is_err());
        assert_eq!(TenantId::parse(&"x".repeat(151)), Err(TenantError::TooLong(151)));
    }
}
