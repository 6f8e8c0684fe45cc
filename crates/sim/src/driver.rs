//! Takes the random steps of one run, and checks what must always be true.

mod block;
mod clocks;
mod deletes;
mod drain;
mod imports;
mod lives;

use crate::check;
use crate::clock::SimClock;
use crate::deltas::Deltas;
use crate::disk::{Copy, DiskFaults, SimDisk};
use crate::fault::Fault;
use crate::fleet::Fleet;
use crate::importer::{Import, Importer};
use crate::model::{Key, Model, Refusals};
use crate::plan::{Plan, Step};
use crate::power::Power;
use crate::store::{SimStore, StoreFaults};
use crate::trace::Trace;
use crate::traffic::Traffic;
use clocks::times;
use journal::Durability;
use server::sim::{Flush, FlushAnswer, Simulated, Stepped};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use stdx::rng::{Rng, mix};

/// Each run starts at this time, on a day in 2026.
const BEGIN_MS: i64 = 1_777_000_000_000;

/// Limit on the steps that the sealer does in a turn that it does not complete.
const SEAL_STEPS_MAX: u64 = 12;

#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    fleet: Rc<Fleet>,
    power: Arc<Power>,
    clock: Arc<SimClock>,
    disk: SimDisk,
    store: SimStore,
    traffic: Rc<RefCell<Traffic>>,
    node: Option<Simulated>,
    flushes: Vec<Flush>,
    /// True if the last flush was answered without waiting for all tenants.
    is_blocked: bool,
    lives: u32,
    /// Limit on the head in bytes until the next restart. `None` stands for the default.
    head_bytes: Option<u64>,
    /// How many times the limit on the head was doubled, because the replay would otherwise have waited
    /// forever.
    more_memory: u32,
    /// Monotonic time at which the wall clock became wrong. `None` while it is right.
    wrong_since_ms: Option<i64>,
    importer: Option<Importer>,
    import: Option<Import>,
    delete: Option<deletes::Deleting>,
    deltas: Option<RefCell<Deltas>>,
    /// A copy of the data directory, and the samples that must still be there after the copy is restored.
    copy: Option<(Copy, BTreeSet<Key>)>,
    has_lost_marks: bool,
    /// True if an old journal was restored and kept the identity of a newer journal.
    is_misnamed: bool,
    is_draining: Rc<Cell<bool>>,
}

