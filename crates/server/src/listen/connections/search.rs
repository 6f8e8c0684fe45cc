//! Searches for the connection that should make room.

use super::Victims;
use super::link::{KNOWN, KNOWN_FOR, Link};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of candidates compared before one is closed.
pub(super) const COMPARED: usize = 256;

/// Maximum number of connections visited once a candidate is found. Visiting all would cost more than serving a request.
const VISITED: usize = 1024;

/// What searches leave to the next one.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// Where the next search for a connection to close begins.
    cursor: u64,
    /// The connections that searches have visited since one of them began with the first connection.
    visited: Senders,
    /// When a search last reached the last connection, and whether at least half of all were of known senders then.
    known_prevail: Option<(Instant, bool)>,
}

/// Numbers of connections, by what their senders are.
#[derive(Debug, Default)]
struct Senders {
    known: usize,
    strangers: usize,
}

impl Senders {
    const fn count(&mut self, is_known: bool) {
        if is_known {
            self.known += 1;
        } else {
            self.strangers += 1;
        }
    }
}

/// What a search for a connection to close has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// True if there are candidates, even if none of them may be closed.
    pub(super) any: bool,
    /// The candidate that comes first, with its rank.
    pub(super) first: Option<Candidate>,
    /// The same for idle connections of known senders.
    first_known: Option<Candidate>,
    /// When the first of the candidates that are too young will be old enough.
    pub(super) young_until: Option<Instant>,
}

/// The rank of a connection, since when it waits, and its number.
pub(super) type Candidate = (u8, Instant, u64);

impl Searches {
    /// Finds the connection that comes first by its rank ([`State::rank`](super::link::State::rank)).
    pub(super) fn search(
        &mut self,
        links: &BTreeMap<u64, Arc<Link>>,
        victims: Victims,
        now: Instant,
    ) -> Found {
        let (mut found, mut compared, mut visited) = (Found::default(), 0, 0);
        let mut all = Senders::default();
        let mut is_whole = true;
        let from_cursor = links.range(self.cursor..).map(|(number, link)| (number, link, false));
        let from_first = links.range(..self.cursor).map(|(number, link)| (number, link, true));
        let mut has_wrapped = false;
        for (number, link, is_before) in from_cursor.chain(from_first) {
            if compared >= COMPARED || visited >= VISITED && found.any {
                (self.cursor, is_whole) = (*number, false);
                break;
            }
            visited += 1;
            let state = link.state.lock();
            let is_known = state.is_known(now);
            if is_before && !std::mem::replace(&mut has_wrapped, true) {
                let Senders { known, strangers } = std::mem::take(&mut self.visited);
                self.known_prevail = Some((now, known >= strangers));
            }
            self.visited.count(is_known);
            all.count(is_known);
            if !link.is_candidate(&state, victims) {
                continue;
            }
            found.any = true;
            if let Some((rank, since)) = state.rank(now, link.bytes_per_second) {
                let this = (rank, since, *number);
                let first = if rank == KNOWN { &mut found.first_known } else { &mut found.first };
                *first = Some(first.map_or(this, |other| other.min(this)));
                compared += usize::from(rank != KNOWN);
            } else if let Some(until) = state.young_until(now) {
                found.young_until = Some(found.young_until.map_or(until, |other| other.min(until)));
            }
        }
        if is_whole {
            (self.cursor, self.visited) = (0, Senders::default());
            self.known_prevail = Some((now, all.known >= all.strangers));
        }
        // a search that ended early may have visited connections of one kind only
        let lately = self.known_prevail.filter(|(at, _)| now.saturating_duration_since(*at) < KNOWN_FOR);
        if lately.is_some_and(|(_, known_prevail)| known_prevail) {
            found.first = found.first.into_iter().chain(found.first_known).min();
        }
        found
    }
}
