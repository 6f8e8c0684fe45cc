//! Bounds on TLS handshakes in progress, so that a flood of handshakes leaves connections and processors to
//! others.
//!
//! | bound | value |
//! | --- | --- |
//! | handshakes in progress | a quarter of the connections |
//! | of one network | half of that |
//!
//! Beyond a bound, the server closes a new connection, except in three cases:
//!
//! - Its network is below its bound, and another network has at least two handshakes more than this one. The
//!   new handshake displaces the latest handshake of the network with the most handshakes (longest queue drop).
//! - The first case does not apply, and a handshake of its own network has waited for its client for
//!   [`NEWEST`]. The new handshake displaces the oldest such handshake.
//! - Its network has no handshake, and one of another network has waited for its client for [`NEWEST`]. The new handshake
//!   displaces the oldest such handshake. Otherwise, silent clients of a few networks would keep all others out where few
//!   handshakes are allowed.

use crate::listen::connections::NEWEST;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Size of an IPv4 network: the smallest that is routed on the Internet.
const IPV4_PREFIX_BITS: u32 = 24;

/// Size of an IPv6 network: a single client usually has a whole /64.
const IPV6_PREFIX_BITS: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Network(IpAddr);

impl Network {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => {
                Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - IPV4_PREFIX_BITS))).into()
            }
            IpAddr::V6(v6) => {
                Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - IPV6_PREFIX_BITS))).into()
            }
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PendingHandshakes(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    most: usize,
    most_of_network: usize,
    next: u64,
    handshakes: BTreeMap<u64, Handshake>,
    networks: HashMap<Network, usize>,
    peak: usize,
}

#[derive(Debug)]
struct Handshake {
    network: Network,
    /// When the server began to wait for the client. `None` while the server computes its answer.
    waits_since: Option<Instant>,
    displaced: Arc<Notify>,
}

#[derive(Debug)]
pub(super) enum Entry {
    Admitted(Pending),
    Refused,
}

/// A handshake in progress. When this is dropped, another handshake may begin.
#[derive(Debug)]
pub(crate) struct Pending {
    all: PendingHandshakes,
    number: u64,
    network: Network,
    displaced: Arc<Notify>,
}

impl PendingHandshakes {
    pub(crate) fn among(connections_max: usize) -> Self {
        let most = (connections_max / 4).max(1);
        Self(Arc::new(Mutex::new(State {
            most,
            most_of_network: (most / 2).max(1),
            next: 0,
            handshakes: BTreeMap::new(),
            networks: HashMap::new(),
            peak: 0,
        })))
    }

    pub(super) fn enter(&self, address: IpAddr, now: Instant) -> Entry {
        let network = Network::of(address);
        let mut state = self.0.lock();
        if !state.has_room_for(network) {
            let Some(number) = state.displaced_by(network, now) else { return Entry::Refused };
            let handshake = state.remove(number).expect("BUG: the displaced handshake is missing");
            handshake.displaced.notify_one();
        }
        let displaced = Arc::new(Notify::new());
        let number =
            state.add(Handshake { network, waits_since: Some(now), displaced: Arc::clone(&displaced) });
        Entry::Admitted(Pending { all: self.clone(), number, network, displaced })
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.lock().most
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().handshakes.len()
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.lock().peak
    }
}

impl State {
    fn count_of(&self, network: Network) -> usize {
        self.networks.get(&network).copied().unwrap_or(0)
    }

    fn has_room_for(&self, network: Network) -> bool {
        self.handshakes.len() < self.most && self.count_of(network) < self.most_of_network
    }

    /// Chooses the handshake that must make room for a new handshake of `network`. `None` if the new one must
    /// be refused.
    fn displaced_by(&self, network: Network, now: Instant) -> Option<u64> {
        let count = self.count_of(network);
        if count < self.most_of_network {
            let (largest, count_of_largest) = self
                .networks
                .iter()
                .map(|(network, count)| (*network, *count))
                .max_by_key(|(_, count)| *count)?;
            if count_of_largest > count + 1 {
                return self.numbers_of(largest).next_back().map(|(number, _)| number);
            }
        }
        let is_slow = |handshake: &Handshake| {
            handshake.waits_since.is_some_and(|since| now.saturating_duration_since(since) >= NEWEST)
        };
        let mut candidates = self.handshakes.iter();
        candidates
            .find(|(_, handshake)| (count == 0 || handshake.network == network) && is_slow(handshake))
            .map(|(number, _)| *number)
    }

    fn numbers_of(&self, network: Network) -> impl DoubleEndedIterator<Item = (u64, &Handshake)> {
        let all = self.handshakes.iter().map(|(number, handshake)| (*number, handshake));
        all.filter(move |(_, handshake)| handshake.network == network)
    }

    fn add(&mut self, handshake: Handshake) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.networks.entry(handshake.network).or_default() += 1;
        self.handshakes.insert(number, handshake);
        self.peak = self.peak.max(self.handshakes.len());
        number
    }

    fn remove(&mut self, number: u64) -> Option<Handshake> {
        let handshake = self.handshakes.remove(&number)?;
        let count = self.networks.get_mut(&handshake.network).expect("BUG: the network has no count");
        *count -= 1;
        if *count == 0 {
            self.networks.remove(&handshake.network);
        }
        Some(handshake)
    }
}

impl Pending {
    pub(super) const fn network(&self) -> Network {
        self.network
    }

    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// Records that the client's first message has arrived completely, and that the server has to answer.
    pub(super) fn has_client_hello(&self) {
        self.set_waits_since(None);
    }

