//! A limit on concurrent requests, usable from any thread.
//!
//! A gate refuses requests that do not fit. A request that has come far may wait for its place instead. Waiting requests
//! come before new ones, and tenants with waiting requests take turns.

use admission::RETRY_AFTER;
use admission::gate::{self, Entrant, Full, Inside};
use admission::retry::Drain;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Lets in a limited number of requests, of which each tenant gets a fair share. Clones are handles of the
/// same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    gate: gate::Gate,
    /// How many requests that were inside have been served.
    served: u64,
    /// How fast they are served, measured while others are refused.
    drain: Drain,
    /// The same for tenants whose requests are refused because of their own.
    own: HashMap<TenantId, OwnDrain>,
    /// When those of `own` that are not refused any more were forgotten.
    swept: Option<Instant>,
    /// Requests that wait, by tenant. Whoever keeps their memory limits their number.
    waiting: HashMap<TenantId, VecDeque<Waiter>>,
    /// The tenants that have waiting requests, in the order of their turns. Each occurs once.
    turns: VecDeque<TenantId>,
}

#[derive(Debug, Default)]
struct OwnDrain {
    served: u64,
    drain: Drain,
}

/// How many tenants are measured at the same time. Others are told to wait for the default time.
const OWN_DRAINS_MAX: usize = 1_000;

/// All of them are visited at most this often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A waiting request, with what an [`Entrant`] has besides the tenant.
#[derive(Debug)]
struct Waiter {
    weight: u64,
    limit: Option<usize>,
    bytes: u64,
    pass: oneshot::Sender<Pass>,
}

#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    tenant: TenantId,
    bytes: u64,
    /// Whether the request was served. Requests that were refused come back, so they do not count as progress.
    pub(crate) is_served: bool,
    /// How many requests the tenant had inside when this one had entered. 0 for a request that has waited.
    pub(crate) number: usize,
}

impl Gate {
    /// Creates a gate for many requests at a time. For only a few, use [`Self::of_few`].
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_bytes(limit, u64::MAX)
    }

    /// Creates a gate that also limits the bytes of all requests inside. A request that is larger than this limit may
    /// enter while the gate is empty.
    pub(crate) fn with_bytes(limit: usize, bytes_limit: u64) -> Self {
        Self::of(gate::Gate::with_bytes(limit, bytes_limit, gate::MULTIPLE))
    }

    /// Creates a gate for a few requests that stay inside for long, such as exports.
    pub(crate) fn of_few(limit: usize) -> Self {
        Self::of(gate::Gate::new(limit, gate::MULTIPLE_OF_FEW))
    }

    fn of(gate: gate::Gate) -> Self {
        let (waiting, turns) = (HashMap::new(), VecDeque::new());
        let (drain, own) = (Drain::default(), HashMap::new());
        Self(Arc::new(Mutex::new(State { gate, served: 0, drain, own, swept: None, waiting, turns })))
    }

    pub(crate) fn enter(&self, entrant: Entrant<'_>) -> Result<Pass, Full> {
        let number = self.0.lock().enter(entrant)?;
        Ok(self.pass(entrant, number))
    }

    /// Waits until there is a place. This takes at most until all requests that the tenant has in the gate have left, and until
    /// it is the tenant's turn. The limit of `entrant` must not be 0.
    pub(crate) async fn enter_when_free(&self, entrant: Entrant<'_>) -> Pass {
        let waits = {
            let mut state = self.0.lock();
            if let Ok(number) = state.enter(entrant) {
                return self.pass(entrant, number);
            }
            state.wait(entrant)
        };
        waits.await.expect("BUG: a place in the queue was dropped without its turn")
    }

    fn pass(&self, entrant: Entrant<'_>, number: usize) -> Pass {
        let (tenant, bytes) = (entrant.tenant.clone(), entrant.bytes);
        Pass { gate: self.clone(), tenant, bytes, is_served: false, number }
    }

    fn leave(&self, tenant: &TenantId, bytes: u64, is_served: bool) {
        let admitted = {
            let mut state = self.0.lock();
            state.gate.leave(tenant, bytes);
            if is_served {
                state.count_served(tenant);
            }
            state.admit_waiting()
        };
        for (tenant, Waiter { bytes, pass, .. }) in admitted {
            // if the waiter was canceled, its pass is dropped here
            let _ = pass.send(Pass { gate: self.clone(), tenant, bytes, is_served: false, number: 0 });
        }
    }

    /// Counts a request that has left, and is served now.
    pub(crate) fn count_served(&self, tenant: &TenantId) {
        self.0.lock().count_served(tenant);
    }

    #[cfg(test)]
    pub(crate) fn served(&self) -> u64 {
        self.0.lock().served
    }

    /// Estimates how long a sender should wait whose request is refused now because the gate is full.
    pub(crate) fn refused(&self, now: Instant) -> Duration {
        let mut state = self.0.lock();
        let (inside, served) = (state.gate.inside(), state.served);
        state.drain.refused(1, inside as u64, served, now)
    }

    /// Returns when a request may find a place that is refused now because of others of its tenant.
    pub(crate) fn refused_of(&self, tenant: &TenantId, now: Instant) -> Duration {
        let mut state = self.0.lock();
        let inside = state.gate.of(tenant).requests;
        match state.own_drain(tenant, now) {
            Some(own) => own.drain.refused(1, inside as u64, own.served, now),
            None => RETRY_AFTER,
        }
    }

    #[cfg(test)]
    pub(crate) fn own_drains(&self) -> usize {
        self.0.lock().own.len()
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.lock().gate.inside()
    }

    pub(crate) fn inside_of(&self, tenant: &TenantId) -> Inside {
        self.0.lock().gate.of(tenant)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.lock().gate.peak()
    }

    /// How many requests `tenant` may have inside as long as others have as many as now.
    pub(crate) fn share_of(&self, tenant: &TenantId, weight: u64) -> usize {
        self.0.lock().gate.share_of(tenant, weight)
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.lock().gate.limit()
    }
}

