//! One connection: its slots, round after round, in order.

use super::duty::Duty;
use super::exchange::{Account, Flow, Payload, RetryPolicy, Terms, exchange};
use super::lead::Lead;
use crate::drive::send::timer::Timer;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::generate::plan::{Plan, SlotRange};
use crate::generate::template::{Renderer, Template, Version};
use crate::http::{Client, Failure};
use crate::scenario::schedule::FUTURE_MS_MAX;
use crate::verify::ledger::SlotLedger;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tokio::sync::mpsc;

/// A request that is being repeated when the run ends gets this much longer.
const GRACE: Duration = Duration::from_secs(5);

/// So many refusals and not one success end the run: it measures nothing.
const REJECTED_MAX: u64 = 200;

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Each connection sends as soon as it has its answer.
    Closed,
    /// By a schedule, whatever the answers do.
    Open {
        /// Of all writers.
        samples_per_s: f64,
    },
}

impl Run {
    /// Samples a second of the schedule for each of its series; none in a closed loop.
    pub(crate) fn rounds_per_s(&self) -> f64 {
        match self.pace {
            Pace::Open { samples_per_s } => samples_per_s / self.plan.series() as f64,
            Pace::Closed => 0.0,
        }
    }
}

/// What all connections of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// Its number, where several tenants are loaded together.
    pub(crate) tenant: u32,
    pub(crate) pace: Pace,
    pub(crate) version: Version,
    pub(crate) path: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) stop: Stop,
    pub(crate) lead: Option<Lead>,
    /// Which slots send when; without it all do, always.
    pub(crate) duty: Option<Duty>,
    /// Is told of acknowledged requests, to look for their samples at once.
    pub(crate) probes: Option<mpsc::Sender<Acknowledged>>,
    pub(crate) tally: Tally,
    pub(crate) clock: stdx::clock::SystemClock,
    /// A closed loop has caught up with the clock.
    pub(crate) caught_up: AtomicBool,
}

/// When a run begins and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: Instant,
    pub(crate) end: Option<Instant>,
}

/// A connection and the slots it owns.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) number: usize,
    pub(crate) client: Client,
    pub(crate) slots: Vec<OwnSlot>,
    renderer: Renderer,
    /// It ended because the target takes nothing.
    pub(crate) gave_up: bool,
}

/// A slot and its account.
#[derive(Debug)]
pub(crate) struct OwnSlot {
    pub(crate) number: usize,
    range: SlotRange,
    template: Option<Template>,
    /// Series of the template that were never sent.
    new: u64,
    pub(crate) ledger: SlotLedger,
}

impl Sender {
    pub(crate) fn new(run: &Run, number: usize, client: Client, slots: impl Iterator<Item = usize>) -> Self {
        let slots = slots.map(|number| OwnSlot {
            number,
            range: run.plan.slot(number),
            template: None,
            new: 0,
            ledger: SlotLedger::default(),
        });
        Self { number, client, slots: slots.collect(), renderer: Renderer::new(run.version), gave_up: false }
    }

    /// Opens the connection and makes all requests, so that the run itself need not.
    pub(crate) async fn prepare(mut self, run: &Run) -> Result<Self, Failure> {
        self.client.connect().await?;
        for at in 0..self.slots.len() {
            if run.stop.is_set() {
                break;
            }
            self.fit_template(run, at, 0);
            tokio::task::yield_now().await;
        }
        Ok(self)
    }

