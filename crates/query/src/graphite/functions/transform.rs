//! Functions that change each value of a series on its own.

use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::text::general;

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    "scale",
    Group::Transform,
    "Multiplies each value by a factor.",
    &[SERIES_LIST, Param::required("factor", Type::Float)],
    scale,
)
.mapping()];

fn scale(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let factor = call.number("factor");
    call.each("seriesList", |mut series| {
        series.tags.set("scale", call.shown("factor"));
        series.rename(format!("scale({},{})", series.name, general(factor)));
        series.values.iter_mut().for_each(|value| *value *= factor);
        sink(series)
    })
}
