//! Queue of queries: decides which query runs next.
//!
//! Tenants take turns: the next query is from the tenant with the fewest running queries in proportion to its
//! weight. Among equals, the tenant whose last turn was longest ago comes first. While several tenants send
//! queries, the last free thread is reserved for a tenant without a running query.

use super::Query;
use super::known_large::KnownLarge;
use model::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// After two tenants have sent queries in turn, the last free thread stays reserved for this long.
const SHARED_FOR: Duration = Duration::from_secs(600);

/// Limit on the tenants without queries whose last turns are remembered.
const IDLE_MAX: usize = 256;

/// The tenant that a query counts for, with the weight and the limit that decide how many threads it may use.
#[derive(Debug, Clone)]
pub(crate) struct QueryTenant {
    pub(crate) tenant: TenantId,
    pub(crate) weight: usize,
    pub(crate) limit: Option<usize>,
}

/// All waiting queries, and how many queries run. The gate `App::waiting` limits the sum.
pub(super) struct Queue {
    tenants: HashMap<TenantId, OfTenant>,
    /// The last turns of tenants without queries. A tenant does not come before others because it had no query for a
    /// moment.
    idle: HashMap<TenantId, u64>,
    /// The latest of the turns in `idle` that were forgotten. A tenant that is not remembered counts as served then.
    forgotten: u64,
    threads: usize,
    /// Number of running queries, not counting a query on the small-query thread.
    running: usize,
    /// The largest value of `running`.
    peak: usize,
    next: u64,
    turn: u64,
    last: Option<TenantId>,
    /// When a query last arrived directly after a query of another tenant.
    shared_at: Option<Instant>,
    pub(super) known_large: KnownLarge,
}

struct OfTenant {
    /// Waiting queries by number. Numbers are in the order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    running: usize,
    /// Number of the turn in which the tenant last got a thread, or at least [`Queue::forgotten`].
    served: u64,
    weight: usize,
    limit: Option<usize>,
}

pub(super) struct Waiting {
    pub(super) query: Query,
    pub(super) fingerprint: Option<u64>,
    /// True if the query is known not to be small, from its own attempt or that of a query with the same
    /// fingerprint.
    is_large: bool,
}

pub(super) struct Taken {
    pub(super) tenant: TenantId,
    pub(super) number: u64,
    pub(super) waiting: Waiting,
}

impl Default for OfTenant {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), running: 0, served: 0, weight: 1, limit: None }
    }
}

