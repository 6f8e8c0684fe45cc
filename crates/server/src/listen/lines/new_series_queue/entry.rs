//! A series with points that are not stored yet.

use super::super::ticket::Ticket;
use super::slots::NONE;
use model::caps::SERIES_LABEL_BYTES_MAX;
use model::{BatchSeries, Labels, SeriesKey};
use std::collections::VecDeque;

/// Upper bound on the memory of a waiting series without its labels and further points: a place of a page, with a part of
/// the places that are free; a position in a hash table while it grows; and its ticket in a chunk.
const SERIES_BYTES: usize = size_of::<Option<Entry>>() * 5 / 4 + 17 + 2 * size_of::<Ticket>();

/// Memory of [`Many`], and of what it has allocated besides its content.
const MANY_BYTES: usize = size_of::<Many>() + 32;

/// Memory of a point in a vector that is at least half full.
pub(super) const POINT_BYTES: usize = 2 * size_of::<Point>();

/// Memory of a further ticket: in the entry, and in a chunk.
const TICKET_BYTES: usize = 4 * size_of::<Ticket>();

/// Upper bound on the memory of a series in a chunk without its labels and points, in vectors that are at least half full.
const SERIES_COPY_BYTES: usize = 2 * size_of::<BatchSeries>() + size_of::<SeriesKey>();

/// Upper bound on the memory of the largest chunk.
pub(super) const COPY_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(
    SERIES_COPY_BYTES + 2 * SERIES_LABEL_BYTES_MAX + POINT_BYTES <= COPY_BYTES_MAX as usize,
    "the largest series with one point does not fit into a chunk"
);

/// Unix milliseconds, and a value.
pub(super) type Point = (i64, f64);

#[derive(Debug)]
pub(super) struct Entry {
    /// The halves of the key. The alignment of a `u128` would make an entry larger.
    key: [u64; 2],
    labels: Labels,
    waiting: PendingPoints,
    /// When the first of the points arrived, in milliseconds since the tenant's queue began. Earlier, if a
    /// chunk took some of the points that came first.
    pub(super) since_ms: u32,
    /// The series behind this one in the same list.
    pub(super) next: u32,
}

/// Points in the order of their arrival, with the tickets of the connections from which they came. Most new series have
/// one point.
#[derive(Debug)]
enum PendingPoints {
    /// All points are in creation.
    Nothing,
    One(Point, Ticket),
    Many(Box<Many>),
}

#[derive(Debug)]
struct Many {
    points: VecDeque<Point>,
    tickets: Vec<Ticket>,
}

/// Memory of an entry.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) entry_bytes: u64,
    /// What it takes in a chunk.
    pub(super) copy_bytes: u64,
}

impl Size {
    fn of(labels: &Labels, points: usize, tickets: usize, are_many: bool) -> Self {
        if points == 0 {
            return Self::default();
        }
        let many = if are_many { MANY_BYTES + points * POINT_BYTES + tickets * TICKET_BYTES } else { 0 };
        Self {
            entry_bytes: (SERIES_BYTES + labels_bytes(labels) + many) as u64,
            copy_bytes: series_copy_bytes(labels) + (points * POINT_BYTES) as u64,
        }
    }

    /// Size of a series that is not queued yet.
    pub(super) fn of_new(labels: &Labels, points: usize) -> Self {
        Self::of(labels, points, 1, points > 1)
    }
}

/// Memory of labels, which are shared, with their counters and what an allocator adds.
fn labels_bytes(labels: &Labels) -> usize {
    (labels.as_bytes().len() + 2 * size_of::<usize>()) * 5 / 4
}

/// Memory of a series in a chunk without its points.
fn series_copy_bytes(labels: &Labels) -> u64 {
    (SERIES_COPY_BYTES + 2 * labels.as_bytes().len()) as u64
}

impl Entry {
    pub(super) const fn new(key: SeriesKey, labels: Labels, since_ms: u32) -> Self {
        let key = [(key.0 >> 64) as u64, key.0 as u64];
        Self { key, labels, waiting: PendingPoints::Nothing, since_ms, next: NONE }
    }

