//! Leaves out samples whose times are impossible.

use crate::partition::submission::Outcome;
use crate::write_path::Context;
use admission::Postponed;
use admission::age::Window;
use model::{Batch, SeriesBatch, SeriesRefusal, Value};
use protocol::LabelForm;
use std::ops::Range;
use std::sync::Arc;

pub(super) fn leave_out_impossible_times(
    context: &Arc<Context>,
    arrived_ms: i64,
    batch: &mut Batch,
    form: &dyn LabelForm,
    outcome: &mut Outcome,
) {
    let timestamps = batch.floats.timestamps.iter().chain(&batch.histograms.timestamps);
    let (oldest, newest) = timestamps.fold((i64::MAX, i64::MIN), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
    if oldest > newest {
        return; // no samples
    }
    let window = Window::at(arrived_ms, context.settings.past_ms, context.settings.future_ms);
    if window.contains(oldest) && window.contains(newest) {
        context.wall.heard(newest, &*context.clock);
        return;
    }
    let doubt = context.wall.doubt(&*context.clock);
    let bytes = &batch.bytes;
    let mut refuse = |timestamp_ms, labels: Option<&Range<u32>>| {
        let (reason, is_in_doubt) = window.reason(timestamp_ms, doubt);
        if is_in_doubt {
            outcome.postpone(Postponed::Clock);
        }
        match labels {
            Some(labels) => {
                let error = SeriesRefusal::Timestamp { timestamp_ms, reason };
                outcome.refuse(error, 1, || form.describe(bytes, labels));
            }
            None => outcome.refuse_more(1),
        }
    };
    leave_out_times(&mut batch.floats, window, &mut refuse);
    leave_out_times(&mut batch.histograms, window, &mut refuse);
}

/// Removes samples that are outside of the window, and calls `refuse` for each of them. For the first of each series,
/// it gets the labels of the series.
fn leave_out_times<V: Value>(
    batch: &mut SeriesBatch<V>,
    window: Window,
    refuse: &mut impl FnMut(i64, Option<&Range<u32>>),
) {
    let SeriesBatch { series, timestamps, values, .. } = batch;
    let mut kept = 0;
    for series in series.iter_mut() {
        let (start, mut is_first) = (kept, true);
        for i in series.samples.start as usize..series.samples.end as usize {
            let timestamp_ms = timestamps[i];
            if window.contains(timestamp_ms) {
                timestamps[kept] = timestamp_ms;
                values.swap(kept, i);
                kept += 1;
                continue;
            }
            refuse(timestamp_ms, is_first.then_some(&series.labels));
            is_first = false;
        }
        series.samples = start as u32..kept as u32;
    }
    timestamps.truncate(kept);
    values.truncate(kept);
}
