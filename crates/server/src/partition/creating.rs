//! Submissions whose series are still to be created.

use crate::partition::submission::Submission;
use model::TenantId;
use std::collections::{HashMap, VecDeque};

/// Submissions that wait for series to be created, in turns: tenants take turns, and so do the submissions of each. One tenant
/// with a thousand requests waits as long as another with one.
#[derive(Debug, Default)]
pub(super) struct Creating {
    of_tenants: HashMap<TenantId, VecDeque<Submission>>,
    /// Tenants in the order of their turns; each is once in it.
    turns: VecDeque<TenantId>,
    len: usize,
}

impl Creating {
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of submissions.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a submission behind the others of its tenant.
    pub(super) fn push(&mut self, submission: Submission) {
        self.len += 1;
        if let Some(waiting) = self.of_tenants.get_mut(&submission.tenant) {
            return waiting.push_back(submission);
        }
        self.turns.push_back(submission.tenant.clone());
        self.of_tenants.insert(submission.tenant.clone(), VecDeque::from([submission]));
    }

    /// Takes the submission whose turn it is. If it is not complete after its turn, it is to be added again.
    pub(super) fn pop(&mut self) -> Option<Submission> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.of_tenants.get_mut(&tenant).expect("BUG: a tenant with a turn has a submission");
        let submission = waiting.pop_front().expect("BUG: a tenant with a turn has a submission");
        if waiting.is_empty() {
            self.of_tenants.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        self.len -= 1;
        Some(submission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tenants::Tenants;
    use model::ValueKind;
    use std::time::Instant;
    use tokio::sync::oneshot;

    #[test]
    fn tenants_take_turns_whatever_they_send() {
        let tenants = Tenants::new(1);
        let submission = |name: &str, number: usize| {
            let tenant = tenants.of(&TenantId::parse(name).unwrap(), || true, Instant::now());
            let mut submission = Submission::new(tenant, ValueKind::Float, oneshot::channel().0);
            submission.created = number; // only to tell them apart
            submission
        };
        let mut creating = Creating::default();
        (0..3).for_each(|number| creating.push(submission("many", number)));
        creating.push(submission("few", 10));
        let mut order = Vec::new();
        for _ in 0..6 {
            let submission = creating.pop().unwrap();
            order.push(submission.created);
            creating.push(submission);
        }
        assert_eq!((order, creating.len()), (vec![0, 10, 1, 10, 2, 10], 4));
        (0..4).for_each(|_| drop(creating.pop().unwrap()));
        assert!(creating.pop().is_none() && creating.is_empty());
    }
}
