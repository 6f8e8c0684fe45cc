//! The part of routing that applies a tenant's rules on what is stored.
//!
//! ```text
//!   recall: verdicts by key ─┬─ unchanged ─▶ looked up like any series
//!                            ├─ renamed ─▶ known by the other key? ─┬─ yes ─▶ looked up by it
//!                            │                                      └─ no ───▶ rules, for the labels
//!                            ├─ dropped ─▶ samples are taken away
//!                            └─ undecided ─▶ rules ─▶ looked up by the key of the result, and remembered
//! ```
//!
//! Rules may take long, so they are applied in turns ([`Turn`](crate::write_path::turns::Turn)). This is done before any series is
//! looked up to be written, because references keep the series of all tenants in memory.

use super::placing::{Destination, exemplars_of, place};
use super::{Part, Routing};
use crate::write_path::ingest::{Remembered, Ruled, Verdict};
use crate::write_path::names::{Decision, Named};
use crate::write_path::turns::Running;
use model::{Labels, SeriesBatch, SeriesKey, SeriesRefusal, Value};
use stdx::budget::{Exhausted, IncrementalReservation};

/// What the rules said about the series of a batch so far.
#[derive(Debug, Default)]
pub(super) struct Decided {
    is_recalled: bool,
    /// For each series, or empty.
    remembered: Vec<Remembered>,
    /// For each series of text lines, whether its key is not that of its labels. Empty for other forms.
    pub(super) aliased: Vec<bool>,
    /// The labels of series that do not exist. Once all series are decided, they are sorted by the positions of the series.
    ready: Vec<(u32, Labels)>,
    /// Position of the series that comes next.
    next: usize,
}

impl Decided {
    /// Adds the series that must not be looked up by their keys to those that wait.
    pub(super) fn mark_missing(
        &self,
        waiting: &mut Vec<bool>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if self.remembered.is_empty() {
            return Ok(());
        }
        let missing = self.remembered.len() - waiting.len();
        reservation.room(waiting, missing)?;
        waiting.resize(self.remembered.len(), false);
        let both = waiting.iter_mut().zip(&self.remembered);
        both.for_each(|(waits, remembered)| *waits |= !remembered.has_key());
        Ok(())
    }

    /// Takes the labels that rules made for a series that does not exist.
    fn take_ready(&mut self, position: u32) -> Labels {
        let found = self.ready.binary_search_by_key(&position, |(position, _)| *position);
        let found = found.expect("BUG: a series has lost its labels");
        std::mem::replace(&mut self.ready[found].1, Labels::empty())
    }
}

