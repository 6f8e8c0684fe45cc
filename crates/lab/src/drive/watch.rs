//! Watches what a target stores at times of its own ([`Flushed`]), while the load goes on.
//!
//! ```text
//!   senders ─▶ when each round was sent ────────────┐
//!   each half second: queries for what is new ─▶ which round was it? ─▶ the latest intervals ─▶ ledger
//!                     and for the latest intervals again, because they become visible piece by piece
//! ```

mod intervals;
mod sent;

use crate::drive::addresses::Addresses;
use crate::drive::send::generated::Run;
use crate::drive::tenants::Tenant;
use crate::generate::plan::Plan;
use crate::scenario::Scenario;
use crate::verify::flushed::{Flushed, Reader, Value};
use anyhow::{Context, Result};
use intervals::Intervals;
use sent::{Course, Sent};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use stdx::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

pub(crate) use sent::SentTimes;

const PAUSE: Duration = Duration::from_millis(500);

/// The usual promise: a value that a query returns is durable this long after the end of its interval.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// After the load, the lab looks at most this often, because the last interval may become visible piece by piece.
const LAST_LOOKS: u32 = 4;

/// Limit on the ledgers of all tenants together.
const LEDGER_BYTES_MAX: usize = 512 << 20;

/// Memory of an interval of a slot in the ledger, most of whose series have the same round.
const FLUSH_BYTES: f64 = 80.0;

/// Memory of a value that a query has returned, in the answer and afterwards.
const VALUE_BYTES: u64 = 400;

/// The promise of the target of a scenario.
pub(crate) fn commit_ms(scenario: &Scenario) -> i64 {
    let commit = scenario.target.commit_interval.map_or(COMMIT_INTERVAL, |interval| interval.0);
    commit.as_millis() as i64
}

/// Estimated memory for watching the values of some plans, with an interval of a second.
pub(crate) fn memory_estimate_bytes<'a>(plans: impl Iterator<Item = &'a Plan>, length_s: f64) -> u64 {
    let (mut slots, mut series) = (0, 0);
    for plan in plans {
        slots += plan.slots_count() as u64;
        series += plan.series();
    }
    let ledger = (slots as f64 * length_s * FLUSH_BYTES).min(LEDGER_BYTES_MAX as f64) as u64;
    slots * sent::SLOT_BYTES + series * VALUE_BYTES + ledger
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
    intervals: Intervals,
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
        let mut all = Vec::new();
        for (run, tenant) in runs.iter().zip(tenants) {
            let (client, path) = addresses.reader(tenant)?;
            let reader = Reader::new(client, &path, &run.plan, scenario.verify.page.whole().max(1));
            let intervals = Intervals::new(SystemClock.now_ms(), LEDGER_BYTES_MAX / tenants.len().max(1));
            let watched = Arc::new(Watched {
                run: Arc::clone(run),
                reader: tokio::sync::Mutex::new(reader),
                commit_ms: commit_ms(scenario),
                noted: Mutex::new(Noted { flushed: Flushed::new(&run.plan), intervals }),
            });
            all.push(Arc::clone(&watched));
            tasks.spawn(async move {
                loop {
                    tokio::time::sleep(PAUSE).await;
                    // a target that does not answer may be restarting, and the report says how often it did not
                    watched.look(SystemClock.now_ms() - watched.commit_ms, false).await;
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
        let to_ms = SystemClock.now_ms() - commit_ms;
        let mut all = Vec::new();
        for watched in self.0 {
            for look in 0..LAST_LOOKS {
                if look > 0 {
                    tokio::time::sleep(PAUSE).await;
                }
                if !watched.look(to_ms, true).await {
                    break;
                }
            }
            let noted = &mut *watched.lock();
            noted.intervals.finish(&watched.run.plan, to_ms, watched.courses(), &mut noted.flushed);
            all.push(std::mem::take(&mut noted.flushed));
        }
        all
    }
}

impl Watched {
    /// Notes the values up to a time that are new. With `again`, it asks for those of the latest intervals even if nothing new
    /// was found before. Returns true if something new was found now.
    async fn look(self: &Arc<Self>, to_ms: i64, again: bool) -> bool {
        let from_ms = {
            let noted = &mut *self.lock();
            noted.intervals.begin(&self.run.plan, again, self.courses(), &mut noted.flushed)
        };
        if to_ms < from_ms {
            return false;
        }
        let found = self.ask(from_ms, to_ms).await;
        let Noted { flushed, intervals } = &mut *self.lock();
        flushed.looks += 1;
        match found {
            Ok(values) => {
                intervals.note(&self.run.plan, &values);
                intervals.is_growing()
            }
            Err(why) => {
                flushed.looks_failed += 1;
                flushed.look_error = Some(format!("{why:#}"));
                false
            }
        }
    }

    async fn ask(self: &Arc<Self>, from_ms: i64, to_ms: i64) -> Result<Vec<(Value, Sent)>> {
        let values = self.reader.lock().await.all(&self.run.plan, from_ms, to_ms).await?;
        let this = Arc::clone(self);
        // this can take half a second
        let judging = tokio::task::spawn_blocking(move || this.judge(values));
        judging.await.context("the task that compares values failed")
    }

    /// Finds the rounds of new values. No sender waits for it.
    fn judge(&self, mut values: Vec<Value>) -> Vec<(Value, Sent)> {
        {
            let intervals = &self.lock().intervals;
            values.retain(|value| intervals.is_new(value));
        }
        self.run.sent_times.as_ref().map(|times| times.rounds_of(&self.run.plan, values)).unwrap_or_default()
    }

    /// When the rounds of each slot were sent so far.
    fn courses(&self) -> impl Fn(usize) -> Course + Copy {
        move |slot| self.run.sent_times.as_ref().map(|times| times.course(slot)).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().expect("BUG: a watcher panicked while it noted values")
    }
}
