//! Claims that contain roles or tenants: how their names are written, and how their values are read.

use serde_json::{Map, Value};

/// Limit on the tenants, and on the roles, in a token. The tenant of each request is compared with all of them.
const WORDS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimName {
    Member(String),
    /// Path to a nested claim, as a JSON Pointer (RFC 6901) such as `/resource_access/app/roles`.
    Pointer(String),
}

impl ClaimName {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "/" => None,
            _ if text.starts_with('/') => Some(Self::Pointer(text.to_owned())),
            _ => Some(Self::Member(text.to_owned())),
        }
    }

    /// Reads the value of the claim: an array of strings, or one string of words separated by spaces, as in `scope`.
    pub(super) fn words<'a>(&self, claims: &'a Map<String, Value>) -> Vec<&'a str> {
        let value = match self {
            Self::Member(name) => claims.get(name),
            Self::Pointer(path) => pointed_at(claims, path),
        };
        match value {
            Some(Value::String(text)) => text.split_ascii_whitespace().take(WORDS_MAX).collect(),
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).take(WORDS_MAX).collect(),
            _ => Vec::new(),
        }
    }
}

fn pointed_at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) =
        path[1..].split_once('/').map_or((&path[1..], ""), |(first, _)| (first, &path[1 + first.len()..]));
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_of_claims() {
        let Value::Object(claims) = json!({
            "scope": " read  write ",
            "https://example.com/roles": ["admin", 7, null, "read"],
            "resource_access": { "a/b": { "roles": ["metrics"] } },
            "number": 7,
        }) else {
            unreachable!()
        };
        let check = |name: &str, expected: &[&str]| {
            assert_eq!(ClaimName::parse(name).unwrap().words(&claims), expected, "{name}");
        };
        check("scope", &["read", "write"]);
        check("/scope", &["read", "write"]);
        check("https://example.com/roles", &["admin", "read"]);
        check("/resource_access/a~1b/roles", &["metrics"]);
        check("/resource_access/a~1b", &[]);
        check("/resource_access/c/roles", &[]);
        check("number", &[]);
        check("none", &[]);
        assert_eq!((ClaimName::parse(""), ClaimName::parse("/")), (None, None));
    }
}
