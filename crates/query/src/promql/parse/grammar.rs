//! Operators: their precedence and their modifiers.

use super::lexer::{Fault, Kind, Token};
use super::{NESTING_MAX, Parser, Part, too_deep, types};
use crate::promql::ValueType;
use crate::promql::ast::{Binary, BinaryOp, Many, Matching, Node};

/// Precedence of `*`, and of a sign.
const PRODUCT: u8 = 5;

const POWER: u8 = 6;

fn operator(token: &Token<'_>) -> Option<(BinaryOp, u8)> {
    let text = token.text.to_ascii_lowercase();
    Some(match (token.kind, text.as_str()) {
        (Kind::Word, "or") => (BinaryOp::Or, 1),
        (Kind::Word, "and") => (BinaryOp::And, 2),
        (Kind::Word, "unless") => (BinaryOp::Unless, 2),
        (Kind::Symbol, "==") => (BinaryOp::Eq, 3),
        (Kind::Symbol, "!=") => (BinaryOp::Ne, 3),
        (Kind::Symbol, ">") => (BinaryOp::Gt, 3),
        (Kind::Symbol, "<") => (BinaryOp::Lt, 3),
        (Kind::Symbol, ">=") => (BinaryOp::Ge, 3),
        (Kind::Symbol, "<=") => (BinaryOp::Le, 3),
        (Kind::Symbol, "+") => (BinaryOp::Add, 4),
        (Kind::Symbol, "-") => (BinaryOp::Sub, 4),
        (Kind::Symbol, "*") => (BinaryOp::Mul, PRODUCT),
        (Kind::Symbol, "/") => (BinaryOp::Div, PRODUCT),
        (Kind::Symbol, "%") => (BinaryOp::Mod, PRODUCT),
        (Kind::Word, "atan2") => (BinaryOp::Atan2, PRODUCT),
        (Kind::Symbol, "^") => (BinaryOp::Pow, POWER),
        _ => return None,
    })
}

/// True for words that are binary operators. `word` must be in lower case.
pub(super) fn is_operator_word(word: &str) -> bool {
    matches!(word, "and" | "or" | "unless" | "atan2")
}

impl Parser<'_, '_> {
    /// Parses operands, and the operators between them whose precedence is at least `least`.
    pub(super) fn expr(&mut self, least: u8) -> Result<Part, Fault> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(too_deep(self.at, NESTING_MAX));
        }
        let mut lhs = self.signed()?;
        loop {
            let token = self.peek()?;
            let Some((op, tightness)) = operator(&token).filter(|(_, tightness)| *tightness >= least) else {
                break;
            };
            self.count(token.at, 0)?;
            self.take(token);
            let (return_bool, matching) = self.modifiers()?;
            // `^` is right-associative, all others are left-associative
            let rhs = self.expr(if op == BinaryOp::Pow { tightness } else { tightness + 1 })?;
            let (at, deepest) = (lhs.at, lhs.depth.max(rhs.depth));
            let binary = Binary { op, lhs: lhs.node, rhs: rhs.node, return_bool, matching };
            types::check_operator(&binary).map_err(|message| (token.at, message))?;
            types::check_binary(&binary).map_err(|message| (at, message))?;
            lhs = self.above(Node::Binary(Box::new(binary)), at, deepest)?;
        }
        self.nesting -= 1;
        Ok(lhs)
    }

    /// Parses an operand with or without a sign. A sign binds like `*`: `-2^2` is -4.
    fn signed(&mut self) -> Result<Part, Fault> {
        let sign = self.peek()?;
        if !sign.is("+") && !sign.is("-") {
            return self.operand();
        }
        self.count(sign.at, 0)?;
        self.take(sign);
        let inner = self.expr(POWER)?;
        let value_type = inner.node.value_type();
        if !matches!(value_type, ValueType::Scalar | ValueType::Vector) {
            let message =
                "unary expression only allowed on expressions of type scalar or instant vector, got";
            return Err((sign.at, format!("{message} {:?}", value_type.described())));
        }
        match inner.node {
            node if sign.is("+") => Ok(Part { node, at: sign.at, depth: inner.depth, bare: false }),
            Node::Number(value) => Ok(Part::leaf(Node::Number(-value), sign.at)),
            node => self.above(Node::Negate(Box::new(node)), sign.at, inner.depth),
        }
    }

    /// Parses the modifiers after an operator: `bool`, `on (…) group_left (…)`, `fill (0)`.
    fn modifiers(&mut self) -> Result<(bool, Matching), Fault> {
        let return_bool = self.take_word("bool")?;
        let mut matching = Matching { on: self.take_word("on")?, ..Matching::default() };
        if matching.on || self.take_word("ignoring")? {
            matching.labels = self.label_names()?;
            let left = self.take_word("group_left")?;
            if left || self.take_word("group_right")? {
                matching.many = if left { Many::Left } else { Many::Right };
                if self.peek()?.is("(") {
                    matching.include = self.label_names()?;
                }
            }
        }
        self.fills(&mut matching)?;
        Ok((return_bool, matching))
    }

    /// Parses `fill (1)`, or `fill_left (1)` and `fill_right (2)`.
    fn fills(&mut self, matching: &mut Matching) -> Result<(), Fault> {
        if let Some(value) = self.fill("fill")? {
            (matching.fill_left, matching.fill_right) = (Some(value), Some(value));
            return Ok(());
        }
        matching.fill_left = self.fill("fill_left")?;
        matching.fill_right = self.fill("fill_right")?;
        if matching.fill_left.is_none() {
            matching.fill_left = self.fill("fill_left")?;
        }
        Ok(())
    }

    /// Parses `word (value)`, such as `fill (0)`. Returns `None` if the word does not follow, or is the name
    /// of a metric.
    fn fill(&mut self, word: &str) -> Result<Option<f64>, Fault> {
        let before = self.at;
        if !self.take_word(word)? {
            return Ok(None);
        }
        if !self.peek()?.is("(") {
            self.at = before;
            return Ok(None);
        }
        self.open_paren("fill value")?;
        let value = self.signed_number("fill value", "number")?;
        self.close_paren("fill value", "\")\"")?;
        Ok(Some(value))
    }

    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, Fault> {
        let token = self.peek()?;
        if token.is_word(word) {
            self.take(token);
        }
        Ok(token.is_word(word))
    }
}
