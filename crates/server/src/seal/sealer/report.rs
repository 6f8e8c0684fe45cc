//! Publishes what happens during sealing to the log, to metrics, and to admission.

use super::Sealer;
use crate::partition::Owners;
use crate::seal::flushed::Flushed;
use crate::seal::state_machine::backoff;
use crate::seal::state_machine::io::{Command, Report};
use admission::Head;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const NAMED_MAX: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    staging: Duration,
    committing: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Stage,
    Commit,
}

impl Stopwatch {
    pub(super) fn begin(&self, command: &Command) -> Option<(Part, Instant)> {
        let part = match command {
            Command::Freeze { .. } | Command::Stage { .. } => Part::Stage,
            Command::Check { .. } | Command::Rename(_) | Command::WriteMarks(_) | Command::Commit { .. } => {
                Part::Commit
            }
            _ => return None,
        };
        Some((part, Instant::now()))
    }

    pub(super) fn end(&mut self, began: Option<(Part, Instant)>) {
        match began {
            Some((Part::Stage, began)) => self.staging += began.elapsed(),
            Some((Part::Commit, began)) => self.committing += began.elapsed(),
            None => {}
        }
    }
}

impl<O: Owners> Sealer<O> {
    /// Publishes a report. The log gets a message only when something changes, not at each retry.
    pub(super) fn report(&mut self, report: Report) {
        let lake = &self.context.lake;
        let metrics = &lake.sealing;
        match report {
            Report::Failed { error, failures } => {
                metrics.failures.inc();
                if failures == 1 {
                    tracing::warn!(%error, "sealing failed and will be retried; data stays in the journal");
                } else {
                    tracing::debug!(%error, failures, "sealing still fails");
                }
            }
            Report::Committed => {
                let Stopwatch { staging, committing } = std::mem::take(&mut self.stopwatch);
                if !staging.is_zero() {
                    metrics.stage_seconds.observe(staging.as_secs_f64());
                }
                metrics.commit_seconds.observe(committing.as_secs_f64());
            }
            Report::Began { least_bytes } => {
                let context = &self.context;
                let (settings, now) = (context.overrides.current(), context.clock.instant());
                let is_any_above = context.heads.is_any_above_share(&context.tenants, &settings, now);
                lake.progress.left(Head { used_bytes: least_bytes, ..context.heads.head() }, is_any_above);
            }
            Report::Ended { flushed, duration, has_failed } => {
                metrics.rounds.inc();
                let heads = &self.context.heads;
                if !has_failed {
                    lake.progress.ended(duration, heads.head(), heads.late_bytes());
                }
                let seconds = duration.as_secs_f64();
                metrics.round_seconds.observe(seconds);
                let Flushed { tables, commits, files, rows, samples, bytes, .. } = flushed;
                if has_failed {
                    tracing::warn!(samples, "sealing succeeds again");
                }
                tracing::info!(samples, rows, files, bytes, tables, commits, seconds, "sealed");
            }
            Report::OthersAreSealed(are_sealed) => lake.blocked.set_others_are_sealed(are_sealed),
            Report::Blocked { tenant, since_ms, error, number, count } => {
                let is_failed = error.is_some();
                metrics.failures.add(u64::from(is_failed));
                match error {
                    Some(error) if number < NAMED_MAX => {
                        tracing::warn!(%tenant, %error, "a tenant cannot be sealed: its samples stay in memory and in the journal until a retry succeeds");
                    }
                    None if number < NAMED_MAX => {
                        tracing::info!(%tenant, "a tenant's samples span too many days for one commit; they will be sealed in several commits");
                    }
                    _ if number == NAMED_MAX => {
                        tracing::warn!(count, "more tenants are blocked; /metrics names them");
                    }
                    _ => {}
                }
                lake.blocked.add(&tenant, since_ms);
                if is_failed {
                    lake.blocked.retries_at(&tenant, self.context.clock.instant() + backoff(1));
                }
            }
            Report::StillBlocked { tenant, error, failures } => {
                metrics.failures.inc();
                lake.blocked.retries_at(&tenant, self.context.clock.instant() + backoff(failures));
                tracing::debug!(%tenant, %error, failures, "a tenant still cannot be sealed");
            }
            Report::Unblocked { tenant, samples, blocked_ms } => {
                lake.blocked.remove(&tenant);
                let seconds = blocked_ms / 1000;
                tracing::warn!(%tenant, samples, seconds, "a tenant can be sealed again");
            }
            Report::Relocated { partition, tenants } => {
                metrics.relocations.inc();
                let bytes = self.context.partitions[partition].journal_bytes.load(Ordering::Relaxed);
                tracing::info!(
                    partition,
                    tenants,
                    bytes,
                    "relocated samples of blocked tenants and truncated the journal"
                );
            }
            Report::RelocationFailed { partition, error } => {
                tracing::warn!(partition, %error, "cannot save a relocation; the journal is not truncated");
            }
        }
    }
}
