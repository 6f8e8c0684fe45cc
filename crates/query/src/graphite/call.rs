//! What a function may ask for: its arguments, and the context of its call.

use super::at_time;
use super::bind::{Argument, ArgumentKind, Invocation, Node, Value};
use super::eval::{Context, Evaluator};
use super::functions::table::Default;
use super::held::Held;
use super::name::{NAME, Name};
use super::source::Order;
use super::stacks::{CallId, Totals};
use super::{Aggregate, Options, Series};
use crate::QueryError;
use crate::meter::Meter;
use std::cell::Cell;
use std::sync::Arc;

/// Takes the series of a function one after the other.
pub(super) type Sink<'s> = dyn FnMut(Series) -> Result<(), QueryError> + 's;

/// A call of a function. Arguments are found by the names of parameters; a name that the function does not declare is
/// a bug. Series are read when they are asked for, and read again when they are asked for again.
pub(super) struct Call<'c> {
    evaluator: &'c Evaluator<'c>,
    invocation: &'c Invocation,
    context: &'c Context,
    /// The order in which the caller needs the series.
    order: Order,
}

/// Maximum nesting of calls that evaluate an argument twice. At this depth, the innermost call is evaluated 2^5 = 32 times.
const TWICE_MAX: usize = 5;

/// A call that evaluates an argument twice.
#[derive(Debug)]
pub(super) struct Nested<'c> {
    twice: &'c Cell<usize>,
}

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.twice.set(self.twice.get() - 1);
    }
}

/// A part of a path by its place, or a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeOrTag {
    Node(i64),
    Tag(Arc<str>),
}

/// A number of points, or a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Window {
    Points(i64),
    /// Never negative.
    Seconds(i64),
}

impl<'c> Call<'c> {
    pub(super) const fn new(
        evaluator: &'c Evaluator<'c>,
        invocation: &'c Invocation,
        context: &'c Context,
        order: Order,
    ) -> Self {
        Self { evaluator, invocation, context, order }
    }

