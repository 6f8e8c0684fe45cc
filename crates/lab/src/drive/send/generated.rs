//! Requests that are generated from a plan. A connection has some slots, and sends one request of each slot in every
//! round.

use super::exchange::Account;
use super::lead::Lead;
use super::owed::{Ledgers, Owed};
use super::sender::{Lane, Request, Sender, Source, Times};
use super::time_share::TimeShare;
use crate::drive::watch::SentTimes;
use crate::generate::plan::{Plan, SlotRange};
use crate::generate::protocol::Protocol;
use crate::generate::template::{Renderer, Template};
use crate::http::Failure;
use crate::scenario::schedule::FUTURE_MS_MAX;
use crate::socket::Ending;
use crate::verify::ledger::SlotLedger;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use stdx::rng::mix;
use tokio::sync::mpsc;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: a connection sends its next request as soon as the previous one is answered.
    Closed,
    /// Open loop: requests are sent on a schedule, however fast the target answers.
    Open {
        /// Rate of all writers together.
        samples_per_s: f64,
    },
}

impl Run {
    /// Scheduled samples per second of each series, or 0 in a closed loop.
    pub(crate) fn rounds_per_s(&self) -> f64 {
        match self.pace {
            Pace::Open { samples_per_s } => samples_per_s / self.plan.series() as f64,
            Pace::Closed => 0.0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) lane: Arc<Lane>,
    pub(crate) plan: Plan,
    pub(crate) tenant: u32,
    pub(crate) pace: Pace,
    pub(crate) protocol: Protocol,
    /// True if all requests of a round are due at its beginning.
    pub(crate) burst: bool,
    pub(crate) commit_interval: Option<Duration>,
    pub(crate) lead: Option<Lead>,
    /// Upper bound of the random delays by which writers start late.
    pub(crate) start_jitter_s: f64,
    /// Says which slots send at which time. If `None`, all slots send all the time.
    pub(crate) time_share: Option<TimeShare>,
    /// The probes get acknowledged requests through this channel, to query their samples.
    pub(crate) probes: Option<mpsc::Sender<Acknowledged>>,
    /// For statsd: when the rounds of each slot were sent.
    pub(crate) sent_times: Option<SentTimes>,
    pub(crate) clock: stdx::clock::SystemClock,
    /// Set when the timestamps of a closed loop have caught up with the clock, so that it must end.
    pub(crate) caught_up: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Generated {
    run: Arc<Run>,
    number: usize,
    pub(crate) slots: Vec<OwnSlot>,
    renderer: Renderer,
    round: u32,
    at: usize,
    owed: Owed,
}

#[derive(Debug)]
pub(crate) struct OwnSlot {
    pub(crate) number: usize,
    range: SlotRange,
    template: Option<Template>,
    /// Number of series in the template that have not been sent to the target yet.
    new: u64,
    pub(crate) ledger: SlotLedger,
}

impl Sender<Generated> {
    /// Opens the connection and builds all requests in advance, so that the load does not have to wait for them.
    pub(crate) async fn prepare(mut self) -> Result<Self, Failure> {
        self.wire.connect().await?;
        for at in 0..self.source.slots.len() {
            if self.source.run.lane.stop.is_set() {
                break;
            }
            self.source.fit_template(at);
            tokio::task::yield_now().await;
        }
        Ok(self)
    }
}

impl Source for Generated {
    async fn next(&mut self, times: Times) -> Option<Request> {
        let run = Arc::clone(&self.run);
        // there are more connections than slots, so this connection has nothing to send
        if self.slots.is_empty() {
            return None;
        }
        loop {
            if self.at == self.slots.len() {
                (self.at, self.round) = (0, self.round + 1);
            }
            if self.round >= run.plan.rounds_max || (self.at == 0 && !self.begin_round().await) {
                return None;
            }
            let free = Instant::now();
            let range = self.slots[self.at].range;
            let due = due(&run, times, range, self.round);
            if run.lane.stop.is_set() || times.is_over(due.unwrap_or(free)) {
                return None;
            }
            if sends_at(&run, times, range, due) {
                self.fit_template(self.at);
                let template = self.slots[self.at].template.as_mut().expect("BUG: the slot has no template");
                let body = template.body(&run.plan, self.round);
                let query = template.query().map(str::to_owned);
                self.at += 1;
                let samples = u64::from(range.len);
                return Some(Request { body, samples, floats: samples, query, due, free });
            }
            self.at += 1;
        }
    }

    fn end(&mut self, times: Times, begun: bool) {
        if let Some(lead) = &self.run.lead {
            lead.leave(self.number);
        }
        let unsent_from = if begun { self.at } else { self.at.saturating_sub(1) };
        self.count_unsent(times, unsent_from);
    }
}

impl Generated {
    pub(crate) fn new(run: &Arc<Run>, number: usize, slots: impl Iterator<Item = usize>) -> Self {
        let slots = slots.map(|number| OwnSlot {
            number,
            range: run.plan.slot(number),
            template: None,
            new: 0,
            ledger: SlotLedger::default(),
        });
        Self {
            run: Arc::clone(run),
            number,
            slots: slots.collect(),
            renderer: Renderer::new(run.protocol),
            round: 0,
            at: 0,
            owed: Owed::new(run.commit_interval),
        }
    }

    /// Waits while this connection is too far ahead of the others. Returns false if no further round may begin.
    async fn begin_round(&self) -> bool {
        let Run { lane, plan, lead, clock, .. } = &*self.run;
        if let Some(lead) = lead {
            tokio::select! {
                () = lead.enter(self.number, self.round) => {}
                () = lane.stop.wait() => return false,
            }
        }
        let ahead_ms = plan.round_ms(self.round).saturating_sub(clock.now_ms());
        let caught_up = self.run.pace == Pace::Closed && ahead_ms > FUTURE_MS_MAX;
        if caught_up {
            self.run.caught_up.store(true, Ordering::Relaxed);
        }
        !caught_up
    }

    /// Builds the request of a slot again if some of its series were replaced.
    fn fit_template(&mut self, at: usize) {
        let (run, slot) = (&self.run, &mut self.slots[at]);
        if slot.template.as_ref().is_some_and(|t| t.fits(&run.plan, self.round)) {
            return;
        }
        let template = self.renderer.render(&run.plan, slot.range, self.round);
        let new = template.new_series(slot.template.as_ref());
        run.lane.tally.lock().series_made += new;
        // the series of the previous template are still new if that template was never sent
        slot.new = (slot.new + new).min(u64::from(slot.range.len));
        slot.template = Some(template);
    }

    /// Records how many requests were due before the end of the run but were never sent, beginning with the request
    /// of slot `at` in the current round.
    fn count_unsent(&self, times: Times, mut at: usize) {
        let run = &self.run;
        let (Pace::Open { .. }, Some(end), false) = (run.pace, times.end, run.lane.stop.is_set()) else {
            return;
        };
        let (mut unsent, mut samples) = (0, 0);
        'rounds: for round in self.round..run.plan.rounds_max {
            for slot in &self.slots[at..] {
                let due = due(run, times, slot.range, round);
                if due.is_none_or(|due| due >= end) {
                    break 'rounds;
                }
                if sends_at(run, times, slot.range, due) {
                    unsent += 1;
                    samples += u64::from(slot.range.len);
                }
            }
            at = 0;
        }
        run.lane.tally.lock().leave_out(unsent, samples);
    }
}

impl Account for Generated {
    fn sent(&mut self) -> u64 {
        let slot = &mut self.slots[self.at - 1];
        slot.ledger.sent.push(self.round);
        if let Some(times) = &self.run.sent_times {
            times.note(slot.number, self.round, self.run.clock.now_ms());
        }
        std::mem::take(&mut slot.new)
    }

