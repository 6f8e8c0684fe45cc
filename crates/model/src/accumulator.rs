//! Adds up the increments of a series, so that each counts once, in whatever order they arrive.
//!
//! A sender with delta temporality sends how much was added to a counter in an interval. The intervals of a series do not
//! overlap, but they may arrive late, or again. An accumulator knows what they add up to, and the latest intervals:
//!
//! ```text
//!              end
//!   ▒▒▒▒▒▒▒▒▒▒▒ │       │ piece │ piece │     │ piece │
//!   closed       gap                     gap
//! ```
//!
//! - Nothing is added any more to the time up to `end`. Either all of it was added, or it is no longer known what was.
//! - An increment may still come for a gap. Then the sums of the *pieces* behind it change, so they are remembered.
//! - The pieces of the latest request are remembered too, so that they are recognized if it is repeated.
//! - There are at most [`PIECES_MAX`]. When there are more, the time up to the end of the oldest is closed.
//!
//! Times are in nanoseconds, because two increments may end in the same millisecond.

use crate::{Exponential, ExponentialSum, SeriesRefusal};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A late increment changes at most this many samples.
pub const PIECES_MAX: usize = 8;

const NS_PER_MS: u64 = 1_000_000;

/// What was added to a counter from `start_ns` to `end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Increment {
    /// Nanoseconds since the Unix epoch. If this is 0 or not before `end_ns`, the sender did not say when the interval began.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Identifies the bounds of the histogram to which the series belongs; 0 for others. If it changes, the sum begins at 0
    /// again, for all series of the histogram at the same time.
    pub layout: u32,
    /// Identifies the histogram among others with the same bounds; 0 for other series.
    pub histogram: u32,
    /// Of the points of this histogram that come before in the same request and have other bounds, the interval of the one
    /// that ends last. Its end is 0 if there is none.
    pub other_start_ns: u64,
    pub other_end_ns: u64,
    pub value: f64,
}

/// What became of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is the newest of its series.
    InOrder,
    /// It changes the sums at later times.
    Late,
    /// It was added before, and is ignored.
    Repeated,
}

/// A time in milliseconds, and the sum of all increments up to it.
pub type Sum = (i64, f64);

/// The sum of a series' increments, and the time that they cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulator {
    /// The time up to here is closed.
    pub end_ns: u64,
    /// Start of the increment that ends at `end_ns`.
    pub last_start_ns: u64,
    /// Sum up to `end_ns`.
    pub sum: f64,
    /// Value of the newest increment, to recognize that it is repeated. NaN if there was none since the sum was 0.
    pub newest: f64,
    pub layout: u32,
    /// The increments after `end_ns`, in ascending order. They do not overlap.
    pub pieces: Box<[Piece]>,
    /// If the increments are exponential histograms: what they add up to. `sum` is then the number of values.
    pub exponential: Option<Box<ExponentialSum>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Sum up to `end_ns`.
    pub sum: f64,
}

impl Increment {
    const fn has_start(&self) -> bool {
        self.start_ns > 0 && self.start_ns < self.end_ns
    }

    /// True if the bounds of the histogram have changed in the request, after an increment that ended at `newest_ns`. A series
    /// that has none of the points with other bounds would otherwise go on.
    pub const fn has_changed_since(&self, newest_ns: u64) -> bool {
        let Self { other_start_ns, other_end_ns, .. } = *self;
        let has_start = other_start_ns > 0 && other_start_ns < other_end_ns;
        // if they overlap, the other point is refused
        other_end_ns > newest_ns && (!has_start || other_start_ns >= newest_ns)
    }
}

impl Accumulator {
    /// An accumulator that begins with 0. The time up to `end_ns` is closed.
    pub fn new(end_ns: u64, layout: u32) -> Self {
        let pieces = Box::default();
        Self { end_ns, last_start_ns: end_ns, sum: 0.0, newest: f64::NAN, layout, pieces, exponential: None }
    }

    /// End of the newest increment.
    pub fn newest_ns(&self) -> u64 {
        self.pieces.last().map_or(self.end_ns, |piece| piece.end_ns)
    }

