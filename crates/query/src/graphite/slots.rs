//! Samples at any time to values at equal steps, as a Whisper file would have stored them.
//!
//! History from Whisper files has only coarse values for times that the finer archives no longer cover. They must not be
//! consolidated again. A sample is *lone* at a step if it is the only one of its slot, and stands exactly at the slot's beginning.
//! It is taken for history of an archive if it is lone at the archive's step, and so is a sample in the slot before or after.
//! The import puts a *mark* before a coarse value without such a neighbour ([`mark_ms`]). With `avg_zero`, only a mark counts:
//! ordinary samples that arrive once per coarse slot look like history too, but Whisper divides such a value by the number of finer slots. A value that was consolidated from
//! samples is never history: each coarser archive consolidates it again, as Whisper does.
//!
//! So the slots before and after a value decide about it, besides its own. Samples of these are read, too ([`Layout::around_s`]), so that a
//! value does not depend on the range of the query.

use super::Aggregate;
use super::consolidate::is_enough;
use model::sample::is_stale;

/// How long values of a step are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archive {
    pub step_s: i64,
    /// `i64::MAX` means forever.
    pub retention_s: i64,
}

/// How the values of a metric are stored: the answer of storage-schemas and storage-aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// Not empty. Steps and retentions ascend, and each step is a multiple of the one before.
    pub archives: Vec<Archive>,
    /// Computes a value of an archive from values of the archive before it.
    pub aggregation: Aggregate,
    /// Fraction (0 to 1) of these values that must be present.
    pub x_files_factor: f64,
}

impl Schema {
    /// One step forever.
    pub fn every(step_s: i64) -> Self {
        let archives = vec![Archive { step_s, retention_s: i64::MAX }];
        Self { archives, aggregation: Aggregate::Average, x_files_factor: 0.0 }
    }

    pub fn step_max_s(&self) -> i64 {
        self.archives.iter().map(|archive| archive.step_s).max().unwrap_or(1)
    }

    /// [`Layout::around_s`] of a range. 0 if there are no values in it.
    pub fn around_s(&self, from_s: i64, until_s: i64, now_s: i64) -> i64 {
        self.layout(from_s, until_s, now_s).map_or(0, |layout| layout.around_s())
    }

    /// Steps and bounds of the values from `from_s`, exclusive, to `until_s`. The first archive that still has
    /// `from_s` decides. Returns `None` if the range is in the future, or older than all archives.
    pub fn layout(&self, from_s: i64, until_s: i64, now_s: i64) -> Option<Layout> {
        let oldest_s = now_s.saturating_sub(self.archives.iter().map(|archive| archive.retention_s).max()?);
        if from_s > now_s || until_s < oldest_s {
            return None;
        }
        let (from_s, until_s) = (from_s.max(oldest_s), until_s.min(now_s));
        let age_s = now_s.saturating_sub(from_s);
        let number = self.archives.iter().position(|archive| archive.retention_s >= age_s);
        let number = number.unwrap_or(self.archives.len() - 1);
        let step_s = self.archives[number].step_s.max(1);
        let after = |time_s: i64| time_s.saturating_sub(time_s.rem_euclid(step_s)).saturating_add(step_s);
        let (start_s, mut end_s) = (after(from_s), after(until_s));
        if start_s == end_s {
            end_s = end_s.saturating_add(step_s);
        }
        Some(Layout { start_s, end_s, step_s, archive: number })
    }
}

/// Where the values of a series are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub start_s: i64,
    /// Exclusive.
    pub end_s: i64,
    pub step_s: i64,
    /// The archive that has the values, as a place in [`Schema::archives`].
    archive: usize,
}