impl Driver {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut rng = Rng::new(mix(seed));
        let mut plan = Plan::of(&mut rng);
        if let Some(fault) = fault {
            fault.apply(&mut plan, &mut rng);
        }
        let power = Arc::new(Power::default());
        let clock = Arc::new(SimClock::at(BEGIN_MS));
        let disk = SimDisk::new(rng.next_u64(), Arc::clone(&power));
        let store = if plan.local_store { SimStore::local } else { SimStore::new };
        let store = store(rng.next_u64(), Arc::clone(&power), Arc::clone(&clock));
        let importer =
            (plan.weights.weight(Step::Import) > 0).then(|| Importer::new(store.clone(), BEGIN_MS));
        let fleet = Rc::new(Fleet::new(&plan));
        let deltas = plan.sends_deltas.then(|| RefCell::new(Deltas::new(Rng::new(rng.next_u64()))));
        let mut trace = Trace::default();
        trace.step(format!("{plan:?}"));
        let model = Model::new(Refusals { no_room: plan.head_bytes.is_some() });
        let traffic = Traffic::new(rng, model, trace, plan.load.clone());
        Self {
            head_bytes: plan.head_bytes.filter(|_| !plan.shrinks),
            plan,
            fleet,
            power,
            clock,
            disk,
            store,
            traffic: Rc::new(RefCell::new(traffic)),
            node: None,
            flushes: Vec::new(),
            is_blocked: false,
            lives: 0,
            more_memory: 0,
            wrong_since_ms: None,
            importer,
            import: None,
            delete: None,
            deltas,
            copy: None,
            has_lost_marks: false,
            is_misnamed: false,
            is_draining: Rc::default(),
        }
    }

    pub fn into_trace(self) -> Trace {
        std::mem::take(&mut self.traffic.borrow_mut().trace)
    }

    /// Takes all steps of the run. If a check fails, the error says why.
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
            self.restart_after_power_loss()?;
        }
        self.drain()
    }

    /// If the power is off, restarts the node and returns true.
    fn restart_after_power_loss(&mut self) -> Result<bool, String> {
        let is_off = self.power.is_off();
        if is_off {
            // if the power is not lost, the process dies and what it has written is kept
            let loses_power = self.plan.durability == Durability::Fsync && self.chance(0.7);
            self.restart(loses_power)?;
        }
        Ok(is_off)
    }

    fn step(&mut self) -> Result<(), String> {
        let step = self.plan.weights.draw(&mut self.traffic.borrow_mut().rng);
        match step {
            Step::Write => self.write(),
            Step::Turn => self.turn()?,
            Step::Flush => self.flush(),
            Step::Seal => self.seal_some()?,
            Step::Keep => self.keep(),
            Step::Compact => self.compact(),
            Step::Advance => self.advance(),
            Step::LeaveBehind => self.leave_one_behind()?,
            Step::Block => self.block_one()?,
            Step::SetClock => self.set_clock(),
            Step::Crash => self.crash()?,
            Step::Deliver => self.deliver(),
            Step::ChangeWeather => self.change_weather(),
            Step::Check => self.check()?,
            Step::Copy => self.copy(),
            Step::Import => self.import()?,
            Step::Delete => self.delete()?,
        }
        Ok(())
    }

    fn below(&self, n: u64) -> u64 {
        self.traffic.borrow_mut().rng.below(n)
    }

    fn chance(&self, p: f64) -> bool {
        self.traffic.borrow_mut().rng.chance(p)
    }

    fn trace(&self, what: impl std::fmt::Display) {
        self.traffic.borrow_mut().trace.step(what);
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.traffic.borrow_mut().trace.note(what);
    }

    fn node(&self) -> &Stepped {
        self.node.as_ref().expect("BUG: the node is not running").node()
    }

    fn node_mut(&mut self) -> &mut Simulated {
        self.node.as_mut().expect("BUG: the node is not running")
    }

    fn write(&self) {
        let mut traffic = self.traffic.borrow_mut();
        traffic.trace.step("write");
        if let Some(deltas) = &self.deltas
            && traffic.rng.chance(0.6)
        {
            let (now, steady_ms) = (times(&self.plan, &self.clock), self.clock.steady_ms());
            return deltas.borrow_mut().write(self.node(), &mut traffic.trace, now, steady_ms);
        }
        traffic.write(self.node(), &self.fleet, times(&self.plan, &self.clock));
    }

    fn turn(&self) -> Result<(), String> {
        let partition = self.below(self.plan.partitions as u64) as usize;
        self.trace(format!("turn of {partition}"));
        self.node().turn(partition);
        self.collect_answers()
    }

    fn turn_all(&self) -> Result<(), String> {
        (0..self.plan.partitions).for_each(|partition| self.node().turn(partition));
        self.collect_answers()
    }

    fn collect_answers(&self) -> Result<(), String> {
        if let Some(deltas) = &self.deltas {
            deltas.borrow_mut().collect_answers(self.node(), &mut self.traffic.borrow_mut().trace)?;
        }
        self.traffic.borrow_mut().collect_answers(self.node(), &self.fleet)
    }

    fn flush(&mut self) {
        self.trace("flush");
        let flush = self.node_mut().flush();
        self.flushes.push(flush);
    }

    /// Lets the sealer do a whole turn, or only some steps of it, so that other steps of the run fall in the
    /// middle of the turn.
    fn seal_some(&mut self) -> Result<(), String> {
        if self.chance(0.5) {
            return self.seal();
        }
        let steps = 1 + self.below(SEAL_STEPS_MAX);
        self.trace(format!("{steps} steps of sealing"));
        for _ in 0..steps {
            self.node_mut().seal_step();
        }
        self.collect_answers_of_sealer()
    }

    fn seal(&mut self) -> Result<(), String> {
        self.trace("seal");
        let sealing = self.node_mut().seal();
        self.note(format!("{sealing:?}"));
        self.collect_answers_of_sealer()
    }

    fn collect_answers_of_sealer(&mut self) -> Result<(), String> {
        if let Some(failure) = self.traffic.borrow_mut().failure.take() {
            return Err(format!("in the middle of a turn: {failure}"));
        }
        self.collect_answers()?;
        let traffic = &self.traffic;
        let is_blocked = &mut self.is_blocked;
        self.flushes.retain_mut(|flush| match flush.answer() {
            Some(FlushAnswer { samples, blocked }) => {
                traffic.borrow_mut().trace.note(format!("flushed {samples}, {blocked} tenants blocked"));
                *is_blocked = blocked > 0;
                false
            }
            None => true,
        });
        Ok(())
    }

    fn keep(&mut self) {
        self.trace("keep");
        self.expire();
        self.node_mut().keep();
    }

    fn compact(&mut self) {
        self.trace("compact");
        self.expire();
        let failures = self.node_mut().compact();
        self.note(format!("{failures} failures"));
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
            self.trace("faults off");
            self.disk.set_faults(DiskFaults::default());
            self.store.set_faults(StoreFaults::default());
            return;
        }
        let broken = (self.plan.breaks_tenants && self.chance(0.5))
            .then(|| self.fleet.directory_of(self.below(self.plan.tenants as u64) as usize));
        self.trace(format!("faults on, broken: {broken:?}"));
        self.disk.set_faults(self.plan.disk);
        self.store.set_faults(StoreFaults { broken, ..self.plan.store.clone() });
    }

    /// Turns off the faults of the store. Returns them, so that the caller can turn them on again.
    fn quiet(&self) -> StoreFaults {
        let faults = self.store.faults();
        self.store.set_faults(StoreFaults::default());
        faults
    }

    fn check(&self) -> Result<(), String> {
        self.trace("check");
        self.check_now()
    }

    fn check_deltas(&self) -> Result<(), String> {
        self.deltas.as_ref().map_or(Ok(()), |deltas| deltas.borrow().check(self.node()))
    }

    fn check_now(&self) -> Result<(), String> {
        let faults = self.quiet();
        let mut traffic = self.traffic.borrow_mut();
        traffic.compare(self.node(), &self.fleet)?;
        drop(traffic);
        self.check_deltas()?;
        self.check_rollups()?;
        let traffic = self.traffic.borrow();
        if !self.disk.has_lied() {
            check::tables(self.node(), &self.fleet, &traffic.model)?;
            if !self.is_misnamed {
                check::floodmarks(self.node(), &self.fleet, self.has_lost_marks)?;
            }
        }
        self.store.set_faults(faults);
        Ok(())
    }
}
