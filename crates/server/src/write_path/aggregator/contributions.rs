use super::memo::Matched;
use model::SeriesKey;
use std::sync::Arc;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Points of a body that count in outputs, once the body is durable.
#[derive(Debug, Default)]
pub(crate) struct Contributions {
    series: Vec<Series>,
    points: Vec<(i64, f64)>,
    _memory: Option<Reservation>,
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
pub(super) enum Role {
    /// It counts, and is stored in another series.
    Input,
    /// It is of the output's own name, and is stored nowhere else.
    Taken,
    /// It is of the output's own name, and is stored as it is. So it must not count.
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
        Self { _memory: Some(memory), ..self }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Number of points, each as often as it counts.
    pub(crate) fn count(&self) -> u64 {
        self.of_outputs().map(|(.., points)| points.len() as u64).sum()
    }

    /// Outputs, and the times and values of points that rules match.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SeriesKey, Role, i64, f64)> {
        self.of_outputs().flat_map(|(output, role, points)| {
            points.iter().map(move |(at_ms, value)| (output, role, *at_ms, *value))
        })
    }

    /// Points that are not in the body any more, with the output that has taken them.
    pub(super) fn taken(&self) -> impl Iterator<Item = (SeriesKey, i64)> {
        let taken = self.of_outputs().filter(|(_, role, _)| *role == Role::Taken);
        taken.flat_map(|(output, _, points)| points.iter().map(move |(at_ms, _)| (output, *at_ms)))
    }

    fn of_outputs(&self) -> impl Iterator<Item = (SeriesKey, Role, &[(i64, f64)])> {
        let mut begin = 0;
        self.series.iter().flat_map(move |Series { matched, points_end, are_taken }| {
            let points = &self.points[begin..*points_end as usize];
            begin = *points_end as usize;
            matched.outputs.iter().map(move |output| {
                let role = match (matched.replaced == Some(*output), *are_taken) {
                    (false, _) => Role::Input,
                    (true, true) => Role::Taken,
                    (true, false) => Role::Stored,
                };
                (*output, role, points)
            })
        })
    }
}
