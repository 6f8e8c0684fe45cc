//! Treats the series of a histogram's point alike, whose values are increments: they are stored together or not at all.
//!
//! This is decided before the request is divided. Once the partitions have their parts, a limit may still be reached by other
//! requests. Then the sender repeats the whole request, and the series that have the increment ignore it.

use super::Context;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::{Outcome, postponed};
use model::{Batch, BatchIncrement, BatchSeries, Increment, SeriesBatch, SeriesKey, SeriesRefusal, TenantId};
use protocol::LabelForm;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Tells the increments of histograms which of the histograms they belong to, and whether its bounds change in the request. Points
/// without samples do not count, because they were refused.
pub(super) fn identify(floats: &mut SeriesBatch<f64>, memory: &mut Reservation) -> Result<(), Exhausted> {
    let SeriesBatch { series, increments, .. } = floats;
    let points =
        increments.chunk_by(|a, b| a.point == b.point).filter(|point| point[0].increment.layout != 0);
    IncrementalReservation::new(memory).reserve(points.count() * HISTOGRAM_BYTES)?;
    let mut histograms: HashMap<u32, Latest> = HashMap::new();
    for point in increments.chunk_by_mut(|a, b| a.point == b.point) {
        let Some(last) = point.last().filter(|last| last.increment.layout != 0) else { continue };
        let BatchSeries { key: SeriesKey(key), samples, .. } = &series[last.series as usize];
        if samples.is_empty() {
            continue;
        }
        // the last series is the bucket of infinity. Its key identifies the histogram, because it does not depend on the bounds
        let (histogram, increment) = ((key >> 64) as u32, last.increment);
        let latest = histograms.entry(histogram).or_default();
        let other = latest.other_than(increment.layout);
        latest.note(&increment);
        for one in point {
            one.increment.histogram = histogram;
            (one.increment.other_start_ns, one.increment.other_end_ns) = (other.start_ns, other.end_ns);
        }
    }
    Ok(())
}

/// Bounds of the point of a histogram that ends last, and of the one that ends last among points with other bounds.
#[derive(Default)]
struct Latest([Bounds; 2]);

/// Bounds of a histogram, and the time range of a point that has them.
#[derive(Default, Clone, Copy)]
struct Bounds {
    layout: u32,
    start_ns: u64,
    end_ns: u64,
}

/// Memory of what is known of a histogram. A table grows to twice what it needs, and then holds the smaller one, too.
const HISTOGRAM_BYTES: usize = 4 * size_of::<(u32, Latest)>();

/// Memory of a key that was counted.
const COUNTED_BYTES: usize = 4 * size_of::<SeriesKey>();

impl Latest {
    fn other_than(&self, layout: u32) -> Bounds {
        let [first, second] = self.0;
        if first.layout == layout { second } else { first }
    }

