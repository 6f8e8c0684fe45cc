use super::Driver;
use crate::disk::DiskFaults;
use crate::store::StoreFaults;

/// Without faults, the node must seal all samples within this many turns. One turn is enough for the samples
/// of two days.
const DRAIN_TURNS: usize = 1000;

/// New requests arrive during this many turns. If there were more, sealing could not keep up with samples of
/// many days.
const BUSY_TURNS: usize = 4;

/// The few sums of a run are written again within this many turns.
const CARRY_TURNS: usize = 5;

impl Driver {
    /// Turns off all faults. Then all samples must get into tables, and heads and journals must become empty.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.clock.next_step();
        self.trace("drain");
        self.power.restore();
        self.disk.set_faults(DiskFaults::default());
        self.quiet();
        self.settle_down()?;
        self.check_drained()?;
        self.end_delete()?;
        self.keep();
        self.compact();
        self.check_now()?;
        self.check_deleted()?;
        self.trace("killed");
        self.restart(false)?;
        self.check_now()?;
        if self.plan.wrong_clocks { self.check_expiry() } else { Ok(()) }
    }

    fn settle_down(&mut self) -> Result<(), String> {
        for _ in 0..DRAIN_TURNS {
            self.turn_all()?;
            if self.traffic.borrow().is_quiet() && self.are_deltas_answered() {
                break;
            }
        }
        self.flush();
        for turn in 0..DRAIN_TURNS {
            if turn == BUSY_TURNS {
                self.is_draining.set(true);
            }
            self.clock.next_step();
            self.clock.advance(1000);
            self.deliver();
            self.seal()?;
            if self.flushes.is_empty() && self.traffic.borrow().is_quiet() {
                if !std::mem::take(&mut self.is_blocked) {
                    return Ok(());
                }
                // the flush did not wait for a tenant that needs hundreds of passes
                self.flush();
            }
            self.turn_all()?;
        }
        Err(format!("a flush has not ended after {DRAIN_TURNS} turns without faults"))
    }

    fn check_drained(&mut self) -> Result<(), String> {
        // requests that were answered at the end of the last flush may have left samples in the heads
        self.is_draining.set(true);
        self.settle_down()?;
        self.check_now()?;
        for (number, id) in self.fleet.tenants.iter().enumerate() {
            let samples = self.node().head_samples(id);
            if samples > 0 {
                return Err(format!("after a flush, heads still hold {samples} samples of tenant {number}"));
            }
        }
        // sums of deltas are written again before the journal is truncated
        for _ in 0..CARRY_TURNS {
            self.clock.advance(1000);
            self.turn_all()?;
        }
        for progress in self.node().progress() {
            if progress.segments > 1 {
                return Err(format!("the journal is not truncated after a flush: {progress:?}"));
            }
        }
        Ok(())
    }

    fn are_deltas_answered(&self) -> bool {
        self.deltas.as_ref().is_none_or(|deltas| deltas.borrow().is_answered())
    }

    /// While one tenant's table cannot be written, checks that all samples of the other tenants get into
    /// tables.
    pub(super) fn leave_one_behind(&mut self) -> Result<(), String> {
        let behind = self.below(self.plan.tenants as u64) as usize;
        self.trace(format!("the table of {behind} fails"));
        self.disk.set_faults(DiskFaults::default());
        let broken = Some(self.fleet.directory_of(behind));
        self.store.set_faults(StoreFaults { broken, ..StoreFaults::default() });
        let before = self.is_draining.replace(true);
        for _ in 0..DRAIN_TURNS {
            self.turn_all()?;
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
            return Err(format!("the table of {behind} fails, and samples of other tenants stay in heads"));
        }
        self.store.set_faults(StoreFaults::default());
        Ok(())
    }

    /// True if a request is not answered yet, or if samples of tenants other than `behind` are not in tables.
    fn others_wait(&self, behind: usize) -> bool {
        let others = self.fleet.tenants.iter().enumerate().filter(|(tenant, _)| *tenant != behind);
        !self.traffic.borrow().is_answered()
            || others.map(|(_, id)| self.node().head_samples(id)).any(|samples| samples > 0)
    }
}
