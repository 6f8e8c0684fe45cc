use super::{BEGIN_MS, Driver};
use crate::check;
use crate::importer::{CommitOutcome, DAYS_BACK, Import};
use stdx::clock::Clock;
use tables::DAY_MS;

/// Once a node has found that a table does not exist, it may rely on that for a while
/// (`server::seal::tenant_tables`). After this time, it looks again.
const ABSENT_MS: u64 = 2_001;

/// How long the importer pauses before it looks after its lease again.
const PAUSE_MS: u64 = 50_000;
/// The node sweeps once in this many pauses.
const PAUSES_PER_KEEP: u64 = 25;
const PAUSES_MAX: u64 = 120;

/// If the result of a commit is unknown, it is repeated at most this many times while the store works.
const UNCLEAR_MAX: usize = 3;

impl Driver {
    /// In each step, the importer stages a file, waits for minutes or hours, or commits what it has staged.
    pub(super) fn import(&mut self) -> Result<(), String> {
        let Some(import) = self.import.take() else {
            self.stage_import();
            return Ok(());
        };
        match self.below(4) {
            0 => {
                self.trace("the importer renews its lease");
                self.import = Some(import);
                self.wait_with_import();
                Ok(())
            }
            1 => {
                self.trace("the importer does nothing");
                self.import = Some(import);
                Ok(())
            }
            _ => self.commit_import(import),
        }
    }

    fn stage_import(&mut self) {
        self.trace("stage an import");
        let tenant = self.below(self.plan.tenants as u64) as usize;
        let (steady_ms, node) = (self.clock.steady_ms(), self.node().clone());
        let importer = self.importer.as_mut().expect("BUG: there is no importer");
        let mut traffic = self.traffic.borrow_mut();
        let request = traffic.next_request();
        let key = |labels: model::LabelsRef<'_>| node.series_key(labels);
        match importer.stage(&self.fleet, tenant, request, &mut traffic.rng, steady_ms, key) {
            Ok(import) => {
                traffic.trace.note(format!("{} samples of {tenant}", import.share.samples.len()));
                self.import = Some(import);
            }
            Err(error) => traffic.trace.note(error),
        }
    }

    /// The importer waits and renews its lease, while the node sweeps. It may wait for longer than the grace
    /// period after which a sweep deletes files that have no lease.
    fn wait_with_import(&mut self) {
        for pause in 1..self.below(PAUSES_MAX) {
            if self.power.is_off() {
                return;
            }
            self.clock.next_step();
            self.clock.advance(PAUSE_MS);
            let steady_ms = self.clock.steady_ms();
            if let Some(import) = &mut self.import {
                let _ = import.keep(steady_ms); // if this fails, a sweep may break the lease
            }
            if pause.is_multiple_of(PAUSES_PER_KEEP) {
                self.node_mut().keep();
            }
        }
    }

    fn commit_import(&mut self, import: Import) -> Result<(), String> {
        self.trace("commit the import");
        let is_kept = import.is_kept(self.clock.steady_ms());
        self.traffic.borrow_mut().model.send(&import.share);
        let mut ended = import.commit(self.clock.now_ms());
        for _ in 0..UNCLEAR_MAX {
            let CommitOutcome::Unclear(error) = &ended else { break };
            self.note(error);
            if self.power.is_off() {
                break;
            }
            // the model must know the result before the next check
            self.clock.next_step();
            let faults = self.quiet();
            ended = import.commit(self.clock.now_ms());
            self.store.set_faults(faults);
        }
        // the node may not know yet that the table exists
        self.clock.advance(ABSENT_MS);
        let mut traffic = self.traffic.borrow_mut();
        match ended {
            CommitOutcome::Committed => {
                traffic.model.acknowledge(&import.share);
                traffic.trace.note("committed");
                drop(traffic);
                self.see_import(&import)?;
                import.end();
            }
            CommitOutcome::Lapsed if is_kept => {
                return Err("an import lapsed although it kept its lease".into());
            }
            CommitOutcome::Lapsed => {
                traffic.model.withdraw(&import.share);
                traffic.trace.note("lapsed");
            }
            CommitOutcome::Unclear(_) if self.power.is_off() => traffic.model.leave_open(import.share),
            CommitOutcome::Unclear(error) => return Err(format!("cannot commit an import: {error}")),
        }
        Ok(())
    }

    /// Lets the node look for new files in the table, so that queries return the imported samples.
    fn see_import(&self, import: &Import) -> Result<(), String> {
        let faults = self.quiet();
        let tenant = &self.fleet.tenants[import.tenant()];
        let seen = self.node().table(tenant).and_then(|table| table.map_or(Ok(0), |table| table.refresh()));
        self.store.set_faults(faults);
        match seen {
            Err(error) if !self.power.is_off() => {
                Err(format!("cannot read the result of an import: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the rollups of imported days include all samples, if they are complete. Until a delete is
    /// answered, nobody knows which samples they must include.
    pub(super) fn check_rollups(&self) -> Result<(), String> {
        let model = &self.traffic.borrow().model;
        if !self.plan.rolls_up || model.is_delete_open() {
            return Ok(());
        }
        let imported_ms = (BEGIN_MS / DAY_MS - DAYS_BACK) * DAY_MS;
        check::rollups(self.node(), &self.fleet, model, imported_ms)
    }
}
