//! Operands: numbers, strings, selectors, calls and aggregations, with the brackets after them.

use super::lexer::{self, Fault, Kind, Place, Token};
use super::{DURATION_MS_MAX, Parser, Part, number, quoted, types};
use crate::promql::ValueType;
use crate::promql::ast::{Aggregate, AggregateOp, At, Call, Grouping, Node, Subquery, TimeShift};
use crate::promql::functions::Function;
use stdx::units;

/// The aggregation with this name, which must be in lower case.
pub(super) fn aggregate_op(name: &str) -> Option<AggregateOp> {
    Some(match name {
        "sum" => AggregateOp::Sum,
        "avg" => AggregateOp::Avg,
        "count" => AggregateOp::Count,
        "min" => AggregateOp::Min,
        "max" => AggregateOp::Max,
        "group" => AggregateOp::Group,
        "stddev" => AggregateOp::Stddev,
        "stdvar" => AggregateOp::Stdvar,
        "topk" => AggregateOp::Topk,
        "bottomk" => AggregateOp::Bottomk,
        "count_values" => AggregateOp::CountValues,
        "quantile" => AggregateOp::Quantile,
        "limitk" => AggregateOp::Limitk,
        "limit_ratio" => AggregateOp::LimitRatio,
        _ => return None,
    })
}

/// True for a word that can be a metric name only in quotes. `word` must be in lower case.
fn is_reserved(word: &str) -> bool {
    matches!(word, "bool" | "on" | "ignoring" | "group_left" | "group_right" | "atan2")
}

/// True for keywords. `word` must be in lower case.
pub(super) fn is_keyword(word: &str) -> bool {
    is_reserved(word) || matches!(word, "offset" | "by" | "without")
}

/// Largest time in milliseconds. A double represents every millisecond up to it.
const TIME_MS_MAX: f64 = (1u64 << 53) as f64;

