//! One run: random steps, and after each what must be true.

use crate::check;
use crate::clock::SimClock;
use crate::disk::{Copy, DiskFaults, SimDisk};
use crate::model::{Key, Model, Share};
use crate::plan::Plan;
use crate::power::Power;
use crate::store::{SimStore, StoreFaults};
use crate::trace::Trace;
use journal::Durability;
use model::{Labels, Metadata, MetricKind, STALE_NAN_BITS, TenantId};
use protocol::encode::V1Encoder;
use server::sim::{Flush, Interlude, Outside, Simulated, Stepped, Written};
use server::{Flags, Settings};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use stdx::clock::Clock;
use stdx::rng::{Rng, mix};

/// Where the data directory lies on the simulated disk.
const DATA_DIR: &str = "/data";

/// Metric names.
const METRICS: [&str; 3] = ["a", "b", "c"];

/// When runs begin: a day in 2026, some hours after midnight.
const BEGIN_MS: i64 = 1_777_000_000_000;

/// Turns until everything that was asked for is done, at most.
const DRAIN_TURNS: usize = 200;

/// Starts that may fail before the faults are taken away.
const STARTS_MAX: usize = 4;

/// Who sends what.
#[derive(Debug)]
pub struct Fleet {
    /// The tenants.
    pub tenants: Vec<TenantId>,
    series: Vec<Labels>,
    numbers: BTreeMap<String, usize>,
}

impl Fleet {
    fn new(plan: &Plan) -> Self {
        let tenant = |n| TenantId::parse(&format!("tenant-{n}")).expect("BUG: the name is plain");
        let labels = |n: usize| {
            Labels::from_pairs(&[("__name__", METRICS[n % METRICS.len()]), ("series", &format!("s{n}"))])
        };
        let series: Vec<_> = (0..plan.series).map(labels).collect();
        let numbers = series.iter().enumerate().map(|(n, labels)| (labels.to_string(), n)).collect();
        Self { tenants: (0..plan.tenants).map(tenant).collect(), series, numbers }
    }

    /// The number of a series.
    pub fn series_of(&self, labels: &str) -> Option<usize> {
        self.numbers.get(labels).copied()
    }
}

/// What steps, and what is done while the sealer waits, both change.
#[derive(Debug)]
struct State {
    rng: Rng,
    model: Model,
    trace: Trace,
    underway: Vec<Underway>,
    sends_metadata: bool,
    /// What was found wrong while the sealer waited.
    failure: Option<String>,
}

/// A request without all its answers.
#[derive(Debug)]
struct Underway {
    written: Written,
    /// Its shares that are not answered, by partition.
    shares: BTreeMap<usize, Share>,
}

/// One run.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    fleet: Rc<Fleet>,
    power: Arc<Power>,
    clock: Arc<SimClock>,
    disk: SimDisk,
    store: SimStore,
    state: Rc<RefCell<State>>,
    node: Option<Simulated>,
    flushes: Vec<Flush>,
    /// An older data directory, and what must be there with it.
    copy: Option<(Copy, BTreeSet<Key>)>,
    /// What was noted of floodmarks was lost once.
    has_lost_marks: bool,
    /// An older journal goes on under the name of a newer one.
    is_misnamed: bool,
    /// No more requests come.
    is_draining: Rc<Cell<bool>>,
}

