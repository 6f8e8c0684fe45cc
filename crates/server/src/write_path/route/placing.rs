//! Adds the samples of a batch to the submissions of partitions.

use super::{Part, Routing};
use crate::partition::submission::{NewSeries, Submission};
use model::{Exemplar, Labels, SeriesBatch, SeriesKey, SeriesRef, Value};
use stdx::budget::{Exhausted, IncrementalReservation};

/// The series to which samples are added.
pub(super) enum Destination {
    Known(SeriesRef),
    New(Labels),
    /// Like `New`, but the memory of the labels is reserved already.
    NewReserved(Labels),
}

/// Adds the samples of a series that was not found by its key to the submission of its partition.
pub(super) fn place<V: Value>(
    batch: &SeriesBatch<V>,
    position: u32,
    key: SeriesKey,
    part: &mut Submission,
    destination: Destination,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), Exhausted> {
    let series = &batch.series[position as usize];
    let exemplars = exemplars_of(&batch.exemplars, position);
    let samples = series.samples.start as usize..series.samples.end as usize;
    let (timestamps, values) = (&batch.timestamps[samples.clone()], &batch.values[samples]);
    reservation.reserve(exemplars.iter().map(|(_, e)| e.labels.as_bytes().len()).sum())?;
    // this also makes room for samples of new series, which are appended here once the series exist
    reservation.room(&mut part.refs, part.new_timestamps.len() + values.len())?;
    reservation.room(&mut part.timestamps, part.new_timestamps.len() + values.len())?;
    reservation.room(V::of(&mut part.values), part.new_timestamps.len() + values.len())?;
    // all samples of a series may have been left out
    let increment = if values.is_empty() { None } else { batch.increment_of(position) };
    if let Destination::New(labels) = &destination {
        reservation.reserve(labels.as_bytes().len())?;
    }
    match destination {
        Destination::Known(known) => {
            if let Some(increment) = increment {
                part.increments.push(part.refs.len(), key, *increment, reservation)?;
            }
            part.refs.extend(std::iter::repeat_n(known, values.len()));
            part.timestamps.extend_from_slice(timestamps);
            V::of(&mut part.values).extend_from_slice(values);
            for (_, exemplar) in exemplars {
                reservation.push(&mut part.exemplars, (known, exemplar.clone()))?;
            }
        }
        Destination::New(labels) | Destination::NewReserved(labels) => {
            reservation.room(&mut part.new_timestamps, values.len())?;
            reservation.room(V::of(&mut part.new_values), values.len())?;
            // will be copied once more when the series is created
            reservation.reserve(values.iter().map(Value::heap_bytes).sum())?;
            reservation.reserve(2 * size_of_val(exemplars))?;
            let start = part.new_timestamps.len() as u32;
            if let Some(increment) = increment {
                part.new_increments.push(start as usize, key, *increment, reservation)?;
                part.increments.make_room(&part.new_increments, reservation)?;
            }
            part.new_timestamps.extend_from_slice(timestamps);
            V::of(&mut part.new_values).extend_from_slice(values);
            let samples = start..part.new_timestamps.len() as u32;
            let exemplars = exemplars.iter().map(|(_, e)| e.clone()).collect();
            reservation.push(&mut part.new, NewSeries { key, labels, samples, exemplars })?;
        }
    }
    Ok(())
}

/// A series whose samples are not in a submission yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) position: u32,
    pub(super) found: Found,
}

/// What is known of a series by its key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    Nothing,
    /// It exists, but it is not known whether the rules on names leave it as it is.
    Unvetted(SeriesRef),
    Vetted(SeriesRef),
}

