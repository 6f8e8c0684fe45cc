//! Watches what a target stores at times of its own ([`Flushed`]), while the load goes on.
//!
//! ```text
//!   each half second: queries for the values since the last query ─▶ which round was it? ─▶ ledger
//! ```

use crate::drive::addresses::Addresses;
use crate::drive::send::generated::Run;
use crate::drive::tenants::Tenant;
use crate::scenario::Scenario;
use crate::verify::flushed::{Flushed, Reader, Sent, Value, value_of};
use anyhow::Result;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stdx::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

const PAUSE: Duration = Duration::from_millis(500);

/// The usual promise: a value that a query returns is durable this long after the end of its interval.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// How much the clocks of target and generator may differ, and how long a datagram may be on its way.
const TOLERANCE_MS: i64 = 2_000;

/// Number of the latest rounds of a slot whose times are known.
const ROUNDS_KEPT: usize = 64;

/// Number of still earlier rounds that are searched for a value.
const ROUNDS_SEARCHED: usize = 10_000;

/// When the latest rounds of each slot were sent, in ms since 1970.
#[derive(Debug)]
pub(crate) struct SentTimes(Vec<Mutex<VecDeque<(u32, i64)>>>);

impl SentTimes {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn note(&self, slot: usize, round: u32, at_ms: i64) {
        let mut times = self.of(slot);
        // a request that is repeated was perhaps received the first time
        if times.back().is_none_or(|(last, _)| *last < round) {
            times.push_back((round, at_ms));
            if times.len() > ROUNDS_KEPT {
                times.pop_front();
            }
        }
    }

    fn of(&self, slot: usize) -> std::sync::MutexGuard<'_, VecDeque<(u32, i64)>> {
        self.0[slot].lock().expect("BUG: a sender panicked while it noted the time")
    }
}

/// What the values of a target without answers are checked with.
pub(crate) struct Watch(Vec<Arc<Watched>>);

struct Watched {
    run: Arc<Run>,
    reader: tokio::sync::Mutex<Reader>,
    commit_ms: i64,
    noted: Mutex<Noted>,
}

struct Noted {
    flushed: Flushed,
    /// Values up to this time were noted.
    until_ms: i64,
}

impl Watch {
    /// Begins to watch the values of all tenants.
    pub(crate) fn start(
        scenario: &Scenario,
        runs: &[Arc<Run>],
        tenants: &[Tenant],
        addresses: &Addresses,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self> {
        let commit = scenario.target.commit_interval.map_or(COMMIT_INTERVAL, |interval| interval.0);
        let mut all = Vec::new();
        for (run, tenant) in runs.iter().zip(tenants) {
            let (client, path) = addresses.reader(tenant)?;
            let reader = Reader::new(client, &path, &run.plan, scenario.verify.page.whole().max(1));
            let noted = Noted { flushed: Flushed::new(&run.plan), until_ms: SystemClock.now_ms() };
            let watched = Arc::new(Watched {
                run: Arc::clone(run),
                reader: tokio::sync::Mutex::new(reader),
                commit_ms: commit.as_millis() as i64,
                noted: Mutex::new(noted),
            });
            all.push(Arc::clone(&watched));
            tasks.spawn(async move {
                loop {
                    tokio::time::sleep(PAUSE).await;
                    // a target that does not answer may be restarting
                    watched.look().await.ok();
                }
            });
        }
        Ok(Self(all))
    }

    /// Looks for the last time, once what was stored meanwhile is durable, and returns what each tenant's target owes. The
    /// tasks must have ended.
    pub(crate) async fn finish(self) -> Vec<Flushed> {
        let commit_ms = self.0.iter().map(|watched| watched.commit_ms).max().unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(commit_ms as u64)).await;
        let mut all = Vec::new();
        for watched in self.0 {
            watched.look().await.ok();
            all.push(std::mem::take(&mut watched.lock().flushed));
        }
        all
    }
}

impl Watched {
    /// Notes the values that are new, and old enough to be durable.
    async fn look(&self) -> Result<()> {
        let from_ms = self.lock().until_ms + 1;
        let to_ms = SystemClock.now_ms() - self.commit_ms;
        if to_ms < from_ms {
            return Ok(());
        }
        let plan = &self.run.plan;
        let (values, _) = self.reader.lock().await.all(plan, from_ms, to_ms).await?;
        let mut noted = self.lock();
        noted.flushed.note(plan, &values, |value| self.sent(value));
        // a target that begins to store an interval may need some time until it has stored all of it
        noted.until_ms = values.iter().map(|value| value.at_ms).max().unwrap_or(noted.until_ms);
        Ok(())
    }

    /// Finds the round that has this value, from the latest on that can have been received at its time.
    fn sent(&self, Value { slot, index, at_ms, value }: Value) -> Sent {
        let (plan, Some(times)) = (&self.run.plan, &self.run.sent_times) else { return Sent::Never };
        let has = |round| value_of(plan, slot, index, round).to_bits() == value.to_bits();
        let times = times.of(slot);
        let mut is_stale = false;
        for (round, sent_ms) in times.iter().rev() {
            if *sent_ms <= at_ms + TOLERANCE_MS && has(*round) {
                return if is_stale { Sent::Stale(*round) } else { Sent::Round(*round) };
            }
            is_stale |= *sent_ms < at_ms - TOLERANCE_MS;
        }
        let oldest = times.front().map_or(0, |(round, _)| *round);
        let mut earlier = (0..oldest).rev().take(ROUNDS_SEARCHED);
        earlier.find(|round| has(*round)).map_or(Sent::Never, Sent::Stale)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().expect("BUG: a watcher panicked while it noted values")
    }
}
