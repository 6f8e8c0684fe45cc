//! Checks an argument against the type of its parameter, and converts it as graphite-web does.

use super::{Argument, ArgumentKind, Binder, Fault, Node, Value};
use crate::graphite::ast::{Ast, Kind, Literal};
use crate::graphite::at_time;
use crate::graphite::bind::variables::{NUMBER_BYTES_MAX, Values};
use crate::graphite::consolidate::Aggregate;
use crate::graphite::functions::{self, Function, Type};
use std::str::FromStr;
use std::sync::Arc;

impl Binder<'_> {
    /// Returns the value that an argument is, or that the variable in its place has. `None` if it is no value.
    pub(super) fn given(&mut self, ast: &Ast, values: &Values) -> Result<Option<Literal>, Fault> {
        Ok(match &ast.kind {
            Kind::Literal(literal) => Some(literal.clone()),
            Kind::Path(path) => values.value_of(path, self.allowance).map_err(|message| (ast.at, message))?,
            Kind::Call(_) | Kind::Template { .. } => None,
        })
    }

    /// Adds an argument to `arguments`. `None` adds nothing.
    pub(super) fn argument(
        &mut self,
        function: &'static Function,
        parameter: usize,
        ast: &Ast,
        values: &Values,
        arguments: &mut Vec<Argument>,
    ) -> Result<(), Fault> {
        let param = &function.params[parameter];
        let given = self.given(ast, values)?;
        let is_series = matches!(param.kind, Type::SeriesList | Type::SeriesLists);
        let wrong = |why: &str| {
            let message = format!(
                "argument {:?} of function {:?} must be {}{why}",
                param.name,
                function.name,
                param.kind.described()
            );
            (ast.at, message)
        };
        let kind = match given {
            Some(Literal::None) if !param.is_required => return Ok(()),
            Some(literal) if !is_series => {
                let value = convert(param.kind, literal).ok_or_else(|| wrong(""))?;
                if !param.options.is_empty() && !param.options.contains(&&*value.to_text()) {
                    let message = format!(
                        "argument {:?} of function {:?} must be one of {}",
                        param.name,
                        function.name,
                        param.options.join(", ")
                    );
                    return Err((ast.at, message));
                }
                ArgumentKind::Value(value)
            }
            Some(_) => return Err(wrong("")),
            None if is_series || param.kind == Type::Any => {
                let node = self.node(ast, values)?;
                let makes_lists =
                    matches!(&node, Node::Call(invocation) if invocation.function.makes_lists());
                if makes_lists != (param.kind == Type::SeriesLists) {
                    return Err(wrong(""));
                }
                ArgumentKind::Series(node)
            }
            None => {
                return Err(wrong(if matches!(ast.kind, Kind::Path(_)) {
                    "; texts need quotes"
                } else {
                    ""
                }));
            }
        };
        arguments.push(Argument { parameter, kind });
        Ok(())
    }
}

/// Converts a literal to a type. `None` if it has another type, or is out of range.
fn convert(kind: Type, literal: Literal) -> Option<Value> {
    Some(match kind {
        Type::Boolean => Value::Boolean(boolean(&literal)?),
        Type::Float => Value::Float(float(&literal)?),
        Type::Integer | Type::Node => Value::Integer(integer(&literal)?),
        Type::IntOrInf => match (integer(&literal), float(&literal)?) {
            (Some(integer), _) => Value::Integer(integer),
            (None, f64::INFINITY) => Value::Float(f64::INFINITY),
            _ => return None,
        },
        Type::Interval => Value::Text(text(&literal).filter(|text| at_time::parse_offset(text).is_ok())?),
        Type::IntOrInterval => match literal {
            Literal::Integer(integer) => Value::Integer(integer),
            Literal::Float(number) if number.is_finite() => Value::Float(number),
            literal => return convert(Type::Interval, literal),
        },
        Type::NodeOrTag => match literal {
            Literal::Integer(integer) => Value::Integer(integer),
            literal => Value::Text(text(&literal)?),
        },
        Type::AggFunc => Value::Text(text(&literal).filter(|text| Aggregate::of_function(text).is_some())?),
        Type::AggOrSeriesFunc => {
            let is_known = |name: &Arc<str>| {
                Aggregate::of_function(name).is_some()
                    || functions::find(name).is_some_and(|f| f.is_aggregator)
            };
            Value::Text(text(&literal).filter(is_known)?)
        }
        Type::String | Type::Date | Type::Tag => match literal {
            Literal::Text(text) => Value::Text(text),
            literal => Value::Text(any(literal)?.to_text()),
        },
        Type::Any => any(literal)?,
        Type::SeriesList | Type::SeriesLists => return None,
    })
}

fn any(literal: Literal) -> Option<Value> {
    Some(match literal {
        Literal::Integer(integer) => Value::Integer(integer),
        Literal::Float(number) => Value::Float(number),
        Literal::Text(text) => Value::Text(text),
        Literal::Boolean(boolean) => Value::Boolean(boolean),
        Literal::None => return None,
    })
}

fn text(literal: &Literal) -> Option<Arc<str>> {
    match literal {
        Literal::Text(text) => Some(Arc::clone(text)),
        _ => None,
    }
}

/// Parses a string as a number. Strings longer than `NUMBER_BYTES_MAX` are not tried, because thousands of
/// arguments may share one.
fn number_of<T: FromStr>(text: &str) -> Option<T> {
    if text.len() <= NUMBER_BYTES_MAX { text.trim().parse().ok() } else { None }
}

fn boolean(literal: &Literal) -> Option<bool> {
    match literal {
        Literal::Boolean(boolean) => Some(*boolean),
        Literal::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Literal::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Literal::Integer(1) => Some(true),
        Literal::Integer(0) => Some(false),
        Literal::Float(1.0) => Some(true),
        Literal::Float(0.0) => Some(false),
        _ => None,
    }
}

fn float(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::Integer(integer) => Some(*integer as f64),
        Literal::Float(number) => Some(*number),
        Literal::Boolean(boolean) => Some(f64::from(u8::from(*boolean))),
        Literal::Text(text) => number_of(text),
        Literal::None => None,
    }
}

fn integer(literal: &Literal) -> Option<i64> {
    match literal {
        Literal::Integer(integer) => Some(*integer),
        Literal::Boolean(boolean) => Some(i64::from(*boolean)),
        Literal::Text(text) => number_of(text),
        Literal::Float(_) | Literal::None => None,
    }
}

impl Type {
    /// The type in messages: "must be …".
    const fn described(self) -> &'static str {
        match self {
            Self::Any => "a number or series",
            Self::AggFunc => "the name of an aggregation, such as \"sum\"",
            Self::AggOrSeriesFunc => "the name of an aggregation or of a function that combines series",
            Self::Boolean => "true or false",
            Self::Date => "a time in quotes",
            Self::Float => "a number",
            Self::Integer | Self::Node => "an integer",
            Self::Interval => "an interval in quotes, such as \"1h\"",
            Self::IntOrInf => "an integer or inf",
            Self::IntOrInterval => "an integer, or an interval in quotes, such as \"1h\"",
            Self::NodeOrTag => "an integer, or a tag in quotes",
            Self::SeriesList => "series",
            Self::SeriesLists => "lists of series, as mapSeries returns them",
            Self::String | Self::Tag => "a text in quotes",
        }
    }
}