impl Layout {
    /// Number of values.
    pub const fn len(&self) -> usize {
        if self.end_s <= self.start_s { 0 } else { ((self.end_s - self.start_s) / self.step_s) as usize }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples up to this long before and after the values decide about them, too: see [`self`].
    pub const fn around_s(&self) -> i64 {
        if self.archive > 0 { self.step_s } else { 0 }
    }
}

/// A mark stands this long before its value, and longer for each doubling of the value's step.
const MARK_LEAD_MS_MIN: i64 = 100;
const MARK_LEAD_MS_MAX: i64 = 999;
const LEAD_MS_OF_A_DOUBLING: f64 = 32.0;

/// The time of the mark that the import puts before a coarse value. A mark is a staleness marker. It has no other effect on Graphite's
/// queries, and none on PromQL at whole seconds. `step_s` is that of the value's archive in the file. The archives of a schema may have
/// other steps than those of the file.
pub fn mark_ms(at_s: i64, step_s: i64) -> i64 {
    at_s * 1000 - mark_lead_ms(step_s)
}

/// How long before a value its mark stands. It grows with the step, so the step can be read from it: precisely enough, because each step of a
/// schema is at least twice the one before.
fn mark_lead_ms(step_s: i64) -> i64 {
    let doublings = (step_s.max(1) as f64).log2();
    let lead_ms = MARK_LEAD_MS_MIN + (doublings * LEAD_MS_OF_A_DOUBLING).round() as i64;
    lead_ms.min(MARK_LEAD_MS_MAX)
}

/// If the sample is a mark: the time of the value that it announces, and [`mark_lead_ms`] of the value's step.
fn marked(timestamp_ms: i64, value: f64) -> Option<(i64, i64)> {
    let lead_ms = timestamp_ms.saturating_neg().rem_euclid(1000);
    let is_mark = is_stale(value) && (MARK_LEAD_MS_MIN..=MARK_LEAD_MS_MAX).contains(&lead_ms);
    is_mark.then(|| (timestamp_ms.saturating_add(lead_ms), lead_ms))
}

/// Turns the samples of one series into values. Keeps two samples, and for each archive the inputs of one value.
#[derive(Debug)]
pub struct Slots<'a> {
    schema: &'a Schema,
    layout: Layout,
    /// The archives after the finest: the step, and [`mark_lead_ms`] of it.
    coarse_ms: Vec<(i64, i64)>,
    /// The time of the sample before those that wait.
    before_ms: i64,
    /// The latest two samples, the older one first. The next two samples decide about a sample.
    waiting: [Option<Sample>; 2],
    /// What the latest mark says, as [`marked`] returns it.
    mark: Option<(i64, i64)>,
    /// The slot of each archive that is being filled, finest first. The last one is that of the layout.
    filling: Vec<Filling>,
    values: &'a mut Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    timestamp_ms: i64,
    value: f64,
    /// How long before the sample its mark stands. 0 if there is none.
    mark_lead_ms: i64,
}

#[derive(Debug)]
struct Filling {
    step_s: i64,
    /// Number of values of the next finer archive in a slot of this one.
    ratio: usize,
    start_s: i64,
    /// Values of the next finer archive in the slot. In the finest archive, the slot's last sample.
    known: Vec<f64>,
    /// If the only value is history, the coarsest archive that has it. Otherwise 0.
    history: usize,
}

impl Filling {
    const fn new(step_s: i64, ratio: i64) -> Self {
        Self { step_s, ratio: ratio as usize, start_s: i64::MIN, known: Vec::new(), history: 0 }
    }
}

impl<'a> Slots<'a> {
    /// Replaces `values` by as many missing values as the layout has. The caller has checked that there is memory.
    pub fn new(schema: &'a Schema, layout: Layout, values: &'a mut Vec<f64>) -> Self {
        values.clear();
        values.resize(layout.len(), f64::NAN);
        let archives = &schema.archives[..=layout.archive];
        let mut finer_s = None;
        let filling = archives.iter().map(|archive| {
            let step_s = archive.step_s.max(1);
            let ratio = finer_s.replace(step_s).map_or(1, |finer_s| (step_s / finer_s).max(1));
            Filling::new(step_s, ratio)
        });
        let filling = filling.collect();
        let coarse = archives[1..].iter().map(|archive| archive.step_s.max(1));
        let coarse_ms = coarse.map(|step_s| (step_s.saturating_mul(1000), mark_lead_ms(step_s))).collect();
        let (before_ms, waiting) = (i64::MIN, [None; 2]);
        Self { schema, layout, coarse_ms, before_ms, waiting, mark: None, filling, values }
    }