impl Routing<'_> {
    /// Applies the rules to the series of a batch, as far as it is not remembered what they say. Returns false if the turn has
    /// ended before.
    pub(super) fn decide<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        decided: &mut Decided,
        turn: &mut Running<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<bool, Exhausted> {
        let is_first_turn = !decided.is_recalled;
        if is_first_turn {
            decided.is_recalled = true;
            self.translate(batch, &mut decided.aliased, reservation)?;
            self.recall(batch, decided, reservation)?;
            self.mark_absent(batch, decided, reservation)?;
        }
        loop {
            while let Some(remembered) = decided.remembered.get(decided.next) {
                if remembered.needs_rules() {
                    let (position, series) = (decided.next as u32, &batch.series[decided.next]);
                    // all samples may have been refused for their timestamps
                    if !series.samples.is_empty() || !exemplars_of(&batch.exemplars, position).is_empty() {
                        if turn.is_over(series.labels.len()) {
                            return Ok(false);
                        }
                        self.decide_one(batch, position, decided, reservation)?;
                    }
                }
                decided.next += 1;
            }
            // series may have been removed from memory since the first turn; this ends, because rules make labels once
            if is_first_turn || !self.mark_absent(batch, decided, reservation)? {
                // those that were removed come after all others
                decided.ready.sort_unstable_by_key(|(position, _)| *position);
                return Ok(true);
            }
            decided.next = 0;
        }
    }

    /// Applies what is remembered of the rules to the series of a batch.
    fn recall<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        decided: &mut Decided,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let Some(rules) = self.rules else { return Ok(()) };
        let Decided { remembered, aliased, .. } = decided;
        reservation.grow(remembered, batch.series.len())?;
        let of_aliased = |aliased: &bool| if *aliased { Remembered::Nothing } else { Remembered::Unchanged };
        remembered.extend(aliased.iter().map(of_aliased));
        remembered.resize(batch.series.len(), Remembered::Unchanged);
        let mut recalled = std::mem::take(&mut self.progress.recalled);
        rules.recall(batch, remembered, &mut recalled);
        self.progress.recalled = recalled;
        Ok(())
    }

    /// Finds the series of which only the key is remembered, but which do not exist. Rules must make their labels. Returns true if there are
    /// any.
    fn mark_absent<V: Value>(
        &self,
        batch: &SeriesBatch<V>,
        decided: &mut Decided,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<bool, Exhausted> {
        let remembered = &mut decided.remembered;
        if !remembered.contains(&Remembered::Renamed) {
            return Ok(false);
        }
        let mut any_absent = false;
        let mut waiting = Vec::new();
        if self.waiting.is_some() {
            self.mark_waiting(batch, &mut waiting, reservation)?;
        }
        let count = self.context.partitions.len();
        for (number, partition) in self.context.partitions.iter().enumerate() {
            let head = partition.head.read();
            let head = head.tenant(self.tenant);
            for (position, series) in batch.series.iter().enumerate() {
                if remembered[position] != Remembered::Renamed || series.key.partition(count) != number {
                    continue;
                }
                let waits = waiting.get(position).copied().unwrap_or(false);
                let head = if waits { None } else { head };
                if head.and_then(|head| head.resolve(series.key.of_kind(V::KIND))).is_none() {
                    remembered[position] = Remembered::Absent;
                    // of others, nothing is stored
                    any_absent |= !series.samples.is_empty()
                        || !exemplars_of(&batch.exemplars, position as u32).is_empty();
                }
            }
        }
        Ok(any_absent)
    }

    /// Applies the rules to a series. Afterwards, it has the key under which it is stored, or nothing of it is left.
    fn decide_one<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        position: u32,
        decided: &mut Decided,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let stored = self.apply_rules(batch, position, decided.remembered[position as usize], reservation)?;
        let series = &mut batch.series[position as usize];
        let remembered = &mut decided.remembered[position as usize];
        let Some((key, labels)) = stored else {
            series.samples.end = series.samples.start;
            *remembered = Remembered::Settled;
            return Ok(());
        };
        series.key = key;
        if let Some(is_aliased) = decided.aliased.get_mut(position as usize) {
            *is_aliased = false;
        }
        // most series exist after a change of the rules, so that their labels need not be kept
        *remembered = if *remembered != Remembered::Absent && self.known(key, V::KIND).is_some() {
            Remembered::Renamed
        } else {
            reservation.reserve(labels.as_bytes().len())?;
            reservation.push(&mut decided.ready, (position, labels))?;
            Remembered::Ready
        };
        Ok(())
    }

    /// Returns the labels under which a series is stored, and their key. `None` if it was refused, dropped or left out.
    fn apply_rules<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        remembered: Remembered,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Option<(SeriesKey, Labels)>, Exhausted> {
        let Some(rules) = self.rules else { return Ok(None) };
        let series = &batch.series[position as usize];
        let points = u64::from(series.samples.end - series.samples.start);
        let is_undecided = remembered != Remembered::Absent;
        if is_undecided
            && let Some(names) = self.names
            && let Some(Decision::LeftOut(list)) = names.remembered(series.key)
        {
            self.context.names.count(list, points);
            return Ok(None);
        }
        // without another error in the answer, the rules say again why they cannot be applied
        if remembered == Remembered::Refused && !self.progress.outcome.errors.is_empty() {
            let reason = "the result cannot be stored; an earlier answer has the details".to_owned();
            self.refuse(batch, position, SeriesRefusal::Ruled { reason });
            return Ok(None);
        }
        self.progress.recalled.applied += 1;
        let labels = match self.form.labels_of(self.bytes, &series.labels, self.labels) {
            Ok(labels) => labels,
            Err(error) => {
                self.refuse(batch, position, error);
                return Ok(None);
            }
        };
        let own = SeriesKey::of(labels.as_bytes(), self.context.seed);
        if !self.form.is_encoded() && is_undecided && own != series.key {
            reservation.push(&mut self.progress.learned, (series.key, own))?;
        }
        // the verdict is looked up by the key as sent or, for texts, by the one that their key is replaced by
        let sent = if self.form.is_encoded() { series.key } else { own };
        let key_of_verdict = rules.key(sent);
        let ruled = match self.ruled(labels, own, points) {
            Ok(Some(ruled)) => ruled,
            Ok(None) => return Ok(None), // left out and counted by a list of names
            Err(error) => {
                if is_undecided {
                    reservation.push(&mut self.progress.verdicts, (key_of_verdict, Verdict::Refused))?;
                }
                self.refuse(batch, position, error);
                return Ok(None);
            }
        };
        let (stored, verdict) = match ruled {
            Ruled::Stored(labels) => {
                let key = SeriesKey::of(labels.as_bytes(), self.context.seed);
                (Some((key, labels)), if key == sent { Verdict::Unchanged } else { Verdict::Stored(key) })
            }
            Ruled::Dropped(rule) => {
                let recalled = &mut self.progress.recalled;
                recalled.drop_samples(rule, points);
                recalled.dropped_exemplars += exemplars_of(&batch.exemplars, position).len() as u64;
                (None, Verdict::Dropped(rule as u32))
            }
        };
        if is_undecided {
            reservation.push(&mut self.progress.verdicts, (key_of_verdict, verdict))?;
        }
        Ok(stored)
    }

    /// Like [`Self::resolve`], for a tenant with rules on what is stored.
    pub(super) fn resolve_decided<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        position: u32,
        decided: &mut Decided,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let series = &batch.series[position as usize];
        let key = series.key;
        let labels = match decided.remembered[position as usize] {
            Remembered::Settled => return Ok(()),
            Remembered::Unchanged => {
                return match self.form.labels_of(self.bytes, &series.labels, self.labels) {
                    Ok(labels) => {
                        let key = SeriesKey::of(labels.as_bytes(), self.context.seed);
                        self.place(batch, position, (key, Destination::New(labels)), None, parts, reservation)
                    }
                    Err(error) => {
                        self.refuse(batch, position, error);
                        Ok(())
                    }
                };
            }
            Remembered::Ready => decided.take_ready(position),
            // it existed when the rules were applied, but was removed from memory, or began to wait, since then
            _ => {
                if let Some(known) = self.known(key, V::KIND) {
                    let part = &mut parts[key.partition(self.context.partitions.len())].0;
                    return place(batch, position, key, part, Destination::Known(known), reservation);
                }
                decided.remembered[position as usize] = Remembered::Absent;
                self.decide_one(batch, position, decided, reservation)?;
                if decided.remembered[position as usize] != Remembered::Ready {
                    return Ok(()); // nothing of it is left
                }
                decided.ready.pop().expect("BUG: a series has lost its labels").1
            }
        };
        let key = batch.series[position as usize].key;
        let new = Destination::NewReserved(labels);
        self.place(batch, position, (key, new), None, parts, reservation)
    }

    /// Applies the rules on names, then those on what is stored. `own` is the key of the labels. Returns `None` if a list of
    /// names leaves the series out.
    fn ruled(&mut self, labels: Labels, own: SeriesKey, points: u64) -> Result<Option<Ruled>, SeriesRefusal> {
        let rules = self.rules.expect("BUG: the tenant has no rules");
        let mut labels = labels;
        if let Some(names) = self.names {
            match names.decide(own, labels, self.labels, self.context.seed)? {
                Named::Kept(named) | Named::Rewritten(named) => labels = named,
                Named::LeftOut(list) => {
                    self.context.names.count(list, points);
                    return Ok(None);
                }
            }
        }
        rules.apply(labels, self.labels).map(Some)
    }
}
