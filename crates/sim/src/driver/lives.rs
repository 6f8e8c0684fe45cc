use super::Driver;
use super::clocks::times;
use crate::check;
use crate::disk::DiskFaults;
use crate::store::StoreFaults;
use crate::traffic::FUTURE_MS;
use server::sim::{Interlude, Outside, Simulated};
use server::{Given, Settings};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tables::rollup::Resolution;

const DATA_DIR: &str = "/data";

/// When the node has failed to start this many times, the faults of the disk are turned off.
const STARTS_MAX: usize = 4;

/// During a replay, the sealer has at most this many turns. Faults are injected only in the first half of them.
const WAITS_MAX: usize = 400;

/// How much time passes before each turn of the sealer during a replay. It is longer than the sealer waits
/// between two attempts to make room in full heads.
const PRESSURE_MS: u64 = 31_000;

/// A reduced limit on the heads is drawn from this range. It is a percentage of what they held before the
/// restart.
const SHRUNK_PERCENT: (u64, u64) = (30, 90);

/// Once the store works, tenants whose tables could not be read must be available after this many turns.
const REOPEN_TURNS: usize = 100;

impl Driver {
    /// Kills the process, or lets the power fail either now or after some more changes.
    pub(super) fn crash(&mut self) -> Result<(), String> {
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
                // with few changes left, the power fails at the next writes of a partition; with more, also during sealing
                let most = [6, 40][self.below(2) as usize];
                let changes = self.below(most);
                self.trace(format!("power fails after {changes} changes"));
                self.power.fail_after(changes);
                Ok(())
            }
        }
    }

    pub(super) fn restart(&mut self, power: bool) -> Result<(), String> {
        self.lives += 1;
        if self.plan.shrinks {
            self.head_bytes = self.shrunk_head();
        }
        self.node = None;
        self.more_memory = 0;
        self.flushes.clear();
        if let Some(delete) = &mut self.delete {
            delete.lose_connection();
        }
        self.traffic.borrow_mut().lose_connection();
        if let Some(deltas) = &self.deltas {
            deltas.borrow_mut().lose_connection();
        }
        if power {
            self.note("what was not synced may be lost");
            self.disk.lose_power();
            self.store.lose_power();
        } else {
            self.disk.kill();
            self.store.kill();
        }
        self.power.restore();
        if self.plan.wrong_clocks && self.chance(0.5) {
            self.draw_clock_error();
        }
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

    /// At every other restart, draws a limit on the heads that is usually less than what they held before.
    fn shrunk_head(&self) -> Option<u64> {
        if self.lives.is_multiple_of(2) {
            return None;
        }
        let held_bytes: u64 = self.node().waiting().iter().map(|(bytes, _)| bytes).sum();
        let (least, most) = SHRUNK_PERCENT;
        let shrunk_bytes = held_bytes * (least + self.below(most - least)) / 100;
        self.plan.head_bytes.map(|floor| floor.max(shrunk_bytes))
    }

    pub(super) fn copy(&mut self) {
        self.trace("data directory copied");
        let copy = self.disk.copy(Path::new(DATA_DIR));
        self.copy = Some((copy, self.traffic.borrow().model.copy()));
    }

    /// Restores an old copy of the data directory. The advice in `docs/operating.md` is followed in some runs
    /// only.
    fn put_back(&mut self) -> Result<(), String> {
        let Some((copy, mut kept)) = self.copy.take() else { return Ok(()) };
        self.note("an older data directory is put back");
        // A restore takes longer than any real request, so no request is still on its way. If one were, its
        // commit could bring back samples that are in no journal.
        self.store.deliver_all();
        self.disk.put_back(Path::new(DATA_DIR), &copy);
        for partition in 0..self.plan.partitions {
            if self.plan.forgets_advice {
                self.note("with its source files");
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
        self.traffic.borrow_mut().model.check_after_loss(&found, &kept)?;
        self.store.set_faults(faults);
        Ok(())
    }

    /// Starts the node, lets it replay, and compares its samples with the model. `tore` is true if a power
    /// loss may have interrupted a write to the journal.
    pub(super) fn start(&mut self, tore: bool) -> Result<(), String> {
        self.bring_up()?;
        let faults = self.quiet();
        let found = check::found(self.node(), &self.fleet)?;
        {
            let mut traffic = self.traffic.borrow_mut();
            traffic.trace.note(format!("{} samples", found.samples.len()));
            if self.disk.has_lied() {
                traffic.model.check_after_loss(&found, &BTreeSet::new())?;
            } else {
                traffic.model.settle(&found, tore)?;
                traffic.model.settle_deletes(&found);
                traffic.model.check(&found)?;
            }
        }
        self.check_deltas()?;
        self.store.set_faults(faults);
        Ok(())
    }

    /// Starts the node, several times if it fails, and lets it replay. No requests are sent meanwhile.
    fn bring_up(&mut self) -> Result<(), String> {
        let before = self.is_draining.replace(true);
        let up = self.try_to_bring_up();
        self.is_draining.set(before);
        up
    }

    fn try_to_bring_up(&mut self) -> Result<(), String> {
        for attempt in 0.. {
            if attempt >= STARTS_MAX {
                self.disk.set_faults(DiskFaults::default());
            }
            assert!(attempt < 2 * STARTS_MAX, "the node does not start, although no faults are injected");
            self.trace("start");
            match self.try_start().and_then(|()| self.open_tenants()) {
                Ok(()) => break,
                Err(error) => self.note(error),
            }
            self.node = None;
            if self.power.is_off() {
                self.disk.lose_power();
                self.store.lose_power();
                self.power.restore();
            } else {
                self.disk.kill();
                self.store.kill();
            }
        }
        Ok(())
    }

    /// Once the store works, checks that all tenants become available whose tables could not be read at the
    /// start.
    fn open_tenants(&mut self) -> Result<(), String> {
        let faults = self.quiet();
        for _ in 0..REOPEN_TURNS {
            if self.power.is_off() || !self.node().has_closed_tenants() {
                break;
            }
            self.clock.next_step();
            self.clock.advance(60_000);
            self.node_mut().seal();
            (0..self.plan.partitions).for_each(|partition| self.node().turn(partition));
        }
        self.store.set_faults(faults);
        if self.power.is_off() {
            return Err("the power failed".into());
        }
        assert!(!self.node().has_closed_tenants(), "tenants stay closed, although their tables can be read");
        Ok(())
    }

    fn try_start(&mut self) -> Result<(), String> {
        let outside = Outside {
            clock: Arc::clone(&self.clock) as _,
            disk: Arc::new(self.disk.clone()),
            store: Some(Arc::new(self.store.clone())),
            seed: self.below(u64::MAX),
        };
        let mut node =
            Simulated::start(self.settings(), outside, self.interlude()).map_err(|e| e.to_string())?;
        self.clock.next_step();
        let (mut waits, mut waiting) = (0, Vec::new());
        let replayed = node.replay(|node| {
            waits += 1;
            self.clock.next_step();
            self.clock.advance(PRESSURE_MS);
            if waits > WAITS_MAX / 2 {
                self.store.set_faults(StoreFaults::default());
                self.disk.set_faults(DiskFaults::default());
            }
            let sealing = node.seal();
            self.note(format!("replay waits: {sealing:?}"));
            waiting = node.node().waiting();
            waits < WAITS_MAX && !self.power.is_off()
        });
        let is_complete = replayed.map_err(|refusal| refusal.to_string())?;
        if self.power.is_off() {
            return Err("the power failed".into());
        }
        if !is_complete && self.plan.shrinks {
            assert!(
                waiting.iter().any(|(_, why)| why.contains("--memory")),
                "the reason for waiting does not name --memory: {waiting:?}"
            );
            self.more_memory += 1;
            return Err(
                "the series that the rest of a dictionary refers to do not fit; retrying with more memory"
                    .into(),
            );
        }
        assert!(is_complete, "a replay waits forever, although no faults are injected: {waiting:?}");
        self.node = Some(node);
        Ok(())
    }

    fn settings(&self) -> Settings {
        let given =
            Given::default().flag("data_dir", DATA_DIR).flag("memory", "512MiB").flag("tables", "memory:///");
        let mut settings = Settings::resolve(&given).expect("BUG: the flags are invalid");
        settings.durability = self.plan.durability;
        settings.partitions = self.plan.partitions;
        settings.segment_bytes = self.plan.segment_bytes;
        settings.past_ms = self.plan.load.past_ms.unwrap_or(i64::MAX);
        settings.future_ms = FUTURE_MS;
        if !self.plan.evicts {
            settings.series_idle_s = u32::MAX;
        }
        if let Some(bytes) = self.head_bytes {
            settings.budget.head_bytes = bytes << self.more_memory;
        }
        if let Some(bytes) = self.plan.flush_bytes {
            settings.budget.flush_bytes = bytes;
        }
        if self.plan.rolls_up {
            settings.tenants.general.rollups = Resolution::ALL.to_vec();
        }
        settings.lake.flush_interval_ms = 0;
        settings.tenants.general.retention_ms = self.plan.retention_ms;
        settings.lake.merged_file_bytes = self.plan.merged_file_bytes;
        settings
    }

    fn interlude(&self) -> Interlude {
        let (traffic, fleet, clock) =
            (Rc::clone(&self.traffic), Rc::clone(&self.fleet), Arc::clone(&self.clock));
        let (store, power) = (self.store.clone(), Arc::clone(&self.power));
        let (is_draining, plan) = (Rc::clone(&self.is_draining), self.plan.clone());
        Rc::new(move |node, partition| {
            let mut traffic = traffic.borrow_mut();
            if is_draining.get() || power.is_off() {
                return;
            }
            for _ in 0..traffic.rng.below(4) {
                traffic.trace.note(format!("meanwhile for {partition}: write"));
                traffic.write(node, &fleet, times(&plan, &clock));
            }
            if traffic.failure.is_none() && traffic.rng.chance(0.1) {
                let faults = store.faults();
                store.set_faults(StoreFaults::default());
                traffic.failure =
                    traffic.collect_answers(node, &fleet).and_then(|()| traffic.compare(node, &fleet)).err();
                store.set_faults(faults);
            }
        })
    }
}
