//! Treats the series of a histogram's point alike, whose values are increments: they are stored together or not at all.
//!
//! This is decided before the request is divided. Once the partitions have their parts, a limit may still be reached by other
//! requests. Then the sender repeats the whole request, and the series that have the increment ignore it.

use super::Context;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::{Outcome, postponed};
use model::{Batch, BatchIncrement, SeriesBatch, SeriesKey, SeriesRefusal, TenantId};
use protocol::LabelForm;
use std::sync::Arc;

/// Tells the increments of histograms which of the histograms they belong to.
pub(super) fn identify(floats: &mut SeriesBatch<f64>) {
    let SeriesBatch { series, increments, .. } = floats;
    for point in increments.chunk_by_mut(|a, b| a.point == b.point) {
        let Some(last) = point.last().filter(|last| last.increment.layout != 0) else { continue };
        // the bucket of infinity, which does not depend on the bounds
        let SeriesKey(key) = series[last.series as usize].key;
        point.iter_mut().for_each(|one| one.increment.histogram = (key >> 64) as u32);
    }
}

/// Refuses points that need more new series than the tenant may create now.
pub(super) fn refuse_incomplete(
    context: &Arc<Context>,
    tenant: &TenantId,
    state: &TenantState,
    batch: &mut Batch,
    form: &dyn LabelForm,
    outcome: &mut Outcome,
) {
    let settings = context.overrides.current();
    let own = settings.of(tenant);
    let room = context.heads.room_for_series(&context.tenants, state, &settings, context.clock.instant());
    let (mut room, error) = match (room, own.limits.active_series) {
        (Err(error), _) => (0, error),
        (Ok(()), Some(limit)) => {
            (state.room_for_active_series(own), SeriesRefusal::ActiveSeries { limit: limit as u64 })
        }
        (Ok(()), None) => return,
    };
    let Batch { bytes, floats, .. } = batch;
    let SeriesBatch { series, increments, .. } = floats;
    for point in increments.chunk_by(|a, b| a.point == b.point) {
        let is_new = |one: &&BatchIncrement| {
            one.increment.layout != 0 && !is_known(context, tenant, series[one.series as usize].key)
        };
        let new = point.iter().filter(is_new).count() as u64;
        if new <= room {
            room -= new;
            continue;
        }
        for BatchIncrement { series: number, .. } in point {
            let series = &mut series[*number as usize];
            let samples = u64::from(series.samples.end - series.samples.start);
            if samples > 0 {
                outcome.refuse(error.clone(), samples, || form.describe(bytes, &series.labels));
                outcome.postpone(postponed(&error));
            }
            series.samples.end = series.samples.start;
        }
    }
}

fn is_known(context: &Arc<Context>, tenant: &TenantId, key: SeriesKey) -> bool {
    let partition = &context.partitions[key.partition(context.partitions.len())];
    partition.head.read().tenant(tenant).is_some_and(|head| head.resolve(key).is_some())
}
