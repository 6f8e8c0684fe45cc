//! YAML, as far as rule files need it: mappings, lists and texts, each with its line.
//!
//! Anchors, aliases and tags are errors. So a file never means more than it contains.

use crate::RuleError;
use model::SeriesKey;
use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

/// Limit on how deep lists and mappings are nested. Rule files need five levels.
const DEPTH_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Node {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<Field>),
}

/// A key of a mapping, with its value.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn error(&self, reason: impl Into<String>) -> RuleError {
        RuleError::new(self.line, reason)
    }

    /// Hash of the content. It does not depend on lines, comments and quotes.
    pub(super) fn fingerprint(&self) -> u128 {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        SeriesKey::of(&bytes, 0).0
    }

    /// Appends the content in a form that differs between any two contents: kinds, lengths, texts.
    fn encode(&self, out: &mut Vec<u8>) {
        fn put(text: &str, out: &mut Vec<u8>) {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        }
        match &self.content {
            Content::Null => out.push(0),
            Content::Text(text) => {
                out.push(1);
                put(text, out);
            }
            Content::List(items) => {
                out.push(2);
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.encode(out));
            }
            Content::Map(fields) => {
                out.push(3);
                out.extend((fields.len() as u64).to_le_bytes());
                for Field { key, value, .. } in fields {
                    put(key, out);
                    value.encode(out);
                }
            }
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The text. `what` names the value in the error.
    pub(super) fn text(&self, what: &str) -> Result<&str, RuleError> {
        match &self.content {
            Content::Text(text) => Ok(text),
            other => Err(self.error(format!("{what} is {}, not a text", other.noun()))),
        }
    }

    pub(super) fn list(&self, what: &str) -> Result<&[Self], RuleError> {
        match &self.content {
            Content::Null => Ok(&[]),
            Content::List(items) => Ok(items),
            other => Err(self.error(format!("{what} is {}, not a list", other.noun()))),
        }
    }

    pub(super) fn map(&self, what: &str) -> Result<&[Field], RuleError> {
        match &self.content {
            Content::Null => Ok(&[]),
            Content::Map(fields) => Ok(fields),
            other => Err(self.error(format!("{what} is {}, not a mapping", other.noun()))),
        }
    }
}

impl Content {
    const fn noun(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Parses a file with at most one document. A file without content is null.
pub(super) fn parse(text: &str) -> Result<Node, RuleError> {
    // YAML also ends lines with a single carriage return
    let last_line = text.matches(['\n', '\r']).count() + 1;
    let mut events = Events { parser: Parser::new_from_str(text), line: 1, last_line };
    let mut root = Node { line: 1, content: Content::Null };
    let mut documents = 0;
    loop {
        match events.next()? {
            Event::StreamEnd => return Ok(root),
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if documents == 1 => {
                return Err(events.error("there is a second document"));
            }
            Event::DocumentStart(_) => {
                documents = 1;
                let first = events.next()?;
                root = events.node(first, 0)?;
            }
            _ => return Err(events.error("content outside of a document")),
        }
    }
}

struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// Where the last event begins.
    line: usize,
    last_line: usize,
}

impl<'t> Events<'t> {
    fn error(&self, reason: impl Into<String>) -> RuleError {
        RuleError::new(self.line, reason)
    }

    fn next(&mut self) -> Result<Event<'t>, RuleError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line().clamp(1, self.last_line);
                Ok(event)
            }
            Some(Err(error)) => Err(RuleError::new(
                error.marker().line().clamp(1, self.last_line),
                format!("invalid YAML: {}", error.info()),
            )),
            None => Ok(Event::StreamEnd),
        }
    }

    /// Returns the node that begins with an event. `depth` is the number of nodes around it.
    fn node(&mut self, first: Event<'t>, depth: usize) -> Result<Node, RuleError> {
        let line = self.line;
        if depth == DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} levels")));
        }
        let content = match first {
            Event::Alias(_) => return Err(self.error("aliases (*name) are not supported")),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                return Err(self.error("anchors (&name) are not supported"));
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => return Err(self.error("tags (!name) are not supported")),
            Event::Scalar(text, ScalarStyle::Plain, ..) if is_null(&text) => Content::Null,
            Event::Scalar(text, ..) => Content::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        item => items.push(self.node(item, depth + 1)?),
                    }
                }
                Content::List(items)
            }
            Event::MappingStart(..) => Content::Map(self.fields(depth)?),
            _ => return Err(self.error("a value is missing")),
        };
        Ok(Node { line, content })
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<Field>, RuleError> {
        let mut fields: Vec<Field> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(fields),
                key => self.node(key, depth + 1)?,
            };
            let (line, key) = match key.content {
                Content::Text(text) => (key.line, text),
                other => return Err(RuleError::new(key.line, format!("a key is {}", other.noun()))),
            };
            if !keys.insert(key.clone()) {
                return Err(RuleError::new(line, format!("the key {key:?} occurs twice")));
            }
            let value = self.next()?;
            let value = self.node(value, depth + 1)?;
            fields.push(Field { line, key, value });
        }
    }
}

fn is_null(plain: &str) -> bool {
    matches!(plain, "" | "~" | "null" | "Null" | "NULL")
}
