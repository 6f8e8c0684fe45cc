//! Looks up functions, puts values for variables, and checks arguments against the parameters.

mod arguments;
mod variables;

use super::ast::{Ast, Call, Kind, Literal};
use super::functions::{self, Function, Type};
use super::parse::error_at;
use super::{Glob, Series, Variables, tag};
use crate::QueryError;
use crate::allowance::Allowance;
use crate::matcher::Matcher;
use model::labels::METRIC_NAME;
use std::sync::Arc;
use variables::Values;

/// What is wrong, and at which byte of the target.
type Fault = (usize, String);

/// A part of a target that can be evaluated.
#[derive(Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    Call(Invocation),
    /// Series that a function passes to another.
    Given(Vec<Series>),
}

impl Node {
    /// True if the order of the series is that in which storage returns them.
    pub(super) fn is_in_order_of_storage(&self) -> bool {
        match self {
            Self::Leaf(_) => true,
            Self::Call(call) => {
                let mut nodes = call.nodes();
                call.function.is_mapping
                    && nodes.next().is_some_and(Self::is_in_order_of_storage)
                    && nodes.next().is_none()
            }
            Self::Given(_) => false,
        }
    }

    /// True if the series are in the order of storage, and so are their path expressions: none is made of a name that a function has
    /// chosen, as in `scale(aliasSub(…),2)`.
    pub(super) fn has_sorted_paths(&self) -> bool {
        let is_sorted = |call: &Invocation| {
            let chooses_names = call.function.chooses_names();
            call.nodes().all(|node| node.has_sorted_paths() && (chooses_names || !node.has_chosen_names()))
        };
        self.is_in_order_of_storage() && self.call().is_none_or(is_sorted)
    }

    fn has_chosen_names(&self) -> bool {
        let call = self.call();
        call.is_some_and(|call| call.function.chooses_names() || call.nodes().any(Self::has_chosen_names))
    }

    const fn call(&self) -> Option<&Invocation> {
        match self {
            Self::Call(call) => Some(call),
            Self::Leaf(_) | Self::Given(_) => None,
        }
    }
}

/// Series of the source.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The glob, tagged name or call as it is written.
    pub(super) text: Arc<str>,
    pub(super) pick: LeafPick,
    /// True in arguments of functions that count series: results would be wrong without those that have no samples in the range.
    pub(super) needs_all: bool,
}

#[derive(Debug)]
pub(super) enum LeafPick {
    Paths(Glob),
    Tagged(Vec<Matcher>),
    Named(Vec<Matcher>),
}

#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) function: &'static Function,
    pub(super) arguments: Vec<Argument>,
}

impl Invocation {
    /// The arguments that are series.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.arguments.iter().filter_map(|argument| match &argument.kind {
            ArgumentKind::Series(node) => Some(node),
            ArgumentKind::Value(_) => None,
        })
    }
}

/// An argument, with the place of its parameter in the function's list.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) parameter: usize,
    pub(super) kind: ArgumentKind,
}

#[derive(Debug)]
pub(super) enum ArgumentKind {
    Series(Node),
    Value(Value),
}

/// A value that is not a series. `None` counts as no argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Float(f64),
    Text(Arc<str>),
    Boolean(bool),
}

impl Value {
    /// The value as graphite-web writes it into names. A text is shared, not copied.
    pub(super) fn to_text(&self) -> Arc<str> {
        match self {
            Self::Text(text) => Arc::clone(text),
            other => other.to_string().into(),
        }
    }
}

/// As graphite-web writes the value into names.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Float(number) => f.write_str(&super::text::shortest(*number)),
            Self::Text(text) => f.write_str(text),
            Self::Boolean(true) => f.write_str("True"),
            Self::Boolean(false) => f.write_str("False"),
        }
    }
}

/// Binds a target, with [`Leaf::needs_all`] for all of it.
pub(super) fn target(
    text: &str,
    ast: &Ast,
    variables: &Variables,
    needs_all: bool,
    allowance: &mut Allowance,
) -> Result<Node, QueryError> {
    let mut binder = Binder { allowance, overrides: variables, needs_all };
    let bound = binder.node(ast, &Values::default()).and_then(|node| match &node {
        Node::Call(invocation) if invocation.function.makes_lists() => {
            let name = invocation.function.name;
            Err((ast.at, format!("function {name:?} makes lists of series, which only reduceSeries takes")))
        }
        _ => Ok(node),
    });
    bound.map_err(|(at, message)| match binder.allowance.is_interrupted() {
        true => QueryError::Canceled,
        false => error_at(text, at, &message),
    })
}

struct Binder<'a> {
    allowance: &'a mut Allowance,
    /// Values of the request, which replace those in the target.
    overrides: &'a Variables,
    /// [`Leaf::needs_all`] of the leaves that are bound next.
    needs_all: bool,
}