    /// Records that the server has answered, and waits for the client again.
    pub(super) fn has_answer(&self) {
        self.set_waits_since(Some(Instant::now()));
    }

    fn set_waits_since(&self, since: Option<Instant>) {
        if let Some(handshake) = self.all.0.lock().handshakes.get_mut(&self.number) {
            handshake.waits_since = since;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.all.0.lock().remove(self.number); // absent if it was displaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use stdx::rng::Rng;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn enter(all: &PendingHandshakes, from: &str, now: Instant) -> Option<Pending> {
        match all.enter(address(from), now) {
            Entry::Admitted(pending) => Some(pending),
            Entry::Refused => None,
        }
    }

    fn is_displaced(pending: &Pending) -> bool {
        !pending.all.0.lock().handshakes.contains_key(&pending.number)
    }

    #[test]
    fn networks_are_24_bits_of_ipv4_and_64_of_ipv6() {
        let of = |text| Network::of(address(text));
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn one_network_gets_half_of_the_places() {
        let (all, now) = (PendingHandshakes::among(32), Instant::now());
        let flood: Vec<_> = (0..100).map(|number| enter(&all, &format!("192.0.2.{number}"), now)).collect();
        assert_eq!(flood.iter().flatten().count(), 4);
        assert!(enter(&all, "192.0.3.1", now).is_some());
        assert_eq!((all.limit(), all.count(), all.peak()), (8, 4, 5));
        drop(flood);
        assert_eq!(all.count(), 0);
        assert!(all.0.lock().networks.is_empty());
    }

    #[test]
    fn handshakes_whose_client_is_silent_make_room_for_others_of_their_network() {
        let (all, now) = (PendingHandshakes::among(32), Instant::now());
        let from = "192.0.2.1";
        let waiting: Vec<_> = (0..4).map(|_| enter(&all, from, now).unwrap()).collect();
        waiting[0].has_client_hello();
        assert!(
            enter(&all, from, now + NEWEST - Duration::from_millis(1)).is_none(),
            "all handshakes are new"
        );
        let next = enter(&all, from, now + NEWEST);
        assert!(next.is_some() && is_displaced(&waiting[1]), "the oldest that waits for its client");
        assert!(!is_displaced(&waiting[0]), "a handshake that waits for a processor keeps its place");
        assert_eq!(all.count(), 4);
    }

    #[tokio::test]
    async fn a_network_with_few_handshakes_displaces_one_of_the_network_with_the_most() {
        let (all, now) = (PendingHandshakes::among(32), Instant::now());
        let of = |network: usize, count| -> Vec<_> {
            (0..count).map(|_| enter(&all, &format!("192.0.{network}.1"), now).unwrap()).collect()
        };
        let (most, fewer) = (of(1, 4), of(2, 3));
        let mut few = of(3, 1);
        few.push(enter(&all, "192.0.3.2", now).expect("1 of 4, 3 and 1"));
        most[3].displaced().await;
        assert!(most[..3].iter().chain(&fewer).all(|pending| !is_displaced(pending)));
        assert!(enter(&all, "192.0.3.3", now).is_none(), "3, 3 and 2 are as equal as 3, 2 and 3");
        assert!(enter(&all, "192.0.1.1", now).is_none());
    }

    /// With few connections, there may be as few handshakes as one.
    #[test]
    fn silent_clients_do_not_keep_other_networks_out() {
        let (all, now) = (PendingHandshakes::among(8), Instant::now());
        let silent = [enter(&all, "192.0.1.1", now).unwrap(), enter(&all, "192.0.2.1", now).unwrap()];
        assert_eq!((all.limit(), all.count()), (2, 2));
        silent[1].has_client_hello();
        assert!(enter(&all, "192.0.3.1", now).is_none(), "both handshakes are new");
        let next = enter(&all, "192.0.3.1", now + NEWEST).expect("a silent client makes room");
        assert!(is_displaced(&silent[0]) && !is_displaced(&silent[1]));
        assert!(enter(&all, "192.0.4.1", now + NEWEST).is_none(), "none is silent for long");
        assert!(!is_displaced(&next) && all.count() == 2);
    }

    /// After random arrivals and ends, the bounds hold and the counts agree. A network without handshakes is
    /// refused only if no other network has two or more.
    #[test]
    fn bounds_hold_and_newcomers_are_served() {
        let mut rng = Rng::announced();
        let (all, mut now) = (PendingHandshakes::among(64), Instant::now());
        let mut pending: Vec<Pending> = Vec::new();
        for _ in 0..20_000 {
            now += Duration::from_millis(rng.below(20));
            let number = if rng.below(4) == 0 { rng.below(40) } else { 7 };
            let network = Network::of(address(&format!("192.0.{number}.1")));
            let is_new = all.0.lock().count_of(network) == 0;
            let largest = all.0.lock().networks.values().max().copied().unwrap_or(0);
            match enter(&all, &format!("192.0.{number}.1"), now) {
                Some(entered) => pending.push(entered),
                None => assert!(!is_new || largest <= 1, "network {number} is kept out"),
            }
            pending.retain(|pending| !is_displaced(pending));
            while !pending.is_empty() && rng.below(3) == 0 {
                drop(pending.swap_remove(rng.below(pending.len() as u64) as usize));
            }
            let state = all.0.lock();
            assert_eq!(state.handshakes.len(), pending.len());
            assert_eq!(state.networks.values().sum::<usize>(), pending.len());
            assert!(pending.len() <= 16 && state.networks.values().all(|count| (1..=8).contains(count)));
        }
    }
}
