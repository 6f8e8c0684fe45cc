//! Tenants that were set aside, since their tables fail or they have passes left: each has a round of its own, which goes
//! on until it succeeds.

use super::super::round::{Aside, PINS_WAIT, Round};
use super::{SealError, Sealer, Stopping, backoff};
use crate::partition::Owners;
use crate::seal::flush::{Flushed, Waiter};
use std::time::{Duration, Instant};

/// How long a flush waits for tenants that cannot be sealed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tenants that the log names when many are set aside at once.
const NAMED_MAX: usize = 10;

/// A tenant that was set aside.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) round: Round,
    /// By the wall clock.
    since_ms: i64,
    failures: u32,
    pub(super) retry_at: Instant,
}

impl<O: Owners> Sealer<O> {
    pub(super) fn set_aside(&mut self, aside: Vec<Aside>) {
        let count = aside.len();
        let (since_ms, now) = (self.node.clock.now_ms(), self.node.clock.instant());
        for (n, Aside { tenant, error, round }) in aside.into_iter().enumerate() {
            let failures = u32::from(error.is_some());
            self.node.lake.metrics.failures.add(failures.into());
            match error {
                Some(error) if n < NAMED_MAX => {
                    tracing::warn!(%tenant, %error, "a tenant cannot be sealed: its samples stay in memory and in the journal until a retry succeeds");
                }
                None if n < NAMED_MAX => {
                    tracing::info!(%tenant, "a tenant's samples span more days than one commit takes: sealing it in several passes");
                }
                _ if n == NAMED_MAX => tracing::warn!(count, "more tenants are behind; /metrics names them"),
                _ => {}
            }
            self.node.lake.laggards.add(&tenant, since_ms);
            let retry_at = if failures == 0 { now } else { now + backoff(failures) };
            self.behind.insert(tenant, Behind { round, since_ms, failures, retry_at });
        }
    }

    /// Tries the tenant again that has waited longest since its time came.
    pub(super) fn retry_one(&mut self) -> Result<(), Stopping> {
        let now = self.node.clock.instant();
        let due = self.behind.iter().filter(|(_, behind)| behind.retry_at <= now);
        let Some((tenant, _)) = due.min_by_key(|(_, behind)| behind.retry_at) else { return Ok(()) };
        let tenant = tenant.clone();
        let mut behind = self.behind.remove(&tenant).expect("BUG: it is there");
        match self.advance_round(&mut behind.round, &mut Vec::new()) {
            Ok(true) => {
                self.node.lake.laggards.remove(&tenant);
                self.caught_up = true;
                for waiter in &mut self.held {
                    waiter.flushed = Flushed::sum([waiter.flushed, behind.round.flushed].iter());
                }
                let seconds = self.node.clock.now_ms().saturating_sub(behind.since_ms) / 1000;
                tracing::warn!(%tenant, samples = behind.round.flushed.samples, seconds, "a tenant can be sealed again");
                return Ok(());
            }
            // it waits for queries, or has another pass left
            Ok(false) => behind.retry_at = if behind.round.noted { now + PINS_WAIT } else { now },
            Err(error) => {
                self.node.lake.metrics.failures.inc();
                tracing::debug!(%tenant, %error, failures = behind.failures, "a tenant still cannot be sealed");
                behind.failures += 1;
                behind.retry_at = self.node.clock.instant() + backoff(behind.failures);
                if matches!(error, SealError::Stopping) {
                    self.behind.insert(tenant, behind);
                    return Err(Stopping);
                }
            }
        }
        self.behind.insert(tenant, behind);
        Ok(())
    }

    /// Who waits for tenants that were set aside gets a round of all when they are back, and an answer when that takes too
    /// long.
    pub(super) fn answer_held(&mut self) {
        if self.behind.is_empty() {
            self.waiting.append(&mut self.held);
            return;
        }
        let (now, behind) = (self.node.clock.instant(), self.behind.len() as u64);
        let is_patient = |waiter: &Waiter| now.saturating_duration_since(waiter.asked) < PATIENCE;
        let (patient, others) = std::mem::take(&mut self.held).into_iter().partition(is_patient);
        self.held = patient;
        for waiter in others {
            let _ = waiter.answer.send(Flushed { behind, ..waiter.flushed }); // who asked may be gone
        }
    }
}
