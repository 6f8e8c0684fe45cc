//! Bounds on the work that unknown credentials cause: signatures to verify, services to ask.
//!
//! | bound | purpose |
//! | --- | --- |
//! | checks at once, waiting requests, and their bytes | a flood takes few processors and little memory |
//! | a share of these for each network | a network that floods leaves room for others |
//! | checks a second from one network | a sender that guesses leaves room for others |
//! | checks a second from all unknown networks | many guessing senders leave room for known networks |
//!
//! Known credentials cause no such work. A request beyond a bound gets 503, not 401: its token may be valid.

use super::recent::Recent;
use crate::limits::fair_permits::{FairPermits, Permit};
use crate::refusal::Refusal;
use admission::RETRY_AFTER;
use admission::gate::{Entrant, Full, Gate, MULTIPLE};
use admission::rate::{Rate, TokenBucket};
use admission::retry::{Drain, Wait};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// A network is trusted for this long after a request from it presented a valid credential.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Limit on the checks that run at once. Known and unknown networks each have this limit.
    pub(super) at_once: usize,
    /// Limit on the requests waiting for a check. Known and unknown networks each have this limit.
    pub(super) waiting: usize,
    /// Limit on the memory of the requests that are checked or wait. Known and unknown networks each have this limit.
    pub(super) bytes: u64,
    pub(super) per_network: Rate,
    pub(super) from_unknown: Rate,
}

/// Origin of a credential: an IPv4 address or an IPv6 /64, because one client may own a whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()),
            v4 => Self(v4),
        }
    }
}

#[derive(Debug)]
pub(super) struct Checks {
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    /// Networks that presented a valid credential, with the time of the last valid credential.
    known: Recent<Network, Instant>,
    buckets: Recent<Network, TokenBucket>,
    unknown_networks: Mutex<TokenBucket>,
    known_queue: Arc<CheckQueue>,
    unknown_queue: Arc<CheckQueue>,
}

/// Networks take turns. Each may hold a share of the places and of their bytes.
#[derive(Debug)]
struct CheckQueue {
    inside: Mutex<Gate<Network>>,
    running: FairPermits<Network>,
    /// How many requests have left.
    left: AtomicU64,
    /// How fast they leave, measured while others are refused.
    drain: Mutex<Drain>,
}

impl CheckQueue {
    fn new(bounds: &Bounds) -> Arc<Self> {
        let Bounds { at_once, waiting, bytes, .. } = *bounds;
        let inside = Gate::with_bytes(at_once + waiting, bytes, MULTIPLE);
        let (left, drain) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { inside: Mutex::new(inside), running: FairPermits::new(at_once), left, drain })
    }
}

/// A request's place among those that wait or are checked.
#[derive(Debug)]
pub(super) struct Place {
    queue: Arc<CheckQueue>,
    network: Network,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.inside.lock().leave(&self.network, self.bytes);
        self.queue.left.fetch_add(1, Ordering::Relaxed);
    }
}

/// Permission to check one credential. Dropping it lets the next request begin.
#[derive(Debug)]
pub(super) struct Check<'a> {
    checks: &'a Checks,
    _running: Permit<Network>,
    place: Place,
}

impl Check<'_> {
    pub(super) fn accept(self) {
        self.checks.known.put(self.place.network, self.checks.clock.instant(), 0);
    }
}

impl Checks {
    /// There is a map of the known networks and a map of the networks' rates. Each may use `networks_bytes`.
    pub(super) fn new(clock: Arc<dyn Clock>, bounds: Bounds, networks_bytes: usize) -> Self {
        Self {
            clock,
            bounds,
            known: Recent::within(networks_bytes),
            buckets: Recent::within(networks_bytes),
            unknown_networks: Mutex::default(),
            known_queue: CheckQueue::new(&bounds),
            unknown_queue: CheckQueue::new(&bounds),
        }
    }