impl Driver {
    /// The run of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(mix(seed));
        let plan = Plan::of(&mut rng);
        let power = Arc::new(Power::default());
        let clock = Arc::new(SimClock::at(BEGIN_MS));
        let disk = SimDisk::new(rng.next_u64(), Arc::clone(&power));
        let store = SimStore::new(rng.next_u64(), Arc::clone(&power), Arc::clone(&clock));
        let fleet = Rc::new(Fleet::new(&plan));
        let mut trace = Trace::default();
        trace.step(format!("{plan:?}"));
        let state = State {
            rng,
            model: Model::default(),
            trace,
            underway: Vec::new(),
            sends_metadata: !plan.evicts,
            failure: None,
        };
        let state = Rc::new(RefCell::new(state));
        let is_draining = Rc::default();
        Self {
            plan,
            fleet,
            power,
            clock,
            disk,
            store,
            state,
            node: None,
            flushes: Vec::new(),
            copy: None,
            has_lost_marks: false,
            is_misnamed: false,
            is_draining,
        }
    }

    /// What was done.
    pub fn into_trace(self) -> Trace {
        std::mem::take(&mut self.state.borrow_mut().trace)
    }

    /// Runs to the end. What is wrong is an error.
    pub fn run(&mut self) -> Result<(), String> {
        let done = self.run_all();
        done.map_err(|failure| match &self.node {
            Some(node) => failure + &check::describe(node.node(), &self.fleet),
            None => failure,
        })
    }

    fn run_all(&mut self) -> Result<(), String> {
        self.start(false)?;
        for _ in 0..self.plan.steps {
            self.clock.next_step();
            self.step()?;
            if self.power.is_off() {
                // a process can be killed in the middle of a change too
                let loses_power = self.plan.durability == Durability::Fsync && self.chance(0.7);
                self.restart(loses_power)?;
            }
        }
        self.drain()
    }

    fn step(&mut self) -> Result<(), String> {
        let w = self.plan.weights;
        let all = [
            w.write,
            w.turn,
            w.flush,
            w.seal,
            w.keep,
            w.compact,
            w.advance,
            w.set_clock,
            w.crash,
            w.deliver,
            w.weather,
            w.check,
            w.copy,
            w.apart,
        ];
        let mut drawn = self.below(all.iter().sum());
        let step = all.iter().position(|weight| {
            let hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            hit
        });
        match step {
            Some(0) => self.write(),
            Some(1) => self.turn()?,
            Some(2) => self.flush(),
            Some(3) => self.seal()?,
            Some(4) => self.keep(),
            Some(5) => self.compact(),
            Some(6) => self.advance(),
            Some(7) => self.set_clock(),
            Some(8) => self.crash()?,
            Some(9) => self.deliver(),
            Some(10) => self.change_weather(),
            Some(12) => self.copy(),
            Some(13) => self.leave_one_behind()?,
            _ => self.check()?,
        }
        Ok(())
    }

    fn below(&self, n: u64) -> u64 {
        self.state.borrow_mut().rng.below(n)
    }

    fn chance(&self, p: f64) -> bool {
        self.state.borrow_mut().rng.chance(p)
    }

    fn trace(&self, what: impl std::fmt::Display) {
        self.state.borrow_mut().trace.step(what);
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.state.borrow_mut().trace.note(what);
    }

    fn node(&self) -> &Stepped {
        self.node.as_ref().expect("BUG: the node is up").node()
    }

    fn write(&self) {
        let mut state = self.state.borrow_mut();
        state.trace.step("write");
        state.write(self.node(), &self.fleet, self.clock.now_ms(), self.plan.span_ms);
    }

    fn turn(&self) -> Result<(), String> {
        let partition = self.below(self.plan.partitions as u64) as usize;
        self.trace(format!("turn of {partition}"));
        self.node().turn(partition);
        self.state.borrow_mut().hear()
    }

    fn flush(&mut self) {
        self.trace("flush");
        let flush = self.node.as_mut().expect("BUG: the node is up").flush();
        self.flushes.push(flush);
    }

    fn seal(&mut self) -> Result<(), String> {
        self.trace("seal");
        let sealing = self.node.as_mut().expect("BUG: the node is up").seal();
        self.note(format!("{sealing:?}"));
        if let Some(failure) = self.state.borrow_mut().failure.take() {
            return Err(format!("in the middle of it: {failure}"));
        }
        self.state.borrow_mut().hear()?;
        let state = &self.state;
        self.flushes.retain_mut(|flush| match flush.samples() {
            Some(samples) => {
                state.borrow_mut().trace.note(format!("flushed {samples}"));
                false
            }
            None => true,
        });
        Ok(())
    }

    fn expire(&self) {
        let Some(retention_ms) = self.plan.retention_ms else { return };
        let before_ms = self.clock.now_ms() - retention_ms;
        (0..self.plan.tenants).for_each(|tenant| self.state.borrow_mut().model.expire(tenant, before_ms));
    }

    fn keep(&mut self) {
        self.trace("keep");
        self.expire();
        self.node.as_mut().expect("BUG: the node is up").keep();
    }

    fn compact(&mut self) {
        self.trace("compact");
        self.expire();
        let failures = self.node.as_mut().expect("BUG: the node is up").compact();
        self.note(format!("{failures} failures"));
    }

    fn advance(&self) {
        let most = [1000, 20_000, 1_000_000, 20_000_000][self.below(4) as usize];
        let by_ms = self.below(most);
        self.trace(format!("{by_ms} ms pass"));
        self.clock.advance(by_ms);
    }

    fn set_clock(&self) {
        let by_ms = self.below(2 * 7_200_000) as i64 - 7_200_000;
        self.trace(format!("clock set by {by_ms} ms"));
        self.clock.set(by_ms);
    }

    fn deliver(&self) {
        let mut rng = Rng::new(self.below(u64::MAX));
        let done = self.store.deliver(&mut rng);
        if done > 0 {
            self.trace(format!("{done} late puts arrive"));
        }
    }

    fn change_weather(&self) {
        if self.chance(0.4) {
            self.trace("fair weather");
            self.disk.set_faults(DiskFaults::default());
            self.store.set_faults(StoreFaults::default());
            return;
        }
        let broken = (self.plan.breaks_tenants && self.chance(0.5)).then(|| {
            format!("{}/", self.fleet.tenants[self.below(self.plan.tenants as u64) as usize].as_str())
        });
        self.trace(format!("bad weather, broken: {broken:?}"));
        self.disk.set_faults(self.plan.disk);
        self.store.set_faults(StoreFaults { broken, ..self.plan.store.clone() });
    }

    /// The process dies now, or the power fails soon.
    fn crash(&mut self) -> Result<(), String> {
        match self.below(3) {
            0 => {
                self.trace("killed");
                self.restart(false)
            }
            1 => {
                self.trace("power fails");
                self.power.fail();
                Ok(())
            }
            _ => {
                // soon, in what an owner does, or somewhere in a round
                let most = [6, 40][self.below(2) as usize];
                let changes = self.below(most);
                self.trace(format!("power fails after {changes} changes"));
                self.power.fail_after(changes);
                Ok(())
            }
        }
    }

    fn restart(&mut self, power: bool) -> Result<(), String> {
        self.node = None;
        self.flushes.clear();
        let underway = std::mem::take(&mut self.state.borrow_mut().underway);
        let open = underway.into_iter().flat_map(|underway| underway.shares.into_values());
        open.for_each(|share| self.state.borrow_mut().model.leave_open(share));
        if power {
            self.note("what was not synced may be lost");
            self.disk.lose_power();
        } else {
            self.disk.kill();
        }
        self.power.restore();
        if self.copy.is_some() && self.chance(0.3) {
            return self.put_back();
        }
        if self.plan.loses_marks
            && self.chance(0.3)
            && self.disk.delete(&Path::new(DATA_DIR).join("floodmarks.json"))
        {
            self.note("floodmarks.json is lost");
            self.has_lost_marks = true;
        }
        self.start(power)
    }

    /// An operator copies the data directory as it is after a kill.
    fn copy(&mut self) {
        self.trace("data directory copied");
        let copy = self.disk.copy(Path::new(DATA_DIR));
        self.copy = Some((copy, self.state.borrow().model.copy()));
    }

    /// An operator puts an older data directory back, and does with it what `docs/operating.md` says.
    fn put_back(&mut self) -> Result<(), String> {
        let Some((copy, mut kept)) = self.copy.take() else { return Ok(()) };
        self.note("an older data directory is put back");
        self.disk.put_back(Path::new(DATA_DIR), &copy);
        for partition in 0..self.plan.partitions {
            if self.plan.forgets_advice {
                self.note("as it is");
                self.is_misnamed = true;
                break;
            }
            let source = format!("{DATA_DIR}/journal/{partition}/source");
            self.disk.delete(Path::new(&source));
        }
        self.bring_up()?;
        let faults = self.quiet();
        kept.extend(check::in_tables(self.node(), &self.fleet)?.into_keys());
        let found = check::found(self.node(), &self.fleet)?;
        self.note(format!("{} samples", found.samples.len()));
        self.state.borrow_mut().model.check_after_loss(&found, &kept)?;
        self.store.set_faults(faults);
        Ok(())
    }

    /// Starts the node, and replays; then what is there must be what was said. A power loss may have torn groups apart.
    fn start(&mut self, tore: bool) -> Result<(), String> {
        self.bring_up()?;
        let faults = self.quiet();
        let found = check::found(self.node(), &self.fleet)?;
        {
            let mut state = self.state.borrow_mut();
            state.trace.note(format!("{} samples", found.samples.len()));
            if self.disk.has_lied() {
                state.model.check_after_loss(&found, &BTreeSet::new())?;
            } else {
                state.model.settle(&found, tore)?;
                state.model.check(&found)?;
            }
        }
        self.store.set_faults(faults);
        Ok(())
    }

    /// Starts the node, whatever it takes, and replays.
    fn bring_up(&mut self) -> Result<(), String> {
        for attempt in 0.. {
            if attempt >= STARTS_MAX {
                self.disk.set_faults(DiskFaults::default());
            }
            assert!(attempt < 2 * STARTS_MAX, "it does not start, although nothing goes wrong");
            self.trace("start");
            match self.try_start() {
                Ok(()) => break,
                Err(error) => self.note(error),
            }
            self.node = None;
            if self.power.is_off() {
                self.disk.lose_power();
                self.power.restore();
            } else {
                self.disk.kill();
            }
        }
        Ok(())
    }

    fn try_start(&mut self) -> Result<(), String> {
        let outside = Outside {
            clock: Arc::clone(&self.clock) as _,
            disk: Arc::new(self.disk.clone()),
            store: Arc::new(self.store.clone()),
            seed: self.below(u64::MAX),
        };
        let node = Simulated::start(self.settings(), outside, self.interlude()).map_err(|e| e.to_string())?;
        for partition in 0..node.node().partitions() {
            self.clock.next_step();
            let replayed = node.node().replay(partition).map_err(|refusal| refusal.to_string())?;
            assert!(replayed, "nobody told it to stop");
        }
        if self.power.is_off() {
            return Err("the power failed".into());
        }
        self.node = Some(node);
        Ok(())
    }

    fn settings(&self) -> Settings {
        let flags = Flags {
            data_dir: Some(DATA_DIR.into()),
            memory: Some("512MiB".into()),
            tables: Some("memory:///".into()),
            ..Flags::default()
        };
        let mut settings = Settings::resolve(flags).expect("BUG: the flags are right");
        settings.durability = self.plan.durability;
        settings.partitions = self.plan.partitions;
        settings.segment_bytes = self.plan.segment_bytes;
        settings.out_of_order_window_ms = i64::MAX;
        if !self.plan.evicts {
            settings.series_idle_s = u32::MAX;
        }
        settings.lake.retention_ms = self.plan.retention_ms;
        settings
    }

    /// While the sealer waits for an owner, requests come, and queries.
    fn interlude(&self) -> Interlude {
        let (state, fleet, clock) = (Rc::clone(&self.state), Rc::clone(&self.fleet), Arc::clone(&self.clock));
        let (span_ms, is_draining) = (self.plan.span_ms, Rc::clone(&self.is_draining));
        let (store, power) = (self.store.clone(), Arc::clone(&self.power));
        Rc::new(move |node, partition| {
            let mut state = state.borrow_mut();
            if is_draining.get() || power.is_off() {
                return;
            }
            for _ in 0..state.rng.below(4) {
                state.trace.note(format!("meanwhile for {partition}: write"));
                state.write(node, &fleet, clock.now_ms(), span_ms);
            }
            if state.failure.is_none() && state.rng.chance(0.1) {
                let faults = store.faults();
                store.set_faults(StoreFaults::default());
                state.failure = state.hear().and_then(|()| state.compare(node, &fleet)).err();
                store.set_faults(faults);
            }
        })
    }

    /// Nothing goes wrong in the store while it is looked at.
    fn quiet(&self) -> StoreFaults {
        let faults = self.store.faults();
        self.store.set_faults(StoreFaults::default());
        faults
    }

    fn check(&self) -> Result<(), String> {
        self.trace("check");
        self.check_now()
    }

    fn check_now(&self) -> Result<(), String> {
        let faults = self.quiet();
        let state = self.state.borrow();
        state.compare(self.node(), &self.fleet)?;
        if !self.disk.has_lied() {
            check::tables(self.node(), &self.fleet, &state.model)?;
            if !self.is_misnamed {
                check::floodmarks(self.node(), &self.fleet, self.has_lost_marks)?;
            }
        }
        self.store.set_faults(faults);
        Ok(())
    }

    /// Nothing goes wrong any more: everything ends up in tables, and out of heads and journals.
    fn drain(&mut self) -> Result<(), String> {
        self.clock.next_step();
        self.trace("drain");
        self.power.restore();
        self.disk.set_faults(DiskFaults::default());
        self.quiet();
        self.settle_down()?;
        self.check_drained()?;
        self.keep();
        self.compact();
        self.check_now()?;
        self.trace("killed");
        self.restart(false)?;
        self.check_now()
    }

    /// Lets everything that is underway come to its end, and flushes.
    fn settle_down(&mut self) -> Result<(), String> {
        for _ in 0..DRAIN_TURNS {
            (0..self.plan.partitions).for_each(|partition| self.node().turn(partition));
            self.state.borrow_mut().hear()?;
            if self.state.borrow().underway.is_empty() {
                break;
            }
        }
        self.flush();
        for _ in 0..DRAIN_TURNS {
            self.clock.next_step();
            self.clock.advance(1000);
            self.deliver();
            self.seal()?;
            if self.flushes.is_empty() && self.state.borrow().underway.is_empty() {
                return Ok(());
            }
            (0..self.plan.partitions).for_each(|partition| self.node().turn(partition));
            self.state.borrow_mut().hear()?;
        }
        Err(format!("after {DRAIN_TURNS} turns without faults a flush is not done"))
    }

    /// The store fails for one tenant alone: everybody else's samples go into tables all the same.
    fn leave_one_behind(&mut self) -> Result<(), String> {
        let behind = self.below(self.plan.tenants as u64) as usize;
        self.trace(format!("the table of {behind} fails"));
        self.disk.set_faults(DiskFaults::default());
        let broken = Some(format!("{}/", self.fleet.tenants[behind].as_str()));
        self.store.set_faults(StoreFaults { broken, ..StoreFaults::default() });
        let before = self.is_draining.replace(true);
        for _ in 0..DRAIN_TURNS {
            (0..self.plan.partitions).for_each(|partition| self.node().turn(partition));
            self.state.borrow_mut().hear()?;
            self.flush();
            self.clock.next_step();
            self.clock.advance(1000);
            self.seal()?;
            if self.power.is_off() || !self.others_wait(behind) {
                break;
            }
        }
        self.is_draining.set(before);
        if !self.power.is_off() && self.others_wait(behind) {
            return Err(format!("the table of {behind} fails, and others' samples stay in heads"));
        }
        self.store.set_faults(StoreFaults::default());
        Ok(())
    }

    /// A tenant that is not `behind` has samples that are not in tables.
    fn others_wait(&self, behind: usize) -> bool {
        let others = self.fleet.tenants.iter().enumerate().filter(|(tenant, _)| *tenant != behind);
        !self.state.borrow().underway.is_empty()
            || others.map(|(_, id)| self.node().head_samples(id)).any(|samples| samples > 0)
    }

    fn check_drained(&mut self) -> Result<(), String> {
        // what came while the last round was underway
        self.is_draining.set(true);
        self.settle_down()?;
        self.check_now()?;
        for (number, id) in self.fleet.tenants.iter().enumerate() {
            let samples = self.node().head_samples(id);
            if samples > 0 {
                return Err(format!("after a flush heads still hold {samples} samples of tenant {number}"));
            }
        }
        for progress in self.node().progress() {
            if progress.segments > 1 {
                return Err(format!("after a flush the journal is not short: {progress:?}"));
            }
        }
        Ok(())
    }
}