    fn note(&mut self, point: &Increment) {
        let Increment { layout, start_ns, end_ns, .. } = *point;
        let [first, second] = &mut self.0;
        if end_ns > first.end_ns {
            if layout != first.layout {
                *second = *first;
            }
            *first = Bounds { layout, start_ns, end_ns };
        } else if layout != first.layout && end_ns > second.end_ns {
            *second = Bounds { layout, start_ns, end_ns };
        }
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
    memory: &mut Reservation,
) -> Result<(), Exhausted> {
    let settings = context.overrides.current();
    let own = settings.of(tenant);
    let room = context.heads.room_for_series(&context.tenants, state, &settings, context.clock.instant());
    let (room, error) = match (room, own.limits.active_series) {
        (Err(error), _) => (0, error),
        (Ok(()), Some(limit)) => {
            let is_configured = own.limits.active_series_is_given;
            let error = SeriesRefusal::ActiveSeries { limit: limit as u64, is_configured };
            (state.room_for_active_series(own), error)
        }
        (Ok(()), None) => return Ok(()),
    };
    let Batch { bytes, floats, .. } = batch;
    if floats.series.len() as u64 <= room {
        return Ok(());
    }
    IncrementalReservation::new(memory).reserve(floats.increments.len() * COUNTED_BYTES)?;
    let refuse = |series: &BatchSeries| {
        outcome.refuse(error.clone(), series.samples.len() as u64, || form.describe(bytes, &series.labels));
        outcome.postpone(postponed(&error));
    };
    let exemplars = leave_out(floats, room, |key| is_known(context, tenant, key), refuse);
    outcome.refused_exemplars += exemplars;
    Ok(())
}

/// Removes the samples and exemplars of points that need more new series than there is room for. Returns the number of exemplars.
fn leave_out(
    floats: &mut SeriesBatch<f64>,
    mut room: u64,
    is_known: impl Fn(SeriesKey) -> bool,
    mut refuse: impl FnMut(&BatchSeries),
) -> u64 {
    /// No series has this position.
    const LEFT_OUT: u32 = u32::MAX;
    let SeriesBatch { series, increments, exemplars, .. } = floats;
    let (mut counted, mut next) = (HashSet::new(), 0);
    for point in increments.chunk_by(|a, b| a.point == b.point) {
        let of_histogram = point.iter().filter(|one| one.increment.layout != 0);
        let keys = of_histogram.map(|one| series[one.series as usize].key);
        let new = keys.clone().filter(|key| !counted.contains(key) && !is_known(*key)).count() as u64;
        if new <= room {
            room -= new;
            if new > 0 {
                counted.extend(keys);
            }
            continue;
        }
        for BatchIncrement { series: position, .. } in point {
            let from = next + exemplars[next..].partition_point(|(of, _)| of < position);
            next = from + exemplars[from..].partition_point(|(of, _)| of == position);
            exemplars[from..next].iter_mut().for_each(|(of, _)| *of = LEFT_OUT);
            let series = &mut series[*position as usize];
            if !series.samples.is_empty() {
                refuse(series);
            }
            series.samples.end = series.samples.start;
        }
    }
    let before = exemplars.len();
    exemplars.retain(|(of, _)| *of != LEFT_OUT);
    (before - exemplars.len()) as u64
}

fn is_known(context: &Arc<Context>, tenant: &TenantId, key: SeriesKey) -> bool {
    let partition = &context.partitions[key.partition(context.partitions.len())];
    partition.head.read().tenant(tenant).is_some_and(|head| head.resolve(key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Exemplar, Labels};
    use stdx::budget::Account;
    use stdx::rng::Rng;

    /// A batch of histograms with two series each.
    fn batch(points: &[(u128, Increment)]) -> SeriesBatch<f64> {
        let mut floats = SeriesBatch::<f64>::default();
        for (histogram, increment) in points {
            let point = floats.series.len() as u32;
            for series in point..point + 2 {
                // the key of the last one has the histogram
                let key = if series == point { *histogram } else { histogram << 64 };
                floats.series.push(BatchSeries { key: SeriesKey(key), labels: 0..0, samples: 0..1 });
                floats.increments.push(BatchIncrement { series, point, increment: *increment });
            }
        }
        floats
    }

    /// Compares with a search in all earlier points.
    #[test]
    fn points_know_those_before_them_with_other_bounds() {
        let mut rng = Rng::announced();
        for _ in 0..200 {
            let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
            let mut points = Vec::new();
            for _ in 0..rng.below(20) {
                let (histogram, layout) = (1 + u128::from(rng.below(3)), 1 + 2 * rng.below(3) as u32);
                let start_ns = 1 + rng.below(100);
                let end_ns = start_ns + rng.below(30);
                points.push((histogram, Increment { start_ns, end_ns, layout, ..Increment::default() }));
            }
            let mut floats = batch(&points);
            let is_refused: Vec<_> = points.iter().map(|_| rng.chance(0.2)).collect();
            for (n, series) in floats.series.iter_mut().enumerate() {
                series.samples.end = u32::from(!is_refused[n / 2]);
            }
            identify(&mut floats, &mut memory).unwrap();
            for (n, (histogram, point)) in points.iter().enumerate().filter(|(n, _)| !is_refused[*n]) {
                let others = points[..n].iter().zip(&is_refused).filter(|((of, other), is_refused)| {
                    !**is_refused && of == histogram && other.layout != point.layout
                });
                let end_ns = others.map(|((_, other), _)| other.end_ns).max().unwrap_or(0);
                for BatchIncrement { increment, .. } in &floats.increments[2 * n..2 * n + 2] {
                    let found = (u128::from(increment.histogram), increment.other_end_ns);
                    assert_eq!(found, (*histogram, end_ns), "{points:?}");
                }
            }
        }
    }

    #[test]
    fn points_without_room_leave_nothing() {
        let increment = Increment { layout: 3, ..Increment::default() };
        let mut floats = batch(&[1, 2, 1, 3, 4].map(|histogram| (histogram, increment)));
        for series in 0..10 {
            let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 0, value: 1.0 };
            floats.exemplars.push((series, exemplar));
        }
        let mut refused = 0;
        // the third is known
        let is_known = |SeriesKey(key)| key == 3 || key == 3 << 64;
        let exemplars = leave_out(&mut floats, 3, is_known, |_| refused += 1);
        assert_eq!((refused, exemplars), (4, 4));
        let left: Vec<_> = (0..10).filter(|n| !floats.series[*n as usize].samples.is_empty()).collect();
        assert_eq!(left, [0, 1, 4, 5, 6, 7], "a series that occurs twice needs room once");
        assert_eq!(floats.exemplars.iter().map(|(series, _)| *series).collect::<Vec<_>>(), left);
    }
}