    pub(super) async fn begin(&self, address: IpAddr) -> Result<Check<'_>, Refusal> {
        let place = self.enter(address, 0)?;
        Ok(self.turn(place).await)
    }

    /// Takes a place for a request that needs `bytes` until it was checked. The rates are checked first, so that a sender
    /// above its rate takes no place.
    pub(super) fn enter(&self, address: IpAddr, bytes: u64) -> Result<Place, Refusal> {
        let network = Network::of(address);
        let now = self.clock.instant();
        let is_fresh = |seen: &Instant| now.saturating_duration_since(*seen) < KNOWN_FOR;
        let is_known = self.known.get(&network, is_fresh).is_some();
        self.take_tokens(network, is_known, now)?;
        let queue = if is_known { &self.known_queue } else { &self.unknown_queue };
        let mut gate = queue.inside.lock();
        gate.enter(Entrant { tenant: &network, weight: 1, limit: None, bytes }).map_err(|full| {
            let why = match full {
                Full::Share(own) => format!("{} credentials from {}", own.requests, network.0),
                Full::Gate | Full::Limit(_) | Full::Waiting => format!("{} credentials", gate.inside()),
            };
            let left = queue.left.load(Ordering::Relaxed);
            let wait = queue.drain.lock().refused(1, gate.inside() as u64, left, now);
            busy(format!("{why} are already being checked or waiting"), wait)
        })?;
        drop(gate);
        Ok(Place { queue: Arc::clone(queue), network, bytes })
    }

    /// Waits until the credential may be checked.
    pub(super) async fn turn(&self, place: Place) -> Check<'_> {
        let running = place.queue.running.acquire(&place.network).await;
        Check { checks: self, _running: running, place }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let of_places = |queue: &CheckQueue| queue.inside.lock().bytes();
        let places = of_places(&self.known_queue) + of_places(&self.unknown_queue);
        self.known.held_bytes() + self.buckets.held_bytes() + places
    }

    fn take_tokens(&self, network: Network, is_known: bool, now: Instant) -> Result<(), Refusal> {
        let Bounds { per_network, from_unknown, .. } = self.bounds;
        let mut bucket = self.buckets.get(&network, |_| true).unwrap_or_default();
        bucket.check(per_network, now).map_err(|wait| {
            busy(
                format!("more than {} unknown credentials a second from {}", per_network.per_s, network.0),
                wait,
            )
        })?;
        if !is_known {
            let mut unknown_networks = self.unknown_networks.lock();
            unknown_networks.check(from_unknown, now).map_err(|wait| {
                busy(format!("more than {} unknown credentials a second", from_unknown.per_s), wait)
            })?;
            unknown_networks.take(1, from_unknown, now);
        }
        bucket.take(1, per_network, now);
        self.buckets.put(network, bucket, 0);
        Ok(())
    }
}

