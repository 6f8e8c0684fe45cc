use crate::TenantId;

/// Patterns for names of tenants, in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPatterns(Vec<String>);

impl TenantPatterns {
    pub const fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// Memory of the patterns. The allocator rounds up short texts to 16 bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.0.iter().map(|pattern| pattern.capacity().next_multiple_of(16));
        self.0.capacity() * size_of::<String>() + texts.sum::<usize>()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub const fn as_slice(&self) -> &[String] {
        self.0.as_slice()
    }

    pub fn matches(&self, tenant: &TenantId) -> bool {
        self.0.iter().any(|pattern| matches(pattern, tenant.as_str()))
    }

    /// The only tenant that the patterns can match. `None` if they can match several.
    pub fn only(&self) -> Option<TenantId> {
        match &*self.0 {
            [name] if !name.contains('*') => TenantId::parse(name).ok(),
            _ => None,
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (pieces, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in pieces.split('*') {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let check = |pattern, yes: &[&str], no: &[&str]| {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        };
        check("team-a", &["team-a"], &["team-ab", "xteam-a", ""]);
        check("team-*", &["team-", "team-a"], &["team", "xteam-a"]);
        check("*", &["", "a"], &[]);
        check("*-prod", &["a-prod", "-prod", "-prod-prod"], &["prod", "a-prod1"]);
        check("a*b*c", &["abc", "axbxc", "abcbc", "abbc"], &["ac", "ab", "acb", "abcd"]);
        check("a*a", &["aa", "aba"], &["a"]);
        check("**", &["", "a"], &[]);
    }

    #[test]
    fn one_name_is_the_only_tenant() {
        let only = |patterns: &[&str]| {
            TenantPatterns::new(patterns.iter().map(|&pattern| pattern.to_owned()).collect()).only()
        };
        assert_eq!(only(&["a"]), TenantId::parse("a").ok());
        assert_eq!((only(&["a*"]), only(&["a", "b"]), only(&[])), (None, None, None));
    }
}