    /// Takes the next sample. Samples come in order of time. Those that are further from the layout than [`Layout::around_s`] are not
    /// needed. NaN has no effect, except for marks.
    #[inline]
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        if value.is_nan() {
            self.mark = marked(timestamp_ms, value).or(self.mark);
        } else if self.coarse_ms.is_empty() {
            self.fill(timestamp_ms, value, 0);
        } else {
            let mark = self.mark.filter(|(at_ms, _)| *at_ms == timestamp_ms);
            let mark_lead_ms = mark.map_or(0, |(_, lead_ms)| lead_ms);
            self.take(Some(Sample { timestamp_ms, value, mark_lead_ms }));
        }
    }

    /// Completes the values after the last sample.
    pub fn finish(mut self) {
        self.take(None);
        self.take(None);
        self.close_finest();
        for level in 1..self.filling.len() {
            self.close(level);
        }
    }

    /// Adds a sample to those that wait, and fills in the one before them.
    fn take(&mut self, latest: Option<Sample>) {
        let [first, second] = self.waiting;
        self.waiting = [second, latest];
        let Some(sample) = first else { return };
        let next_ms = [second, latest].map(|next| next.map_or(i64::MAX, |next| next.timestamp_ms));
        let history = self.history(&sample, next_ms);
        self.before_ms = sample.timestamp_ms;
        self.fill(sample.timestamp_ms, sample.value, history);
    }

    /// The coarsest archive of which a sample is history, or 0. `next_ms` are the times of the next two samples.
    #[inline]
    fn history(&self, sample: &Sample, next_ms: [i64; 2]) -> usize {
        let before = sample.timestamp_ms.saturating_sub(self.before_ms);
        let after = next_ms[0].saturating_sub(sample.timestamp_ms);
        let must_be_marked = self.schema.aggregation == Aggregate::AvgZero;
        let mut history = 0;
        for ((step_ms, lead_ms), archive) in self.coarse_ms.iter().zip(1..) {
            if after < *step_ms || sample.timestamp_ms.rem_euclid(*step_ms) != 0 {
                break; // not lone at this step, so not at longer ones either
            }
            let follows = before == *step_ms;
            let is_followed = after == *step_ms && next_ms[1].saturating_sub(next_ms[0]) >= *step_ms;
            if *lead_ms <= sample.mark_lead_ms || !must_be_marked && (follows || is_followed) {
                history = archive;
            }
        }
        history
    }

    #[inline]
    fn fill(&mut self, timestamp_ms: i64, value: f64, history: usize) {
        let time_s = timestamp_ms.div_euclid(1000);
        if time_s < self.layout.start_s || time_s >= self.layout.end_s {
            return;
        }
        let finest = &mut self.filling[0];
        let start_s = time_s - time_s.rem_euclid(finest.step_s);
        if finest.start_s == start_s {
            finest.known[0] = value;
            return;
        }
        self.close_finest();
        let finest = &mut self.filling[0];
        finest.start_s = start_s;
        finest.known.push(value);
        finest.history = history;
    }

    fn close_finest(&mut self) {
        let finest = &mut self.filling[0];
        if let Some(value) = finest.known.pop() {
            let (start_s, history) = (finest.start_s, finest.history);
            self.pass(1, start_s, value, history);
        }
    }

    /// Computes the value of a coarser archive's slot, and passes it to the next archive.
    fn close(&mut self, level: usize) {
        let Filling { ratio, start_s, known, history, .. } = &mut self.filling[level];
        let Some(first) = known.first().copied() else { return };
        let (start_s, history) = (*start_s, *history);
        if history >= level {
            known.clear();
            return self.pass(level + 1, start_s, first, history);
        }
        let enough = is_enough(known.len(), *ratio, self.schema.x_files_factor);
        let consolidated = enough.then(|| match self.schema.aggregation {
            Aggregate::AvgZero => (known.iter().sum::<f64>() + 0.0) / *ratio as f64,
            method => method.of(known),
        });
        known.clear();
        if let Some(value) = consolidated {
            self.pass(level + 1, start_s, value, 0);
        }
    }

    /// Passes a value to an archive, or to the result after the last archive. A value that is history of the archive is the
    /// only one of its slot there.
    fn pass(&mut self, level: usize, time_s: i64, value: f64, history: usize) {
        let Some(next) = self.filling.get_mut(level) else {
            let place = (time_s - self.layout.start_s) / self.layout.step_s;
            if let Some(slot) = self.values.get_mut(place as usize) {
                *slot = value;
            }
            return;
        };
        let start_s = time_s - time_s.rem_euclid(next.step_s);
        if next.start_s != start_s {
            self.close(level);
            let next = &mut self.filling[level];
            next.start_s = start_s;
            next.history = history;
        }
        self.filling[level].known.push(value);
    }
}

#[cfg(test)]
mod tests;