    /// Sum of all increments.
    pub fn total(&self) -> f64 {
        self.pieces.last().map_or(self.sum, |piece| piece.sum)
    }

    /// Closes the time up to the oldest pieces, so that there are at most `most`.
    pub fn keep_pieces(&mut self, most: usize) {
        let Some(closed) = self.pieces.len().checked_sub(most).filter(|closed| *closed > 0) else { return };
        let mut pieces = std::mem::take(&mut self.pieces).into_vec();
        pieces.drain(..closed).for_each(|piece| self.close_up_to(piece));
        self.pieces = pieces.into_boxed_slice();
        if let Some(exponential) = &mut self.exponential {
            exponential.close(self.end_ns);
        }
    }

    /// Like [`Self::add`], for an exponential histogram: the value of the increment is the number of values. Returns the sum from
    /// which [`ExponentialSum::read_out`] makes what has to be stored.
    pub fn add_exponential(
        &mut self,
        increment: &Increment,
        counts: &Arc<Exponential>,
        continues: bool,
    ) -> Result<(Added, ExponentialSum), SeriesRefusal> {
        if self.exponential.as_ref().is_some_and(|known| known.overflows(increment.end_ns, counts)) {
            return Err(SeriesRefusal::IncrementNotFinite);
        }
        let added = self.add(increment, continues, &mut Vec::new())?;
        let exponential = self.exponential.get_or_insert_default();
        if added == Added::Repeated {
            return match exponential.is_repeated(increment.end_ns, counts) {
                true => Ok((added, (**exponential).clone())),
                false => Err(SeriesRefusal::IncrementOverlaps),
            };
        }
        exponential.add(increment.end_ns, Arc::clone(counts));
        // an increment that is the oldest of too many pieces is closed at once
        let sum = (**exponential).clone();
        exponential.close(self.end_ns);
        Ok((added, sum))
    }

    /// Adds an increment. `continues` tells that the increment before came in the same request. Appends the samples that have
    /// to be stored to `sums`: one, or several if the increment is late. After an error, nothing has changed.
    pub fn add(
        &mut self,
        increment: &Increment,
        continues: bool,
        sums: &mut Vec<Sum>,
    ) -> Result<Added, SeriesRefusal> {
        let newest_ns = self.newest_ns();
        if increment.end_ns > newest_ns {
            self.append(increment, newest_ns, continues, sums)
        } else if increment.layout != self.layout {
            Err(SeriesRefusal::IncrementTooLate)
        } else if increment.end_ns == newest_ns {
            let start_ns = self.pieces.last().map_or(self.last_start_ns, |piece| piece.start_ns);
            let is_same = increment.value.to_bits() == self.newest.to_bits()
                && (increment.start_ns == start_ns || !increment.has_start());
            match is_same {
                true => Ok(Added::Repeated),
                false if self.newest.is_nan() => Err(SeriesRefusal::IncrementTooLate),
                false => Err(SeriesRefusal::IncrementOverlaps),
            }
        } else {
            self.insert(increment, continues, sums)
        }
    }

    fn append(
        &mut self,
        increment: &Increment,
        newest_ns: u64,
        continues: bool,
        sums: &mut Vec<Sum>,
    ) -> Result<Added, SeriesRefusal> {
        let Increment { end_ns, layout, value, .. } = *increment;
        let begins = layout != self.layout;
        let start_ns = match increment.has_start() {
            false => newest_ns,
            // nothing that ends after the closed time was added, so the increment may begin before
            true if self.newest.is_nan() => increment.start_ns.max(newest_ns),
            true => increment.start_ns,
        };
        if start_ns < newest_ns {
            return Err(SeriesRefusal::IncrementOverlaps);
        }
        let before = if begins { 0.0 } else { self.total() };
        let sum = finite(before + value)?;
        if begins {
            *self = Self::new(newest_ns, layout);
        }
        let is_adjacent = start_ns == newest_ns;
        // its own start, to recognize it again
        let start_ns = if increment.has_start() { increment.start_ns } else { newest_ns };
        let piece = Piece { start_ns, end_ns, sum };
        match continues && !self.newest.is_nan() {
            true => self.open(),
            false => self.join(),
        }
        if self.pieces.is_empty() && is_adjacent {
            self.close_up_to(piece);
        } else {
            self.put(piece);
        }
        self.newest = value;
        sums.push((ms(end_ns), sum));
        Ok(Added::InOrder)
    }

