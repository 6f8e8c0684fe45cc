//! Parser: text to syntax tree, by the grammar of graphite-web.
//!
//! Parsing ends at the first error. The message has the place, counted in characters from 1.

mod path;

use super::ast::{Ast, Call, Kind, Literal};
use super::{TARGET_BYTES_MAX, TARGET_DEPTH_MAX};
use crate::QueryError;
use crate::allowance::Allowance;

/// What is wrong, and at which byte.
type Fault = (usize, String);

pub(super) fn target(text: &str, allowance: &mut Allowance) -> Result<Ast, QueryError> {
    if text.len() > TARGET_BYTES_MAX {
        let message = format!("target has {} bytes, the limit is {TARGET_BYTES_MAX}", text.len());
        return Err(QueryError::Parse(message));
    }
    let mut parser = Parser { text, at: 0, depth: 0, is_name: false, allowance };
    parser.whole().map_err(|(at, message)| match parser.allowance.is_interrupted() {
        true => QueryError::Canceled,
        false => error_at(text, at, &message),
    })
}

/// An error at a byte of a target. Shows the text from this byte on.
pub(super) fn error_at(text: &str, at: usize, message: &str) -> QueryError {
    let at = text.floor_char_boundary(at);
    let place = text[..at].chars().count() + 1;
    let rest = &text[at..];
    let shown = &rest[..rest.floor_char_boundary(40)];
    let more = if shown.len() < rest.len() { "…" } else { "" };
    let near =
        if rest.is_empty() { "at the end".into() } else { format!("near {:?}", format!("{shown}{more}")) };
    QueryError::Parse(format!("invalid target: {message}, at character {place}, {near}"))
}

/// The first path in the name of a series, such as `a.b` in `scale(sumSeries(a.b),2)`. If the name is not a
/// call in the syntax of targets (for example, because a path in it has an empty node, as in `f(a..b)`), the path is what precedes its
/// first bracket. `None` if the first argument is not a path.
pub(super) fn first_path(name: &str) -> Option<String> {
    let allowance = &mut Allowance::new(NAME_MEMORY_BYTES);
    let mut parser = Parser { text: name, at: 0, depth: 0, is_name: true, allowance };
    parser.skip_space();
    let Ok(mut ast) = parser.operand() else {
        let end = path::end_of_nodes(&name[..path::end_of(name)]);
        return (end > 0).then(|| name[..end].to_owned());
    };
    loop {
        match ast.kind {
            Kind::Path(path) => return Some(path),
            Kind::Call(mut call) if !call.positional.is_empty() => ast = call.positional.swap_remove(0),
            Kind::Template { body, .. } => ast = *body,
            Kind::Call(_) | Kind::Literal(_) => return None,
        }
    }
}

/// Memory for the syntax tree of a name. A longer name is not parsed as a call.
const NAME_MEMORY_BYTES: u64 = 1 << 20;

struct Parser<'t, 'a> {
    text: &'t str,
    /// Byte at which the rest begins, which is not parsed yet.
    at: usize,
    depth: usize,
    /// True if the text is the name of a series. Its paths may be ones that graphite-web does not accept in targets.
    is_name: bool,
    allowance: &'a mut Allowance,
}