impl Queue {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            tenants: HashMap::new(),
            idle: HashMap::new(),
            forgotten: 0,
            threads,
            running: 0,
            peak: 0,
            next: 0,
            turn: 1,
            last: None,
            shared_at: None,
            known_large: KnownLarge::default(),
        }
    }

    pub(super) fn push(
        &mut self,
        query_tenant: QueryTenant,
        fingerprint: Option<u64>,
        query: Query,
        now: Instant,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.last.replace(query_tenant.tenant.clone()).is_some_and(|last| last != query_tenant.tenant) {
            self.shared_at = Some(now);
        }
        let is_large = fingerprint.is_some_and(|fingerprint| self.known_large.contains(fingerprint));
        let own = self.entry(query_tenant.tenant);
        (own.weight, own.limit) = (query_tenant.weight, query_tenant.limit);
        own.waiting.insert(number, Waiting { query, fingerprint, is_large });
        number
    }

    fn entry(&mut self, tenant: TenantId) -> &mut OfTenant {
        let Self { tenants, idle, forgotten, .. } = self;
        tenants.entry(tenant).or_insert_with_key(|tenant| {
            let served = idle.remove(tenant).unwrap_or(*forgotten);
            OfTenant { served, ..OfTenant::default() }
        })
    }

    pub(super) fn remove(&mut self, tenant: &TenantId, number: u64) -> Option<Waiting> {
        let removed = self.tenants.get_mut(tenant)?.waiting.remove(&number);
        self.forget_if_idle(tenant);
        removed
    }

    /// Takes the query that is next on a thread where queries run to their end. After it has ended, the
    /// thread must call [`Self::done`].
    pub(super) fn take_whole(&mut self, now: Instant) -> Option<Taken> {
        let tenant = self.next_whole(now)?.clone();
        let own = self.tenants.get_mut(&tenant)?;
        let (number, waiting) = own.waiting.pop_first()?;
        own.running += 1;
        own.served = self.turn;
        self.turn += 1;
        self.running += 1;
        self.peak = self.peak.max(self.running);
        Some(Taken { tenant, number, waiting })
    }

    pub(super) fn has_whole(&self, now: Instant) -> bool {
        self.next_whole(now).is_some()
    }

    fn next_whole(&self, now: Instant) -> Option<&TenantId> {
        let is_shared = self.shared_at.is_some_and(|at| now.saturating_duration_since(at) < SHARED_FOR);
        let is_last_thread = self.threads > 1 && self.threads - self.running.min(self.threads) == 1;
        let may_run = |own: &OfTenant| {
            !own.waiting.is_empty()
                && own.limit.is_none_or(|limit| own.running < limit)
                && !(is_shared && is_last_thread && own.running > 0)
        };
        let tenants = self.tenants.iter().filter(|(_, own)| may_run(own));
        let first = tenants.min_by(|(_, a), (_, b)| {
            let share = (a.running * b.weight).cmp(&(b.running * a.weight));
            share.then(a.served.cmp(&b.served))
        });
        first.map(|(tenant, _)| tenant)
    }

    pub(super) fn done(&mut self, tenant: &TenantId) {
        self.running -= 1;
        let own = self.tenants.get_mut(tenant).expect("BUG: a tenant with a running query is unknown");
        own.running -= 1;
        self.forget_if_idle(tenant);
    }

    pub(super) fn take_untried(&mut self) -> Option<Taken> {
        let untried =
            |own: &OfTenant| own.waiting.iter().find(|(_, w)| !w.is_large).map(|(number, _)| *number);
        let tenants =
            self.tenants.iter().filter_map(|(tenant, own)| Some((tenant, untried(own)?, own.served)));
        let (tenant, number, _) = tenants.min_by_key(|(_, number, served)| (*served, *number))?;
        let tenant = tenant.clone();
        let own = self.tenants.get_mut(&tenant)?;
        own.served = self.turn;
        self.turn += 1;
        let waiting = own.waiting.remove(&number)?;
        // the tenant's entry stays while its query is tried, even if no other query of the tenant waits
        Some(Taken { tenant, number, waiting })
    }

    /// Returns a query that was not small to its earlier place in the queue.
    pub(super) fn put_back(&mut self, taken: Taken) {
        let Taken { tenant, number, waiting } = taken;
        if let Some(fingerprint) = waiting.fingerprint {
            self.known_large.insert(fingerprint);
        }
        let own = self.entry(tenant);
        own.waiting.insert(number, Waiting { is_large: true, ..waiting });
    }

    /// Records that a query from [`Self::take_untried`] ended on the small-query thread.
    pub(super) fn was_small(&mut self, tenant: &TenantId) {
        self.forget_if_idle(tenant);
    }

    pub(super) fn waiting(&self) -> usize {
        self.tenants.values().map(|own| own.waiting.len()).sum()
    }

    pub(super) const fn running(&self) -> usize {
        self.running
    }

    pub(super) const fn peak(&self) -> usize {
        self.peak
    }

    pub(super) fn running_of(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |own| own.running)
    }

    fn forget_if_idle(&mut self, tenant: &TenantId) {
        if self.tenants.get(tenant).is_none_or(|own| !own.waiting.is_empty() || own.running > 0) {
            return;
        }
        let Some((tenant, own)) = self.tenants.remove_entry(tenant) else { return };
        if own.served <= self.forgotten {
            return;
        }
        if self.idle.len() >= IDLE_MAX {
            let earliest = self.idle.iter().min_by_key(|(_, served)| **served);
            if let Some((tenant, served)) = earliest.map(|(tenant, served)| (tenant.clone(), *served)) {
                self.idle.remove(&tenant);
                self.forgotten = self.forgotten.max(served);
            }
        }
        self.idle.insert(tenant, own.served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::queries::query_threads::Outcome;

    fn query_tenant(name: &str) -> QueryTenant {
        QueryTenant { tenant: TenantId::parse(name).unwrap(), weight: 1, limit: None }
    }

    fn push(queue: &mut Queue, query_tenant: QueryTenant, now: Instant) {
        queue.push(query_tenant, None, Box::new(|_| Outcome::Done), now);
    }

    fn take(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.take_whole(now).map(|taken| taken.tenant.as_str().to_owned())
    }

    #[test]
    fn tenants_take_turns() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        for name in ["many", "many", "many", "few", "few"] {
            push(&mut queue, query_tenant(name), now);
        }
        let mut order = Vec::new();
        while let Some(tenant) = take(&mut queue, now) {
            queue.done(&TenantId::parse(&tenant).unwrap());
            order.push(tenant);
        }
        // neither tenant was served before, so either may come first
        assert!(order[0] != order[1] && order[2] != order[3] && order[4] == "many", "{order:?}");
        assert!(queue.tenants.is_empty());
    }

    #[test]
    fn a_tenant_whose_queries_never_end_leaves_a_thread_to_others() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        (0..10).for_each(|_| push(&mut queue, query_tenant("greedy"), now));
        assert_eq!((0..4).filter_map(|_| take(&mut queue, now)).count(), 4, "a tenant alone gets all");
        queue.done(&TenantId::parse("greedy").unwrap());
        push(&mut queue, query_tenant("other"), now);
        assert_eq!(take(&mut queue, now).unwrap(), "other");
        queue.done(&TenantId::parse("other").unwrap());
        assert_eq!(take(&mut queue, now), None);
        assert!(
            !queue.has_whole(now) && queue.take_untried().is_some(),
            "a query may still be tried as small"
        );
        push(&mut queue, query_tenant("third"), now);
        assert_eq!(take(&mut queue, now).unwrap(), "third");
        queue.done(&TenantId::parse("third").unwrap());
        assert_eq!(
            take(&mut queue, now + SHARED_FOR).unwrap(),
            "greedy",
            "no other tenant has sent queries for long"
        );
    }

    #[test]
    fn weights_and_limits_hold() {
        let (mut queue, now) = (Queue::new(13), Instant::now());
        for _ in 0..10 {
            push(&mut queue, QueryTenant { weight: 3, ..query_tenant("heavy") }, now);
            push(&mut queue, query_tenant("light"), now);
            push(&mut queue, QueryTenant { limit: Some(1), weight: 100, ..query_tenant("limited") }, now);
        }
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut queue, now)).collect();
        let count = |name| taken.iter().filter(|tenant| *tenant == name).count();
        assert_eq!(
            (count("heavy"), count("light"), count("limited")),
            (8, 3, 1),
            "the last thread stays free"
        );
    }

    /// Otherwise, a client with two tenants that send one query at a time would come before all others.
    #[test]
    fn a_tenant_without_queries_for_a_moment_keeps_its_turn() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        (0..10).for_each(|_| push(&mut queue, query_tenant("steady"), now));
        push(&mut queue, query_tenant("x0"), now);
        let mut of_steady = 0;
        for _ in 0..10 {
            let taken = take(&mut queue, now).unwrap();
            // the client sends its next query for the other tenant, before the thread is free
            match taken.as_str() {
                "x0" => push(&mut queue, query_tenant("x1"), now),
                "x1" => push(&mut queue, query_tenant("x0"), now),
                _ => of_steady += 1,
            }
            queue.done(&TenantId::parse(&taken).unwrap());
        }
        assert!((3..=4).contains(&of_steady), "{of_steady} of 10 turns, for one tenant of three");
    }

    #[test]
    fn turns_of_few_idle_tenants_are_remembered() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        push(&mut queue, query_tenant("early"), now);
        for number in 0..=2 * IDLE_MAX {
            push(&mut queue, query_tenant(&format!("t{number}")), now);
            let taken = take(&mut queue, now).unwrap();
            queue.done(&TenantId::parse(&taken).unwrap());
        }
        assert_eq!(queue.idle.len(), IDLE_MAX);
        assert!(queue.idle.values().all(|served| *served > queue.forgotten) && queue.forgotten > 0);
        let served = queue.entry(TenantId::parse("new").unwrap()).served;
        assert_eq!(served, queue.forgotten, "a tenant that is not remembered gains nothing");
    }

    #[test]
    fn large_queries_return_to_their_place_in_the_queue() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        (0..2).for_each(|_| push(&mut queue, query_tenant("a"), now));
        let first = queue.take_untried().unwrap();
        let number = first.number;
        queue.put_back(first);
        let second = queue.take_untried().unwrap();
        assert_ne!(second.number, number);
        queue.put_back(second);
        assert!(queue.take_untried().is_none());
        assert_eq!(queue.take_whole(now).unwrap().number, number);
        assert_eq!((queue.waiting(), queue.running()), (1, 1));
    }
}
