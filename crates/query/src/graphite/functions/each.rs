//! What many functions do with each series.

use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::call::{Call, Sink};

/// Changes each series of the argument, and passes it on. `change` must itself check whether the query is canceled, as
/// [`Meter::change_each`](crate::meter::Meter::change_each) does.
pub(super) fn map(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    mut change: impl FnMut(&mut Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    call.each("seriesList", |mut series| {
        change(&mut series)?;
        sink(series)
    })
}

/// Passes on the series that satisfy a condition.
pub(super) fn filter(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    mut is_wanted: impl FnMut(&Series) -> bool,
) -> Result<(), QueryError> {
    call.each("seriesList", |series| if is_wanted(&series) { sink(series) } else { Ok(()) })
}
