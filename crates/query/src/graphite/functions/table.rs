//! What a function is: its name, its parameters, a description for users, and its code.

use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::consolidate::AGGREGATES;

/// The code of a function. It pushes the series it makes into the sink.
pub(in crate::graphite) type Run = for<'c> fn(&Call<'c>, &mut Sink<'_>) -> Result<(), QueryError>;

/// A function of targets.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    /// Other names of the function.
    pub aliases: &'static [&'static str],
    pub group: Group,
    /// One or a few sentences for users.
    pub description: &'static str,
    pub params: &'static [Param],
    /// True if functions such as `groupByNode` may call the function for each group.
    pub is_aggregator: bool,
    /// True if each series of the argument makes at most one series of the result, and depends on no other. Then
    /// series may come in any order, as long as the order of the result does not matter.
    pub(in crate::graphite) is_mapping: bool,
    pub(in crate::graphite) makes_lists: bool,
    /// True if the function counts series, so that its result is wrong without those that have no samples in the range.
    pub(in crate::graphite) counts_series: bool,
    pub(in crate::graphite) run: Run,
}

impl Function {
    pub(in crate::graphite) const fn new(
        name: &'static str,
        group: Group,
        description: &'static str,
        params: &'static [Param],
        run: Run,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            group,
            description,
            params,
            is_aggregator: false,
            is_mapping: false,
            makes_lists: false,
            counts_series: false,
            run,
        }
    }

    pub(in crate::graphite) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Declares that functions such as `groupByNode` may call the function.
    pub(in crate::graphite) const fn aggregator(self) -> Self {
        Self { is_aggregator: true, ..self }
    }

    /// Declares that each series of the argument makes at most one series of the result, and depends on no other.
    pub(in crate::graphite) const fn mapping(self) -> Self {
        Self { is_mapping: true, ..self }
    }

    /// Whether the names of the results may have another order than those of the argument.
    pub(in crate::graphite) fn chooses_names(&self) -> bool {
        self.group == Group::Alias || matches!(self.name, "cactiStyle" | "substr")
    }

    /// Declares that the function counts series.
    pub(in crate::graphite) const fn counting(self) -> Self {
        Self { counts_series: true, ..self }
    }

    /// Declares that the function returns lists of series, which only `reduceSeries` takes.
    pub(in crate::graphite) const fn lists(self) -> Self {
        Self { makes_lists: true, ..self }
    }

    pub(in crate::graphite) const fn makes_lists(&self) -> bool {
        self.makes_lists
    }

    /// The name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Place of the parameter that the positional argument `number` belongs to.
    pub(in crate::graphite) fn parameter_at(&self, number: usize) -> Option<usize> {
        let last = self.params.len().checked_sub(1)?;
        (number <= last || self.params[last].is_multiple).then_some(number.min(last))
    }

    /// The call with all parameters, for example `movingAverage(seriesList, windowSize, xFilesFactor=None)`.
    pub fn signature(&self) -> String {
        let params: Vec<_> = self.params.iter().map(Param::signature).collect();
        format!("{}({})", self.name, params.join(", "))
    }
}

/// Groups in which function pickers show functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Alias,
    Calculate,
    Combine,
    FilterData,
    FilterSeries,
    Graph,
    Sorting,
    Special,
    Transform,
}

impl Group {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alias => "Alias",
            Self::Calculate => "Calculate",
            Self::Combine => "Combine",
            Self::FilterData => "Filter Data",
            Self::FilterSeries => "Filter Series",
            Self::Graph => "Graph",
            Self::Sorting => "Sorting",
            Self::Special => "Special",
            Self::Transform => "Transform",
        }
    }
}

#[derive(Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: Type,
    pub is_required: bool,
    /// True if all further positional arguments belong to this parameter, which is the last one.
    pub is_multiple: bool,
    /// The value of a missing argument.
    pub default: Option<Default>,
    /// All values that are allowed. Empty if there is no such list.
    pub options: &'static [&'static str],
    /// Values that a function picker may propose.
    pub suggestions: &'static [&'static str],
}

/// Type of a parameter, with the names of graphite-web.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Any,
    AggFunc,
    AggOrSeriesFunc,
    Boolean,
    Date,
    Float,
    Integer,
    Interval,
    IntOrInf,
    IntOrInterval,
    Node,
    NodeOrTag,
    SeriesList,
    SeriesLists,
    String,
    Tag,
}

impl Type {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::AggFunc => "aggFunc",
            Self::AggOrSeriesFunc => "aggOrSeriesFunc",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Interval => "interval",
            Self::IntOrInf => "intOrInf",
            Self::IntOrInterval => "intOrInterval",
            Self::Node => "node",
            Self::NodeOrTag => "nodeOrTag",
            Self::SeriesList => "seriesList",
            Self::SeriesLists => "seriesLists",
            Self::String => "string",
            Self::Tag => "tag",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    Boolean(bool),
    Float(f64),
    Integer(i64),
    Text(&'static str),
}

impl Param {
    pub(in crate::graphite) const fn required(name: &'static str, kind: Type) -> Self {
        Self { is_required: true, ..Self::optional(name, kind) }
    }

    pub(in crate::graphite) const fn optional(name: &'static str, kind: Type) -> Self {
        let (options, suggestions) = (&[] as &[_], &[] as &[_]);
        Self { name, kind, is_required: false, is_multiple: false, default: None, options, suggestions }
    }

    /// A parameter that takes all further arguments.
    pub(in crate::graphite) const fn multiple(self) -> Self {
        Self { is_multiple: true, ..self }
    }

    pub(in crate::graphite) const fn or(self, default: Default) -> Self {
        Self { default: Some(default), ..self }
    }

    pub(in crate::graphite) const fn one_of(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    pub(in crate::graphite) const fn suggest(self, suggestions: &'static [&'static str]) -> Self {
        Self { suggestions, ..self }
    }

    /// All values that a function picker may show: the options, or the names that the type accepts. In alphabetical order.
    pub fn choices(&self) -> Vec<&'static str> {
        let aggregates = || AGGREGATES.iter().copied();
        let mut choices: Vec<_> = match self.kind {
            Type::AggFunc => aggregates().collect(),
            Type::AggOrSeriesFunc => {
                let functions = super::all().filter(|function| function.is_aggregator);
                aggregates().chain(functions.flat_map(Function::names)).collect()
            }
            _ => self.options.to_vec(),
        };
        choices.sort_unstable();
        choices.dedup();
        choices
    }

    fn signature(&self) -> String {
        let Self { name, is_required, is_multiple, default, .. } = self;
        match default {
            _ if *is_multiple => format!("*{name}"),
            _ if *is_required => (*name).into(),
            None => format!("{name}=None"),
            Some(Default::Boolean(true)) => format!("{name}=True"),
            Some(Default::Boolean(false)) => format!("{name}=False"),
            Some(Default::Float(number)) => format!("{name}={}", crate::graphite::text::general(*number)),
            Some(Default::Integer(integer)) => format!("{name}={integer}"),
            Some(Default::Text(text)) => format!("{name}='{text}'"),
        }
    }
}

/// The parameter of most functions.
pub(in crate::graphite) const SERIES_LIST: Param = Param::required("seriesList", Type::SeriesList);
