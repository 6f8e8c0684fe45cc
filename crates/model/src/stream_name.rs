use crate::caps::STREAM_BYTES_MAX;
use std::sync::Arc;

/// Valid name of a datastream: 1 to 100 of the characters `A-Z a-z 0-9 - _ .`, of which the first is a letter or digit.
/// Names are safe as path segments, and as names of tables if they are quoted.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamNameError {
    #[error("name of the stream is empty")]
    Empty,
    #[error("name of the stream is too long: max {STREAM_BYTES_MAX} characters, got {0}")]
    TooLong(usize),
    #[error("name of the stream contains unsupported character {0:?}")]
    Character(char),
    #[error("name of the stream begins with {0:?} instead of a letter or digit")]
    First(char),
}

impl StreamName {
    pub fn parse(text: &str) -> Result<Self, StreamNameError> {
        let Some(first) = text.chars().next() else { return Err(StreamNameError::Empty) };
        if text.len() > STREAM_BYTES_MAX {
            return Err(StreamNameError::TooLong(text.len()));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if let Some(c) = text.chars().find(|c| !allowed(*c)) {
            return Err(StreamNameError::Character(c));
        }
        if !first.is_ascii_alphanumeric() {
            return Err(StreamNameError::First(first));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, f)
    }
}

impl std::fmt::Display for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_streams_are_validated() {
        for good in ["a", "nginx.access-log_2", "0", &"x".repeat(100)] {
            assert_eq!(StreamName::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(StreamName::parse(""), Err(StreamNameError::Empty));
        assert_eq!(StreamName::parse(".."), Err(StreamNameError::First('.')));
        assert_eq!(StreamName::parse("_x"), Err(StreamNameError::First('_')));
        assert_eq!(StreamName::parse("a/b"), Err(StreamNameError::Character('/')));
        assert_eq!(StreamName::parse("é"), Err(StreamNameError::Character('é')));
        assert_eq!(StreamName::parse(&"x".repeat(101)), Err(StreamNameError::TooLong(101)));
    }
}
