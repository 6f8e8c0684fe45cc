//! Decides which points a target without answers owes.
//!
//! ```text
//!   taken by the socket ─┬─ the target closed the connection after our FIN      ─▶ owed
//!                        ├─ older than the commit interval, and the connection
//!                        │  still existed then                                  ─▶ owed
//!                        └─ otherwise                                           ─▶ not owed
//! ```

use crate::socket::Ending;
use crate::verify::ledger::SlotLedger;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Requests of one connection that are not owed yet. Without a commit interval, [`SlotLedger::taken`] keeps them. With
/// it, there are only as many as are sent within the interval.
#[derive(Debug)]
pub(crate) struct Owed {
    commit_interval: Option<Duration>,
    /// When the socket took each request, with its index among the connection's slots, and its round.
    recent: VecDeque<(Instant, usize, u32)>,
}

/// The ledger of each slot of a connection.
pub(crate) trait Ledgers {
    fn ledger(&mut self, slot: usize) -> Option<&mut SlotLedger>;
}

impl Owed {
    pub(crate) fn new(commit_interval: Option<Duration>) -> Self {
        Self { commit_interval, recent: VecDeque::new() }
    }

    pub(crate) fn taken(&mut self, ledgers: &mut impl Ledgers, at: Instant, slot: usize, round: u32) {
        if self.commit_interval.is_some() {
            self.recent.push_back((at, slot, round));
        } else if let Some(ledger) = ledgers.ledger(slot) {
            ledger.taken.push(round);
        }
    }

    /// Called while the connection is open and the target is known to have lived until `at`.
    pub(crate) fn alive_until(&mut self, ledgers: &mut impl Ledgers, at: Instant) {
        let Some(interval) = self.commit_interval else { return };
        while let Some((taken, slot, round)) = self.recent.front().copied()
            && taken + interval <= at
        {
            self.recent.pop_front();
            if let Some(ledger) = ledgers.ledger(slot) {
                ledger.acknowledged.push(round);
            }
        }
    }

    pub(crate) fn ended(&mut self, ledgers: &mut impl Ledgers, ending: Ending) {
        if let Ending::Broken(at) = ending {
            self.alive_until(ledgers, at);
            self.recent.clear();
        }
        for (_, slot, round) in self.recent.drain(..) {
            if let Some(ledger) = ledgers.ledger(slot) {
                ledger.acknowledged.push(round);
            }
        }
        for slot in 0.. {
            let Some(ledger) = ledgers.ledger(slot) else { break };
            let taken = std::mem::take(&mut ledger.taken);
            if ending == Ending::Closed {
                ledger.acknowledged.extend(&taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::ledger::Rounds;

    impl Ledgers for Vec<SlotLedger> {
        fn ledger(&mut self, slot: usize) -> Option<&mut SlotLedger> {
            self.get_mut(slot)
        }
    }

    /// Two slots take turns, and send a request each second from the first second on. Returns the rounds that are owed
    /// after the connection has ended.
    fn owed(commit_s: Option<u64>, ended_s: Option<u64>) -> [Rounds; 2] {
        let begin = Instant::now();
        let after = |s| begin + Duration::from_secs(s);
        let mut ledgers = vec![SlotLedger::default(); 2];
        let mut owed = Owed::new(commit_s.map(Duration::from_secs));
        for n in 0..10u64 {
            owed.taken(&mut ledgers, after(n), n as usize % 2, n as u32 / 2);
            owed.alive_until(&mut ledgers, after(n));
        }
        let ending = ended_s.map_or(Ending::Closed, |s| Ending::Broken(after(s)));
        owed.ended(&mut ledgers, ending);
        // a second connection breaks at once, so that its only request is not owed
        owed.taken(&mut ledgers, after(20), 0, 7);
        owed.ended(&mut ledgers, Ending::Broken(after(20)));
        [0, 1].map(|slot: usize| {
            assert!(ledgers[slot].taken.is_empty());
            ledgers[slot].acknowledged.clone()
        })
    }

    #[test]
    fn what_is_owed_depends_on_how_the_connection_ends() {
        let rounds = |of: std::ops::Range<u32>| {
            of.fold(Rounds::default(), |mut rounds, round| {
                rounds.push(round);
                rounds
            })
        };
        for commit in [None, Some(3)] {
            assert_eq!(owed(commit, None), [rounds(0..5), rounds(0..5)], "{commit:?}");
        }
        assert_eq!(owed(None, Some(9)), [rounds(0..0), rounds(0..0)]);
        // the requests of the seconds 0 to 6
        assert_eq!(owed(Some(3), Some(9)), [rounds(0..4), rounds(0..3)]);
        assert_eq!(owed(Some(1), Some(9)), [rounds(0..5), rounds(0..4)]);
    }
}