impl<'t> Parser<'t, '_> {
    pub(super) fn operand(&mut self) -> Result<Part, Fault> {
        let mut part = self.primary()?;
        loop {
            let token = self.peek()?;
            if token.is("[") {
                self.take(token);
                part = self.range(part, token.at)?;
            } else if token.is_word("offset") {
                self.take(token);
                self.offset(&mut part)?;
            } else if token.is("@") {
                self.take(token);
                self.at_modifier(&mut part)?;
            } else {
                return Ok(part);
            }
        }
    }

    fn primary(&mut self) -> Result<Part, Fault> {
        let token = self.peek()?;
        self.count(token.at, if token.kind == Kind::Text { token.text.len() } else { 0 })?;
        match token.kind {
            Kind::Number | Kind::Duration => {
                let value = self.signed_number("", "")?;
                Ok(Part::leaf(Node::Number(value), token.at))
            }
            Kind::Text => {
                self.take(token);
                Ok(Part::leaf(Node::Text(unquote(token)?), token.at))
            }
            Kind::Word => self.word(token),
            Kind::Symbol if token.text == "(" => {
                self.open_paren("")?;
                let inner = self.expr(0)?;
                self.close_paren("", "")?;
                Ok(Part { at: token.at, bare: false, ..inner })
            }
            Kind::Symbol if token.text == "{" => self.selector(None),
            Kind::Symbol | Kind::End => Err(self.unexpected(token, "", "")),
        }
    }

    fn word(&mut self, token: Token<'t>) -> Result<Part, Fault> {
        let lower = token.text.to_ascii_lowercase();
        if let Some(value) = number::value(&lower) {
            self.take(token);
            return Ok(Part::leaf(Node::Number(value), token.at));
        }
        if is_reserved(&lower) {
            return Err(self.unexpected(token, "", ""));
        }
        let next = lexer::token(self.text, token.end(), Place::Open)?;
        match aggregate_op(&lower) {
            Some(op) if next.is("(") || next.is_word("by") || next.is_word("without") => {
                self.take(token);
                self.aggregate(op, token.at)
            }
            _ if next.is("(") && !token.text.contains(':') => {
                self.take(token);
                self.call(token)
            }
            _ => self.selector(Some(token)),
        }
    }

    /// Parses `by (a, b) (…)` or `(…) by (a, b)`, after the name of an aggregation.
    fn aggregate(&mut self, op: AggregateOp, at: usize) -> Result<Part, Fault> {
        let mut grouping = self.grouping()?;
        let mut args = self.arguments("aggregation")?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        let deepest = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let wanted = 1 + usize::from(types::parameter_of(op).is_some());
        if args.is_empty() {
            return Err((at, "no arguments for aggregate expression provided".into()));
        }
        if args.len() != wanted {
            let what = "wrong number of arguments for aggregate expression provided";
            return Err((at, format!("{what}, expected {wanted}, got {}", args.len())));
        }
        let last = args.pop().expect("BUG: an aggregation has no arguments");
        let (param_at, param) = args.pop().map_or((at, None), |param| (param.at, Some(param.node)));
        let grouping = grouping.unwrap_or(Grouping::By(Vec::new()));
        let aggregate = Aggregate { op, expr: last.node, param, grouping };
        types::check_aggregate(&aggregate).map_err(|(of_param, message)| {
            let at = if of_param { param_at } else { last.at };
            (at, message)
        })?;
        self.above(Node::Aggregate(Box::new(aggregate)), at, deepest)
    }

    fn grouping(&mut self) -> Result<Option<Grouping>, Fault> {
        if self.take_word("by")? {
            return Ok(Some(Grouping::By(self.label_names()?)));
        }
        if self.take_word("without")? {
            return Ok(Some(Grouping::Without(self.label_names()?)));
        }
        Ok(None)
    }

    fn call(&mut self, name: Token<'t>) -> Result<Part, Fault> {
        let Some(function) = Function::from_name(name.text) else {
            return Err((name.at, format!("unknown function with name {:?}", name.text)));
        };
        let args = self.arguments("")?;
        let places: Vec<_> = args.iter().map(|arg| arg.at).collect();
        let deepest = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let call = Call { function, args: args.into_iter().map(|arg| arg.node).collect() };
        types::check_call(&call).map_err(|(arg, message)| (arg.map_or(name.at, |i| places[i]), message))?;
        if function == Function::LabelReplace {
            self.allowance.pattern().map_err(|message| (places[4], message))?;
        }
        self.above(Node::Call(call), name.at, deepest)
    }

    fn arguments(&mut self, context: &str) -> Result<Vec<Part>, Fault> {
        self.open_paren(context)?;
        let mut args = Vec::new();
        if !self.peek()?.is(")") {
            loop {
                args.push(self.expr(0)?);
                let comma = self.peek()?;
                if !self.take_if(",")? {
                    break;
                }
                if self.peek()?.is(")") {
                    return Err((comma.at, "trailing commas not allowed in function call args".into()));
                }
            }
        }
        self.close_paren(context, "")?;
        Ok(args)
    }

    /// Parses label names in parentheses. Returns them sorted.
    pub(super) fn label_names(&mut self) -> Result<Vec<String>, Fault> {
        const CONTEXT: &str = "grouping opts";
        self.open_paren(CONTEXT)?;
        let mut names = Vec::new();
        while !self.peek()?.is(")") {
            let name = self.peek()?;
            names.push(match name.kind {
                Kind::Word => name.text.to_owned(),
                Kind::Text => match unquote(name)? {
                    empty if empty.is_empty() => {
                        return Err((name.at, "invalid label name for grouping: \"\"".into()));
                    }
                    text => text,
                },
                _ => return Err(self.unexpected(name, CONTEXT, "label")),
            });
            self.count(name.at, name.text.len())?;
            self.take(name);
            if !self.take_if(",")? {
                break;
            }
        }
        self.close_paren(CONTEXT, "\",\" or \")\"")?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Parses the rest of `[5m]` or `[1h:1m]`, after the opening bracket.
    fn range(&mut self, part: Part, bracket_at: usize) -> Result<Part, Fault> {
        let range_ms = self.bracket_duration("subquery or range", "number or duration")?;
        let separator = self.bracket_token()?;
        self.take(separator);
        if separator.is("]") {
            return range_of(part, range_ms).map_err(|message| (bracket_at, message));
        }
        if !separator.is(":") {
            return Err(self.unexpected(separator, "subquery or range", "\":\" or \"]\""));
        }
        let mut end = self.bracket_token()?;
        let mut step_ms = None;
        if !end.is("]") {
            step_ms = Some(self.bracket_duration("subquery selector", "number or duration or \"]\"")?);
            end = self.bracket_token()?;
        }
        if !end.is("]") {
            return Err(self.unexpected(end, "subquery selector", "\"]\""));
        }
        self.take(end);
        let value_type = part.node.value_type();
        if value_type != ValueType::Vector {
            let message =
                format!("subquery is only allowed on instant vector, got {} instead", value_type.as_str());
            return Err((part.at, message));
        }
        let subquery = Subquery { expr: part.node, range_ms, step_ms, time: TimeShift::default() };
        let whole = self.above(Node::Subquery(Box::new(subquery)), part.at, part.depth)?;
        Ok(Part { bare: true, ..whole })
    }

    fn bracket_token(&self) -> Result<Token<'t>, Fault> {
        let token = lexer::token(self.text, self.at, Place::Brackets)?;
        if token.kind == Kind::End {
            return Err((token.at, "unclosed left bracket".into()));
        }
        Ok(token)
    }

    fn bracket_duration(&mut self, context: &str, expected: &str) -> Result<i64, Fault> {
        let token = self.bracket_token()?;
        self.take(token);
        match duration_ms(token)? {
            None if token.is("]") => {
                Err((token.at, format!("unexpected \"]\" in {context}, expected {expected}")))
            }
            None => Err(self.unexpected(token, context, expected)),
            Some(ms) if ms <= 0 => Err((token.at, "duration must be greater than 0".into())),
            Some(ms) => Ok(ms),
        }
    }

    /// Parses the duration after `offset`: `5m` or `-5m`.
    fn offset(&mut self, part: &mut Part) -> Result<(), Fault> {
        let sign = self.peek()?;
        let negative = sign.is("-");
        if negative || sign.is("+") {
            self.take(sign);
        }
        let token = self.peek()?;
        let Some(ms) = duration_ms(token)? else {
            return Err(self.unexpected(token, "offset", "number or duration"));
        };
        self.take(token);
        let what = "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
        let at = part.at;
        let time = time_of(part).ok_or_else(|| (at, what.to_owned()))?;
        if time.offset_ms != 0 {
            return Err((at, "offset may not be set multiple times".into()));
        }
        time.offset_ms = if negative { -ms } else { ms };
        Ok(())
    }

    /// Parses what follows `@`: a time, `start()` or `end()`.
    fn at_modifier(&mut self, part: &mut Part) -> Result<(), Fault> {
        let token = self.peek()?;
        let preprocessor = token.is_word("start") || token.is_word("end");
        let time_at = if preprocessor {
            self.take(token);
            self.open_paren("@")?;
            self.close_paren("@", "\")\"")?;
            if token.is_word("start") { At::Start } else { At::End }
        } else {
            let seconds = self.signed_number("@", "timestamp")?;
            let ms = (seconds * 1000.0).round();
            if ms.is_nan() || ms.abs() > TIME_MS_MAX {
                return Err((token.at, format!("timestamp out of bounds for @ modifier: {seconds:.6}")));
            }
            At::Time(ms as i64)
        };
        let what = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
        let at = part.at;
        let time = time_of(part).ok_or_else(|| (at, what.to_owned()))?;
        if time.at.is_some() {
            return Err((at, "@ <timestamp> may not be set multiple times".into()));
        }
        time.at = Some(time_at);
        Ok(())
    }

    /// Parses a number, or a duration in seconds, with or without a sign.
    pub(super) fn signed_number(&mut self, context: &str, expected: &str) -> Result<f64, Fault> {
        let mut token = self.peek()?;
        let negative = token.is("-");
        if negative || token.is("+") {
            self.take(token);
            token = self.peek()?;
        }
        let value = match token.kind {
            Kind::Duration => units::duration_ms(token.text).map(|ms| ms as f64 / 1000.0),
            _ => number::value(token.text),
        };
        let Some(value) = value else { return Err(self.unexpected(token, context, expected)) };
        self.take(token);
        Ok(if negative { -value } else { value })
    }
}