    /// Sends until the plan, the time or the run ends.
    pub(crate) async fn run(mut self, run: &Run, times: Times) -> Self {
        let timer = Timer::new();
        // with more connections than slots some have nothing to do
        let rounds_max = if self.slots.is_empty() { 0 } else { run.plan.rounds_max };
        'rounds: for round in 0..rounds_max {
            if let Some(lead) = &run.lead {
                tokio::select! {
                    () = lead.enter(self.number, round) => {}
                    () = run.stop.wait() => break,
                }
            }
            if run.pace == Pace::Closed
                && run.plan.round_ms(round) > run.clock.now_ms().saturating_add(FUTURE_MS_MAX)
            {
                run.caught_up.store(true, Ordering::Relaxed);
                break;
            }
            for at in 0..self.slots.len() {
                let unsent_from = match self.send_slot(run, times, &timer, at, round).await {
                    Flow::Next => continue,
                    Flow::Last => {
                        self.gave_up = true;
                        at + 1
                    }
                    Flow::End => at,
                };
                self.count_unsent(run, times, unsent_from, round);
                break 'rounds;
            }
        }
        if let Some(lead) = &run.lead {
            lead.leave(self.number);
        }
        self
    }

    async fn send_slot(&mut self, run: &Run, times: Times, timer: &Timer, at: usize, round: u32) -> Flow {
        let free = Instant::now();
        let due = due(run, times, self.slots[at].range, round);
        if run.stop.is_set() || times.end.is_some_and(|end| due.unwrap_or(free) >= end) {
            return Flow::End;
        }
        if !on_duty(run, times, self.slots[at].range, due) {
            return Flow::Next;
        }
        self.fit_template(run, at, round);
        let slot = &mut self.slots[at];
        let template = slot.template.as_mut().expect("BUG: fitted just before");
        let body = Bytes::copy_from_slice(template.fill(&run.plan, round));
        if let Some(due) = due {
            tokio::select! {
                () = timer.sleep_until(due) => {}
                () = run.stop.wait() => return Flow::End,
            }
        }
        let start = Instant::now();
        if times.end.is_some_and(|end| start >= end) {
            return Flow::End;
        }
        run.tally.lock().lag(start - due.map_or(free, |due| due.max(free)));
        let slot = &mut self.slots[at];
        let samples = u64::from(slot.range.len);
        let payload = Payload { body, samples, floats: samples, intended: due.unwrap_or(start) };
        let terms = Terms {
            path: &run.path,
            retry: &run.retry,
            stop: &run.stop,
            tally: &run.tally,
            until: times.end.map(|end| end + GRACE),
            rejected_max: REJECTED_MAX,
        };
        exchange(&mut self.client, payload, terms, &mut SlotAccount { run, slot, round }).await
    }

    /// Makes the slot's request anew where its series are others than in the last round.
    fn fit_template(&mut self, run: &Run, at: usize, round: u32) {
        let slot = &mut self.slots[at];
        if slot.template.as_ref().is_some_and(|t| t.fits(&run.plan, round)) {
            return;
        }
        let template = self.renderer.render(&run.plan, slot.range, round);
        let new = template.new_series(slot.template.as_ref());
        run.tally.lock().series_made += new;
        // what was made and never sent is still to come
        slot.new = (slot.new + new).min(u64::from(slot.range.len));
        slot.template = Some(template);
    }

    /// Counts what the schedule had for the time of the run from this slot on: none of it was begun.
    fn count_unsent(&self, run: &Run, times: Times, at: usize, round: u32) {
        let (Pace::Open { .. }, Some(end), false) = (run.pace, times.end, run.stop.is_set()) else { return };
        let (mut unsent, mut samples) = (0, 0);
        let mut at = at;
        'rounds: for round in round..run.plan.rounds_max {
            for slot in &self.slots[at..] {
                let due = due(run, times, slot.range, round);
                if due.is_none_or(|due| due >= end) {
                    break 'rounds;
                }
                if on_duty(run, times, slot.range, due) {
                    unsent += 1;
                    samples += u64::from(slot.range.len);
                }
            }
            at = 0;
        }
        let mut tally = run.tally.lock();
        tally.unsent += unsent;
        tally.samples_offered += samples;
    }
}

/// A slot's account of one request.
struct SlotAccount<'a> {
    run: &'a Run,
    slot: &'a mut OwnSlot,
    round: u32,
}

impl Account for SlotAccount<'_> {
    fn sent(&mut self) -> u64 {
        self.slot.ledger.sent.push(self.round);
        std::mem::take(&mut self.slot.new)
    }

    fn acknowledged(&mut self) {
        let Self { run, slot, round } = self;
        slot.ledger.acknowledged.push(*round);
        if let Some(probes) = &run.probes {
            let at = Instant::now();
            // where nobody waits for it, it is not looked for
            probes.try_send(Acknowledged { tenant: run.tenant, slot: slot.range, round: *round, at }).ok();
        }
    }
}

/// When the schedule has a slot's request: each writer's samples evenly over time, and the writers one
/// after the other rather than all at one instant.
fn due(run: &Run, times: Times, slot: SlotRange, round: u32) -> Option<Instant> {
    let Pace::Open { samples_per_s } = run.pace else { return None };
    let plan = &run.plan;
    let writers = f64::from(plan.writers);
    let per_writer = samples_per_s / writers;
    let before = f64::from(round) * plan.writer_series() as f64 + slot.first as f64;
    let step = f64::from(plan.batch.min(plan.writer_series().min(u64::from(u32::MAX)) as u32));
    let phase = f64::from(slot.writer) / writers * step;
    let due_s = (before + phase) / per_writer;
    let due_s = run.duty.as_ref().map_or(due_s, |duty| duty.delayed(due_s));
    Some(times.begin + Duration::from_secs_f64(due_s))
}

/// True where the shape of the load has this slot send at `due`.
fn on_duty(run: &Run, times: Times, slot: SlotRange, due: Option<Instant>) -> bool {
    let (Some(duty), Some(due)) = (&run.duty, due) else { return true };
    duty.has(&run.plan, slot, (due - times.begin).as_secs_f64())
}

/// A request that was just acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    /// As in the run.
    pub(crate) tenant: u32,
    /// Whose series.
    pub(crate) slot: SlotRange,
    /// And in which round.
    pub(crate) round: u32,
    /// When.
    pub(crate) at: Instant,
}
