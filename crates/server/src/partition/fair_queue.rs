//! Queue of submissions in which tenants take turns.

use crate::partition::submission::Submission;
use model::TenantId;
use std::collections::{HashMap, VecDeque};

/// Deficit round robin (Shreedhar and Varghese, 1995). In each round, a tenant may cause work that costs `quantum`
/// times its weight. Work is charged afterwards, so a tenant with debt misses rounds.
///
/// The limit on requests in progress bounds the queue's length.
#[derive(Debug)]
pub(super) struct FairQueue {
    of_tenants: HashMap<TenantId, OfTenant>,
    /// Tenants with waiting submissions. The first tenant has its turn.
    turns: VecDeque<TenantId>,
    quantum: u32,
    len: usize,
}

#[derive(Debug)]
struct OfTenant {
    waiting: VecDeque<Submission>,
    weight: usize,
    /// Cost of the work that the tenant may still cause in this round. Negative if the last submission cost more.
    credit: i64,
}

const IN_TURN: &str = "BUG: a tenant with a turn has no submission";

impl FairQueue {
    pub(super) fn new(quantum: u32) -> Self {
        assert!(quantum > 0, "BUG: the quantum of a fair queue is 0");
        Self { of_tenants: HashMap::new(), turns: VecDeque::new(), quantum, len: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, submission: Submission, weight: usize) {
        self.len += 1;
        if let Some(own) = self.of_tenants.get_mut(&submission.tenant) {
            own.weight = weight;
            return own.waiting.push_back(submission);
        }
        let tenant = submission.tenant.clone();
        self.turns.push_back(tenant.clone());
        self.of_tenants.insert(tenant, OfTenant { waiting: VecDeque::from([submission]), weight, credit: 0 });
    }

    /// Like [`Self::push`], but before the tenant's other submissions.
    pub(super) fn push_front(&mut self, submission: Submission, weight: usize) {
        let tenant = submission.tenant.clone();
        self.push(submission, weight);
        let waiting = &mut self.of_tenants.get_mut(&tenant).expect(IN_TURN).waiting;
        waiting.rotate_right(1);
    }

    /// Takes the next submission. After working on it, the caller must charge the tenant. If the submission is not
    /// complete, the caller pushes it again.
    pub(super) fn pop(&mut self) -> Option<Submission> {
        loop {
            let tenant = self.turns.front()?;
            let own = self.of_tenants.get_mut(tenant).expect(IN_TURN);
            if own.credit <= 0 {
                own.credit += i64::from(self.quantum) * own.weight as i64;
            }
            // a debt is at most the cost of one submission, so it is paid after a few rounds
            if own.credit <= 0 {
                self.turns.rotate_left(1);
                continue;
            }
            let submission = own.waiting.pop_front().expect(IN_TURN);
            if own.waiting.is_empty() {
                let tenant = self.turns.pop_front().expect(IN_TURN);
                self.of_tenants.remove(&tenant);
            }
            self.len -= 1;
            return Some(submission);
        }
    }

    pub(super) fn charge(&mut self, tenant: &TenantId, cost: usize) {
        let Some(own) = self.of_tenants.get_mut(tenant) else { return };
        own.credit -= i64::try_from(cost).unwrap_or(i64::MAX);
        if own.credit <= 0 && self.turns.front() == Some(tenant) {
            self.turns.rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tenant_state::TenantStates;
    use model::ValueKind;
    use std::time::Instant;
    use tokio::sync::oneshot;

    fn submission(tenants: &TenantStates, name: &str, number: usize) -> Submission {
        let tenant = tenants.of(&TenantId::parse(name).unwrap(), || true, Instant::now());
        let mut submission = Submission::new(tenant, ValueKind::Float, oneshot::channel().0);
        submission.created = number; // only to tell them apart
        submission
    }

    #[test]
    fn tenants_take_turns_whatever_they_send() {
        let tenants = TenantStates::for_test(1);
        let mut queue = FairQueue::new(32);
        (0..3).for_each(|number| queue.push(submission(&tenants, "many", number), 1));
        queue.push(submission(&tenants, "few", 10), 1);
        let mut order = Vec::new();
        for _ in 0..6 {
            let submission = queue.pop().unwrap();
            order.push(submission.created);
            queue.charge(&submission.tenant, 32);
            queue.push(submission, 1);
        }
        assert_eq!((order, queue.len()), (vec![0, 10, 1, 10, 2, 10], 4));
        (0..4).for_each(|_| drop(queue.pop().unwrap()));
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    /// Pops submissions `rounds` times and returns how much work was done for each tenant. A tenant is given as its
    /// name, the cost of each submission, and its weight.
    fn work(rounds: usize, tenants: &[(&str, usize, usize)]) -> Vec<usize> {
        let (states, mut queue) = (TenantStates::for_test(1), FairQueue::new(1000));
        for (name, _, weight) in tenants {
            (0..2).for_each(|_| queue.push(submission(&states, name, 0), *weight));
        }
        let mut done = vec![0; tenants.len()];
        for _ in 0..rounds {
            let submission = queue.pop().unwrap();
            let number = tenants.iter().position(|(name, ..)| submission.tenant.as_str() == *name).unwrap();
            let (_, cost, weight) = tenants[number];
            done[number] += cost;
            queue.charge(&submission.tenant, cost);
            queue.push(submission, weight);
        }
        done
    }

    #[test]
    fn turns_are_equal_in_cost_and_by_weight() {
        let equal = work(20_000, &[("small", 10, 1), ("large", 60_000, 1)]);
        assert!(equal[0].abs_diff(equal[1]) <= 62_000, "{equal:?}");
        let weighted = work(20_000, &[("light", 100, 1), ("heavy", 100, 3)]);
        assert!(weighted[1].abs_diff(3 * weighted[0]) <= 10_000, "{weighted:?}");
    }
}
