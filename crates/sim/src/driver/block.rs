//! If one tenant's table cannot be written for a long time, the journal must not keep all samples of the
//! others.

use super::Driver;
use crate::disk::DiskFaults;
use crate::store::StoreFaults;

/// The tenant's table cannot be written for this many rounds.
const ROUNDS: usize = 14;

/// The other tenants send this many requests in each round.
const REQUESTS: usize = 12;

/// A journal may have this many bytes besides the samples that are in no table yet. That is enough for two
/// segments, a dictionary, and the requests of some rounds.
const FREE_BYTES: u64 = 16 << 10;

/// For each byte of samples that are in no table, the journal may have this many bytes, because it may hold a
/// sample several times, together with the definition of its series.
const LIVE_FACTOR: u64 = 4;
const SAMPLE_BYTES: u64 = 64;

impl Driver {
    /// The store fails for one tenant for many rounds. The process may die meanwhile.
    pub(super) fn block_one(&mut self) -> Result<(), String> {
        let blocked = self.below(self.plan.tenants as u64) as usize;
        self.trace(format!("the table of {blocked} fails for long"));
        self.block(blocked)?;
        self.store.set_faults(StoreFaults::default());
        // the tenant's table works again, but the process may die soon after
        for _ in 0..1 + self.below(4) {
            self.clock.next_step();
            self.clock.advance(60_000);
            self.seal()?;
        }
        if self.power.is_off() || self.chance(0.5) {
            self.trace("killed");
            self.restart(false)?;
        }
        Ok(())
    }

    fn block(&mut self, blocked: usize) -> Result<(), String> {
        let broken = Some(self.fleet.directory_of(blocked));
        let mut has_died = false;
        for _ in 0..ROUNDS {
            self.store.set_faults(StoreFaults { broken: broken.clone(), ..StoreFaults::default() });
            self.traffic.borrow_mut().reserved = Some(blocked);
            for _ in 0..REQUESTS {
                self.write();
                self.turn_all()?;
            }
            self.traffic.borrow_mut().reserved = None;
            if self.chance(0.1) {
                self.crash()?;
            }
            self.flush();
            self.clock.next_step();
            self.clock.advance(1000);
            for _ in 0..3 {
                self.seal()?;
                self.turn_all()?;
            }
            has_died = self.restart_after_power_loss()?;
        }
        if has_died { Ok(()) } else { self.check_journal(blocked) }
    }

    /// Checks that the journal is not much longer than the samples that are in no table yet. If the disk has
    /// faults, nothing is checked.
    fn check_journal(&self, blocked: usize) -> Result<(), String> {
        if self.disk.faults() != DiskFaults::default() {
            return Ok(());
        }
        let live = self.node().head_samples(&self.fleet.tenants[blocked]) * SAMPLE_BYTES;
        let most = LIVE_FACTOR * live + FREE_BYTES;
        for progress in self.node().progress() {
            self.note(format!("{} bytes of journal, {live} live", progress.bytes));
            if progress.bytes > most {
                return Err(format!(
                    "a tenant that cannot be sealed keeps more than {most} bytes of the journal: {progress:?}"
                ));
            }
        }
        Ok(())
    }
}
