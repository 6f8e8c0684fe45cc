//! What is known about each tenant in memory: its rates, and the memory it uses.

use super::replicas::{Replicas, TIDY_EVERY};
use super::tenant_usage::{Mean, MeanRates, Peak, Peaks, SampleCounts};
use crate::settings::{self, TenantSettings};
use admission::gate::MULTIPLE;
use admission::new_series::Limits;
use admission::rate::TokenBucket;
use admission::share::{self, Holding, Shares};
use admission::{Backlog, RateLimited, Shortage, Waiting, WriteRefusal};
use model::{SeriesKey, SeriesRefusal, TenantId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stdx::budget::Account;

/// What is known about one tenant, from its first accepted request until it is idle.
#[derive(Debug)]
pub(crate) struct TenantState {
    pub(crate) id: TenantId,
    /// Time of the tenant's first request. `None` if the tenant was known before, for example because it has
    /// tables.
    new_since: Option<Instant>,
    buckets: Mutex<Buckets>,
    holds: Box<[Held]>,
    series_peak: AtomicU64,
    pub(crate) peaks: Peaks,
    pub(crate) samples: SampleCounts,
    /// When the state was created, and for how many seconds requests are in the rates.
    since: Instant,
    counted_s: AtomicU64,
    /// Requests that were admitted since the rates were updated, and their bytes.
    uncounted_requests: AtomicU64,
    uncounted_bytes: AtomicU64,
    pub(crate) replicas: Mutex<Replicas>,
    /// Shortage of memory for this tenant's new series.
    pub(crate) shortage: Mutex<Shortage>,
    inflight: Account,
    unwritten: Account,
    answers: Account,
}

#[derive(Debug, Default)]
struct Held {
    series: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Buckets {
    requests: TokenBucket,
    samples: TokenBucket,
    bytes: TokenBucket,
    series: TokenBucket,
    /// Rates of samples, requests and bytes.
    rates: MeanRates<3>,
    created_rate: MeanRates<1>,
    /// New series that were admitted, but that the head does not contain yet.
    being_created: u64,
    backlog: Backlog,
}

impl TenantState {
    fn new(id: TenantId, memory: &Memory, new_since: Option<Instant>, now: Instant) -> Self {
        Self {
            id,
            new_since,
            buckets: Mutex::default(),
            holds: (0..memory.partitions).map(|_| Held::default()).collect(),
            series_peak: AtomicU64::new(0),
            peaks: Peaks::default(),
            samples: SampleCounts::default(),
            since: now,
            counted_s: AtomicU64::new(0),
            uncounted_requests: AtomicU64::new(0),
            uncounted_bytes: AtomicU64::new(0),
            replicas: Mutex::default(),
            shortage: Mutex::default(),
            inflight: memory.inflight.part(),
            unwritten: memory.unwritten.part(),
            answers: memory.answers.part(),
        }
    }

    /// Returns the account for this tenant's write requests, after updating its share and limit from `own`.
    pub(crate) fn inflight(&self, own: &TenantSettings) -> &Account {
        self.inflight.share(multiple(own), own.limits.inflight_bytes.unwrap_or(u64::MAX));
        &self.inflight
    }

    /// Returns the account for bytes that this tenant's senders have sent without waiting for answers, after updating its
    /// share from `own`. Even if no other tenant sends anything, a quarter is left to others, because the tenant's bytes
    /// may stay for long: while it is above a rate limit, nothing of it is written. Buffers do not grow into the last eighth, so
    /// an eighth alone would only be enough for small buffers.
    pub(crate) fn unwritten(&self, own: &TenantSettings) -> &Account {
        self.unwritten.share(multiple(own), self.unwritten.whole().limit_bytes() / 4 * 3);
        &self.unwritten
    }

    /// Returns the account for the parameters and answers of this tenant's queries, after updating the tenant's
    /// share from `own`.
    pub(crate) fn answers(&self, own: &TenantSettings) -> &Account {
        self.answers.share(multiple(own), u64::MAX);
        &self.answers
    }

    /// Admits or refuses a request of `bytes`. The number of its samples is not known yet;
    /// [`Self::take_samples`] counts them later.
    pub(crate) fn admit(&self, own: &TenantSettings, bytes: u64, now: Instant) -> Result<(), WriteRefusal> {
        let rates = [own.limits.samples_rate(), own.limits.bytes_rate(), own.limits.requests_rate()];
        if rates == [None; 3] {
            self.count(bytes, now);
            return Ok(());
        }
        let mut buckets = self.buckets.lock();
        let Buckets { requests, samples, bytes: bytes_bucket, .. } = &mut *buckets;
        // the number of samples is not known yet
        let all = [
            (RateLimited::Samples, samples, 0),
            (RateLimited::Bytes, bytes_bucket, bytes),
            (RateLimited::Requests, requests, 1),
        ];
        for (rate, (limit, bucket, _)) in rates.iter().zip(&all) {
            let Some(rate) = *rate else { continue };
            let (limit, per_s) = (*limit, rate.per_s);
            let refused = |wait| WriteRefusal::Rate { tenant: self.id.clone(), limit, per_s, wait };
            bucket.check(rate, now).map_err(refused)?;
        }
        // only now, because a request that is refused uses up nothing
        for (rate, (_, bucket, count)) in rates.into_iter().zip(all) {
            if let Some(rate) = rate {
                bucket.take(count, rate, now);
            }
        }
        drop(buckets);
        self.count(bytes, now);
        Ok(())
    }

    /// Counts an admitted request in the rates that are shown. They are updated when their lock is taken anyway, and once a second:
    /// many requests that are added at once would look like a burst.
    fn count(&self, bytes: u64, now: Instant) {
        self.uncounted_requests.fetch_add(1, Ordering::Relaxed);
        self.uncounted_bytes.fetch_add(bytes, Ordering::Relaxed);
        let second = now.saturating_duration_since(self.since).as_secs();
        if self.counted_s.load(Ordering::Relaxed) != second {
            self.counted_s.store(second, Ordering::Relaxed);
            self.buckets.lock().rates.add(self.counts(0), now);
        }
    }

    /// Counts the samples of an admitted request against the rate limit, even if some of them are refused
    /// later.
    pub(crate) fn take_samples(&self, own: &TenantSettings, samples: u64, now: Instant) {
        let mut buckets = self.buckets.lock();
        buckets.rates.add(self.counts(samples), now);
        if let Some(rate) = own.limits.samples_rate() {
            buckets.samples.take(samples, rate, now);
        }
    }

    /// Admits up to `wanted` new series, at least one, and returns their number. The caller must create them
    /// and then call [`Self::created`]. `at_any_rate`: the tenant's rate limit does not apply.
    pub(crate) fn room_for_series(
        &self,
        own: &TenantSettings,
        wanted: usize,
        at_any_rate: bool,
        now: Instant,
    ) -> Result<usize, SeriesRefusal> {
        let mut buckets = self.buckets.lock();
        let limits = Limits {
            active_series: own.limits.active_series.map(|limit| limit as u64),
            is_configured: own.limits.active_series_is_given,
            new_series: own.limits.new_series_rate().filter(|_| !at_any_rate),
        };
        let series = self.series() + buckets.being_created;
        let room = limits.room(series, wanted as u64, &mut buckets.series, now)?;
        buckets.being_created += room;
        buckets.created_rate.add([room], now);
        Ok(room as usize)
    }

    /// How many more series the tenant may have. Nothing is charged.
    pub(crate) fn room_for_active_series(&self, own: &TenantSettings) -> u64 {
        let series = self.series() + self.buckets.lock().being_created;
        own.limits.active_series.map_or(u64::MAX, |limit| (limit as u64).saturating_sub(series))
    }

    /// Returns how many new series the tenant's rate limit allows now, at least one; or, as an error, the time until it
    /// allows one. Nothing is charged.
    pub(crate) fn new_series_allowance(&self, own: &TenantSettings, now: Instant) -> Result<u64, Duration> {
        match own.limits.new_series_rate() {
            Some(rate) => self.buckets.lock().series.available(rate, now),
            None => Ok(u64::MAX),
        }
    }

    /// Records that `count` admitted series were created. The tenant now has `series` and `bytes` in the
    /// partition's head.
    pub(crate) fn created(&self, count: usize, partition: usize, series: usize, bytes: usize) {
        let mut buckets = self.buckets.lock();
        self.hold(partition, series, bytes);
        buckets.being_created -= count as u64;
    }

    /// Records that `series` new series of a request must wait until the sender repeats the request. `last`,
    /// the last of them, identifies the request.
    pub(crate) fn left_out(&self, last: SeriesKey, series: u64, now: Instant) {
        self.buckets.lock().backlog.left_out(last, series, now);
    }

    /// Records that all new series of a request exist, so that its sender no longer waits. The last of these
    /// series, `last`, identifies the request.
    pub(crate) fn created_all(&self, last: SeriesKey) {
        self.buckets.lock().backlog.created(last);
    }

    /// Tells how many series wait until their senders repeat the request, and for how long.
    pub(crate) fn waiting(&self, now: Instant) -> Waiting {
        self.buckets.lock().backlog.waiting(now)
    }

    pub(crate) fn hold(&self, partition: usize, series: usize, bytes: usize) {
        let held = &self.holds[partition];
        held.series.store(series as u64, Ordering::Relaxed);
        held.bytes.store(bytes as u64, Ordering::Relaxed);
        self.series_peak.fetch_max(self.series(), Ordering::Relaxed);
        self.peaks.head_bytes.note(self.bytes());
    }

    pub(crate) fn series(&self) -> u64 {
        self.holds.iter().map(|held| held.series.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn series_peak(&self) -> u64 {
        self.series_peak.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.holds.iter().map(|held| held.bytes.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn samples_per_s(&self, now: Instant) -> f64 {
        self.buckets.lock().rates.at(now)[0].per_s
    }

    /// Mean rates of the last minute: of samples, requests, bytes of requests, and new series.
    pub(crate) fn rates(&self, now: Instant) -> [Mean; 4] {
        let mut buckets = self.buckets.lock();
        buckets.rates.add(self.counts(0), now);
        let ([samples, requests, bytes], [created]) = (buckets.rates.at(now), buckets.created_rate.at(now));
        [samples, requests, bytes, created]
    }

    /// Takes the requests and bytes that are not in the rates yet, for adding them together with `samples`.
    fn counts(&self, samples: u64) -> [u64; 3] {
        let [requests, bytes] = [&self.uncounted_requests, &self.uncounted_bytes];
        [samples, requests.swap(0, Ordering::Relaxed), bytes.swap(0, Ordering::Relaxed)]
    }

    /// Age of the tenant, at most [`NEW_FOR_MAX`]. A tenant that was known before has the maximum age.
    fn age(&self, now: Instant) -> Duration {
        let age = self.new_since.map(|since| now.saturating_duration_since(since));
        age.map_or(NEW_FOR_MAX, |age| age.min(NEW_FOR_MAX))
    }

    fn holds_nothing(&self) -> bool {
        let accounts = [&self.inflight, &self.unwritten, &self.answers];
        self.bytes() == 0 && accounts.iter().all(|account| account.used_bytes() == 0)
    }

    /// True if the tenant's state can be dropped without a loss.
    fn is_idle(&self, now: Instant) -> bool {
        self.holds_nothing() && self.buckets.lock().are_full(now) && self.replicas.lock().clusters() == 0
    }
}

/// A tenant may hold at most this multiple of the bytes that are free in an account.
const fn multiple(own: &TenantSettings) -> u64 {
    MULTIPLE * own.share_weight as u64
}

impl Buckets {
    fn are_full(&self, now: Instant) -> bool {
        [self.requests, self.samples, self.bytes, self.series].iter().all(|bucket| bucket.is_full(now))
    }
}

/// A tenant of this age never counts as new.
const NEW_FOR_MAX: Duration = Duration::from_secs(3600);

/// The shares of the head's memory, and when they were computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    at: Instant,
    shares: Shares,
    /// Age below which a tenant counts as new.
    new_below: Duration,
    /// True if any tenant had more than its share.
    pub(crate) is_any_above: bool,
    /// True if at least two tenants hold memory.
    pub(crate) is_shared: bool,
}

impl Division {
    /// If the tenant has more than its share, returns the share.
    pub(crate) fn exceeded_share(
        &self,
        tenant: &TenantState,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Option<u64> {
        let (share_bytes, _) = self.share(tenant, settings, now);
        (tenant.bytes() > share_bytes).then_some(share_bytes)
    }

    /// Returns the tenant's share, and whether it is that of a new tenant. The share of a tenant that is alone is [`u64::MAX`].
    pub(crate) fn share(
        &self,
        tenant: &TenantState,
        settings: &settings::Tenants,
        now: Instant,
    ) -> (u64, bool) {
        let weight = settings.of(&tenant.id).share_weight as u64;
        let is_new = tenant.age(now) < self.new_below;
        (self.shares.of(weight, is_new), is_new)
    }

    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= DIVIDE_EVERY
    }
}

/// The tenants that must be remembered, because they hold memory, have used part of a rate limit, or have
/// elected replicas. Others are dropped now and then.
#[derive(Debug)]
pub(crate) struct TenantStates {
    memory: Memory,
    answers_without_data: Account,
    all: RwLock<HashMap<TenantId, Arc<TenantState>>>,
    /// When there are this many tenants, idle ones are dropped.
    tidy_at: AtomicUsize,
    division: Mutex<Option<Division>>,
    /// The shares that decide who gets no new series and whose series are evicted first, and the fill level of the head for
    /// which they are.
    division_of_room: Mutex<Option<(u64, Division)>>,
    /// Age below which a tenant counts as new, and when this was computed.
    new_below: Mutex<Option<(Instant, Duration)>>,
    clusters_tidied: Mutex<Option<Instant>>,
    /// The largest number of tenants in memory.
    peak: Peak,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) partitions: usize,
    /// Memory of write requests, from their first byte to their answer.
    pub(crate) inflight: Account,
    /// Part of `inflight`: bytes that senders have sent without waiting for answers, and that are not durable yet.
    pub(crate) unwritten: Account,
    /// Memory of the parameters of queries, and of answers until they are sent.
    pub(crate) answers: Account,
}

const TIDY_MIN: usize = 64;

const DIVIDE_EVERY: Duration = Duration::from_secs(1);

impl TenantStates {
    pub(crate) fn new(memory: Memory) -> Self {
        let answers_without_data = memory.answers.part();
        answers_without_data.share(MULTIPLE, u64::MAX);
        Self {
            memory,
            answers_without_data,
            all: RwLock::default(),
            tidy_at: AtomicUsize::new(TIDY_MIN),
            division: Mutex::default(),
            division_of_room: Mutex::default(),
            new_below: Mutex::default(),
            clusters_tidied: Mutex::default(),
            peak: Peak::default(),
        }
    }

    /// Returns the account for the parameters and answers of queries of tenants without data. They have one share together,
    /// because anybody can invent their names.
    pub(crate) const fn answers_without_data(&self) -> &Account {
        &self.answers_without_data
    }

    pub(crate) fn get(&self, id: &TenantId) -> Option<Arc<TenantState>> {
        self.all.read().get(id).cloned()
    }

    /// Returns the state of a tenant, and creates it if necessary. `is_known` tells whether the tenant was
    /// known before, for example because it has tables.
    pub(crate) fn of(
        &self,
        id: &TenantId,
        is_known: impl FnOnce() -> bool,
        now: Instant,
    ) -> Arc<TenantState> {
        if let Some(tenant) = self.get(id) {
            return tenant;
        }
        let new_since = if is_known() { None } else { Some(now) };
        let mut all = self.all.write();
        if all.len() >= self.tidy_at.load(Ordering::Relaxed) {
            // keep states that are in use, so that no tenant gets a second one
            all.retain(|_, tenant| Arc::strong_count(tenant) > 1 || !tenant.is_idle(now));
            self.tidy_at.store((2 * all.len()).max(TIDY_MIN), Ordering::Relaxed);
        }
        let tenant = || Arc::new(TenantState::new(id.clone(), &self.memory, new_since, now));
        let state = Arc::clone(all.entry(id.clone()).or_insert_with(tenant));
        self.peak.note(all.len() as u64);
        state
    }

    /// Called after a tenant was deleted. Drops its elected replicas and resets its peak. Its whole state is
    /// removed if it is not in use.
    pub(crate) fn forget(&self, id: &TenantId) {
        let mut all = self.all.write();
        let Some(tenant) = all.get(id) else { return };
        *tenant.replicas.lock() = Replicas::default();
        tenant.series_peak.store(tenant.series(), Ordering::Relaxed);
        // keep a state that is in use, so that the tenant does not get a second one
        if Arc::strong_count(tenant) == 1 && tenant.holds_nothing() {
            all.remove(id);
        }
    }

    /// The largest number of tenants that were in memory at a time.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.get()
    }

    pub(crate) fn all(&self) -> Vec<Arc<TenantState>> {
        self.all.read().values().cloned().collect()
    }

    /// Removes clusters from which no samples have arrived for some time, in all tenants. Does nothing if the
    /// last call was less than [`TIDY_EVERY`] ago.
    pub(crate) fn forget_silent_clusters(&self, settings: &settings::Tenants, now: Instant) {
        {
            let mut tidied = self.clusters_tidied.lock();
            if tidied.is_some_and(|tidied| now.saturating_duration_since(tidied) < TIDY_EVERY) {
                return;
            }
            *tidied = Some(now);
        }
        for tenant in self.all() {
            tenant.replicas.lock().forget_silent(now, settings.of(&tenant.id).ha_failover());
        }
    }

    /// True if the tenant is in memory and does not count as new.
    pub(crate) fn is_known(&self, id: &TenantId, now: Instant) -> bool {
        self.get(id).is_some_and(|tenant| tenant.age(now) >= self.new_below(now))
    }

    /// Age below which a tenant counts as new: half the age of the oldest tenant, or [`NEW_FOR_MAX`]. On a
    /// fresh server, this distinguishes the first tenants from a later flood of invented names.
    fn new_below(&self, now: Instant) -> Duration {
        let mut computed = self.new_below.lock();
        if let Some((at, new_below)) = *computed
            && now.saturating_duration_since(at) < DIVIDE_EVERY
        {
            return new_below;
        }
        let oldest = self.all.read().values().map(|tenant| tenant.age(now)).max().unwrap_or_default();
        let new_below = if oldest == NEW_FOR_MAX { NEW_FOR_MAX } else { oldest / 2 };
        *computed = Some((now, new_below));
        new_below
    }

    /// Returns the shares of a head of `limit_bytes` that decide whose writes are refused.
    pub(crate) fn division(&self, settings: &settings::Tenants, limit_bytes: u64, now: Instant) -> Division {
        let mut division = self.division.lock();
        let kept = division.filter(|division| !division.is_old(now));
        let divide = |holdings: &[Holding]| Shares::divide(limit_bytes, holdings);
        *division.insert(kept.unwrap_or_else(|| self.divide(divide, settings, now)))
    }

    /// Returns the shares of `room_bytes`, which is what tenants may hold if a head of `limit_bytes` is to be filled to
    /// `percent`. Some tenant always has more than its share.
    pub(crate) fn division_of_room(
        &self,
        percent: u64,
        room_bytes: u64,
        settings: &settings::Tenants,
        limit_bytes: u64,
        now: Instant,
    ) -> Division {
        let mut division = self.division_of_room.lock();
        let kept = division.filter(|(of_percent, division)| *of_percent == percent && !division.is_old(now));
        let divide = |holdings: &[Holding]| Shares::of_full_room(limit_bytes, room_bytes, holdings);
        division.insert(kept.unwrap_or_else(|| (percent, self.divide(divide, settings, now)))).1
    }

    fn divide(
        &self,
        divide: impl FnOnce(&[Holding]) -> Shares,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Division {
        let new_below = self.new_below(now);
        let holding = |tenant: &Arc<TenantState>| Holding {
            bytes: tenant.bytes(),
            weight: settings.of(&tenant.id).share_weight as u64,
            is_new: tenant.age(now) < new_below,
        };
        // not under the lock, for which requests of new tenants wait
        let holdings: Vec<_> = self.all().iter().map(holding).collect();
        let shares = divide(&holdings);
        let (is_any_above, is_shared) = (shares.is_any_exceeded(&holdings), share::is_shared(&holdings));
        Division { at: now, shares, new_below, is_any_above, is_shared }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::write_path::tests::small_settings;

    impl TenantStates {
        pub(crate) fn for_test(partitions: usize) -> Self {
            let account = |name| Account::new(name, 1 << 20);
            let (inflight, unwritten) = (account("inflight"), account("unwritten"));
            Self::new(Memory { partitions, inflight, unwritten, answers: account("answers") })
        }
    }

    fn id(number: u64) -> TenantId {
        TenantId::parse(&format!("t{number}")).unwrap()
    }

    #[test]
    fn idle_tenants_are_forgotten_and_those_in_use_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = small_settings(dir.path()).tenants.general;
        (own.limits.requests_per_second, own.limits.rate_burst_ms) = (Some(1), 1000);
        let (tenants, began) = (TenantStates::for_test(2), Instant::now());
        let in_use = tenants.of(&id(0), || true, began);
        tenants.of(&id(1), || true, began).hold(1, 3, 500);
        for number in 2..100_000 {
            // a thousand new tenants per second; each is idle a second later, when its bucket is full again
            let now = began + Duration::from_millis(number);
            tenants.of(&id(number), || false, now).admit(&own, 1, now).unwrap();
        }
        let kept = tenants.all();
        assert!(kept.len() <= 2 * 1003, "{} tenants", kept.len());
        assert!(Arc::ptr_eq(&in_use, &tenants.get(&id(0)).unwrap()));
        assert_eq!(tenants.get(&id(1)).unwrap().bytes(), 500);
    }

    /// A sender that repeats its request too early would otherwise get less than each of its limits.
    #[test]
    fn a_request_that_is_refused_uses_up_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = small_settings(dir.path()).tenants.general;
        (own.limits.requests_per_second, own.limits.rate_burst_ms) = (Some(1), 1000);
        own.limits.bytes_per_second = Some(1000);
        let (tenants, now) = (TenantStates::for_test(1), Instant::now());
        let tenant = tenants.of(&id(0), || true, now);
        let refused = (0..100).filter(|_| tenant.admit(&own, 1000, now).is_err()).count();
        assert_eq!(refused, 98);
        tenant.admit(&own, 1000, now + Duration::from_secs(3)).unwrap();
    }

    #[test]
    fn a_deleted_tenant_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = small_settings(dir.path()).tenants.general;
        (own.limits.requests_per_second, own.limits.rate_burst_ms) = (Some(1), 1000);
        let (tenants, now) = (TenantStates::for_test(1), Instant::now());
        let in_use = tenants.of(&id(0), || true, now);
        let mut held = None;
        for number in 0..3 {
            let tenant = tenants.of(&id(number), || true, now);
            tenant.hold(0, 9, 500);
            // the first request leaves the bucket empty but without debt, so one more is admitted
            for _ in 0..2 {
                tenant.admit(&own, 1, now).unwrap();
            }
            assert!(tenant.admit(&own, 1, now).is_err());
            tenant.hold(0, 0, 0);
            if number == 1 {
                held = Some(tenant.inflight(&own).reserve(100).unwrap());
            }
            drop(tenant);
            tenants.forget(&id(number));
        }
        tenants.forget(&id(3));
        assert!(Arc::ptr_eq(&in_use, &tenants.get(&id(0)).unwrap()));
        assert_eq!(in_use.series_peak(), 0);
        assert!(in_use.admit(&own, 1, now).is_err(), "its rates still count");
        assert!(tenants.get(&id(1)).is_some(), "a request holds some of its memory");
        assert!(tenants.get(&id(2)).is_none());
        drop(held);
        tenants.forget(&id(1));
        assert!(tenants.get(&id(1)).is_none());
    }

    #[test]
    fn the_rate_of_samples_is_a_mean_that_fades() {
        let dir = tempfile::tempdir().unwrap();
        let own = small_settings(dir.path()).tenants.general;
        let (tenants, began) = (TenantStates::for_test(1), Instant::now());
        let tenant = tenants.of(&id(0), || true, began);
        let after = |seconds| began + Duration::from_secs(seconds);
        (0..600).for_each(|second| tenant.take_samples(&own, 1000, after(second)));
        let rate = tenant.samples_per_s(after(600));
        assert!((950.0..1050.0).contains(&rate), "{rate}");
        assert!(tenant.samples_per_s(after(900)) < 10.0);
    }

    /// Nobody looks at the rates meanwhile, and no samples come, as with a tenant that only sends records.
    #[test]
    fn the_rate_of_requests_needs_no_samples() {
        let dir = tempfile::tempdir().unwrap();
        let own = small_settings(dir.path()).tenants.general;
        let (tenants, began) = (TenantStates::for_test(1), Instant::now());
        let tenant = tenants.of(&id(0), || true, began);
        let after = |ms| began + Duration::from_millis(ms);
        (0..36_000).for_each(|number| tenant.admit(&own, 50, after(number * 100)).unwrap());
        let is_about = |value: f64, expected: f64| (expected * 0.95..=expected * 1.05).contains(&value);
        let [_, requests, bytes, _] = tenant.rates(after(3_600_000));
        assert!(is_about(requests.per_s, 10.0) && is_about(requests.peak, 10.0), "{requests:?}");
        assert!(is_about(bytes.per_s, 500.0) && is_about(bytes.peak, 500.0), "{bytes:?}");
    }

    #[test]
    fn shares_are_divided_by_weight_among_what_tenants_hold() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = small_settings(dir.path()).tenants;
        let heavy = TenantSettings { share_weight: 2, ..settings.general.clone() };
        settings.own.insert(id(2), heavy);
        let (tenants, now) = (TenantStates::for_test(1), Instant::now());
        let all: Vec<_> = (0..3).map(|number| tenants.of(&id(number), || true, now)).collect();
        all.iter().zip([100, 500, 600]).for_each(|(tenant, bytes)| tenant.hold(0, 1, bytes));
        let exceeded = |now| {
            let division = tenants.division(&settings, 1000, now);
            let exceeded = all.iter().map(|tenant| division.exceeded_share(tenant, &settings, now));
            (exceeded.collect::<Vec<_>>(), division.is_any_above)
        };
        assert_eq!(exceeded(now), (vec![None, Some(216), Some(432)], true));
        all[2].hold(0, 1, 0);
        assert_eq!(exceeded(now), (vec![None, Some(216), None], true), "shares are kept for a while");
        assert_eq!(exceeded(now + DIVIDE_EVERY), (vec![None; 3], false), "nobody exceeds a share");
    }

    #[test]
    fn the_first_tenants_of_a_fresh_server_are_not_new_beside_later_ones() {
        let dir = tempfile::tempdir().unwrap();
        let settings = small_settings(dir.path()).tenants;
        let (tenants, began) = (TenantStates::for_test(1), Instant::now());
        let of = |number, second| tenants.of(&id(number), || false, began + Duration::from_secs(second));
        let first = of(0, 0);
        first.hold(0, 1, 600);
        let later: Vec<_> = (1..=20).map(|number| of(number, 600)).collect();
        later.iter().for_each(|tenant| tenant.hold(0, 1, 10));
        let exceeded = |tenant: &TenantState, second| {
            let now = began + Duration::from_secs(second);
            tenants.division(&settings, 1000, now).exceeded_share(tenant, &settings, now)
        };
        assert_eq!(exceeded(&first, 601), None, "the share of the first is 650, that of all later ones 100");
        assert_eq!(exceeded(&later[0], 601), Some(5));
        assert_eq!(
            exceeded(&later[0], 1199),
            Some(5),
            "still new: one second younger than half of the oldest"
        );
        assert_eq!(
            exceeded(&first, 1201),
            Some(550),
            "the later ones are not new any more, and hold 200 of 750"
        );
        assert_eq!(exceeded(&later[0], 1201), None);
    }
}