    /// Adds an increment that is older than the newest one.
    fn insert(
        &mut self,
        increment: &Increment,
        continues: bool,
        sums: &mut Vec<Sum>,
    ) -> Result<Added, SeriesRefusal> {
        let Increment { start_ns, end_ns, value, .. } = *increment;
        let at = self.pieces.partition_point(|piece| piece.end_ns < end_ns);
        let next = self.pieces.get(at).filter(|_| end_ns > self.end_ns);
        let next = *next.ok_or(SeriesRefusal::IncrementTooLate)?;
        let before = at.checked_sub(1).map(|before| self.pieces[before]);
        let (before_ns, before) = before.map_or((self.end_ns, self.sum), |piece| (piece.end_ns, piece.sum));
        let is_same = next.end_ns == end_ns && (next.start_ns == start_ns || !increment.has_start());
        if is_same && is_about(next.sum - before, value, next.sum) {
            return Ok(Added::Repeated);
        }
        if !increment.has_start() {
            return Err(SeriesRefusal::IncrementTooLate);
        }
        if start_ns < before_ns || end_ns > next.start_ns {
            return Err(SeriesRefusal::IncrementOverlaps);
        }
        finite(before + value)?;
        for piece in &self.pieces[at..] {
            finite(piece.sum + value)?;
        }
        sums.push((ms(end_ns), before + value));
        for piece in &mut self.pieces[at..] {
            piece.sum += value;
            sums.push((ms(piece.end_ns), piece.sum));
        }
        if !continues {
            self.join();
        }
        self.put(Piece { start_ns, end_ns, sum: before + value });
        Ok(Added::Late)
    }

    /// Makes a piece of the newest increment, if there are no others.
    fn open(&mut self) {
        if self.pieces.is_empty() {
            let piece = Piece { start_ns: self.last_start_ns, end_ns: self.end_ns, sum: self.sum };
            // this sum is only used to compare, because nothing fits in between
            (self.end_ns, self.sum) = (self.last_start_ns, self.sum - self.newest);
            self.pieces = [piece].into();
        }
    }

    /// Closes the time up to the first gap.
    fn join(&mut self) {
        let mut joined = 0;
        while let Some(piece) = self.pieces.get(joined).copied().filter(|piece| piece.start_ns == self.end_ns)
        {
            self.close_up_to(piece);
            joined += 1;
        }
        if joined > 0 {
            self.pieces = self.pieces[joined..].into();
        }
    }

    /// Inserts a piece. If there are too many, the oldest is closed.
    fn put(&mut self, piece: Piece) {
        let mut pieces = std::mem::take(&mut self.pieces).into_vec();
        let at = pieces.partition_point(|other| other.end_ns < piece.end_ns);
        pieces.insert(at, piece);
        if pieces.len() > PIECES_MAX {
            self.close_up_to(pieces.remove(0));
        }
        self.pieces = pieces.into_boxed_slice();
    }

    const fn close_up_to(&mut self, piece: Piece) {
        let Piece { start_ns, end_ns, sum } = piece;
        (self.last_start_ns, self.end_ns, self.sum) = (start_ns, end_ns, sum);
    }
}

const fn ms(ns: u64) -> i64 {
    (ns / NS_PER_MS) as i64
}

const fn finite(sum: f64) -> Result<f64, SeriesRefusal> {
    if sum.is_finite() { Ok(sum) } else { Err(SeriesRefusal::IncrementNotFinite) }
}

/// True if a difference of two sums is `value`, apart from the rounding of the sums.
fn is_about(difference: f64, value: f64, sum: f64) -> bool {
    (difference - value).abs() <= 1e-9 * sum.abs().max(value.abs())
}