impl State {
    fn count_served(&mut self, tenant: &TenantId) {
        self.served += 1;
        if let Some(own) = self.own.get_mut(tenant) {
            own.served += 1;
        }
    }

    /// `None` if too many others are measured.
    fn own_drain(&mut self, tenant: &TenantId, now: Instant) -> Option<&mut OwnDrain> {
        if self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EVERY) {
            self.swept = Some(now);
            self.own.retain(|_, own| !own.drain.is_over(now));
        }
        if !self.own.contains_key(tenant) && self.own.len() < OWN_DRAINS_MAX {
            self.own.insert(tenant.clone(), OwnDrain::default());
        }
        self.own.get_mut(tenant)
    }

    /// Returns how many requests the tenant has inside now.
    fn enter(&mut self, entrant: Entrant<'_>) -> Result<usize, Full> {
        // new requests must not take the place of those that wait; otherwise, these might wait forever
        if self.waiting.contains_key(entrant.tenant) {
            self.gate.check(entrant)?;
            return Err(Full::Waiting);
        }
        self.gate.enter(entrant)?;
        Ok(self.gate.of(entrant.tenant).requests)
    }

    fn wait(&mut self, entrant: Entrant<'_>) -> oneshot::Receiver<Pass> {
        let (pass, receiver) = oneshot::channel();
        let Entrant { tenant, weight, limit, bytes } = entrant;
        let waiting = match self.waiting.get_mut(tenant) {
            Some(waiting) => waiting,
            None => {
                self.turns.push_back(tenant.clone());
                self.waiting.entry(tenant.clone()).or_default()
            }
        };
        if waiting.len() == waiting.capacity() {
            waiting.retain(|waiter| !waiter.pass.is_closed()); // canceled waiters would add up
        }
        waiting.push_back(Waiter { weight, limit, bytes, pass });
        receiver
    }

    /// Gives the free places to requests that wait. Tenants take turns.
    fn admit_waiting(&mut self) -> Vec<(TenantId, Waiter)> {
        let (mut admitted, mut refused) = (Vec::new(), 0);
        while refused < self.turns.len()
            && let Some(tenant) = self.turns.pop_front()
        {
            let waiting = self.waiting.get_mut(&tenant).expect("BUG: a tenant with a turn has no waiter");
            while waiting.front().is_some_and(|waiter| waiter.pass.is_closed()) {
                waiting.pop_front();
            }
            if let Some(Waiter { weight, limit, bytes, .. }) = waiting.front() {
                let entrant = Entrant { tenant: &tenant, weight: *weight, limit: *limit, bytes: *bytes };
                match self.gate.enter(entrant) {
                    Ok(()) => {
                        admitted.extend(waiting.pop_front().map(|waiter| (tenant.clone(), waiter)));
                        refused = 0;
                    }
                    // there is no place for anybody
                    Err(Full::Gate) => {
                        self.turns.push_front(tenant);
                        break;
                    }
                    Err(_) => refused += 1,
                }
            }
            if waiting.is_empty() {
                self.waiting.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
        }
        admitted
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.leave(&self.tenant, self.bytes, self.is_served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_dropped_pass_makes_room() {
        let gate = Gate::with_bytes(2, 100);
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let enter = |tenant, bytes| gate.enter(Entrant { tenant, weight: 1, limit: None, bytes });
        let (first, _second) = (enter(&a, 60).unwrap(), enter(&b, 40).unwrap());
        assert!(enter(&a, 0).is_err());
        drop(first);
        assert!(enter(&a, 60).is_ok());
        assert_eq!((gate.inside(), gate.peak(), gate.limit()), (1, 2, 2));
    }

    /// Two tenants use up their limits. One is served 10 requests a second, the other none.
    #[test]
    fn tenants_wait_for_their_own_requests() {
        let (gate, mut now) = (Gate::new(1_000), Instant::now());
        let [fast, slow] = ["fast", "slow"].map(|name| TenantId::parse(name).unwrap());
        let enter = |tenant| gate.enter(Entrant { tenant, weight: 1, limit: Some(50), bytes: 0 });
        let mut inside: VecDeque<_> = (0..50).map(|_| enter(&fast).unwrap()).collect();
        let _stuck: Vec<_> = (0..50).map(|_| enter(&slow).unwrap()).collect();
        let mut waits = Vec::new();
        for _ in 0..20 {
            assert_eq!([&fast, &slow].map(|tenant| enter(tenant).unwrap_err()), [Full::Limit(50); 2]);
            waits.push([&fast, &slow].map(|tenant| gate.refused_of(tenant, now).as_secs()));
            now += Duration::from_millis(100);
            inside.pop_front().unwrap().is_served = true;
            inside.push_back(enter(&fast).unwrap());
        }
        assert_eq!(
            (waits[0], waits[19]),
            ([3, 3], [6, 30]),
            "50 inside and 10 returning, at 10 a second or none"
        );
    }

    #[test]
    fn a_limited_number_of_tenants_is_measured() {
        let (gate, now) = (Gate::new(1_000), Instant::now());
        let many = |now| {
            for number in 0..2 * OWN_DRAINS_MAX {
                gate.refused_of(&TenantId::parse(&format!("t{number}")).unwrap(), now);
            }
            gate.own_drains()
        };
        assert_eq!(many(now), OWN_DRAINS_MAX);
        assert_eq!(many(now + Duration::from_secs(10)), OWN_DRAINS_MAX);
        gate.refused_of(&TenantId::parse("later").unwrap(), now + Duration::from_secs(20));
        assert_eq!(gate.own_drains(), 1, "those that are not refused any more are forgotten");
    }

    #[test]
    fn requests_that_wait_come_before_new_ones_and_their_tenants_take_turns() {
        let gate = Gate::new(2);
        let [a, b, c] = ["a", "b", "c"].map(|name| TenantId::parse(name).unwrap());
        let entrant = |tenant| Entrant { tenant, weight: 1, limit: None, bytes: 0 };
        let wait = |tenant| Box::pin(gate.enter_when_free(entrant(tenant)));
        let Poll::Ready(first) = poll(pin!(gate.enter_when_free(entrant(&a)))) else { panic!("it is empty") };
        let second = gate.enter(entrant(&b)).unwrap();
        let mut of_a = [wait(&a), wait(&a), wait(&a)];
        assert!(of_a.iter_mut().all(|waiter| poll(waiter.as_mut()).is_pending()));
        let mut of_c = wait(&c);
        assert!(poll(of_c.as_mut()).is_pending());
        let [mut canceled, mut next, mut last] = of_a;
        drop(first);
        assert_eq!(gate.inside(), 2, "a waiter has the place at once");
        assert!(poll(next.as_mut()).is_pending());
        assert!(poll(of_c.as_mut()).is_pending());
        drop(canceled); // its pass was not taken, so the next tenant gets it
        let Poll::Ready(of_c) = poll(of_c.as_mut()) else { panic!("the other tenant's turn") };
        drop(second);
        let Poll::Ready(third) = poll(next.as_mut()) else { panic!("the next turn") };
        assert_eq!(gate.enter(entrant(&a)).unwrap_err(), Full::Gate);
        assert!(poll(last.as_mut()).is_pending());
        drop(of_c);
        let Poll::Ready(fourth) = poll(last.as_mut()) else { panic!("nobody else waits") };
        canceled = wait(&c);
        assert!(poll(canceled.as_mut()).is_pending());
        drop(canceled);
        drop((third, fourth));
        let state = gate.0.lock();
        assert_eq!((state.gate.inside(), state.waiting.len(), state.turns.len()), (0, 0, 0));
    }

    #[test]
    fn a_full_gate_does_not_change_the_order_of_those_that_wait() {
        let gate = Gate::new(1);
        let tenants = ["a", "b", "c", "d"].map(|name| TenantId::parse(name).unwrap());
        let entrant = |tenant| Entrant { tenant, weight: 1, limit: None, bytes: 0 };
        let mut inside = gate.enter(entrant(&tenants[0])).unwrap();
        let mut waiting: Vec<_> =
            tenants[1..].iter().map(|tenant| Box::pin(gate.enter_when_free(entrant(tenant)))).collect();
        assert!(waiting.iter_mut().all(|waiter| poll(waiter.as_mut()).is_pending()));
        for mut next in waiting {
            drop(inside);
            let Poll::Ready(pass) = poll(next.as_mut()) else { panic!("another tenant had its turn") };
            inside = pass;
        }
    }

    #[test]
    fn a_request_waits_only_for_others_of_its_tenant_that_are_inside() {
        let gate = Gate::new(100);
        let a = TenantId::parse("a").unwrap();
        let limited = Entrant { tenant: &a, weight: 1, limit: Some(1), bytes: 0 };
        let inside = gate.enter(limited).unwrap();
        let mut waits = Box::pin(gate.enter_when_free(limited));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(gate.enter(limited).unwrap_err(), Full::Limit(1));
        // even if a change of the limit would let them in
        assert_eq!(gate.enter(Entrant { limit: None, ..limited }).unwrap_err(), Full::Waiting);
        drop(inside);
        assert!(poll(waits.as_mut()).is_ready());
        assert_eq!(gate.inside(), 0);
    }
}
