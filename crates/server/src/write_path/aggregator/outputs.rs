//! The outputs of a tenant.

use super::contributions::Role;
use super::memo::{Matched, RefusedOutput};
use admission::gate::MULTIPLE;
use model::{Labels, LabelsRef, SeriesKey};
use rules::aggregations::{Buffer, Due, Function, Missed};
use std::collections::{BTreeMap, HashMap};
use stdx::budget::{Account, Exhausted, Reservation};

/// Upper bound on the memory of an output without its labels, rules and values: a place in a vector that is at least half
/// full, and an entry of a map that is at least 7/16 full.
const OUTPUT_BYTES: usize = 2 * size_of::<Output>() + size_of::<(SeriesKey, u32)>() * 16 / 7;

/// Memory of the allocations of an output besides their content.
const ALLOCATION_BYTES: usize = 64;

/// An output is opened only if the tenant may take this part of its memory in addition. So outputs that are open have memory
/// for the values of quantiles.
const GROWTH_PART: u64 = 8;

#[derive(Debug)]
pub(super) struct Outputs {
    account: Account,
    /// Number of intervals that are kept before and after the present one.
    kept: u32,
    /// For all outputs and their values.
    memory: Reservation,
    outputs: Vec<Output>,
    /// The position of each output.
    positions: HashMap<SeriesKey, u32>,
    /// By the length of the interval in seconds: the end of the last interval of which an output could not be opened, or was
    /// closed with points. It is forgotten when points of this interval are too late.
    missed_until_ms: BTreeMap<u32, i64>,
    /// When the next output is due.
    due_ms: i64,
    /// Like `due_ms`, for the outputs visited in this round.
    next_due_ms: i64,
    values: u64,
}

#[derive(Debug)]
struct Output {
    key: SeriesKey,
    labels: Labels,
    interval_s: u32,
    buffer: Buffer,
    /// Rules that contribute.
    rules: Vec<SeriesKey>,
    /// None of its rules is in force any more, so it has no entry in `positions`, and nothing more is added.
    is_retired: bool,
    due_ms: i64,
    /// If it has no values, it is closed after this time.
    idle_after_ms: i64,
}

/// What a rule says about one of its outputs.
pub(super) struct NewOutput {
    pub(super) key: SeriesKey,
    pub(super) labels: Labels,
    pub(super) interval_s: u32,
    pub(super) function: Function,
    pub(super) rule: SeriesKey,
    /// Intervals that began before the rule was in force are incomplete.
    pub(super) since_ms: i64,
}

