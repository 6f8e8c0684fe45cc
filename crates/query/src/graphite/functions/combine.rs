//! Functions that make one series of several.

mod fold;

use super::table::{Function, Group, Param, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::call::{Call, Sink};
use fold::aggregate;

const SERIES_LISTS: Param = Param::required("seriesLists", Type::SeriesList).multiple();

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    "sumSeries",
    Group::Combine,
    "The sum of all series at each point.",
    &[SERIES_LISTS],
    sum_series,
)
.aliases(&["sum"])
.aggregator()];

fn sum_series(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    aggregate(call, "seriesLists", "sum", Aggregate::Sum, None)?.map_or(Ok(()), sink)
}