impl Routing<'_> {
    /// Adds samples of known series to submissions, and other series to `left`. `waiting` has an entry for each series, or
    /// none; series that wait are left. If there is a version of the rules on names, so is a series that was not vetted under it, and so are all others
    /// of its partition that come later, because the samples of a series must stay in order.
    pub(super) fn resolve_known<V: Value>(
        &self,
        batch: &mut SeriesBatch<V>,
        waiting: &[bool],
        parts: &mut [Part],
        left: &mut Vec<Left>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        // the rules of the tenant came after those on names, and have decided on both
        let vetted = if self.rules.is_none() { self.names.map(|names| names.version()) } else { None };
        let count = parts.len();
        let mut known: Vec<Option<SeriesRef>> = Vec::new();
        let track = !batch.exemplars.is_empty();
        if track {
            reservation.grow(&mut known, batch.series.len())?;
            known.resize(batch.series.len(), None);
        }
        let has_increments = !batch.increments.is_empty();
        for (number, (partition, (part, _))) in
            self.context.partitions.iter().zip(parts.iter_mut()).enumerate()
        {
            let head = partition.head.read();
            let head = head.tenant(self.tenant);
            let values = V::of(&mut part.values);
            let mut has_unvetted = false;
            for (position, series) in batch.series.iter().enumerate() {
                if series.key.partition(count) != number {
                    continue;
                }
                let waits = waiting.get(position).copied().unwrap_or(false);
                let head = if waits { None } else { head };
                let key = series.key.of_kind(V::KIND);
                let found = match (head.and_then(|head| head.resolve(key)), head, vetted) {
                    (None, ..) | (_, None, _) => Found::Nothing,
                    (Some(found), _, None) => Found::Vetted(found),
                    (Some(found), Some(head), Some(version)) => match head.is_vetted(found, version) {
                        true => Found::Vetted(found),
                        false => Found::Unvetted(found),
                    },
                };
                has_unvetted |= matches!(found, Found::Unvetted(_));
                let found = match found {
                    Found::Vetted(found) if !has_unvetted => found,
                    found => {
                        reservation.push(left, Left { position: position as u32, found })?;
                        continue;
                    }
                };
                if track {
                    known[position] = Some(found);
                }
                if has_increments
                    && !series.samples.is_empty()
                    && let Some(increment) = batch.increment_of(position as u32)
                {
                    part.increments.push(part.refs.len(), series.key, *increment, reservation)?;
                }
                for i in series.samples.start as usize..series.samples.end as usize {
                    part.refs.push(found);
                    part.timestamps.push(batch.timestamps[i]);
                    values.push(batch.values[i].clone());
                }
            }
        }
        let mut exemplars_left = Vec::new();
        for (position, exemplar) in std::mem::take(&mut batch.exemplars) {
            match known[position as usize] {
                Some(series) => {
                    let partition = batch.series[position as usize].key.partition(count);
                    reservation.push(&mut parts[partition].0.exemplars, (series, exemplar))?;
                }
                None => reservation.push(&mut exemplars_left, (position, exemplar))?,
            }
        }
        batch.exemplars = exemplars_left;
        Ok(())
    }
}

/// Returns the exemplars of the series at `position`. `exemplars` must be sorted by position.
pub(super) fn exemplars_of(exemplars: &[(u32, Exemplar)], position: u32) -> &[(u32, Exemplar)] {
    let from = exemplars.partition_point(|(p, _)| *p < position);
    let count = exemplars[from..].partition_point(|(p, _)| *p == position);
    &exemplars[from..from + count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemplars_are_found_by_the_position_of_their_series() {
        let exemplar = |value| Exemplar { labels: Labels::empty(), timestamp_ms: 0, value };
        let positions = [0, 0, 3, 4, 4, 4, 9];
        let all: Vec<_> = positions.iter().zip(0..).map(|(p, i)| (*p, exemplar(f64::from(i)))).collect();
        for position in 0..11 {
            let expected: Vec<_> = all.iter().filter(|(p, _)| *p == position).cloned().collect();
            assert_eq!(exemplars_of(&all, position), expected, "position {position}");
        }
        assert!(exemplars_of(&[], 0).is_empty());
    }
}
