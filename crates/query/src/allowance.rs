//! Limits on the expressions and selectors of one request, counted during parsing.
//!
//! The limits are per request: a request may have a thousand `match[]`, and an expression any number of selectors.

use crate::Interrupt;
use crate::matcher::{Matcher, Program};
use std::sync::Arc;

/// Nodes of all trees of a request; a label in a grouping counts as one. A generated rule has a few hundred.
pub const NODES_MAX: usize = 10_000;

/// Matchers of all selectors of a request. Each of them walks the values of its label, up to one for each series.
pub const MATCHERS_MAX: usize = 1_000;

/// Regular expressions of a request that need the regex engine, those of `label_replace` included. Lists of alternatives
/// and prefixes do not.
pub const PATTERNS_MAX: usize = 64;

/// Memory of a node: in the argument list where it is parsed, twice while the list grows, and in the tree.
const NODE_BYTES: usize = 512;

/// Memory of a matcher without its texts: in the tree, as a filter of heads, and as a predicate of tables.
const MATCHER_BYTES: usize = 512;

/// Copies of a matcher's text: as parsed, as pattern, and for the tables.
const MATCHER_TEXTS: usize = 4;

/// Counts the parts of one request against its limits.
#[derive(Debug)]
pub struct Allowance {
    nodes: usize,
    matchers: usize,
    patterns: usize,
    spent_bytes: u64,
    bytes_max: u64,
    interrupt: Option<Arc<dyn Interrupt>>,
}

impl Allowance {
    /// Creates an allowance for trees and patterns of at most `bytes_max`.
    pub const fn new(bytes_max: u64) -> Self {
        Self { nodes: 0, matchers: 0, patterns: 0, spent_bytes: 0, bytes_max, interrupt: None }
    }

    /// Ends parsing once `interrupt` is set. It is checked before each pattern is compiled, because that is the slow part.
    pub fn until(self, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// True once the result is no longer wanted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.is_set())
    }

    /// Memory of trees and patterns so far.
    pub const fn spent_bytes(&self) -> u64 {
        self.spent_bytes
    }

    /// Counts a node with `text_bytes` of its own.
    pub(crate) fn node(&mut self, text_bytes: usize) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(format!(
                "a request may have at most {NODES_MAX} arguments, operators and label names"
            ));
        }
        self.spend(NODE_BYTES + text_bytes)
    }

    /// Counts a matcher with `text_bytes`, before it is built.
    pub(crate) fn matcher(&mut self, text_bytes: usize) -> Result<(), String> {
        self.matchers += 1;
        if self.matchers > MATCHERS_MAX {
            return Err(format!("a request may have {MATCHERS_MAX} matchers, not more"));
        }
        self.spend(MATCHER_BYTES + MATCHER_TEXTS * text_bytes)
    }

    /// Checks that there is memory to compile `pattern`.
    pub(crate) fn compilation(&mut self, pattern: &str) -> Result<(), String> {
        if self.is_interrupted() {
            return Err("the request was canceled".into());
        }
        let bytes = Program::compilation_bytes(pattern) as u64;
        if self.spent_bytes.saturating_add(bytes) > self.bytes_max {
            return Err(self.too_large(bytes));
        }
        Ok(())
    }

    /// Counts a pattern that needs the regex engine. Its memory is counted separately, once it is compiled.
    pub(crate) fn pattern(&mut self) -> Result<(), String> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(format!(
                "a request may have at most {PATTERNS_MAX} regular expressions besides prefixes and lists"
            ));
        }
        Ok(())
    }

    /// Counts the memory of a built matcher beyond what [`Self::matcher`] counted.
    pub(crate) fn built(&mut self, matcher: &Matcher) -> Result<(), String> {
        if matcher.needs_engine() {
            self.pattern()?;
        }
        self.spend(matcher.pattern_bytes())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let spent_bytes = self.spent_bytes.saturating_add(bytes as u64);
        if spent_bytes > self.bytes_max {
            return Err(self.too_large(bytes as u64));
        }
        self.spent_bytes = spent_bytes;
        Ok(())
    }

    fn too_large(&self, more: u64) -> String {
        format!(
            "parsing the request needs {} KiB of memory, and one query may hold {} KiB; the limit grows with --memory",
            (self.spent_bytes + more) >> 10,
            self.bytes_max >> 10
        )
    }
}
