//! Functions that write values into names.

use super::each::map;
use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::call::{Call, Sink};
use crate::graphite::text::{fixed, shortest};
use std::sync::Arc;

const SYSTEMS: &[&str] = &["si", "binary"];

const VALUES: &[&str] = &["avg", "count", "last", "max", "min", "stddev", "sum", "si", "binary"];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "cactiStyle",
        Group::Special,
        "Writes the last, largest and smallest value behind each name, in columns. Numbers may have prefixes (`si` or \
         `binary`) and units.",
        &[
            SERIES_LIST,
            Param::optional("system", Type::String).one_of(SYSTEMS),
            Param::optional("units", Type::String),
        ],
        cacti_style,
    ),
    Function::new(
        "legendValue",
        Group::Alias,
        "Writes aggregations, such as `avg` or `last`, behind each name. The last argument may be `si` or `binary`, for \
         numbers with prefixes.",
        &[SERIES_LIST, Param::optional("valuesTypes", Type::String).multiple().suggest(VALUES)],
        legend_value,
    )
    .mapping(),
];

/// A value as Python writes it into a text.
pub(super) fn shown(value: f64) -> String {
    if value.is_nan() { "None".into() } else { shortest(value) }
}

fn legend_value(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut types = call.texts("valuesTypes");
    let system = types.pop_if(|last| SYSTEMS.contains(&&**last));
    map(call, sink, |series| {
        let mut name = call.new_name();
        // only a name without values yet can be shorter than its column
        let width = if system.is_some() && !types.is_empty() { 20 } else { 0 };
        name.push_padded(&series.name, width)?;
        for kind in &types {
            call.meter().check()?;
            let value = match Aggregate::of_function(kind) {
                Some(aggregate) => Some((aggregate, call.aggregated(series, aggregate)?)),
                None => None,
            };
            match &system {
                None => {
                    let value = match value {
                        // the number of values is an integer
                        Some((Aggregate::Count, count)) => fixed(count, 0),
                        Some((_, value)) => shown(value),
                        None => "(?)".into(),
                    };
                    [" (", kind, ": ", &value, ")"].into_iter().try_for_each(|part| name.push(part))?;
                }
                Some(system) => {
                    let value = match value {
                        Some((_, value)) if value.is_nan() => "None".into(),
                        Some((_, value)) => Format { system: Some(system), units: "" }.of(value),
                        None => "(?)".into(),
                    };
                    name.push_padded(kind, 5)?;
                    name.push_padded(&value, 10)?;
                }
            }
        }
        series.name = name.finish();
        Ok(())
    })
}

fn cacti_style(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let not_empty = |text: &Arc<str>| !text.is_empty();
    let (system, units) = (call.optional_text("system"), call.optional_text("units"));
    let (system, units) = (system.filter(not_empty), units.filter(not_empty));
    let format = Format { system: system.as_deref(), units: units.as_deref().unwrap_or_default() };
    let columns = [("Current", Aggregate::Last), ("Max", Aggregate::Max), ("Min", Aggregate::Min)];
    // the columns are as wide as their widest number, without its fraction and without the sign of a zero
    let (mut name_width, mut widths) = (0, [0; 3]);
    let held = call.all("seriesList")?;
    for series in held.iter() {
        call.meter().check()?;
        name_width = name_width.max(series.name.chars().count());
        for ((_, aggregate), width) in columns.iter().zip(&mut widths) {
            let value = aggregate.of(&series.values);
            let value = if value.is_nan() || value == 0.0 { 3.0 } else { value.trunc() + 0.0 };
            *width = format.of(value).chars().count().max(*width);
        }
    }
    held.drain(|mut series| {
        let mut name = call.new_name();
        name.push_padded(&series.name, name_width + 1)?;
        for ((label, aggregate), width) in columns.iter().zip(&widths) {
            let value = aggregate.of(&series.values);
            let value = if value.is_nan() { "nan".into() } else { format.of(value) };
            name.push(label)?;
            name.push(":")?;
            name.push_padded(&value, width + 3)?;
            name.push(" ")?;
        }
        series.name = name.finish();
        sink(series)
    })
}

/// Writes numbers with two decimals, a prefix, and a unit.
#[derive(Debug, Clone, Copy)]
struct Format<'a> {
    system: Option<&'a str>,
    units: &'a str,
}

impl Format<'_> {
    fn of(self, value: f64) -> String {
        let Self { system, units } = self;
        let (base, prefixes) = match system {
            Some("binary") => (1024.0, ["Pi", "Ti", "Gi", "Mi", "Ki"]),
            Some(_) => (1000.0, ["P", "T", "G", "M", "k"]),
            None if units.is_empty() => return fixed(value, 2),
            None => return format!("{} {units}", fixed(value, 2)),
        };
        let powers = [5, 4, 3, 2, 1].map(|exponent| f64::powi(base, exponent));
        let found = powers.iter().zip(prefixes).find(|(power, _)| value.abs() >= **power);
        let (scaled, prefix) = found.map_or((value, ""), |(power, prefix)| (value / power, prefix));
        let separator = if units.is_empty() { "" } else { " " };
        format!("{}{separator}{prefix}{units}", fixed(scaled, 2))
    }
}
