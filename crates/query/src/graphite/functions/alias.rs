//! Functions that rename series.

use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    "alias",
    Group::Alias,
    "Shows series under another name.",
    &[SERIES_LIST, Param::required("newName", Type::String)],
    alias,
)
.mapping()];

fn alias(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("newName");
    call.each("seriesList", |mut series| {
        series.name.clone_from(&name);
        sink(series)
    })
}
