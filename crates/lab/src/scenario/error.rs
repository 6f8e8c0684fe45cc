//! Errors in a scenario, which show the line that is wrong.

use std::fmt;
use std::ops::Range;

const DISTANCE_MAX: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// Line and column from 1, if known.
    pub at: Option<(usize, usize)>,
    pub message: String,
    /// The line with the error, and how many characters of it are marked.
    excerpt: Option<(String, usize)>,
}

/// An error in the value of a key, which is found only after parsing. The position of the key is looked up later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyFault {
    pub(super) path: &'static str,
    pub(super) message: String,
}

impl ScenarioError {
    pub(super) fn plain(message: impl Into<String>) -> Self {
        Self { at: None, message: message.into(), excerpt: None }
    }

    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let message = with_suggestion(error.message());
        match error.span() {
            Some(span) => Self::spanned(text, span, message),
            None => Self::plain(message),
        }
    }

    /// Error at the key `fault.path`, or at the innermost table on its path if the key is missing.
    pub(super) fn at_key(text: &str, fault: &KeyFault) -> Self {
        let message = format!("{}: {}", fault.path, fault.message);
        match locate(text, fault.path) {
            Some(span) => Self::spanned(text, span, message),
            None => Self::plain(message),
        }
    }

    /// Says in the message that the error came from the `changes` on the command line. The error then has no line in
    /// the file.
    pub(super) fn after(self, changes: &str) -> Self {
        Self::plain(format!("with the changes {changes}: {}", self.message))
    }

    fn spanned(text: &str, span: Range<usize>, message: String) -> Self {
        let start = span.start.min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = before[line_start..].chars().count();
        let left = line.chars().count().saturating_sub(column);
        let marked = span.end.saturating_sub(start).clamp(1, left.max(1));
        let number = before.matches('\n').count() + 1;
        Self { at: Some((number, column + 1)), message, excerpt: Some((line.to_owned(), marked)) }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some((line, column)), Some((excerpt, marked))) = (self.at, &self.excerpt) else {
            return f.write_str(&self.message);
        };
        writeln!(f, "line {line}, column {column}: {}", self.message)?;
        writeln!(f, "{line:5} | {excerpt}")?;
        write!(f, "      | {}{}", " ".repeat(column - 1), "^".repeat(*marked))
    }
}

impl std::error::Error for ScenarioError {}

/// Finds a key such as `load.metrics` in the text. If it is missing, finds the innermost existing table on its path.
fn locate(text: &str, path: &str) -> Option<Range<usize>> {
    let root = toml::de::DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    for key in path.split('.') {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref().as_ref() == key) else {
            break;
        };
        found = Some(name.span());
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => table = inner,
            toml::de::DeValue::Array(items) => {
                // only the first table of the array is shown, but the message says which table is meant
                match items.iter().next().map(toml::Spanned::get_ref) {
                    Some(toml::de::DeValue::Table(inner)) => table = inner,
                    _ => break,
                }
            }
            _ => break,
        }
    }
    found
}

/// If the message says that a name is unknown, adds the most similar name that is known.
fn with_suggestion(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let (true, Some((meant, known))) = (unknown, names.split_first()) else { return message.to_owned() };
    let nearest = known.iter().map(|name| (distance(meant, name), name)).min();
    match nearest {
        Some((letters, name)) if letters <= DISTANCE_MAX.min(name.len() - 1) => {
            let kind = message.split(' ').nth(1).unwrap_or_default();
            format!("unknown {kind} `{meant}`; did you mean `{name}`?")
        }
        _ => message.to_owned(),
    }
}

/// Number of characters to insert, delete or change to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
