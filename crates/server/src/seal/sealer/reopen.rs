//! Tenants that replay had to close: their tables are asked again, and what they lack comes out of the journal.

use super::{Sealer, backoff};
use crate::partition::{Late, LateTurn, Owners};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the sealer is in opening them.
#[derive(Debug)]
pub(super) struct Reopening {
    /// Under way.
    late: Option<Late>,
    failures: u32,
    retry_at: Instant,
}

impl Reopening {
    pub(super) const fn new(now: Instant) -> Self {
        Self { late: None, failures: 0, retry_at: now }
    }
}

impl<O: Owners> Sealer<O> {
    /// Reads on for tenants whose tables have answered, or else asks those of the others when it is time; says how long to
    /// wait where there are any left.
    pub(super) fn reopen_some(&mut self) -> Option<Duration> {
        if self.node.lake.closed.is_empty() || !self.node.is_ready() {
            return None;
        }
        let now = self.node.clock.instant();
        if self.reopening.late.is_none() && now >= self.reopening.retry_at {
            self.ask_tables(now);
        }
        match self.reopening.late.take() {
            Some(late) => self.go_on(late),
            None => Some(self.reopening.retry_at.saturating_duration_since(now)),
        }
    }

    fn go_on(&mut self, mut late: Late) -> Option<Duration> {
        self.courtesy.let_pass(&self.node);
        let lake = &self.node.lake;
        match late.turn(&self.node, &mut self.owners) {
            Ok(LateTurn::More) => {
                self.reopening.late = Some(late);
                Some(Duration::ZERO)
            }
            Ok(LateTurn::NoRoom) => {
                for tenant in late.tenants.keys() {
                    let why = "the heads have no room for them; their limit grows with --memory";
                    lake.closed.explain(tenant, why.into());
                }
                Some(self.wait_longer())
            }
            Ok(LateTurn::Done) => {
                for (tenant, floodmark) in &late.tenants {
                    if lake.reopen(late.number, late.end.0, tenant, floodmark) {
                        lake.laggards.remove(tenant);
                        tracing::warn!(%tenant, "a tenant's table can be read again: the tenant is open");
                    }
                }
                let (partition, samples) = (late.number, late.samples);
                tracing::info!(partition, samples, "replayed the journal for tenants that were closed");
                self.caught_up = true;
                self.reopening.failures = 0;
                Some(Duration::ZERO)
            }
            Err(error) => {
                tracing::warn!(partition = late.number, %error, "cannot replay what closed tenants have in the journal; it is tried again");
                for tenant in late.tenants.keys() {
                    lake.closed.explain(tenant, error.to_string());
                }
                Some(self.wait_longer())
            }
        }
    }

    fn wait_longer(&mut self) -> Duration {
        self.reopening.failures += 1;
        let wait = backoff(self.reopening.failures);
        self.reopening.retry_at = self.node.clock.instant() + wait;
        wait
    }

    /// Asks closed tenants' tables, until some of a partition have answered.
    fn ask_tables(&mut self, now: Instant) {
        let node = Arc::clone(&self.node);
        for number in 0..node.partitions().len() {
            let mark = node.lake.mark(number);
            let mut answered = BTreeMap::new();
            for tenant in node.lake.closed.of(number) {
                if self.is_stopping() {
                    return;
                }
                let (source, upto, _) = mark.look(&tenant);
                match node.lake.settled_floodmark(&tenant, source) {
                    Ok(floodmark) => {
                        let mut floodmark = floodmark.unwrap_or_default();
                        if floodmark.upto < upto {
                            floodmark.upto = upto;
                        }
                        answered.insert(tenant, Arc::new(floodmark));
                    }
                    Err(error) => {
                        tracing::debug!(%tenant, %error, "a closed tenant's table still cannot be read");
                        node.lake.closed.explain(&tenant, format!("its table cannot be read: {error}"));
                    }
                }
            }
            if answered.is_empty() {
                continue;
            }
            match Late::begin(number, answered, &node.lake.flush, &mut self.owners) {
                Ok(late) => {
                    (self.reopening.late, self.reopening.retry_at) = (Some(late), now);
                    return;
                }
                Err(error) => tracing::debug!(number, %error, "cannot read the journal for closed tenants"),
            }
        }
        self.wait_longer();
    }
}