impl Binder<'_> {
    /// Binds an operand that must return series.
    fn node(&mut self, ast: &Ast, values: &Values) -> Result<Node, Fault> {
        match &ast.kind {
            Kind::Path(path) => {
                let path = values.replace(path, self.allowance).map_err(|message| (ast.at, message))?;
                self.leaf(&path).map_err(|message| (ast.at, message))
            }
            Kind::Template { body, variables } => {
                let values = Values::within(variables, self.overrides, self.allowance);
                self.node(body, &values.map_err(|message| (ast.at, message))?)
            }
            Kind::Call(call) if call.name == "seriesByTag" => self.series_by_tag(ast.at, call),
            Kind::Call(call) => self.call(ast.at, call, values),
            Kind::Literal(_) => Err((ast.at, "a value is not a series".into())),
        }
    }

    fn leaf(&mut self, path: &str) -> Result<Node, String> {
        if self.allowance.is_interrupted() {
            return Err("the request was canceled".into());
        }
        self.allowance.node(2 * path.len())?;
        let pick = match path.contains(';') {
            true => LeafPick::Named(self.tagged_name(path)?),
            false => LeafPick::Paths(Glob::parse(path, self.allowance).map_err(|error| error.to_string())?),
        };
        Ok(Node::Leaf(Leaf { text: path.into(), pick, needs_all: self.needs_all }))
    }

    /// Matchers of the labels in a full tagged name: `name;k=v;k2=v2`.
    fn tagged_name(&mut self, text: &str) -> Result<Vec<Matcher>, String> {
        let mut parts = text.split(';');
        let name = parts.next().unwrap_or_default();
        let mut labels = vec![(METRIC_NAME, name)];
        for part in parts {
            let (tag, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not tag=value"))?;
            labels.push((tag::label_of(tag), value));
        }
        if labels.iter().any(|(label, value)| label.is_empty() || value.is_empty()) {
            return Err(format!("{text:?} has an empty name, tag or value"));
        }
        // of several values of a tag, only the last is used
        labels.reverse();
        labels.sort_by_key(|(label, _)| *label);
        labels.dedup_by_key(|(label, _)| *label);
        for (label, value) in &labels {
            self.allowance.matcher(label.len() + value.len())?;
        }
        Ok(labels.iter().map(|(label, value)| Matcher::equal(label, value)).collect())
    }

    fn series_by_tag(&mut self, at: usize, call: &Call) -> Result<Node, Fault> {
        let mut expressions = Vec::new();
        for argument in &call.positional {
            match &argument.kind {
                Kind::Literal(Literal::Text(text)) => expressions.push(&**text),
                _ => return Err((argument.at, "expected a tag expression in quotes".into())),
            }
        }
        if let Some((_, argument)) = call.named.first() {
            return Err((argument.at, "expected a tag expression in quotes".into()));
        }
        let matchers = tag::parse_all(expressions, self.allowance).map_err(|message| (at, message))?;
        let (pick, needs_all) = (LeafPick::Tagged(matchers), self.needs_all);
        Ok(Node::Leaf(Leaf { text: call.text.as_str().into(), pick, needs_all }))
    }

    fn call(&mut self, at: usize, call: &Call, values: &Values) -> Result<Node, Fault> {
        let function = functions::find(&call.name)
            .ok_or_else(|| (at, format!("there is no function {:?}", excerpt(&call.name))))?;
        let mut arguments = Vec::new();
        let outer_needs_all = self.needs_all;
        self.needs_all |= function.counts_series || self.has_counting_callback(function, call, values)?;
        for (number, argument) in call.positional.iter().enumerate() {
            let parameter = function.parameter_at(number).ok_or_else(|| {
                (argument.at, format!("too many arguments of function {:?}", function.name))
            })?;
            self.argument(function, parameter, argument, values, &mut arguments)?;
        }
        for (name, argument) in &call.named {
            let parameter = function.params.iter().position(|param| param.name == name);
            let parameter = parameter.filter(|parameter| *parameter >= call.positional.len());
            let parameter = parameter.ok_or_else(|| {
                let message =
                    format!("function {:?} takes no argument {:?} here", function.name, excerpt(name));
                (argument.at, message)
            })?;
            self.argument(function, parameter, argument, values, &mut arguments)?;
        }
        self.needs_all = outer_needs_all;
        for (parameter, param) in function.params.iter().enumerate() {
            // a template variable of a dashboard that has no value leaves no argument: an empty list
            let may_be_empty = param.is_multiple && param.kind == Type::SeriesList;
            let is_missing = || !arguments.iter().any(|argument| argument.parameter == parameter);
            if param.is_required && !may_be_empty && is_missing() {
                let message = format!("argument {:?} of function {:?} is missing", param.name, function.name);
                return Err((at, message));
            }
        }
        Ok(Node::Call(Invocation { function, arguments }))
    }

    /// True if the function passes its series to one that counts them, such as `groupByNode(a.*, 0, "countSeries")`.
    fn has_counting_callback(
        &mut self,
        function: &Function,
        call: &Call,
        values: &Values,
    ) -> Result<bool, Fault> {
        if function.params.iter().all(|param| param.kind != Type::AggOrSeriesFunc) {
            return Ok(false);
        }
        for argument in call.positional.iter().chain(call.named.iter().map(|(_, argument)| argument)) {
            if let Some(Literal::Text(name)) = self.given(argument, values)?
                && functions::find(&name).is_some_and(|found| found.counts_series)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A name that the client chose, cut to a length that a message can show.
fn excerpt(name: &str) -> &str {
    &name[..name.floor_char_boundary(100)]
}

#[cfg(test)]
mod tests;
