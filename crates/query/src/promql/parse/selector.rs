//! Selectors: a metric name, and matchers in braces.

use super::lexer::{self, Fault, Kind, Place, Token};
use super::operand::unquote;
use super::{Parser, Part};
use crate::matcher::{MatchOp, Matcher};
use crate::promql::ast::{Node, Selector, TimeShift};
use model::labels::METRIC_NAME;

impl<'t> Parser<'t, '_> {
    /// Parses `name`, `name{…}` or `{…}`.
    pub(super) fn selector(&mut self, name: Option<Token<'t>>) -> Result<Part, Fault> {
        let (mut at, mut matchers) = (self.at, Vec::new());
        let outside = name.is_some();
        let mut metric = None;
        if let Some(token) = name {
            at = token.at;
            self.take(token);
            metric = Some(token.text.to_owned());
        }
        let brace = self.peek()?;
        if brace.is("{") {
            at = if outside { at } else { brace.at };
            self.take(brace);
            self.braces(at, &mut metric, &mut matchers)?;
        }
        if let Some(name) = &metric {
            // as in Prometheus, braces may have two names: `{"a", __name__="b"}`
            let second = matchers.iter().find(|m| m.name == METRIC_NAME && outside);
            if let Some(second) = second {
                return Err((at, set_twice(name, &second.value)));
            }
            self.allowance.matcher(name.len()).map_err(|message| (at, message))?;
            matchers.insert(0, Matcher::equal(METRIC_NAME, name));
        }
        if matchers.iter().all(Matcher::matches_empty) {
            return Err((at, "vector selector must contain at least one non-empty matcher".into()));
        }
        let node = Node::Selector(Selector { matchers, time: TimeShift::default() });
        Ok(Part { node, at, depth: 1, bare: true })
    }

    /// Parses matchers up to the closing brace. A string without an operator is a metric name.
    fn braces(
        &mut self,
        at: usize,
        metric: &mut Option<String>,
        matchers: &mut Vec<Matcher>,
    ) -> Result<(), Fault> {
        let mut name = self.brace_token()?;
        while !name.is("}") {
            let label = match name.kind {
                Kind::Word => name.text.to_owned(),
                Kind::Text => unquote(name)?,
                _ => return Err(self.unexpected_in_braces(name, "identifier or \"}\"")),
            };
            self.take(name);
            let mut next = self.brace_token()?;
            if let Some(op) = match_op(&next) {
                self.take(next);
                matchers.push(self.matcher(&label, op)?);
                next = self.brace_token()?;
            } else if name.kind == Kind::Text {
                if let Some(first) = metric.replace(label) {
                    let second = metric.as_deref().unwrap_or_default();
                    return Err((at, set_twice(&first, second)));
                }
            } else {
                return Err(self.unexpected_in_braces(next, "label matching operator"));
            }
            if next.is(",") {
                self.take(next);
                next = self.brace_token()?;
            } else if !next.is("}") {
                return Err(self.unexpected_in_braces(next, "\",\" or \"}\""));
            }
            name = next;
        }
        self.take(name);
        Ok(())
    }

    fn matcher(&mut self, label: &str, op: MatchOp) -> Result<Matcher, Fault> {
        let value = self.brace_token()?;
        if value.kind != Kind::Text {
            return Err(self.unexpected_in_braces(value, "string"));
        }
        self.take(value);
        let text = unquote(value)?;
        let refused = |message: String| (value.at, message);
        self.allowance.matcher(label.len() + text.len()).map_err(refused)?;
        let matcher = Matcher::within(label, op, &text, |pattern| self.allowance.compilation(pattern));
        let matcher = matcher.map_err(|e| refused(e.to_string()))?;
        self.allowance.built(&matcher).map_err(refused)?;
        Ok(matcher)
    }

    fn brace_token(&self) -> Result<Token<'t>, Fault> {
        let token = lexer::token(self.text, self.at, Place::Braces)?;
        if token.kind == Kind::End {
            return Err((token.at, "unexpected end of input inside braces".into()));
        }
        Ok(token)
    }

    fn unexpected_in_braces(&self, token: Token<'_>, expected: &str) -> Fault {
        let described = match token.kind {
            Kind::Word => format!("identifier {:?}", token.text),
            _ if match_op(&token).is_some_and(|op| op != MatchOp::Equal) => format!("<op:{}>", token.text),
            _ => super::described(token),
        };
        (token.at, format!("unexpected {described} in label matching, expected {expected}"))
    }
}

fn match_op(token: &Token<'_>) -> Option<MatchOp> {
    match (token.kind, token.text) {
        (Kind::Symbol, "=") => Some(MatchOp::Equal),
        (Kind::Symbol, "!=") => Some(MatchOp::NotEqual),
        (Kind::Symbol, "=~") => Some(MatchOp::Regex),
        (Kind::Symbol, "!~") => Some(MatchOp::NotRegex),
        _ => None,
    }
}

fn set_twice(first: &str, second: &str) -> String {
    format!("metric name must not be set twice: {first:?} or {second:?}")
}
