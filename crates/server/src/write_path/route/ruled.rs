//! The part of routing that applies a tenant's rules on what is stored.
//!
//! ```text
//!   recall: verdicts by key ─┬─ unchanged, stored ─▶ looked up like any series
//!                            ├─ dropped ─▶ samples are taken away
//!                            └─ undecided ─▶ unknown ─▶ resolve_by_rules: labels ─▶ rules ─▶ placed, and remembered
//! ```
//!
//! Rules may take a second of a request. Series on which they have not decided by then are refused, and the sender
//! repeats the request. Then, the others are known, so that the rules go on where they ended.

use super::placing::exemplars_of;
use super::{Part, Routing};
use crate::write_path::ingest::{Remembered, Ruled, Verdict};
use crate::write_path::names::Decision;
use admission::Postponed;
use model::{Labels, SeriesBatch, SeriesKey, SeriesRefusal, Value};
use std::time::Duration;
use stdx::budget::{Exhausted, IncrementalReservation};

/// How long rules may take for one request, before the rest of it must be sent again. Meanwhile, the request has one of the few
/// permits to decode. One series more is decided at the end of this time (at most 0.2 s).
const RULE_TIME_MAX: Duration = Duration::from_secs(1);

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
        let remembered = &mut self.recalled.remembered;
        remembered.clear();
        reservation.room(remembered, batch.series.len())?;
        let of_aliased = |aliased: &bool| if *aliased { Remembered::Nothing } else { Remembered::Decided };
        remembered.extend(aliased.iter().map(of_aliased));
        remembered.resize(batch.series.len(), Remembered::Decided);
        let mut recalled = std::mem::take(&mut self.recalled);
        rules.recall(batch, &mut recalled, |key| self.known(key, V::KIND).is_some());
        self.recalled = recalled;
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
        let remembered = &self.recalled.remembered;
        let missing = remembered.len() - waiting.len();
        reservation.room(waiting, missing)?;
        waiting.resize(remembered.len(), false);
        let both = waiting.iter_mut().zip(remembered);
        both.for_each(|(waits, remembered)| *waits |= *remembered != Remembered::Decided);
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
        let Some(rules) = self.rules else { return Ok(()) };
        let series = &batch.series[position as usize];
        let remembered = self.recalled.remembered[position as usize];
        let is_undecided = remembered != Remembered::Decided;
        if is_undecided
            && let Some(names) = self.names
            && let Some(Decision::LeftOut(list)) = names.remembered(series.key)
            && self.known(series.key, V::KIND).is_none()
        {
            self.context.names.count(list, points);
            return Ok(());
        }
        // without another error in the answer, the rules say again why they cannot be applied
        if remembered == Remembered::Refused && (!self.outcome.errors.is_empty() || self.is_rule_time_up()) {
            let reason = "the result cannot be stored; an earlier answer has the details".to_owned();
            self.refuse(batch, position, SeriesRefusal::Ruled { reason });
            return Ok(());
        }
        if self.is_rule_time_up() {
            let limit_ms = RULE_TIME_MAX.as_millis() as u64;
            self.refuse(batch, position, SeriesRefusal::RuleTime { limit_ms });
            self.outcome.postpone(Postponed::RuleTime);
            return Ok(());
        }
        self.recalled.applied += 1;
        let labels = match self.form.labels_of(self.bytes, &series.labels, self.labels) {
            Ok(labels) => labels,
            Err(error) => {
                self.refuse(batch, position, error);
                return Ok(());
            }
        };
        let own = SeriesKey::of(labels.as_bytes(), self.context.seed);
        if !self.form.is_encoded() && is_undecided && own != series.key {
            reservation.push(&mut self.learned, (series.key, own))?;
        }
        // the verdict is looked up by the key as sent or, for texts, by the one that their key is replaced by
        let sent = if self.form.is_encoded() { series.key } else { own };
        let is_named = self.names.is_some() && self.known(own, V::KIND).is_none();
        // it depends on the key as sent whether rules on names apply when the verdict is looked up
        let is_remembered = is_undecided && (self.names.is_none() || sent == own);
        let key_of_verdict = rules.key(sent, is_named);
        let ruled = match self.ruled(labels, own, is_named, points) {
            Ok(Some(ruled)) => ruled,
            Ok(None) => return Ok(()), // left out and counted by a list of names
            Err(error) => {
                if is_remembered {
                    reservation.push(&mut self.verdicts, (key_of_verdict, Verdict::Refused))?;
                }
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
        if is_remembered {
            reservation.push(&mut self.verdicts, (key_of_verdict, verdict))?;
        }
        match stored {
            // it may have been undecided, and then it was not looked up by any key
            Some(stored) => self.place(batch, position, stored, None, parts, reservation),
            None => Ok(()),
        }
    }

    /// True if the rules have taken all their time for this request.
    pub(super) fn is_rule_time_up(&mut self) -> bool {
        let now = self.context.clock.instant();
        now >= *self.rules_until.get_or_insert(now + RULE_TIME_MAX)
    }

    /// Applies the rules on names if `is_named`, then those on what is stored. `own` is the key of the labels. Returns `None` if a list of
    /// names leaves the series out.
    fn ruled(
        &mut self,
        labels: Labels,
        own: SeriesKey,
        is_named: bool,
        points: u64,
    ) -> Result<Option<Ruled>, SeriesRefusal> {
        let rules = self.rules.expect("BUG: the tenant has no rules");
        let mut labels = labels;
        if let Some(names) = self.names
            && is_named
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