    pub(super) const fn context(&self) -> &'c Context {
        self.context
    }

    pub(super) const fn options(&self) -> &'c Options<'c> {
        self.evaluator.options
    }

    /// Counts memory, and ends the evaluation once it is canceled. Loops over more than the values of one series
    /// call [`Meter::check`].
    pub(super) const fn meter(&self) -> &'c Meter<'c> {
        self.evaluator.meter
    }

    /// Aggregates all values of a series. A copy of them is charged if the aggregation needs one.
    pub(super) fn aggregated(&self, series: &Series, aggregate: Aggregate) -> Result<f64, QueryError> {
        let mut copied = self.meter().charge();
        copied.add_bytes(aggregate.copy_bytes(series.values.len()))?;
        Ok(aggregate.of(&series.values))
    }

    /// A series that the function computed. `times` are its start, its end and its step in seconds.
    pub(super) fn computed(
        &self,
        name: String,
        (start_s, end_s, step_s): (i64, i64, i64),
        values: Vec<f64>,
    ) -> Series {
        let x_files_factor = self.context.x_files_factor();
        Series { x_files_factor, ..Series::computed(name, start_s, end_s, step_s, values) }
    }

    /// A name that the function puts together. See [`Name`].
    pub(super) const fn new_name(&self) -> Name<'c> {
        Name::new(self.invocation.function.name, NAME, self.evaluator.meter)
    }

    /// A target that the function puts together.
    pub(super) const fn new_target(&self) -> Name<'c> {
        Name::new(self.invocation.function.name, "target", self.evaluator.meter)
    }

    /// Error that names the function.
    pub(super) fn refuse(&self, message: impl std::fmt::Display) -> QueryError {
        QueryError::Invalid(format!("function {:?}: {message}", self.invocation.function.name))
    }

    /// Pushes all series of a parameter into `sink`, argument after argument. Those of one argument come in the order
    /// of names, if they are read from storage.
    pub(super) fn each(
        &self,
        param: &str,
        mut sink: impl FnMut(Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.each_ordered(param, self.context, self.order_of_arguments(), &mut sink)
    }

    const fn order_of_arguments(&self) -> Order {
        if self.invocation.function.is_mapping { self.order } else { Order::ByName }
    }

    /// Like [`Self::each`], in any order, which takes less memory. For results that do not depend on the order.
    pub(super) fn each_in_any_order(
        &self,
        param: &str,
        mut sink: impl FnMut(Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.each_ordered(param, self.context, Order::Any, &mut sink)
    }

    /// Like [`Self::each`], in another context, for example with an earlier start: see [`Context::within`].
    pub(super) fn each_within(
        &self,
        context: &Context,
        param: &str,
        mut sink: impl FnMut(Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.each_ordered(param, context, self.order_of_arguments(), &mut sink)
    }

    fn each_ordered(
        &self,
        param: &str,
        context: &Context,
        order: Order,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        self.nodes_of(param).try_for_each(|node| self.evaluator.each(node, context, order, sink))
    }

    /// Pushes the series of one argument into `sink`.
    pub(super) fn each_of(&self, node: &Node, order: Order, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        self.evaluator.each(node, self.context, order, sink)
    }

    /// To be held while an argument is evaluated a second time. Nested calls that do so would take time that doubles
    /// with each level, so their nesting is limited.
    pub(super) fn evaluated_twice(&self) -> Result<Nested<'c>, QueryError> {
        let twice = &self.evaluator.twice;
        if twice.get() == TWICE_MAX {
            return Err(self.refuse(format_args!(
                "more than {TWICE_MAX} functions are nested, each of which reads its argument twice"
            )));
        }
        twice.set(twice.get() + 1);
        Ok(Nested { twice })
    }

    /// All series of a parameter.
    pub(super) fn all(&self, param: &str) -> Result<Held<'c>, QueryError> {
        let mut held = Held::new(self.meter());
        self.each_ordered(param, self.context, Order::ByName, &mut |series| held.push(series))?;
        Ok(held)
    }

    /// True if the parameter has an argument that is series, though maybe none is found.
    pub(super) fn has_series(&self, param: &str) -> bool {
        self.nodes_of(param).next().is_some()
    }

    /// True if the series of the parameter are read from storage without functions between.
    pub(super) fn is_stored(&self, param: &str) -> bool {
        self.nodes_of(param).all(|node| matches!(node, Node::Leaf(_)))
    }

    /// The sums of the series that earlier calls stacked.
    pub(super) fn stack(&self, stack: &str) -> Result<Totals<'c>, QueryError> {
        let range_s = (self.context.from_s, self.context.until_s);
        let node = std::ptr::from_ref(self.invocation).addr();
        self.evaluator.stacks.of(stack, CallId { node, range_s }, self.meter())
    }

    /// Passes the times of all events in the range that have these tags to `each`.
    pub(super) fn events(&self, tags: &[&str], each: &mut dyn FnMut(i64)) -> Result<(), QueryError> {
        let Context { from_s, until_s, .. } = *self.context;
        Ok(self.evaluator.source.events(tags, from_s, until_s, each)?)
    }

    /// Evaluates a target that the function built.
    pub(super) fn target(
        &self,
        text: &str,
        mut sink: impl FnMut(Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.evaluator.target(text, self.context, &mut sink)
    }

    /// Calls another function with these arguments.
    pub(super) fn invoke(&self, invocation: &Invocation, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        self.evaluator.call(invocation, self.context, Order::ByName, sink)
    }

    pub(super) fn nodes_of(&self, param: &str) -> impl Iterator<Item = &'c Node> + use<'c> {
        self.arguments(param).filter_map(|argument| match &argument.kind {
            ArgumentKind::Series(node) => Some(node),
            ArgumentKind::Value(_) => None,
        })
    }

    fn arguments(&self, param: &str) -> impl Iterator<Item = &'c Argument> + use<'c> {
        let place = self.place(param);
        self.invocation.arguments.iter().filter(move |argument| argument.parameter == place)
    }

    fn place(&self, param: &str) -> usize {
        let function = self.invocation.function;
        let place = function.params.iter().position(|known| known.name == param);
        place.unwrap_or_else(|| panic!("BUG: {} has no parameter {param}", function.name))
    }

    /// The values of a parameter, for all types but series.
    pub(super) fn values(&self, param: &str) -> impl Iterator<Item = &'c Value> + use<'c> {
        self.arguments(param).filter_map(|argument| match &argument.kind {
            ArgumentKind::Value(value) => Some(value),
            ArgumentKind::Series(_) => None,
        })
    }

    /// The values of a parameter as texts, which are shared with the arguments.
    pub(super) fn texts(&self, param: &str) -> Vec<Arc<str>> {
        self.values(param).map(Value::to_text).collect()
    }

    /// The argument, or the default.
    fn value(&self, param: &str) -> Option<Value> {
        let default = || {
            Some(match self.invocation.function.params[self.place(param)].default? {
                Default::Boolean(boolean) => Value::Boolean(boolean),
                Default::Float(number) => Value::Float(number),
                Default::Integer(integer) => Value::Integer(integer),
                Default::Text(text) => Value::Text(text.into()),
            })
        };
        self.values(param).next().cloned().or_else(default)
    }

    /// The argument as graphite-web writes it into names of series.
    pub(super) fn shown(&self, param: &str) -> String {
        self.value(param).map_or_else(|| "None".into(), |value| value.to_string())
    }

    pub(super) fn optional_number(&self, param: &str) -> Option<f64> {
        match self.value(param)? {
            Value::Integer(integer) => Some(integer as f64),
            Value::Float(number) => Some(number),
            Value::Text(_) | Value::Boolean(_) => None,
        }
    }

    pub(super) fn number(&self, param: &str) -> f64 {
        self.optional_number(param).unwrap_or_else(|| self.missing(param))
    }

    pub(super) fn optional_integer(&self, param: &str) -> Option<i64> {
        match self.value(param)? {
            Value::Integer(integer) => Some(integer),
            Value::Float(_) | Value::Text(_) | Value::Boolean(_) => None,
        }
    }

    pub(super) fn integer(&self, param: &str) -> i64 {
        self.optional_integer(param).unwrap_or_else(|| self.missing(param))
    }

    pub(super) fn optional_text(&self, param: &str) -> Option<Arc<str>> {
        self.value(param).map(|value| value.to_text())
    }

    pub(super) fn text(&self, param: &str) -> Arc<str> {
        self.optional_text(param).unwrap_or_else(|| self.missing(param))
    }

    pub(super) fn boolean(&self, param: &str) -> bool {
        matches!(self.value(param), Some(Value::Boolean(true)))
    }

    /// The aggregation that a parameter names.
    pub(super) fn aggregate(&self, param: &str) -> Aggregate {
        Aggregate::of_function(&self.text(param)).unwrap_or_else(|| self.missing(param))
    }

    /// A time in seconds since 1970.
    pub(super) fn time(&self, param: &str) -> Result<i64, QueryError> {
        let now_s = self.context.now_s;
        at_time::parse(&self.text(param), now_s, self.options().time_zone).map_err(|error| self.refuse(error))
    }

    /// The seconds of an interval. They are negative after a minus.
    pub(super) fn interval(&self, param: &str) -> Result<i64, QueryError> {
        at_time::parse_offset(&self.text(param)).map_err(|error| self.refuse(error))
    }

    pub(super) fn window(&self, param: &str) -> Result<Window, QueryError> {
        match self.value(param) {
            Some(Value::Integer(points)) => Ok(Window::Points(points)),
            Some(Value::Float(points)) => Ok(Window::Points(points as i64)),
            _ => Ok(Window::Seconds(self.interval(param)?.abs())),
        }
    }

    pub(super) fn nodes(&self, param: &str) -> Vec<NodeOrTag> {
        let node = |value: &Value| match value {
            Value::Integer(place) => NodeOrTag::Node(*place),
            value => NodeOrTag::Tag(value.to_text()),
        };
        self.values(param).map(node).collect()
    }

    fn missing<T>(&self, param: &str) -> T {
        panic!("BUG: {} has no argument {param} of the type that it asks for", self.invocation.function.name)
    }
}
