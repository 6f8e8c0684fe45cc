//! Bounds on the work that unknown credentials cause: signatures to verify, services to ask.
//!
//! | bound | purpose |
//! | --- | --- |
//! | checks at once, and waiting requests | a flood takes few processors and little memory |
//! | checks a second from one network | a sender that guesses leaves room for others |
//! | checks a second from all unknown networks | many guessing senders leave room for known networks |
//!
//! Known credentials cause no such work. A request beyond a bound gets 503, not 401: its token may be valid.

use super::recent::Recent;
use crate::refusal::Refusal;
use admission::rate::{Rate, TokenBucket};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A network is trusted for this long after a request from it presented a valid credential.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Limit on the checks that run at once. Known and unknown networks each have this limit.
    pub(super) at_once: usize,
    /// Limit on the requests waiting for a check. Known and unknown networks each have this limit.
    pub(super) waiting: usize,
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
    /// Networks that presented a valid credential, with the time of the last one.
    known: Recent<Network, Instant>,
    buckets: Recent<Network, TokenBucket>,
    unknown_networks: Mutex<TokenBucket>,
    known_queue: CheckQueue,
    unknown_queue: CheckQueue,
}

#[derive(Debug)]
struct CheckQueue {
    inside: Semaphore,
    running: Semaphore,
}

impl CheckQueue {
    fn new(bounds: &Bounds) -> Self {
        let Bounds { at_once, waiting, .. } = *bounds;
        Self { inside: Semaphore::new(at_once + waiting), running: Semaphore::new(at_once) }
    }
}

/// Permission to check one credential. Dropping it lets the next request begin.
#[derive(Debug)]
pub(super) struct Check<'a> {
    checks: &'a Checks,
    network: Network,
    _running: SemaphorePermit<'a>,
    _inside: SemaphorePermit<'a>,
}

impl Check<'_> {
    pub(super) fn accept(self) {
        self.checks.known.put(self.network, self.checks.clock.instant(), 0);
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
        let network = Network::of(address);
        let now = self.clock.instant();
        let is_fresh = |seen: &Instant| now.saturating_duration_since(*seen) < KNOWN_FOR;
        let is_known = self.known.get(&network, is_fresh).is_some();
        self.take_tokens(network, is_known, now)?;
        let queue = if is_known { &self.known_queue } else { &self.unknown_queue };
        let Bounds { at_once, waiting, .. } = self.bounds;
        let is_full =
            || busy(format!("{} credentials are already being checked or waiting", at_once + waiting), None);
        let inside = queue.inside.try_acquire().map_err(|_| is_full())?;
        let running = queue.running.acquire().await.expect("BUG: the semaphore is closed");
        Ok(Check { checks: self, network, _running: running, _inside: inside })
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.known.held_bytes() + self.buckets.held_bytes()
    }

    fn take_tokens(&self, network: Network, is_known: bool, now: Instant) -> Result<(), Refusal> {
        let Bounds { per_network, from_unknown, .. } = self.bounds;
        let mut bucket = self.buckets.get(&network, |_| true).unwrap_or_default();
        bucket.check(per_network, now).map_err(|wait| {
            busy(
                format!("more than {} unknown credentials a second from {}", per_network.per_s, network.0),
                Some(wait),
            )
        })?;
        if !is_known {
            let mut unknown_networks = self.unknown_networks.lock();
            unknown_networks.check(from_unknown, now).map_err(|wait| {
                busy(format!("more than {} unknown credentials a second", from_unknown.per_s), Some(wait))
            })?;
            unknown_networks.take(1, from_unknown, now);
        }
        bucket.take(1, per_network, now);
        self.buckets.put(network, bucket, 0);
        Ok(())
    }
}

fn busy(why: String, wait: Option<Duration>) -> Refusal {
    let mut refusal = Refusal::busy("auth_busy", format!("the credentials were not checked: {why}"));
    refusal.retry_after = refusal.retry_after.max(wait);
    refusal
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