impl State {
    /// Sends a request of some samples of one tenant.
    fn write(&mut self, node: &Stepped, fleet: &Fleet, now_ms: i64, span_ms: u64) {
        let tenant = self.rng.below(fleet.tenants.len() as u64) as usize;
        let mut series: BTreeMap<usize, Vec<(i64, u64)>> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for _ in 0..1 + self.rng.below(12) {
            let number = self.rng.below(fleet.series.len() as u64) as usize;
            let back_ms = if self.rng.chance(0.7) { self.rng.below(5000) } else { self.rng.below(span_ms) };
            let key: Key = (tenant, number, (now_ms - back_ms as i64).max(0));
            if self.model.is_busy(key) || !keys.insert(key) {
                continue;
            }
            let value = match self.rng.below(5) {
                0 => self.rng.unit(),
                1 => f64::from_bits(STALE_NAN_BITS),
                _ => self.rng.below(1000) as f64 / 10.0,
            };
            series.entry(number).or_default().push((key.2, value.to_bits()));
        }
        let mut encoder = V1Encoder::new();
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        let metric = METRICS[self.rng.below(METRICS.len() as u64) as usize];
        let (about, help) = ((tenant, metric.to_string()), format!("{:x}", self.rng.below(100)));
        let is_known = self.model.metadata_of(&about) == Some(&help);
        if self.sends_metadata && self.rng.chance(0.1) && !is_known && !self.model.is_metadata_busy(&about) {
            encoder.metadata(&Metadata {
                metric: metric.into(),
                kind: MetricKind::Gauge,
                help: help.clone(),
                unit: String::new(),
            });
            shares.entry(node.partition_of_metric(&about.1)).or_default().metadata.push((about, help));
        }
        for (number, samples) in &series {
            let labels = fleet.series[*number].as_ref();
            let (timestamps, values): (Vec<_>, Vec<_>) =
                samples.iter().map(|(t, bits)| (*t, f64::from_bits(*bits))).unzip();
            encoder.series(labels, &timestamps, &values);
            let share = shares.entry(node.partition_of(labels)).or_default();
            share.samples.extend(samples.iter().map(|(t, bits)| ((tenant, *number, *t), *bits)));
        }
        self.trace.note(format!("{} samples of {} series of {tenant}", keys.len(), series.len()));
        shares.values().for_each(|share| self.model.send(share));
        match node.write(&fleet.tenants[tenant], encoder.finish().to_vec()) {
            Ok(written) => self.underway.push(Underway { written, shares }),
            Err(refusal) => {
                self.trace.note(refusal);
                shares.into_values().for_each(|share| self.model.leave_open(share));
            }
        }
    }

    /// What queries find must be what was said.
    fn compare(&self, node: &Stepped, fleet: &Fleet) -> Result<(), String> {
        self.model.check(&check::found(node, fleet)?)
    }

    /// Takes the answers that have come.
    fn hear(&mut self) -> Result<(), String> {
        for mut underway in std::mem::take(&mut self.underway) {
            for (partition, answer) in underway.written.answers() {
                let share = underway.shares.remove(&partition).expect("BUG: one answer for each share");
                match answer {
                    Ok(outcome) if outcome.samples == share.samples.len() as u64 => {
                        self.trace.note(format!("{} stored", outcome.samples));
                        self.model.acknowledge(&share);
                    }
                    Ok(outcome) => return Err(format!("of {share:?} was left out: {outcome:?}")),
                    Err(refusal) => {
                        self.trace.note(refusal);
                        self.model.leave_open(share);
                    }
                }
            }
            if !underway.shares.is_empty() {
                self.underway.push(underway);
            }
        }
        Ok(())
    }
}
