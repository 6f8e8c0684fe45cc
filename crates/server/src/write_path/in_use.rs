//! Histograms that are in use: their sums were changed by a request that is not stored yet.
//!
//! A late increment changes samples at later times. If two requests of a histogram were stored side by side, an older value could win.
//! So a request waits for those before it that have histograms in common.

use crate::partition::sums::shared::Stamp;
use admission::WriteRefusal;
use model::{SeriesKey, TenantId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use stdx::budget::Reservation;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Memory of a histogram in use. A table grows to twice what it needs, and then holds the smaller one, too.
pub(super) const IN_USE_BYTES: usize = 4 * size_of::<(Place, Arc<Lock<()>>)>() + size_of::<One>() + 128;

/// Limit on the requests that wait for one histogram. A sender has one request at a time, so more than this come from many
/// senders: they are refused, and repeat their requests later.
const WAITING_MAX: usize = 8;

/// The table keeps room for this many histograms.
const KEPT: usize = 1024;

type Place = (TenantId, SeriesKey);

/// All histograms in use. Each is there because of a request, whose memory is limited.
#[derive(Debug, Default)]
pub(crate) struct HistogramsInUse(Mutex<HashMap<Place, Arc<Lock<()>>>>);

/// The histograms that a request uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    _held: Vec<One>,
    /// When the increments were divided among the partitions.
    pub(crate) stamp: Stamp,
    /// Memory of the increments that were added to them.
    _memory: Reservation,
}

#[derive(Debug)]
struct One {
    all: Arc<HistogramsInUse>,
    place: Place,
    lock: Arc<Lock<()>>,
    /// `None` while it waits for another request.
    guard: Option<OwnedMutexGuard<()>>,
}

#[cfg(test)]
impl InUse {
    pub(crate) fn for_test(stamp: Stamp) -> Self {
        let memory = stdx::budget::Account::new("test", 1).reserve(0).expect("BUG: nothing is reserved");
        Self { _held: Vec::new(), stamp, _memory: memory }
    }
}

impl HistogramsInUse {
    /// Like [`Self::enter`], but does not wait. If another request uses one of the histograms, returns the keys in the order in which they
    /// must be entered.
    pub(super) fn try_enter(
        self: &Arc<Self>,
        tenant: &TenantId,
        mut keys: Vec<SeriesKey>,
        memory: Reservation,
    ) -> Result<InUse, (Vec<SeriesKey>, Reservation)> {
        keys.sort_unstable();
        keys.dedup();
        let mut held = Vec::with_capacity(keys.len());
        for key in &keys {
            let mut one = self.place(tenant, *key);
            match Arc::clone(&one.lock).try_lock_owned() {
                Ok(guard) => one.guard = Some(guard),
                Err(_) => return Err((keys, memory)),
            }
            held.push(one);
        }
        Ok(InUse { _held: held, stamp: Stamp::default(), _memory: memory })
    }

    fn place(self: &Arc<Self>, tenant: &TenantId, key: SeriesKey) -> One {
        let place = (tenant.clone(), key);
        let lock = Arc::clone(self.0.lock().entry(place.clone()).or_default());
        One { all: Arc::clone(self), place, lock, guard: None }
    }

    /// Waits until no other request uses these histograms. `memory` is reserved for them. Fails if too many wait for one of them.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: &TenantId,
        mut keys: Vec<SeriesKey>,
        memory: Reservation,
    ) -> Result<InUse, WriteRefusal> {
        // in the same order for all requests, so that no two wait for each other
        keys.sort_unstable();
        keys.dedup();
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            let mut one = self.place(tenant, key);
            // each that waits or has it holds two, and the table and this request hold one
            if Arc::strong_count(&one.lock) >= 2 * (WAITING_MAX + 1) + 2 {
                return Err(WriteRefusal::EarlierRequests { tenant: tenant.clone() });
            }
            one.guard = Some(Arc::clone(&one.lock).lock_owned().await);
            held.push(one);
        }
        Ok(InUse { _held: held, stamp: Stamp::default(), _memory: memory })
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.guard = None;
        let mut all = self.all.0.lock();
        // besides this one, only the table has it
        if Arc::strong_count(&self.lock) == 2 {
            all.remove(&self.place);
            // a hash table never shrinks by itself
            if all.capacity() > 4 * all.len() + KEPT {
                let most = 2 * all.len() + KEPT / 2;
                all.shrink_to(most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use stdx::budget::Account;
    use stdx::rng::Rng;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_two_requests_use_a_histogram() {
        const HISTOGRAMS: usize = 5;
        let all = Arc::new(HistogramsInUse::default());
        let users: Arc<[AtomicUsize; HISTOGRAMS]> = Arc::default();
        let mut seeds = Rng::announced();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (all, users, mut rng) =
                    (Arc::clone(&all), Arc::clone(&users), Rng::new(seeds.next_u64()));
                tokio::spawn(async move {
                    for _ in 0..200 {
                        let keys: Vec<_> =
                            (0..1 + rng.below(3)).map(|_| rng.below(HISTOGRAMS as u64) as usize).collect();
                        let places = keys.iter().map(|key| SeriesKey(*key as u128)).collect();
                        let tenant = TenantId::anonymous();
                        let memory = Account::new("test", 1).reserve(1).unwrap();
                        let entered = match rng.chance(0.5) {
                            true => all.try_enter(&tenant, places, memory),
                            false => Err((places, memory)),
                        };
                        let entering = async {
                            match entered {
                                Ok(in_use) => Ok(in_use),
                                Err((places, memory)) => all.enter(&tenant, places, memory).await,
                            }
                        };
                        // some senders go away while they wait
                        let in_use = match rng.chance(0.2) {
                            true => {
                                tokio::time::timeout(Duration::ZERO, entering).await.ok().and_then(Result::ok)
                            }
                            false => Some(entering.await.expect("fewer wait than may")),
                        };
                        let Some(_in_use) = in_use else { continue };
                        let mut keys = keys;
                        keys.sort_unstable();
                        keys.dedup();
                        keys.iter().for_each(|key| assert_eq!(users[*key].fetch_add(1, Ordering::SeqCst), 0));
                        tokio::task::yield_now().await;
                        keys.iter().for_each(|key| _ = users[*key].fetch_sub(1, Ordering::SeqCst));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(all.count(), 0);
    }
}
