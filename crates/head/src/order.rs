//! Lists the frozen series in the order in which tables store them: by metric name, then label pair by label
//! pair. The work is done in turns, because writers wait for the head's lock. The series of one metric are
//! sorted at a time, which takes up to eight bytes for each of them.

use crate::pair::PairId;
use crate::tenant::TenantHead;
use model::SeriesRef;
use model::labels::METRIC_NAME;
use std::cmp::Ordering;

#[cfg(test)]
mod tests;

/// A turn takes this many steps, about fifty microseconds. A step is a comparison, or a visit to one series.
const TURN_STEPS: usize = 500;

const OUT_MAX: usize = 1024;

/// The merge sort begins with runs of this length, each of which is sorted at once. That takes about
/// [`RUN_STEPS`] comparisons per series.
const RUN: usize = 64;
const RUN_STEPS: usize = 6;

/// A sort of one tenant's frozen series, done in turns. It can be repeated until the samples are released.
#[derive(Debug, Default)]
pub struct FrozenOrder {
    /// Series without frozen samples from this time on are left out.
    since_ms: i64,
    stage: Stage,
    names: Sort,
    series: Sort,
}

#[derive(Debug, Default, Clone, Copy)]
enum Stage {
    #[default]
    Start,
    /// Finds the metric names with frozen series. The first number is that of the label pair to visit next,
    /// and the second is that of the next series with this pair.
    FindNames(u32, u32),
    SortNames,
    /// Finds the frozen series of the metric at this position in `names`. The second number is that of the
    /// series to visit next.
    FindSeries(usize, u32),
    SortSeries(usize),
    /// Returns the sorted series of the metric at this position in `names`. The second number is the position
    /// in `series` of the series to return next.
    HandOut(usize, usize),
    Done,
}

impl FrozenOrder {
    pub fn new() -> Self {
        Self::since(i64::MIN)
    }

    /// An order of the series that have frozen samples at `since_ms` or later.
    pub fn since(since_ms: i64) -> Self {
        Self { since_ms, ..Self::default() }
    }

    fn is_wanted(&self, head: &TenantHead, series: SeriesRef) -> bool {
        head.has_frozen(series)
            && (self.since_ms == i64::MIN
                || head.frozen_range(series).is_some_and(|range| range.end_ms >= self.since_ms))
    }

    /// Runs one turn, and appends at most 1,024 series to `out`. Returns true after the last turn. All turns
    /// must get the same head.
    pub fn turn(&mut self, head: &TenantHead, out: &mut Vec<SeriesRef>) -> bool {
        let (mut steps, mut room) = (TURN_STEPS, OUT_MAX);
        while steps > 0 && room > 0 {
            self.stage = match self.stage {
                Stage::Start => {
                    self.names.restart(head.pairs().count_of_name(METRIC_NAME));
                    Stage::FindNames(0, 0)
                }
                Stage::FindNames(at, from) => self.find_names(head, at, from, &mut steps),
                Stage::SortNames => match self.names.advance(&mut steps, |a, b| by_value(head, a, b)) {
                    true => Stage::FindSeries(0, 0),
                    false => Stage::SortNames,
                },
                Stage::FindSeries(name, from) => self.find_series(head, name, from, &mut steps),
                Stage::SortSeries(name) => {
                    let compare = |a, b| head.compare_labels(SeriesRef(a), SeriesRef(b));
                    match self.series.advance(&mut steps, compare) {
                        true => Stage::HandOut(name, 0),
                        false => Stage::SortSeries(name),
                    }
                }
                Stage::HandOut(name, from) => {
                    let left = &self.series.items[from..];
                    let now = &left[..left.len().min(room)];
                    out.extend(now.iter().copied().map(SeriesRef));
                    room -= now.len();
                    match now.len() == left.len() {
                        true => Stage::FindSeries(name + 1, 0),
                        false => Stage::HandOut(name, from + now.len()),
                    }
                }
                Stage::Done => return true,
            };
        }
        matches!(self.stage, Stage::Done)
    }

