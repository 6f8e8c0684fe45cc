//! Limits on the expressions and selectors of one request. The parser counts against them.

use crate::Interrupt;
use crate::matcher::{Matcher, Program};
use std::sync::Arc;

/// Maximum number of nodes in a request's expressions. A label in a grouping counts as a node.
pub const NODES_MAX: usize = 10_000;

/// Maximum number of matchers in all selectors of a request.
pub const MATCHERS_MAX: usize = 1_000;

/// Maximum number of a request's regular expressions that need the regex engine, also in `label_replace`.
pub const PATTERNS_MAX: usize = 64;

/// Upper bound on the memory of a node while it is parsed.
const NODE_BYTES: usize = 512;

/// Memory of a matcher's forms, without their texts: the parsed matcher, its pattern, and the filter that the
/// tables use.
const MATCHER_BYTES: usize = 512;

/// Upper bound on the number of copies of a matcher's text: in the parsed matcher, in its pattern, and in the
/// filter that the tables use.
const MATCHER_TEXTS: usize = 4;

/// Counts the nodes, matchers, regular expressions and memory of one request, and refuses what exceeds a
/// limit.
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
    /// `bytes_max` limits the memory of syntax trees and compiled patterns.
    pub const fn new(bytes_max: u64) -> Self {
        Self { nodes: 0, matchers: 0, patterns: 0, spent_bytes: 0, bytes_max, interrupt: None }
    }

    /// Ends parsing once `interrupt` is set.
    pub fn until(self, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// An allowance of its own with a part of the memory, for work of the same request.
    pub(crate) fn part(&self, parts: u64) -> Self {
        Self { interrupt: self.interrupt.clone(), ..Self::new(self.bytes_max / parts) }
    }

    pub(crate) const fn interrupt(&self) -> Option<&Arc<dyn Interrupt>> {
        self.interrupt.as_ref()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.is_set())
    }

    pub const fn spent_bytes(&self) -> u64 {
        self.spent_bytes
    }

    pub(crate) fn node(&mut self, text_bytes: usize) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(format!(
                "a request may have at most {NODES_MAX} arguments, operators and label names"
            ));
        }
        self.spend(NODE_BYTES + text_bytes)
    }

    pub(crate) fn matcher(&mut self, text_bytes: usize) -> Result<(), String> {
        self.matchers += 1;
        if self.matchers > MATCHERS_MAX {
            return Err(format!("a request may have at most {MATCHERS_MAX} matchers"));
        }
        self.spend(MATCHER_BYTES + MATCHER_TEXTS * text_bytes)
    }

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

    /// Counts a regular expression that needs the regex engine. Its memory is counted elsewhere.
    pub(crate) fn pattern(&mut self) -> Result<(), String> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(format!(
                "a request may have at most {PATTERNS_MAX} regular expressions other than prefixes and lists"
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

    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let spent_bytes = self.spent_bytes.saturating_add(bytes as u64);
        if spent_bytes > self.bytes_max {
            return Err(self.too_large(bytes as u64));
        }
        self.spent_bytes = spent_bytes;
        Ok(())
    }

    fn too_large(&self, more: u64) -> String {
        format!(
            "parsing the request takes {} KiB of memory, the limit for one query is {} KiB and grows with --memory",
            (self.spent_bytes + more) >> 10,
            self.bytes_max >> 10
        )
    }
}
