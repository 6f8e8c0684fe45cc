//! Samples at any time to values at equal steps, as a Whisper file would have stored them.
//!
//! History from Whisper files has only coarse values for times that the finer archives no longer cover. They must not be
//! consolidated again. A value is *lone* if it is the only sample of a coarser slot, and stands exactly at its beginning.
//! Of two lone values in a row, both are taken as they are. So is a lone value that is the first of the range. A value
//! that was itself consolidated is never lone: each coarser archive consolidates it again, as Whisper does.

use super::Aggregate;
use super::consolidate::is_enough;
use model::TimeRange;

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

    /// The samples that decide the values.
    pub const fn range(&self) -> TimeRange {
        TimeRange::new(self.start_s.saturating_mul(1000), self.end_s.saturating_mul(1000) - 1)
    }
}

/// Turns the samples of one series into values. It keeps the samples of one value at a time, for each archive.
#[derive(Debug)]
pub struct Slots<'a> {
    schema: &'a Schema,
    layout: Layout,
    /// The slot of each archive that is being filled, finest first. The last one is that of the layout.
    filling: Vec<Filling>,
    values: &'a mut Vec<f64>,
}

#[derive(Debug)]
struct Filling {
    step_s: i64,
    /// Number of values of the next finer archive in a slot of this one.
    ratio: usize,
    start_s: i64,
    /// Values of the next finer archive in the slot. In the finest archive, the slot's last sample.
    known: Vec<f64>,
    is_lone: bool,
    /// True if the last slot that had a value was lone, or if there was none yet.
    was_lone: bool,
    /// The last slot, if it is lone and the one before it is not.
    waiting: Option<LoneSlot>,
}

/// A slot with a lone value. If the next slot has one too, the value is passed on unchanged; otherwise, the
/// consolidated value is.
#[derive(Debug, Clone, Copy)]
struct LoneSlot {
    start_s: i64,
    value: f64,
    /// The consolidated value, if enough values are present for one.
    consolidated: Option<f64>,
}

impl Filling {
    fn new(step_s: i64, ratio: i64) -> Self {
        let known = Vec::new();
        Self {
            step_s,
            ratio: ratio as usize,
            start_s: i64::MIN,
            known,
            is_lone: false,
            was_lone: true,
            waiting: None,
        }
    }
}

impl<'a> Slots<'a> {
    /// Replaces `values` by as many missing values as the layout has. The caller has checked that there is memory.
    pub fn new(schema: &'a Schema, layout: Layout, values: &'a mut Vec<f64>) -> Self {
        values.clear();
        values.resize(layout.len(), f64::NAN);
        let mut finer_s = None;
        let filling = schema.archives[..=layout.archive].iter().map(|archive| {
            let step_s = archive.step_s.max(1);
            let ratio = finer_s.replace(step_s).map_or(1, |finer_s| (step_s / finer_s).max(1));
            Filling::new(step_s, ratio)
        });
        Self { schema, layout, filling: filling.collect(), values }
    }

    /// Takes the next sample. Samples come in order of time. Those outside the layout, and NaN, have no effect.
    #[inline]
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        let time_s = timestamp_ms.div_euclid(1000);
        if value.is_nan() || time_s < self.layout.start_s || time_s >= self.layout.end_s {
            return;
        }
        let finest = &mut self.filling[0];
        let start_s = time_s - time_s.rem_euclid(finest.step_s);
        if finest.start_s == start_s {
            finest.known[0] = value;
            finest.is_lone = false;
            return;
        }
        self.close_finest();
        let finest = &mut self.filling[0];
        finest.start_s = start_s;
        finest.known.push(value);
        finest.is_lone = timestamp_ms == start_s.saturating_mul(1000);
    }

    /// Completes the values after the last sample.
    pub fn finish(mut self) {
        self.close_finest();
        for level in 1..self.filling.len() {
            self.close(level);
            self.end_waiting(level, false);
        }
    }

    fn close_finest(&mut self) {
        let finest = &mut self.filling[0];
        if let Some(value) = finest.known.pop() {
            let (start_s, is_lone) = (finest.start_s, finest.is_lone);
            self.pass(1, start_s, value, is_lone);
        }
    }

    /// Computes the value of a coarser archive's slot, and passes it to the next archive.
    fn close(&mut self, level: usize) {
        let Filling { ratio, start_s, known, is_lone, was_lone, .. } = &mut self.filling[level];
        let Some(first) = known.first().copied() else { return };
        let (start_s, is_lone) = (*start_s, *is_lone);
        let was_lone = std::mem::replace(was_lone, is_lone);
        let enough = is_enough(known.len(), *ratio, self.schema.x_files_factor);
        let consolidated = enough.then(|| match self.schema.aggregation {
            Aggregate::AvgZero => known.iter().sum::<f64>() / *ratio as f64,
            method => method.of(known),
        });
        known.clear();
        self.end_waiting(level, is_lone);
        if is_lone && !was_lone {
            self.filling[level].waiting = Some(LoneSlot { start_s, value: first, consolidated });
        } else if let Some(value) = if is_lone { Some(first) } else { consolidated } {
            self.pass(level + 1, start_s, value, is_lone);
        }
    }

    fn end_waiting(&mut self, level: usize, as_it_is: bool) {
        let Some(LoneSlot { start_s, value, consolidated }) = self.filling[level].waiting.take() else {
            return;
        };
        if let Some(value) = if as_it_is { Some(value) } else { consolidated } {
            self.pass(level + 1, start_s, value, as_it_is);
        }
    }

    /// Passes a value to an archive, or to the result after the last archive. `is_lone`: the value is a stored sample that
    /// stands alone, exactly at the beginning of its slot in the archive before.
    fn pass(&mut self, level: usize, time_s: i64, value: f64, is_lone: bool) {
        let Some(next) = self.filling.get_mut(level) else {
            let place = (time_s - self.layout.start_s) / self.layout.step_s;
            if let Some(slot) = self.values.get_mut(place as usize) {
                *slot = value;
            }
            return;
        };
        let start_s = time_s - time_s.rem_euclid(next.step_s);
        if next.start_s == start_s {
            next.is_lone = false;
        } else {
            self.close(level);
            let next = &mut self.filling[level];
            next.start_s = start_s;
            next.is_lone = is_lone && time_s == start_s;
        }
        self.filling[level].known.push(value);
    }
}

#[cfg(test)]
mod tests;
