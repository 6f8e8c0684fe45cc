use super::memo::Matched;
use model::{Batch, BatchSeries, Labels, SeriesBatch, SeriesKey};
use std::sync::Arc;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Points of a body that count in outputs, once the body is durable.
#[derive(Debug, Default)]
pub(crate) struct Contributions {
    series: Vec<Series>,
    points: Vec<(i64, f64)>,
    memory: Option<Reservation>,
}

/// The points of a series begin where those of the series before it end.
#[derive(Debug)]
struct Series {
    matched: Arc<Matched>,
    points_end: u32,
    /// Whether the points are not in the body any more, because an output replaces them.
    are_taken: bool,
}

/// What a point is to an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role<'a> {
    /// It counts, and is stored in another series.
    Input,
    /// It is of the output's own name, and is stored nowhere else. It has the labels of its series.
    Taken(&'a Labels),
    /// Its series has the output's name and keeps it. So it must not count.
    Stored,
}

impl Contributions {
    pub(super) fn push(
        &mut self,
        matched: Arc<Matched>,
        points: impl ExactSizeIterator<Item = (i64, f64)>,
        are_taken: bool,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        reservation.room(&mut self.points, points.len())?;
        self.points.extend(points);
        let points_end = self.points.len() as u32;
        reservation.push(&mut self.series, Series { matched, points_end, are_taken })
    }

    pub(super) fn within(self, memory: Reservation) -> Self {
        Self { memory: Some(memory), ..self }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Number of points, each as often as it counts.
    pub(crate) fn count(&self) -> u64 {
        self.of_outputs().map(|(.., points)| points.len() as u64).sum()
    }

    /// Outputs, and the times and values of points that rules match.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SeriesKey, Role<'_>, i64, f64)> {
        self.of_outputs().flat_map(|(output, role, points)| {
            points.iter().map(move |(at_ms, value)| (output, role, *at_ms, *value))
        })
    }

    /// Points that are not in the body any more, with the output that has taken them.
    pub(super) fn taken(&self) -> impl Iterator<Item = (SeriesKey, i64)> {
        let taken = self.of_outputs().filter(|(_, role, _)| matches!(role, Role::Taken(_)));
        taken.flat_map(|(output, _, points)| points.iter().map(move |(at_ms, _)| (output, *at_ms)))
    }

    fn of_outputs(&self) -> impl Iterator<Item = (SeriesKey, Role<'_>, &[(i64, f64)])> {
        let mut begin = 0;
        self.series.iter().flat_map(move |Series { matched, points_end, are_taken }| {
            let points = &self.points[begin..*points_end as usize];
            begin = *points_end as usize;
            matched.outputs.iter().map(move |output| {
                let role = match &matched.replaced {
                    Some(replaced) if replaced.output == *output && *are_taken => {
                        Role::Taken(&replaced.labels)
                    }
                    Some(replaced) if replaced.output == *output => Role::Stored,
                    _ => Role::Input,
                };
                (*output, role, points)
            })
        })
    }
}

/// Points that outputs have taken from a body, and could not have when the body was durable. They are stored nowhere else.
#[derive(Debug)]
pub(crate) struct GivenBack {
    pub(crate) batch: Batch,
    /// For the batch.
    pub(super) memory: Reservation,
    /// Number of further points, for which there was no memory.
    pub(crate) lost: u64,
}

impl GivenBack {
    /// The memory is of the same account as that of the contributions.
    pub(super) fn from(contributions: &mut Contributions) -> Self {
        let memory = contributions.memory.as_mut().expect("BUG: contributions without a reservation");
        Self { batch: Batch::default(), memory: memory.split(0), lost: 0 }
    }

    /// Storing a batch may use it up.
    pub(crate) fn copy(&self) -> Batch {
        let Batch { bytes, floats: SeriesBatch { series, timestamps, values, .. }, .. } = &self.batch;
        let (series, timestamps, values) = (series.clone(), timestamps.clone(), values.clone());
        let floats = SeriesBatch { series, timestamps, values, ..SeriesBatch::default() };
        Batch { bytes: bytes.clone(), floats, ..Batch::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.batch.floats.values.is_empty() && self.lost == 0
    }

    /// Adds a point that an output missed, if it had taken the point.
    pub(super) fn missed(&mut self, role: Role<'_>, at_ms: i64, value: f64, seed: u64) {
        if let Role::Taken(labels) = role
            && self.push(labels, at_ms, value, seed).is_err()
        {
            self.lost += 1;
        }
    }

    fn push(&mut self, labels: &Labels, at_ms: i64, value: f64, seed: u64) -> Result<(), Exhausted> {
        let mut reservation = IncrementalReservation::new(&mut self.memory);
        let Batch { bytes, floats, .. } = &mut self.batch;
        reservation.room(&mut floats.timestamps, 1)?;
        reservation.room(&mut floats.values, 1)?;
        let sample = floats.values.len() as u32;
        let bytes_of = |series: &BatchSeries| series.labels.start as usize..series.labels.end as usize;
        match floats.series.last_mut() {
            Some(last) if bytes[bytes_of(last)] == *labels.as_bytes() => last.samples.end = sample + 1,
            _ => {
                reservation.room(&mut floats.series, 1)?;
                let start = bytes.len() as u32;
                reservation.extend(bytes, labels.as_bytes())?;
                let (key, end) = (SeriesKey::of(labels.as_bytes(), seed), bytes.len() as u32);
                floats.series.push(BatchSeries { key, labels: start..end, samples: sample..sample + 1 });
            }
        }
        floats.timestamps.push(at_ms);
        floats.values.push(value);
        Ok(())
    }
}