/// The request may be checked after the time `wait`. A sender that guesses should not come back sooner than others.
fn busy(why: String, wait: Duration) -> Refusal {
    let refusal = Refusal::busy("auth_busy", format!("the credentials were not checked: {why}"));
    refusal.until(Wait::For(wait.max(RETRY_AFTER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use stdx::clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);
    const BOUNDS: Bounds = Bounds {
        at_once: 1,
        waiting: 2,
        bytes: 100,
        per_network: Rate { per_s: 10, burst: SECOND },
        from_unknown: Rate { per_s: 50, burst: SECOND },
    };

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn start() -> (Arc<ManualClock>, Checks) {
        let clock = Arc::new(ManualClock::at(0));
        (Arc::clone(&clock), Checks::new(clock, BOUNDS, 1 << 20))
    }

    async fn begun(checks: &Checks, count: u32, from: impl Fn(u32) -> IpAddr) -> usize {
        let mut begun = 0;
        for number in 0..count {
            begun += usize::from(checks.begin(from(number)).await.is_ok());
        }
        begun
    }

    #[tokio::test]
    async fn known_networks_have_a_rate_each_and_unknown_ones_share_one() {
        let (clock, checks) = start();
        let near = 10..=11; // a bucket goes into debt by one
        assert!(near.contains(&begun(&checks, 10_000, |_| address(1)).await));
        assert!(near.contains(&begun(&checks, 100, |_| address(2)).await), "another network has its own");
        let of_all = begun(&checks, 10_000, |number| address(1000 + number)).await;
        assert!((25..=31).contains(&of_all), "{of_all} of the 50 are left");
        clock.advance(1_000);
        assert!(near.contains(&begun(&checks, 10_000, |_| address(1)).await));
    }

    #[tokio::test]
    async fn a_flood_of_unknown_networks_leaves_checks_to_known_ones() {
        let (clock, checks) = start();
        checks.begin(address(1)).await.unwrap().accept();
        let _waits = begun(&checks, 10_000, |number| address(1000 + number)).await;
        let _held = {
            clock.advance(1_000);
            checks.begin(address(7)).await.unwrap() // takes the only place of unknown networks
        };
        assert!(checks.begin(address(1)).await.is_ok());
        clock.advance(KNOWN_FOR.as_millis() as u64);
        assert!(
            checks
                .known
                .get(&Network::of(address(1)), |seen| {
                    clock.instant().saturating_duration_since(*seen) < KNOWN_FOR
                })
                .is_none()
        );
    }

    #[tokio::test]
    async fn concurrent_and_waiting_checks_are_limited() {
        let (_clock, checks) = start();
        let running = checks.begin(address(1)).await.unwrap();
        let mut waiting: Vec<_> = (2..4).map(|number| Box::pin(checks.begin(address(number)))).collect();
        for waits in &mut waiting {
            assert!(futures_poll(waits).is_none(), "the request waits");
        }
        let refusal = checks.begin(address(5)).await.unwrap_err();
        assert_eq!((refusal.reason, refusal.kind), ("auth_busy", model::ErrorKind::Unavailable));
        drop(running);
        assert!(futures_poll(&mut waiting[0]).is_some());
    }

    /// No check ends, so senders are told to wait longer and longer.
    #[test]
    fn a_sender_waits_until_the_queue_has_drained() {
        let clock = Arc::new(ManualClock::at(0));
        let per_network = Rate { per_s: 10_000, burst: SECOND };
        let bounds = Bounds { at_once: 1, waiting: 9, per_network, from_unknown: per_network, ..BOUNDS };
        let checks = Checks::new(Arc::clone(&clock) as _, bounds, 1 << 20);
        let places: Vec<_> = (0..10).map(|number| checks.enter(address(1000 + number), 0).unwrap()).collect();
        let mut waits = Vec::new();
        for _ in 0..20 {
            let refusal = checks.enter(address(1), 0).unwrap_err();
            waits.push(refusal.pause().unwrap().as_secs());
            clock.advance(100);
        }
        assert!(waits[0] == 3 && waits[19] >= 25 && waits.is_sorted(), "{waits:?}");
        drop(places);
        assert!(checks.enter(address(1), 0).is_ok());
    }

    #[tokio::test]
    async fn a_flood_from_one_known_network_leaves_places_to_others() {
        let clock = Arc::new(ManualClock::at(0));
        let per_network = Rate { per_s: 10_000, burst: SECOND };
        let bounds = Bounds { at_once: 1, waiting: 17, per_network, ..BOUNDS };
        let checks = Checks::new(clock, bounds, 1 << 20);
        for number in 1..=2 {
            checks.begin(address(number)).await.unwrap().accept();
        }
        let running = checks.begin(address(1)).await.unwrap();
        let entered = |number, bytes| checks.enter(address(number), bytes);
        let mut flood: Vec<_> = std::iter::from_fn(|| entered(1, 0).ok()).collect();
        assert_eq!(flood.len(), 15, "with the check that runs, 8/9 of 18 places");
        let [mut first, mut second] =
            [flood.remove(0), flood.remove(0)].map(|place| Box::pin(checks.turn(place)));
        assert!(futures_poll(&mut first).is_none() && futures_poll(&mut second).is_none());
        let mut other = Box::pin(checks.begin(address(2)));
        assert!(futures_poll(&mut other).is_none(), "it has a place");
        drop(running);
        drop(futures_poll(&mut first).expect("its network waited first"));
        assert!(futures_poll(&mut second).is_none());
        assert!(futures_poll(&mut other).is_some_and(|check| check.is_ok()), "networks take turns");
    }

    /// A sender above its rate holds no memory, and unknown networks hold none of that for known networks.
    #[tokio::test]
    async fn memory_for_known_networks_is_left_to_them() {
        let (_clock, checks) = start();
        checks.begin(address(1)).await.unwrap().accept();
        let of_unknown: Vec<_> =
            (1000..1100).filter_map(|number| checks.enter(address(number), 50).ok()).collect();
        assert_eq!(of_unknown.len(), 2, "100 bytes");
        let known = checks.enter(address(1), 90).expect("known networks have bytes of their own");
        assert!(checks.enter(address(1), 10).is_err(), "beyond its share");
        drop((known, of_unknown));
        let places: Vec<_> = std::iter::from_fn(|| checks.enter(address(1), 1).ok()).take(50).collect();
        drop(places);
        while checks.enter(address(1), 1).is_ok() {}
        assert_eq!(checks.unknown_queue.inside.lock().bytes() + checks.known_queue.inside.lock().bytes(), 0);
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
