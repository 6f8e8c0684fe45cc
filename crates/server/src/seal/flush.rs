//! A flush: everything that was accepted before is to be in tables. Who asks for one, and what it comes to.

use super::sealer::Order;
use super::telemetry::LakeMetrics;
use crate::refusal::Refusal;
use std::time::{Duration, Instant};
use tables::StagedBlock;
use tokio::sync::oneshot;

/// What a flush, or a round, came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) tables: u64,
    pub(crate) commits: u64,
    pub(crate) files: u64,
    pub(crate) rows: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// Tenants that could not be sealed.
    pub(crate) behind: u64,
}

impl Flushed {
    pub(super) fn add(&mut self, block: &StagedBlock) {
        for file in &block.files {
            self.files += 1;
            self.rows += file.summary.rows;
            self.samples += file.summary.samples;
            self.bytes += file.summary.bytes;
        }
    }

    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            tables: a.tables + b.tables,
            commits: a.commits + b.commits,
            files: a.files + b.files,
            rows: a.rows + b.rows,
            samples: a.samples + b.samples,
            bytes: a.bytes + b.bytes,
            behind: 0,
        })
    }

    pub(super) fn count(&self, metrics: &LakeMetrics) {
        metrics.commits.add(self.commits);
        metrics.files.add(self.files);
        metrics.rows.add(self.rows);
        metrics.samples.add(self.samples);
        metrics.bytes.add(self.bytes);
    }
}

/// Somebody who waits for a flush.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Flushed>,
    pub(super) asked: Instant,
    /// What the rounds since then came to.
    pub(super) flushed: Flushed,
}

/// Rounds that may begin without a pause between them: a script that flushes now and then is not slowed down.
const BURST: u32 = 10;

/// A token bucket of the rounds that were asked for: each is a commit of small files in every table.
#[derive(Debug)]
pub(super) struct FlushPace {
    /// A token comes once in so much time.
    interval: Duration,
    /// When the bucket will be full; it is where this is past.
    full_at: Option<Instant>,
}

impl FlushPace {
    /// A full bucket.
    pub(super) const fn new(interval: Duration) -> Self {
        Self { interval, full_at: None }
    }

    /// How long until the next round may begin.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        owed.saturating_sub(self.interval.saturating_mul(BURST - 1))
    }

    /// A round begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + self.interval);
    }
}

/// Asks for a flush and waits for it.
pub(crate) async fn flush(node: &crate::Node) -> Result<Flushed, Refusal> {
    let (answer, flushed) = oneshot::channel();
    node.orders().try_send(Order::Flush(answer)).map_err(|_| {
        Refusal::busy("flushing", "too many flushes wait already, or the server is shutting down")
    })?;
    let flushed: Flushed = flushed.await.map_err(|_| Refusal::stopping())?;
    match flushed.behind {
        0 => Ok(flushed),
        behind => {
            let named = node.shared().lake.laggards.all();
            let first = named.first().map_or(String::new(), |(tenant, _)| format!(", {tenant} first"));
            let message = format!(
                "{behind} tenants are not sealed yet{first}: their tables cannot be written, or their samples span many \
                 days; the log names them, and sealing is retried"
            );
            Err(Refusal::busy("tables", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_in_a_burst_and_then_at_intervals() {
        let (began, interval) = (Instant::now(), Duration::from_secs(2));
        let mut pace = FlushPace::new(interval);
        for _ in 0..BURST {
            assert_eq!(pace.wait(began), Duration::ZERO);
            pace.begin(began);
        }
        assert_eq!(pace.wait(began), interval);
        assert_eq!(pace.wait(began + interval / 2), interval / 2);
        pace.begin(began + interval);
        assert_eq!(pace.wait(began + interval), interval);
        // a round that is due anyway takes those who wait along, and what it owes is bounded by the time it took
        let later = began + interval * 100;
        (0..BURST).for_each(|_| pace.begin(later));
        assert_eq!(pace.wait(later), interval, "no more than a burst is saved up");
    }
}