    pub fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.series.memory_bytes()
    }

    fn find_names(&mut self, head: &TenantHead, name: u32, from: u32, steps: &mut usize) -> Stage {
        let mut from = from;
        for pair in head.pairs().of_name(METRIC_NAME, name) {
            // `from` is a series of the pair `name`, which may have been dropped since the last turn
            let from = if pair.0 == name { std::mem::take(&mut from) } else { 0 };
            for series in head.pairs().postings(pair).iter_from(from) {
                if *steps == 0 {
                    return Stage::FindNames(pair.0, series);
                }
                *steps -= 1;
                if self.is_wanted(head, SeriesRef(series)) {
                    self.names.items.push(pair.0);
                    break;
                }
            }
        }
        Stage::SortNames
    }

    fn find_series(&mut self, head: &TenantHead, name: usize, from: u32, steps: &mut usize) -> Stage {
        let Some(pair) = self.names.items.get(name) else {
            *self = Self::since(self.since_ms);
            return Stage::Done;
        };
        let postings = head.pairs().postings(PairId(*pair));
        if from == 0 {
            self.series.restart(postings.len());
        }
        for series in postings.iter_from(from) {
            if *steps == 0 {
                return Stage::FindSeries(name, series);
            }
            *steps -= 1;
            if self.is_wanted(head, SeriesRef(series)) {
                self.series.items.push(series);
            }
        }
        Stage::SortSeries(name)
    }
}

fn by_value(head: &TenantHead, a: u32, b: u32) -> Ordering {
    head.pairs().text(PairId(a)).1.cmp(head.pairs().text(PairId(b)).1)
}

#[derive(Debug, Default)]
struct Sort {
    items: Vec<u32>,
    merged: Vec<u32>,
    /// Length of the runs that are already sorted; 0 until all initial runs are sorted.
    width: usize,
    /// Number of items whose initial run is already sorted.
    sorted: usize,
    /// Positions of the next items to compare, in the two runs that are being merged.
    left: usize,
    right: usize,
}

impl Sort {
    fn restart(&mut self, count: usize) {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        items.reserve_exact(count);
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        *self = Self { items, merged, ..Self::default() };
    }

    /// Continues the sort. Returns true once complete, false if `steps` ran out.
    fn advance(&mut self, steps: &mut usize, compare: impl Fn(u32, u32) -> Ordering) -> bool {
        while self.width == 0 {
            if *steps == 0 {
                return false;
            }
            let to = self.items.len().min(self.sorted + RUN);
            self.items[self.sorted..to].sort_unstable_by(|a, b| compare(*a, *b));
            *steps = steps.saturating_sub((to - self.sorted) * RUN_STEPS);
            self.sorted = to;
            if to == self.items.len() {
                (self.width, self.left, self.right) = (RUN, 0, RUN);
            }
        }
        while self.width < self.items.len() {
            if !self.merge(steps, &compare) {
                return false;
            }
            std::mem::swap(&mut self.items, &mut self.merged);
            self.merged.clear();
            self.width *= 2;
            (self.left, self.right) = (0, self.width);
        }
        true
    }

    fn merge(&mut self, steps: &mut usize, compare: impl Fn(u32, u32) -> Ordering) -> bool {
        let count = self.items.len();
        self.merged.reserve_exact(count - self.merged.len());
        while self.merged.len() < count {
            let start = self.merged.len() / (2 * self.width) * 2 * self.width;
            let (middle, end) = (count.min(start + self.width), count.min(start + 2 * self.width));
            while self.merged.len() < end {
                if *steps == 0 {
                    return false;
                }
                *steps -= 1;
                let takes_left = self.right >= end
                    || (self.left < middle && compare(self.items[self.left], self.items[self.right]).is_le());
                let from = if takes_left { &mut self.left } else { &mut self.right };
                self.merged.push(self.items[*from]);
                *from += 1;
            }
            (self.left, self.right) = (end, end + self.width);
        }
        true
    }

    fn memory_bytes(&self) -> usize {
        (self.items.capacity() + self.merged.capacity()) * size_of::<u32>()
    }
}