fn range_of(part: Part, range_ms: i64) -> Result<Part, String> {
    match part.node {
        Node::Selector(selector) if part.bare => {
            if selector.time.offset_ms != 0 {
                return Err("no offset modifiers allowed before range".into());
            }
            if selector.time.at.is_some() {
                return Err("no @ modifiers allowed before range".into());
            }
            Ok(Part { node: Node::Range(selector, range_ms), ..part })
        }
        _ => Err("ranges only allowed for vector selectors".into()),
    }
}

/// Time modifiers of a selector or subquery; `None` for other expressions.
fn time_of(part: &mut Part) -> Option<&mut TimeShift> {
    match &mut part.node {
        _ if !part.bare => None,
        Node::Selector(selector) | Node::Range(selector, _) => Some(&mut selector.time),
        Node::Subquery(subquery) => Some(&mut subquery.time),
        _ => None,
    }
}

/// Milliseconds of a duration or number of seconds; `None` for other tokens.
fn duration_ms(token: Token<'_>) -> Result<Option<i64>, Fault> {
    let ms = match token.kind {
        Kind::Duration => units::duration_ms(token.text).unwrap_or(i64::MAX),
        Kind::Number => {
            let ms = number::value(token.text).unwrap_or(f64::NAN) * 1000.0;
            if ms.abs() <= DURATION_MS_MAX as f64 { ms as i64 } else { i64::MAX }
        }
        _ => return Ok(None),
    };
    if ms > DURATION_MS_MAX {
        return Err((token.at, "duration out of range".into()));
    }
    Ok(Some(ms))
}

pub(super) fn unquote(token: Token<'_>) -> Result<String, Fault> {
    quoted::read(token.text).map(|(text, _)| text).map_err(|message| (token.at, message.to_owned()))
}