    fn acknowledged(&mut self) {
        let slot = &mut self.slots[self.at - 1];
        slot.ledger.acknowledged.push(self.round);
        self.probe();
    }

    fn taken(&mut self, at: Instant) {
        self.owed.taken(&mut self.slots, at, self.at - 1, self.round);
        self.probe();
    }

    fn alive_until(&mut self, at: Instant) {
        self.owed.alive_until(&mut self.slots, at);
    }

    fn ended(&mut self, ending: Ending) {
        self.owed.ended(&mut self.slots, ending);
    }
}

impl Ledgers for Vec<OwnSlot> {
    fn ledger(&mut self, slot: usize) -> Option<&mut SlotLedger> {
        self.get_mut(slot).map(|slot| &mut slot.ledger)
    }
}

impl Generated {
    /// Lets a probe query the samples of the request that was just accepted.
    fn probe(&self) {
        let slot = &self.slots[self.at - 1];
        if let Some(probes) = &self.run.probes {
            let acknowledged = Acknowledged {
                tenant: self.run.tenant,
                slot: slot.range,
                round: self.round,
                at: Instant::now(),
            };
            // if the channel is full, the probes are busy with other samples
            probes.try_send(acknowledged).ok();
        }
    }
}

/// A burst comes this long after the beginning of its interval, so that it belongs to one step of the load as a whole.
const BURST_DELAY_S: f64 = 1.0;

/// When the request of a slot is due. The requests of a round are spread evenly over the round, unless they come in a
/// burst.
fn due(run: &Run, times: Times, slot: SlotRange, round: u32) -> Option<Instant> {
    let Pace::Open { samples_per_s } = run.pace else { return None };
    let plan = &run.plan;
    let writers = f64::from(plan.writers);
    let per_writer = samples_per_s / writers;
    let within = if run.burst { 0.0 } else { slot.first as f64 };
    let before = f64::from(round) * plan.writer_series() as f64 + within;
    let step = f64::from(plan.batch.min(plan.writer_series().min(u64::from(u32::MAX)) as u32));
    let phase = if run.burst { 0.0 } else { f64::from(slot.writer) / writers * step };
    let burst_s = if run.burst { (f64::from(plan.interval_ms) / 4e3).min(BURST_DELAY_S) } else { 0.0 };
    let due_s = (before + phase) / per_writer + burst_s + start_delay_s(run, slot.writer);
    let due_s = run.time_share.as_ref().map_or(due_s, |time_share| time_share.delayed(due_s));
    Some(times.begin + Duration::from_secs_f64(due_s))
}

/// Random delay of a writer's schedule. It is the same in each run of a scenario.
fn start_delay_s(run: &Run, writer: u32) -> f64 {
    let number = mix(run.plan.fleet.seed ^ u64::from(run.plan.first_writer + writer));
    run.start_jitter_s * (number >> 11) as f64 / (1u64 << 53) as f64
}

/// True if the slot takes part in the load at the time `due`. Slots join and leave as the load grows and shrinks.
fn sends_at(run: &Run, times: Times, slot: SlotRange, due: Option<Instant>) -> bool {
    let (Some(time_share), Some(due)) = (&run.time_share, due) else { return true };
    time_share.has(&run.plan, slot, (due - times.begin).as_secs_f64())
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    pub(crate) tenant: u32,
    pub(crate) slot: SlotRange,
    pub(crate) round: u32,
    pub(crate) at: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::stop::Stop;
    use crate::drive::tenants;
    use crate::scenario::Scenario;

    /// Returns for each slot when its requests of two rounds are due, in seconds since the start.
    fn due_times(scenario: &Scenario) -> Vec<(SlotRange, [f64; 2])> {
        let tenant = tenants::of(scenario, (1, 1), 1_795_284_000_000).unwrap().remove(0);
        let run = tenant.run(scenario, "/".into(), &Stop::default(), None);
        let begin = Instant::now();
        let times = Times { begin, end: None };
        let at = |slot, round| (due(&run, times, slot, round).unwrap() - begin).as_secs_f64();
        let slots = (0..run.plan.slots_count()).map(|i| run.plan.slot(i));
        slots.map(|slot| (slot, [0, 1].map(|round| at(slot, round)))).collect()
    }

    /// Returns for each writer when its first request of each of two rounds is due.
    fn starts(start_jitter: f64, seed: u64) -> Vec<[f64; 2]> {
        let text =
            format!("seed = {seed}\n[load]\nwriters = 40\ninterval = '10s'\nstart_jitter = {start_jitter}");
        let all = due_times(&Scenario::parse(&text).unwrap());
        all.into_iter().filter(|(slot, _)| slot.first == 0).map(|(_, times)| times).collect()
    }

    #[test]
    fn the_requests_of_a_round_are_spread_over_it_or_come_at_once() {
        let text =
            "[load]\nwriters = 4\nmetrics = 10\nseries_per_metric = 10\nbatch = 10\ninterval = '10s'\n";
        let spread = due_times(&Scenario::parse(text).unwrap());
        let bursts = due_times(&Scenario::parse(&format!("{text}burst = true\n")).unwrap());
        assert!(spread.len() > 4 && spread.len() == bursts.len());
        for round in [0, 1] {
            let begin = 10.0 * round as f64;
            let mut times: Vec<_> = spread.iter().map(|(_, times)| times[round] - begin).collect();
            times.sort_by(f64::total_cmp);
            let step = 10.0 / times.len() as f64;
            let is_even = |(i, time): (usize, &f64)| (time - step * i as f64).abs() < 1e-6;
            assert!(times.iter().enumerate().all(is_even), "{times:?}");
            assert!(bursts.iter().all(|(_, times)| (times[round] - begin - BURST_DELAY_S).abs() < 1e-6));
        }
    }

    #[test]
    fn writers_start_at_random_times_and_keep_their_pace() {
        let even = starts(0.0, 1);
        let jittered = starts(0.5, 1);
        assert_eq!((even.len(), jittered.len()), (40, 40));
        assert!(jittered.iter().all(|[first, second]| (second - first - 10.0).abs() < 1e-6));
        let delays: Vec<_> = jittered.iter().zip(&even).map(|([late, _], [early, _])| late - early).collect();
        assert!(delays.iter().all(|delay| (0.0..5.0).contains(delay)), "{delays:?}");
        let (least, most) = delays.iter().fold((f64::MAX, 0.0), |(lo, hi), d| (d.min(lo), d.max(hi)));
        assert!(least < 1.5 && most > 3.5, "{least} to {most}");
        assert_eq!(jittered, starts(0.5, 1), "the delays differ between runs with the same seed");
        assert_ne!(jittered, starts(0.5, 2));
    }
}