impl Outputs {
    pub(super) fn new(account: Account, kept: u32) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        Self {
            account,
            kept,
            memory,
            outputs: Vec::new(),
            positions: HashMap::new(),
            missed_until_ms: BTreeMap::new(),
            due_ms: i64::MAX,
            next_due_ms: i64::MAX,
            values: 0,
        }
    }

    pub(super) fn share(&self, weight: u64) {
        self.account.share(MULTIPLE * weight, u64::MAX);
    }

    /// Closes all outputs. Returns what is to be freed once the lock is no longer held, because that may take long.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        let before = (std::mem::take(&mut self.outputs), std::mem::take(&mut self.positions));
        self.values = 0;
        let bytes = self.memory.bytes();
        (before, self.memory.split(bytes))
    }

    pub(super) const fn len(&self) -> usize {
        self.outputs.len()
    }

    /// Number of values in all intervals.
    pub(super) const fn values(&self) -> u64 {
        self.values
    }

    /// Number of values in all intervals of an output.
    pub(super) fn values_of(&self, position: usize) -> u64 {
        self.outputs[position].buffer.values()
    }

    /// Number of intervals still to be computed whose points are stored nowhere else.
    pub(super) fn left(&self) -> u64 {
        self.outputs.iter().map(|output| output.buffer.taken_left() as u64).sum()
    }

    pub(super) fn labels(&self, position: usize) -> LabelsRef<'_> {
        self.outputs[position].labels.as_ref()
    }

    /// True if the decision on a name still holds: its outputs are open, and there is still no memory for those that were
    /// refused. Then this keeps the outputs open until the points that are being stored can be added, and notes that refused
    /// outputs lack these points. `newest_ms` is the time of the newest point.
    pub(super) fn is_current(&mut self, matched: &Matched, newest_ms: i64, now_ms: i64) -> bool {
        let are_open = matched.outputs.iter().all(|output| {
            let Some(position) = self.positions.get(output) else { return false };
            let output = &mut self.outputs[*position as usize];
            output.idle_after_ms = idle_after_ms(output.interval_s, self.kept, now_ms);
            true
        });
        if !are_open || matched.refused.iter().any(|refused| self.may_open(refused)) {
            return false;
        }
        for RefusedOutput { key, interval_s, .. } in &matched.refused {
            self.miss(*key, *interval_s, newest_ms, now_ms);
        }
        true
    }

    /// True if an output that was refused is open by now, or if there is memory for it.
    fn may_open(&mut self, RefusedOutput { key, rule, bytes, .. }: &RefusedOutput) -> bool {
        let before = self.memory.bytes();
        let reserved = match self.positions.get(key) {
            Some(position) if self.outputs[*position as usize].rules.contains(rule) => return true,
            Some(_) => self.memory.resize(before + size_of_val(rule) as u64),
            None => self.reserve_output(u64::from(*bytes)),
        };
        self.memory.resize(before).expect("BUG: cannot shrink a reservation");
        reserved.is_ok()
    }

    /// Memory of an output that is not open.
    pub(super) fn bytes_of(&self, new: &NewOutput) -> u32 {
        let NewOutput { labels, rule, .. } = new;
        let heap_bytes = labels.as_bytes().len() + size_of_val(rule) + Buffer::first_bytes(self.kept);
        u32::try_from(OUTPUT_BYTES + ALLOCATION_BYTES + heap_bytes).unwrap_or(u32::MAX)
    }

    /// Reserves memory for an output. If this fails, nothing changes.
    fn reserve_output(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let before = self.memory.bytes();
        let bytes = before + bytes;
        self.memory.resize(bytes + bytes / GROWTH_PART)?;
        self.memory.resize(bytes)
    }

    /// Points up to this time are missing in an output for which there is no memory, or for a rule of it.
    fn miss(&mut self, key: SeriesKey, interval_s: u32, newest_ms: i64, now_ms: i64) {
        let interval_ms = i64::from(interval_s) * 1000;
        let newest_ms = newest_ms.min(now_ms.saturating_add(i64::from(self.kept) * interval_ms));
        let end_ms = newest_ms.saturating_sub(newest_ms.rem_euclid(interval_ms)).saturating_add(interval_ms);
        match self.positions.get(&key) {
            Some(position) => self.outputs[*position as usize].buffer.raise_complete_from(end_ms),
            None => {
                let missed = self.missed_until_ms.entry(interval_s).or_insert(i64::MIN);
                *missed = (*missed).max(end_ms);
            }
        }
    }

    /// Points of these times will be added to an output. If some are ahead, this may make intervals incomplete.
    pub(super) fn hear(&mut self, output: SeriesKey, timestamps: &[i64], now_ms: i64) {
        let Some(position) = self.positions.get(&output) else { return };
        let buffer = &mut self.outputs[*position as usize].buffer;
        timestamps.iter().for_each(|at_ms| buffer.hear(*at_ms, now_ms));
    }

    /// True if an output takes a point of this time, for which [`Self::hear`] was called, so that the point is not stored. Until
    /// its body is durable, an interval may pass, after which the point must still count. If only one interval is kept, this
    /// would leave only points of the present one, so half an interval must do.
    pub(super) fn replaces(&self, output: SeriesKey, at_ms: i64, now_ms: i64) -> bool {
        self.counts_for(1, output, at_ms, now_ms)
    }

    /// Like [`Self::replaces`], for a point that the output has taken from a body whose rules are decided only now. Less is
    /// left to do, so half of the time is enough. With all of it, even bodies that did not wait would give points back.
    pub(super) fn still_replaces(&self, output: SeriesKey, at_ms: i64, now_ms: i64) -> bool {
        self.counts_for(2, output, at_ms, now_ms)
    }

    /// Whether a point counts now and after 1/`part` of the time that a body may take.
    fn counts_for(&self, part: i64, output: SeriesKey, at_ms: i64, now_ms: i64) -> bool {
        let Some(position) = self.positions.get(&output) else { return false };
        let Output { buffer, interval_s, .. } = &self.outputs[*position as usize];
        let interval_ms = i64::from(*interval_s) * 1000;
        let margin_ms = (i64::from(self.kept) * interval_ms / 2).min(interval_ms) / part;
        buffer.counts(at_ms, now_ms) && buffer.counts(at_ms, now_ms.saturating_add(margin_ms))
    }

    /// True if nothing is lost when these outputs are forgotten.
    pub(super) fn is_over(&self, now_ms: i64) -> bool {
        let is_over = |(interval_s, until_ms): (&u32, &i64)| self.is_too_late(*interval_s, *until_ms, now_ms);
        self.outputs.is_empty() && self.missed_until_ms.iter().all(is_over)
    }

    /// Opens an output, unless it is open. `newest_ms` is the time of the newest point that will be added to it: without
    /// memory, intervals up to this one are incomplete for all outputs that are opened later.
    pub(super) fn open(&mut self, new: NewOutput, newest_ms: i64, now_ms: i64) -> Result<(), Exhausted> {
        let new_bytes = self.bytes_of(&new);
        let NewOutput { key, labels, interval_s, function, rule, since_ms } = new;
        let kept = self.kept;
        if let Some(position) = self.positions.get(&key) {
            let output = &mut self.outputs[*position as usize];
            output.idle_after_ms = idle_after_ms(interval_s, kept, now_ms);
            if !output.rules.contains(&rule) {
                if let Err(full) = self.memory.resize(self.memory.bytes() + size_of_val(&rule) as u64) {
                    self.miss(key, interval_s, newest_ms, now_ms);
                    return Err(full);
                }
                output.rules.reserve_exact(1);
                output.rules.push(rule);
                output.buffer.add_rule(since_ms);
            }
            return Ok(());
        }
        if let Err(full) = self.reserve_output(new_bytes.into()) {
            self.miss(key, interval_s, newest_ms, now_ms);
            return Err(full);
        }
        let mut buffer = Buffer::new(interval_s, function, kept, since_ms);
        if let Some(missed_ms) = self.missed_until_ms.get(&interval_s) {
            buffer.raise_complete_from(*missed_ms);
        }
        let due_ms = next_due_ms(interval_s, now_ms);
        let idle_after_ms = idle_after_ms(interval_s, kept, now_ms);
        self.due_ms = self.due_ms.min(due_ms);
        self.next_due_ms = self.next_due_ms.min(due_ms);
        let mut rules = Vec::new();
        rules.reserve_exact(1);
        rules.push(rule);
        self.positions.insert(key, self.outputs.len() as u32);
        let is_retired = false;
        self.outputs.push(Output {
            key,
            labels,
            interval_s,
            buffer,
            rules,
            is_retired,
            due_ms,
            idle_after_ms,
        });
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        key: SeriesKey,
        role: Role<'_>,
        at_ms: i64,
        value: f64,
        now_ms: i64,
    ) -> Result<(), Missed> {
        let Self { memory, outputs, positions, values, .. } = self;
        let position = *positions.get(&key).ok_or(Missed::Late)? as usize;
        let output = &mut outputs[position];
        let reserve = |bytes: usize| memory.resize(memory.bytes() + bytes as u64);
        match role {
            Role::Input => output.buffer.add(at_ms, value, now_ms, reserve)?,
            Role::Taken(_) => output.buffer.take(at_ms, value, now_ms, reserve)?,
            Role::Stored if output.buffer.counts(at_ms, now_ms) => {
                return Err(if at_ms > now_ms { Missed::Early } else { Missed::Late });
            }
            // it does not count, but so its interval is known to have points
            Role::Stored => output.buffer.add(at_ms, value, now_ms, reserve)?,
        }
        *values += 1;
        Ok(())
    }

    /// Notes that a point does not count, because its body was refused, although the point may be stored.
    pub(super) fn leave_out(&mut self, key: SeriesKey, role: Role<'_>, at_ms: i64, now_ms: i64) {
        let Self { memory, outputs, positions, .. } = self;
        let Some(position) = positions.get(&key) else { return };
        match role {
            Role::Input | Role::Taken(_) => {
                let reserve = |bytes: usize| memory.resize(memory.bytes() + bytes as u64);
                outputs[*position as usize].buffer.leave_out(at_ms, now_ms, reserve);
            }
            Role::Stored => {} // it would not have counted
        }
    }

    /// When the next output is due.
    pub(super) const fn due_ms(&self) -> i64 {
        self.due_ms
    }

    /// Computes an output if it is due. With `at_once`, also values that have changed since they were computed, which are
    /// otherwise due together with the next interval, and open intervals whose points are stored nowhere else. Also returns the
    /// memory of what is forgotten, which is in use until the caller has finished.
    pub(super) fn compute(
        &mut self,
        position: usize,
        now_ms: i64,
        at_once: bool,
    ) -> Option<(Due, Reservation)> {
        let output = &mut self.outputs[position];
        if output.due_ms > now_ms && !at_once {
            self.next_due_ms = self.next_due_ms.min(output.due_ms);
            return None;
        }
        let (before_bytes, before_values) = (output.buffer.heap_bytes(), output.buffer.values());
        let mut due = output.buffer.compute(now_ms, Buffer::delay_ms(output.interval_s));
        if at_once || output.is_retired {
            output.buffer.compute_taken(&mut due);
        }
        output.due_ms = next_due_ms(output.interval_s, now_ms);
        self.next_due_ms = self.next_due_ms.min(output.due_ms);
        let freed_bytes = before_bytes.saturating_sub(output.buffer.heap_bytes());
        self.values -= before_values - output.buffer.values();
        Some((due, self.split(freed_bytes)))
    }

    /// Closes an output that was computed, if it has no values and is not about to get some. The last output then takes its
    /// place. Returns `None` if it stays, and otherwise what is to be freed once the lock is no longer held.
    pub(super) fn close_if_idle(&mut self, position: usize, now_ms: i64) -> Option<(Buffer, Reservation)> {
        let output = &self.outputs[position];
        let is_idle = output.buffer.is_idle(now_ms) && output.idle_after_ms < now_ms;
        if !is_idle && !output.is_retired {
            return None;
        }
        let output = self.outputs.swap_remove(position);
        if !output.is_retired {
            self.positions.remove(&output.key);
        }
        if let Some(moved) = self.outputs.get(position).filter(|moved| !moved.is_retired) {
            self.positions.insert(moved.key, position as u32);
        }
        let fixed = OUTPUT_BYTES + ALLOCATION_BYTES + output.labels.as_bytes().len();
        self.values -= output.buffer.values();
        let rules_bytes = output.rules.len() * size_of::<SeriesKey>();
        let memory = self.split(fixed + rules_bytes + output.buffer.heap_bytes());
        if self.outputs.len() < self.outputs.capacity() / 4 {
            self.outputs.shrink_to_fit();
            self.positions.shrink_to_fit();
        }
        Some((output.buffer, memory))
    }

    /// Ends a round in which all outputs were visited.
    pub(super) fn end_round(&mut self, now_ms: i64) {
        self.due_ms = std::mem::replace(&mut self.next_due_ms, i64::MAX);
        let mut missed_until_ms = std::mem::take(&mut self.missed_until_ms);
        missed_until_ms.retain(|interval_s, until_ms| !self.is_too_late(*interval_s, *until_ms, now_ms));
        self.missed_until_ms = missed_until_ms;
    }

    /// Rules have ended. Outputs without other rules are computed once more, if the delay after their intervals is over or
    /// their points are stored nowhere else, and then closed. Returns the number of values that were forgotten.
    pub(super) fn end_rules(&mut self, has_ended: impl Fn(SeriesKey) -> bool, now_ms: i64) -> u64 {
        let (before_values, mut freed_bytes) = (self.values, 0);
        for output in self.outputs.iter_mut().filter(|output| !output.is_retired) {
            let rules = output.rules.len();
            output.rules.retain(|rule| !has_ended(*rule));
            if output.rules.len() == rules {
                continue;
            }
            freed_bytes += (rules - output.rules.len()) * size_of::<SeriesKey>();
            output.rules.shrink_to_fit();
            let delay_ms = Buffer::delay_ms(output.interval_s);
            let complete_from_ms = output.buffer.interrupt(now_ms, delay_ms);
            if !output.rules.is_empty() {
                continue;
            }
            // a rule that stays may open it again, with the first of its points
            let missed = self.missed_until_ms.entry(output.interval_s).or_insert(i64::MIN);
            *missed = (*missed).max(complete_from_ms);
            let (bytes, values) = (output.buffer.heap_bytes(), output.buffer.values());
            output.buffer.forget_open(now_ms, delay_ms);
            freed_bytes += bytes - output.buffer.heap_bytes();
            self.values -= values - output.buffer.values();
            self.positions.remove(&output.key);
            (output.is_retired, output.due_ms) = (true, i64::MIN);
            (self.due_ms, self.next_due_ms) = (i64::MIN, i64::MIN);
        }
        self.give_back(freed_bytes);
        before_values - self.values
    }

    /// True if points of the interval that ends at `until_ms` are too late now.
    fn is_too_late(&self, interval_s: u32, until_ms: i64, now_ms: i64) -> bool {
        until_ms.saturating_add(i64::from(self.kept) * i64::from(interval_s) * 1000) <= now_ms
    }

    fn split(&mut self, bytes: usize) -> Reservation {
        self.memory.split((bytes as u64).min(self.memory.bytes()))
    }

    fn give_back(&mut self, bytes: usize) {
        let left = self.memory.bytes().saturating_sub(bytes as u64);
        self.memory.resize(left).expect("BUG: cannot shrink a reservation");
    }
}

/// When the next interval to end is computed: a delay after its end.
fn next_due_ms(interval_s: u32, now_ms: i64) -> i64 {
    let (interval_ms, delay_ms) = (i64::from(interval_s) * 1000, Buffer::delay_ms(interval_s));
    let begun_ms = now_ms.saturating_sub(delay_ms);
    begun_ms.saturating_sub(begun_ms.rem_euclid(interval_ms)).saturating_add(interval_ms + delay_ms)
}

/// An output without values is not closed before this time, because points may be about to come.
fn idle_after_ms(interval_s: u32, kept: u32, now_ms: i64) -> i64 {
    now_ms.saturating_add((i64::from(kept) + 1) * i64::from(interval_s) * 1000)
}