impl<'t> Parser<'t, '_> {
    fn whole(&mut self) -> Result<Ast, Fault> {
        self.skip_space();
        if self.rest().is_empty() {
            return Err((self.at, "it is empty".into()));
        }
        let ast = self.piped()?;
        self.skip_space();
        if self.rest().is_empty() { Ok(ast) } else { Err(self.expected("a pipe or the end")) }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips white space and takes `symbol` if it follows.
    fn take(&mut self, symbol: char) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(symbol);
        if is_next {
            self.at += symbol.len_utf8();
        }
        is_next
    }

    fn expected(&self, what: &str) -> Fault {
        (self.at, format!("expected {what}"))
    }

    /// Counts a node before it is created.
    fn count(&mut self, text_bytes: usize) -> Result<(), Fault> {
        self.allowance.node(text_bytes).map_err(|message| (self.at, message))
    }

    /// Parses a path or call, and the calls that it is piped through: `a.b | scale(2)`.
    fn piped(&mut self) -> Result<Ast, Fault> {
        self.depth += 1;
        let outer = self.depth;
        self.check_depth()?;
        let mut ast = self.operand()?;
        while self.take('|') {
            // a pipe is a call around what is left of it
            self.depth += 1;
            self.check_depth()?;
            self.skip_space();
            let at = self.at;
            let name = self.function_name().ok_or_else(|| self.expected("a function"))?;
            let call = self.call(at, name, Some(ast))?;
            ast = Ast { at, kind: Kind::Call(call) };
        }
        self.depth = outer - 1;
        Ok(ast)
    }

    fn check_depth(&self) -> Result<(), Fault> {
        match self.depth > TARGET_DEPTH_MAX {
            true => Err((self.at, format!("it nests deeper than {TARGET_DEPTH_MAX} levels"))),
            false => Ok(()),
        }
    }

    fn operand(&mut self) -> Result<Ast, Fault> {
        self.skip_space();
        let at = self.at;
        let kind = match self.function_name() {
            Some("template") => self.template()?,
            Some(name) => Kind::Call(self.call(at, name, None)?),
            None => Kind::Path(self.path()?),
        };
        Ok(Ast { at, kind })
    }

    /// Takes the name of a function and its opening bracket, if they follow.
    fn function_name(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let name = &rest[..word_len(rest)];
        let after = rest[name.len()..].trim_start();
        let inside = after.strip_prefix('(')?;
        if name.is_empty() {
            return None;
        }
        self.at = self.text.len() - inside.len();
        Some(name)
    }

    /// Parses the arguments of a call, after its opening bracket.
    fn call(&mut self, at: usize, name: &str, piped: Option<Ast>) -> Result<Call, Fault> {
        self.count(2 * name.len())?;
        let mut call = Call {
            name: name.into(),
            positional: Vec::from_iter(piped),
            named: Vec::new(),
            text: String::new(),
        };
        if !self.take(')') {
            loop {
                match self.argument_name() {
                    Some(argument) => call.named.push((argument.into(), self.argument()?)),
                    None if call.named.is_empty() => {
                        let argument = self.argument()?;
                        call.positional.push(argument);
                    }
                    None => return Err(self.expected("a named argument, because one precedes it")),
                }
                if self.take(')') {
                    break;
                }
                if !self.take(',') {
                    return Err(self.expected("a comma or a closing bracket"));
                }
            }
        }
        if name == "seriesByTag" {
            self.count(self.at - at)?;
            call.text = self.text[at..self.at].into();
        }
        Ok(call)
    }

    /// Parses the arguments of `template`, after its opening bracket.
    fn template(&mut self) -> Result<Kind, Fault> {
        self.count(0)?;
        let body = Box::new(self.piped()?);
        let mut variables = Vec::new();
        while self.take(',') {
            let name = self.argument_name().map_or_else(|| (variables.len() + 1).to_string(), str::to_owned);
            self.skip_space();
            self.count(0)?;
            let value = self.literal()?.ok_or_else(|| self.expected("a number or a text in quotes"))?;
            variables.push((name, value));
        }
        if !self.take(')') {
            return Err(self.expected("a comma or a closing bracket"));
        }
        Ok(Kind::Template { body, variables })
    }

    /// Takes `name=` if it follows.
    fn argument_name(&mut self) -> Option<&'t str> {
        self.skip_space();
        let rest = self.rest();
        let name = &rest[..word_len(rest)];
        let value = rest[name.len()..].trim_start().strip_prefix('=')?;
        if name.is_empty() {
            return None;
        }
        self.at = self.text.len() - value.len();
        Some(name)
    }

    fn argument(&mut self) -> Result<Ast, Fault> {
        self.skip_space();
        let at = self.at;
        match self.literal()? {
            Some(literal) => {
                self.count(0)?;
                Ok(Ast { at, kind: Kind::Literal(literal) })
            }
            None => self.piped(),
        }
    }

    /// Takes a literal, if one follows. Words and numbers are literals only if the argument ends behind them, because
    /// paths may begin with them.
    fn literal(&mut self) -> Result<Option<Literal>, Fault> {
        let rest = self.rest();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            return self.quoted(quote).map(Some);
        }
        let word = rest[..rest.find([',', ')', '|']).unwrap_or(rest.len())].trim_end();
        let Some(literal) = plain_literal(word) else { return Ok(None) };
        self.at += word.len();
        Ok(Some(literal))
    }

    fn quoted(&mut self, quote: char) -> Result<Literal, Fault> {
        let inside = &self.rest()[1..];
        let mut is_escaped = false;
        let end = inside.find(|c| {
            let ends = c == quote && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let end = end.ok_or_else(|| (self.at, "the text has no closing quote".to_owned()))?;
        self.count(2 * end)?;
        self.at += end + 2;
        Ok(Literal::Text(inside[..end].into()))
    }
}

/// Length of the letters, digits and underscores at the beginning, which is 0 if it begins with a digit.
fn word_len(text: &str) -> usize {
    match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => 0,
        false => text.len() - text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len(),
    }
}

fn plain_literal(word: &str) -> Option<Literal> {
    match word.to_ascii_lowercase().as_str() {
        "true" => return Some(Literal::Boolean(true)),
        "false" => return Some(Literal::Boolean(false)),
        "none" => return Some(Literal::None),
        "inf" => return Some(Literal::Float(f64::INFINITY)),
        "-inf" => return Some(Literal::Float(f64::NEG_INFINITY)),
        "nan" => return Some(Literal::Float(f64::NAN)),
        _ => {}
    }
    let digits = word.strip_prefix('-').unwrap_or(word);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match word.parse() {
        Ok(integer) => Some(Literal::Integer(integer)),
        Err(_) => word.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Float),
    }
}

#[cfg(test)]
mod tests;
