//! The part of routing that applies a tenant's rules on what is stored.
//!
//! ```text
//!   recall: verdicts by key ─┬─ unchanged, stored ─▶ looked up like any series
//!                            ├─ dropped ─▶ samples are taken away
//!                            └─ undecided ─▶ unknown ─▶ resolve_by_rules: labels ─▶ rules ─▶ placed, and remembered
//! ```

use super::placing::exemplars_of;
use super::{Part, Routing};
use crate::write_path::ingest::{Ruled, Verdict};
use crate::write_path::names::Decision;
use model::{Labels, SeriesBatch, SeriesKey, SeriesRefusal, Value, ValueKind};
use stdx::budget::{Exhausted, IncrementalReservation};

impl Routing<'_> {
    /// Applies what is remembered of the rules to the series of a batch, and marks the others in `waiting`, because a series is
    /// looked up only by the key under which it is stored. Before, `aliased` marks the series whose keys are not those of
    /// their labels.
    pub(super) fn recall<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        aliased: &[bool],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let Some(rules) = self.rules else { return Ok(()) };
        let undecided = &mut self.recalled.undecided;
        undecided.clear();
        reservation.room(undecided, batch.series.len())?;
        undecided.extend_from_slice(aliased);
        undecided.resize(batch.series.len(), false);
        rules.recall(batch, &mut self.recalled);
        Ok(())
    }

    /// Adds the series on which the rules must decide to those that wait.
    pub(super) fn mark_undecided(
        &self,
        waiting: &mut Vec<bool>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if self.rules.is_none() {
            return Ok(());
        }
        let undecided = &self.recalled.undecided;
        let missing = undecided.len() - waiting.len();
        reservation.room(waiting, missing)?;
        waiting.resize(undecided.len(), false);
        waiting.iter_mut().zip(undecided).for_each(|(waits, undecided)| *waits |= undecided);
        Ok(())
    }

    /// Like [`Self::resolve`], for a tenant with rules on what is stored.
    pub(super) fn resolve_by_rules<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        points: u64,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let series = &batch.series[position as usize];
        let is_undecided = self.recalled.undecided[position as usize];
        if is_undecided
            && let Some(names) = self.names
            && let Some(Decision::LeftOut(list)) = names.remembered(series.key)
            && self.known(series.key, V::KIND).is_none()
        {
            self.context.names.count(list, points);
            return Ok(());
        }
        self.recalled.applied += 1;
        let ruled = match self.form.labels_of(self.bytes, &series.labels, self.labels) {
            Ok(labels) => {
                let own = SeriesKey::of(labels.as_bytes(), self.context.seed);
                if !self.form.is_encoded() && is_undecided && own != series.key {
                    reservation.push(&mut self.learned, (series.key, own))?;
                }
                // the verdict is looked up by the key as sent or, for texts, by the one that their key is replaced by
                let sent = if self.form.is_encoded() { series.key } else { own };
                self.ruled(labels, own, V::KIND, points).map(|ruled| (ruled, sent))
            }
            Err(error) => Err(error),
        };
        let (ruled, sent) = match ruled {
            Ok((Some(ruled), sent)) => (ruled, sent),
            Ok((None, _)) => return Ok(()), // left out and counted by a list of names
            Err(error) => {
                self.refuse(batch, position, error);
                return Ok(());
            }
        };
        let (stored, verdict) = match ruled {
            Ruled::Stored(labels) => {
                let key = SeriesKey::of(labels.as_bytes(), self.context.seed);
                (Some((key, labels)), if key == sent { Verdict::Unchanged } else { Verdict::Stored(key) })
            }
            Ruled::Dropped(rule) => {
                self.recalled.drop_samples(rule, points);
                self.recalled.dropped_exemplars += exemplars_of(&batch.exemplars, position).len() as u64;
                (None, Verdict::Dropped(rule as u32))
            }
        };
        if is_undecided {
            reservation.push(&mut self.verdicts, (sent, verdict))?;
        }
        match stored {
            // it may have been undecided, and then it was not looked up by any key
            Some(stored) => self.place(batch, position, stored, None, parts, reservation),
            None => Ok(()),
        }
    }

    /// Applies the rules on names, then those on what is stored. `own` is the key of the labels. Returns `None` if a list of
    /// names leaves the series out.
    fn ruled(
        &mut self,
        labels: Labels,
        own: SeriesKey,
        kind: ValueKind,
        points: u64,
    ) -> Result<Option<Ruled>, SeriesRefusal> {
        let rules = self.rules.expect("BUG: the tenant has no rules");
        let mut labels = labels;
        if let Some(names) = self.names
            && self.known(own, kind).is_none()
        {
            match names.decide(own, labels, self.labels, self.context.seed)? {
                Ok(named) => labels = named,
                Err(list) => {
                    self.context.names.count(list, points);
                    return Ok(None);
                }
            }
        }
        rules.apply(labels, self.labels).map(Some)
    }
}
