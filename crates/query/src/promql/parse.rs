//! Parser: text to expression tree.
//!
//! - [`lexer`], [`quoted`], [`number`]: tokens
//! - [`grammar`]: operators and their modifiers
//! - [`operand`]: operands, with the brackets after them
//! - [`selector`]: metric names and matchers
//! - [`types`]: type checks
//!
//! Parsing ends at the first error. The message has Prometheus' wording, with line and column: `1:5: parse
//! error: …`.

mod grammar;
mod lexer;
mod number;
mod operand;
mod quoted;
mod selector;
mod types;

use super::ast::{Node, Selector, TimeShift};
use super::{EXPR_BYTES_MAX, EXPR_DEPTH_MAX, QueryError};
use crate::allowance::Allowance;
use crate::matcher::Matcher;
use lexer::{Fault, Kind, Place, Token};

/// Maximum nesting of brackets, signs and powers, because the parser recurses.
const NESTING_MAX: usize = 100;

/// Longest duration, in milliseconds: a thousand years.
const DURATION_MS_MAX: i64 = 1000 * 365 * 24 * 3600 * 1000;

pub(super) fn expression(text: &str, allowance: &mut Allowance) -> Result<Node, QueryError> {
    if text.len() > EXPR_BYTES_MAX {
        let message = format!("expression has {} bytes, the limit is {EXPR_BYTES_MAX}", text.len());
        return Err(QueryError::Parse(message));
    }
    let mut parser = Parser { text, at: 0, parens: 0, nesting: 0, allowance };
    parser.whole().map_err(|(at, message)| match parser.allowance.is_interrupted() {
        true => QueryError::Canceled,
        false => error_at(text, at, &message),
    })
}

/// Parses a series selector without modifiers.
pub(super) fn selector(text: &str, allowance: &mut Allowance) -> Result<Vec<Matcher>, QueryError> {
    match expression(text, allowance)? {
        Node::Selector(Selector { matchers, time: TimeShift { at: None, offset_ms: 0 } }) => Ok(matchers),
        _ => Err(error_at(text, 0, "expected a series selector without modifiers")),
    }
}

fn error_at(text: &str, at: usize, message: &str) -> QueryError {
    if message == NOTHING {
        return QueryError::Parse(format!("unknown position: parse error: {message}"));
    }
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    QueryError::Parse(format!("{line}:{column}: parse error: {message}"))
}

const NOTHING: &str = "no expression found in input";

struct Parser<'t, 'a> {
    text: &'t str,
    /// Byte offset at which the rest of the text begins, which is not parsed yet.
    at: usize,
    parens: usize,
    nesting: usize,
    allowance: &'a mut Allowance,
}

struct Part {
    node: Node,
    at: usize,
    depth: usize,
    /// A selector or subquery without parentheses, which may take a range and modifiers.
    bare: bool,
}

impl Part {
    const fn leaf(node: Node, at: usize) -> Self {
        Self { node, at, depth: 1, bare: false }
    }
}

impl<'t> Parser<'t, '_> {
    fn whole(&mut self) -> Result<Node, Fault> {
        if self.peek()?.kind == Kind::End {
            return Err((0, NOTHING.into()));
        }
        let part = self.expr(0)?;
        match self.peek()? {
            Token { kind: Kind::End, .. } => Ok(part.node),
            more => Err(self.unexpected(more, "", "")),
        }
    }

    /// Counts a node before it is created.
    fn count(&mut self, at: usize, text_bytes: usize) -> Result<(), Fault> {
        self.allowance.node(text_bytes).map_err(|message| (at, message))
    }

    fn peek(&self) -> Result<Token<'t>, Fault> {
        lexer::token(self.text, self.at, Place::Open)
    }

    fn take(&mut self, token: Token<'t>) {
        self.at = token.end();
    }

    fn take_if(&mut self, symbol: &str) -> Result<bool, Fault> {
        let token = self.peek()?;
        if token.is(symbol) {
            self.take(token);
        }
        Ok(token.is(symbol))
    }

    fn open_paren(&mut self, context: &str) -> Result<(), Fault> {
        let token = self.peek()?;
        if !token.is("(") {
            return Err(self.unexpected(token, context, "\"(\""));
        }
        self.parens += 1;
        self.take(token);
        Ok(())
    }

    fn close_paren(&mut self, context: &str, expected: &str) -> Result<(), Fault> {
        let token = self.peek()?;
        if !token.is(")") {
            return Err(self.unexpected(token, context, expected));
        }
        self.parens -= 1;
        self.take(token);
        Ok(())
    }

    /// Wraps a node whose deepest operand has the depth `deepest`. Fails if the expression gets too deep.
    fn above(&self, node: Node, at: usize, deepest: usize) -> Result<Part, Fault> {
        if deepest >= EXPR_DEPTH_MAX {
            return Err(too_deep(at, EXPR_DEPTH_MAX));
        }
        Ok(Part { node, at, depth: deepest + 1, bare: false })
    }

    fn unexpected(&self, token: Token<'_>, context: &str, expected: &str) -> Fault {
        let message = match token.kind {
            Kind::End if self.parens > 0 => "unclosed left parenthesis".to_owned(),
            Kind::Symbol if token.text == ")" && self.parens == 0 => {
                "unexpected right parenthesis ')'".into()
            }
            Kind::Symbol if token.text == "]" => "unexpected right bracket ']'".into(),
            Kind::Symbol if token.text == "}" => "unexpected character: '}'".into(),
            _ => {
                let context = if context.is_empty() { String::new() } else { format!(" in {context}") };
                let expected =
                    if expected.is_empty() { String::new() } else { format!(", expected {expected}") };
                format!("unexpected {}{context}{expected}", described(token))
            }
        };
        (token.at, message)
    }
}

fn too_deep(at: usize, levels: usize) -> Fault {
    (at, format!("expression nests deeper than {levels} levels"))
}

/// Describes a token in the words of Prometheus.
fn described(token: Token<'_>) -> String {
    let text = token.text;
    let lower = text.to_ascii_lowercase();
    match token.kind {
        Kind::End => "end of input".into(),
        Kind::Symbol if text.contains(|c| "+-*/%^<>!".contains(c)) || text == "==" => format!("<op:{text}>"),
        Kind::Symbol => format!("{text:?}"),
        Kind::Word if grammar::is_operator_word(&lower) => format!("<op:{text}>"),
        Kind::Word if operand::aggregate_op(&lower).is_some() => format!("<aggr:{text}>"),
        Kind::Word if operand::is_keyword(&lower) => format!("<{text}>"),
        Kind::Word if text.contains(':') => format!("metric identifier {text:?}"),
        Kind::Word => format!("identifier {text:?}"),
        Kind::Number => format!("number {text:?}"),
        Kind::Duration => format!("duration {text:?}"),
        Kind::Text if text.chars().count() > 10 => {
            format!("string {:?}...", text.chars().take(10).collect::<String>())
        }
        Kind::Text => format!("string {text:?}"),
    }
}

const _: () = assert!(4 * size_of::<Part>() <= 512, "allowance::NODE_BYTES");

#[cfg(test)]
mod tests;
