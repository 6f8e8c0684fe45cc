//! Takes the values of one file, and decides which coarse ones are imported, and how queries recognize them.

use crate::import::intake::Intake;
use model::STALE_NAN_BITS;
use protocol::whisper::Archive;
use query::graphite::slots::mark_ms;

/// Why a coarse value is left out.
pub(super) const FINER: &str = "coarse values for whose time the series has finer samples";

pub(super) struct History<'a> {
    intake: &'a mut Intake,
    archives: &'a [Archive],
    /// Archives whose values all get marks, as bits.
    marked: u64,
    /// Times of samples that the series has, in order.
    stored: &'a [u32],
    /// The latest value, if it is a coarse one. The next value decides whether it needs a mark.
    waiting: Option<Coarse>,
    /// Called with the times of values that are left out.
    leave_out: &'a mut dyn FnMut(i64),
    left_out: u64,
}

#[derive(Debug, Clone, Copy)]
struct Coarse {
    archive: usize,
    at_s: i64,
    value: f64,
    /// True if the slot before has a value of the same archive, too.
    follows: bool,
}

impl<'a> History<'a> {
    pub(super) fn new(
        intake: &'a mut Intake,
        (archives, marked): (&'a [Archive], u64),
        stored: &'a [u32],
        leave_out: &'a mut dyn FnMut(i64),
    ) -> Self {
        Self { intake, archives, marked, stored, waiting: None, leave_out, left_out: 0 }
    }

    /// Takes the next value. `archive` is the place of its archive in the file.
    pub(super) fn push(&mut self, archive: usize, at_s: i64, value: f64) -> anyhow::Result<()> {
        if archive == 0 {
            self.end_waiting(false)?;
            if self.marked & 1 != 0 {
                self.mark(0, at_s)?;
            }
            return self.intake.sample(1000 * at_s, value);
        }
        let end_s = at_s + i64::from(self.archives[archive].step_s);
        if self.has_samples_between(at_s, end_s) {
            // the finer samples are what the value was computed from
            self.left_out += 1;
            (self.leave_out)(at_s);
            return Ok(());
        }
        let step_s = end_s - at_s;
        let is_before = |last: &Coarse| last.archive == archive && last.at_s + step_s == at_s;
        let follows = self.waiting.as_ref().is_some_and(is_before);
        self.end_waiting(follows)?;
        self.waiting = Some(Coarse { archive, at_s, value, follows });
        Ok(())
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.intake.tally.skip(FINER, self.left_out);
        self.end_waiting(false)
    }

    /// `is_followed`: the slot after the value that waits has a value of the same archive, too.
    fn end_waiting(&mut self, is_followed: bool) -> anyhow::Result<()> {
        let Some(Coarse { archive, at_s, value, follows }) = self.waiting.take() else { return Ok(()) };
        if self.marked >> archive & 1 != 0 || (!follows && !is_followed) {
            self.mark(archive, at_s)?;
        }
        self.intake.sample(1000 * at_s, value)
    }

    fn mark(&mut self, archive: usize, at_s: i64) -> anyhow::Result<()> {
        let step_s = i64::from(self.archives[archive].step_s);
        self.intake.sample(mark_ms(at_s, step_s), f64::from_bits(STALE_NAN_BITS))?;
        self.intake.tally.samples -= 1; // a mark is no value
        Ok(())
    }

    /// True if the series has a sample between the two times, without both.
    fn has_samples_between(&self, start_s: i64, end_s: i64) -> bool {
        let after = self.stored.partition_point(|time_s| i64::from(*time_s) <= start_s);
        self.stored.get(after).is_some_and(|time_s| i64::from(*time_s) < end_s)
    }
}