    pub(super) const fn key(&self) -> SeriesKey {
        SeriesKey((self.key[0] as u128) << 64 | self.key[1] as u128)
    }

    pub(super) const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// True if all points are in creation.
    pub(super) const fn is_in_creation(&self) -> bool {
        matches!(self.waiting, PendingPoints::Nothing)
    }

    pub(super) fn points(&self) -> usize {
        match &self.waiting {
            PendingPoints::Nothing => 0,
            PendingPoints::One(..) => 1,
            PendingPoints::Many(many) => many.points.len(),
        }
    }

    pub(super) fn tickets(&self) -> &[Ticket] {
        match &self.waiting {
            PendingPoints::Nothing => &[],
            PendingPoints::One(_, ticket) => std::slice::from_ref(ticket),
            PendingPoints::Many(many) => &many.tickets,
        }
    }

    fn is_from_another(&self, ticket: &Ticket) -> bool {
        self.tickets().last().is_none_or(|last| !last.is(ticket))
    }

    pub(super) fn size(&self) -> Size {
        let are_many = matches!(self.waiting, PendingPoints::Many(_));
        Size::of(&self.labels, self.points(), self.tickets().len(), are_many)
    }

    /// Size with further points from the connection of `ticket`.
    pub(super) fn size_with(&self, more: usize, ticket: &Ticket) -> Size {
        let points = self.points() + more;
        let are_many = matches!(self.waiting, PendingPoints::Many(_)) || points > 1;
        let tickets = self.tickets().len() + usize::from(self.is_from_another(ticket));
        Size::of(&self.labels, points, tickets, are_many)
    }

    /// Memory of the series in a chunk without its points.
    pub(super) fn series_copy_bytes(&self) -> u64 {
        series_copy_bytes(&self.labels)
    }

    /// Adds points, for which there must be memory.
    pub(super) fn add(&mut self, mut more: impl ExactSizeIterator<Item = Point>, ticket: &Ticket) {
        let is_from_another = self.is_from_another(ticket);
        let waiting = std::mem::replace(&mut self.waiting, PendingPoints::Nothing);
        let mut many = match waiting {
            PendingPoints::Nothing if more.len() <= 1 => {
                self.waiting = more
                    .next()
                    .map_or(PendingPoints::Nothing, |point| PendingPoints::One(point, ticket.clone()));
                return;
            }
            PendingPoints::Nothing => {
                let (mut points, mut tickets) = (VecDeque::new(), Vec::new());
                points.reserve_exact(more.len());
                tickets.reserve_exact(1);
                Box::new(Many { points, tickets })
            }
            PendingPoints::One(point, ticket) => {
                let (mut points, mut tickets) = (VecDeque::new(), Vec::new());
                points.reserve_exact(1 + more.len());
                points.push_back(point);
                tickets.reserve_exact(1);
                tickets.push(ticket);
                Box::new(Many { points, tickets })
            }
            PendingPoints::Many(many) => many,
        };
        if is_from_another {
            many.tickets.reserve_exact(1);
            many.tickets.push(ticket.clone());
        }
        many.points.extend(more);
        self.waiting = PendingPoints::Many(many);
    }

    /// Removes the first `count` points, in order. Its time does not grow with the points that are left, because the queue is
    /// locked.
    pub(super) fn take(&mut self, count: usize, mut each: impl FnMut(Point)) {
        if count >= self.points() {
            match std::mem::replace(&mut self.waiting, PendingPoints::Nothing) {
                PendingPoints::Nothing => {}
                PendingPoints::One(point, _) => each(point),
                PendingPoints::Many(many) => many.points.into_iter().for_each(each),
            }
            return;
        }
        if let PendingPoints::Many(many) = &mut self.waiting {
            many.points.drain(..count).for_each(each);
            // the memory of the points that are gone belongs to the chunk now; with room for some more, each point is moved
            // about once by this, even if points are added and taken by turns
            if many.points.capacity() > 2 * many.points.len() {
                many.points.shrink_to(many.points.len() / 2 * 3);
            }
        }
    }

    /// Number of points for which memory is allocated.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        match &self.waiting {
            PendingPoints::Many(many) => many.points.capacity(),
            _ => self.points(),
        }
    }
}
