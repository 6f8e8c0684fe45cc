//! Says which slots of a tenant send at a given time, so that the load grows, shrinks and pauses by its shape.

use crate::generate::plan::{Plan, SlotRange};
use crate::scenario::Grow;
use crate::scenario::shape::Course;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct TimeShare {
    course: Arc<Course>,
    outages: Vec<(f64, f64)>,
    grow: Grow,
    /// Index of this tenant. When the load's factor is 1, the first `tenants` tenants are active.
    tenant: u32,
    tenants: u32,
    pub(crate) first_writer: u32,
    /// Number of slots that this tenant has, on all machines together, when the load's factor is 1.
    slots_plain: u64,
    slots_all: u64,
}

impl TimeShare {
    pub(crate) fn new(
        course: Arc<Course>,
        grow: Grow,
        (tenant, tenants): (u32, u32),
        (slots_plain, slots_all): (u64, u64),
    ) -> Self {
        let outages = course.outages();
        Self { course, outages, grow, tenant, tenants, first_writer: 0, slots_plain, slots_all }
    }

    /// True if a slot of `plan` should send at `at_s` seconds since the start.
    pub(crate) fn has(&self, plan: &Plan, slot: SlotRange, at_s: f64) -> bool {
        let index = slot.first / u64::from(plan.batch);
        self.slots_before(plan) + u64::from(slot.writer) * plan.writer_slots() as u64 + index
            < self.slots_at(at_s)
    }

    /// Number of the tenant's slots on other machines whose writers come before the writers of `plan`.
    fn slots_before(&self, plan: &Plan) -> u64 {
        u64::from(plan.first_writer - self.first_writer) * plan.writer_slots() as u64
    }

    /// Number of the tenant's slots, on all machines together, that should send at `at_s`.
    pub(crate) fn slots_at(&self, at_s: f64) -> u64 {
        let factor = self.course.factor(at_s);
        let slots = match self.grow {
            Grow::Writers => factor * self.slots_plain as f64,
            Grow::Tenants => {
                let there = factor * f64::from(self.tenants) - f64::from(self.tenant);
                there.clamp(0.0, 1.0) * self.slots_all as f64
            }
        };
        // without this tolerance, a rounding error could add a slot
        ((slots - 1e-3).ceil().max(0.0) as u64).min(self.slots_all)
    }

    /// Number of series that are active on this machine at `at_s`.
    pub(crate) fn series_at(&self, plan: &Plan, at_s: f64) -> f64 {
        let here = self.slots_at(at_s).saturating_sub(self.slots_before(plan)).min(plan.slots_count() as u64);
        here as f64 * plan.series() as f64 / plan.slots_count() as f64
    }

    /// Returns when a request that is due at `due_s` may be sent: if the senders pause at that time, when the pause
    /// ends, otherwise at `due_s`.
    pub(crate) fn delayed(&self, due_s: f64) -> f64 {
        self.outages.iter().find(|(from, to)| (*from..*to).contains(&due_s)).map_or(due_s, |(_, to)| *to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Shape;

    fn time_share(text: &str, tenant: u32) -> TimeShare {
        let shape: Shape = toml::from_str(text).unwrap();
        let course = Arc::new(shape.over(100.0, 1.0));
        let all = match shape.grow {
            Grow::Writers => (10.0 * course.factor_max()).ceil() as u64,
            Grow::Tenants => 10,
        };
        TimeShare::new(course, shape.grow, (tenant, 4), (10, all))
    }

    #[test]
    fn loads_grow_by_writers_or_by_tenants() {
        let slots = |text: &str, at| (0..5).map(|t| time_share(text, t).slots_at(at)).collect::<Vec<_>>();
        assert_eq!(slots("", 0.0), [10; 5]);
        assert_eq!(slots("kind = 'ladder'", 0.0), [2; 5]);
        assert_eq!(slots("kind = 'stress'\nfactor = 1.25", 0.0), [13; 5]);
        assert_eq!(slots("kind = 'stress'\nfactor = 1.25\ngrow = 'tenants'", 0.0), [10; 5]);
        assert_eq!(slots("kind = 'ladder'\ngrow = 'tenants'", 0.0), [8, 0, 0, 0, 0]);
        assert_eq!(slots("grow = 'tenants'", 0.0), [10, 10, 10, 10, 0]);
    }

    #[test]
    fn paused_slots_keep_their_series() {
        let time_share = time_share("kind = 'outage'\nat = ['10s']\nfor = '5s'", 0);
        assert_eq!([9.0, 10.0, 14.9, 15.0].map(|at| time_share.delayed(at)), [9.0, 15.0, 15.0, 15.0]);
    }
}
