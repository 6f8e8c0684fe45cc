//! Cuts a run into questions whose answers stay small.

use crate::fleet::JOBS;
use crate::plan::Plan;
use std::ops::Range;

/// One question: a metric over some rounds, perhaps of one job only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// Number of the metric.
    pub(super) metric: u32,
    /// In all of which the metric has the same name.
    pub(super) rounds: Range<u32>,
    /// Targets whose number leaves this remainder by [`JOBS`]; all targets without it.
    pub(super) job: Option<u64>,
    /// What selects it.
    pub(super) selector: String,
}

/// All questions about a run.
#[derive(Debug)]
pub(super) struct Pages {
    /// Rounds of each page, in order.
    chunks: Vec<Range<u32>>,
    metrics: u32,
    /// How many parts by job, if any.
    jobs: Option<u64>,
}

impl Pages {
    /// For the first `rounds` rounds, at about `samples_max` samples a page.
    pub(super) fn new(plan: &Plan, rounds: u32, samples_max: u64) -> Self {
        let targets = plan.targets * u64::from(plan.writers);
        let jobs = (targets > samples_max && plan.fleet.has_job()).then_some(JOBS);
        let targets_of_page = targets.div_ceil(jobs.unwrap_or(1)).max(1);
        let step = u32::try_from((samples_max / targets_of_page).max(1)).unwrap_or(u32::MAX);
        let mut chunks = Vec::new();
        let mut first = 0;
        while first < rounds {
            let mut end = first.saturating_add(step).min(rounds);
            if let Some(ticks) = plan.metric_churn_ticks {
                // up to the next renaming
                let left = ticks - plan.tick(first) % ticks;
                end = end.min(first.saturating_add(u32::try_from(left).unwrap_or(u32::MAX)));
            }
            chunks.push(first..end);
            first = end;
        }
        Self { chunks, metrics: plan.metrics, jobs }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.chunks.len() as u64 * self.parts()
    }

    /// Page number `number`: those of the same rounds follow each other.
    pub(super) fn get(&self, plan: &Plan, number: u64) -> Option<Page> {
        let (chunk, part) = (number / self.parts(), number % self.parts());
        let rounds = self.chunks.get(usize::try_from(chunk).ok()?)?.clone();
        let jobs = self.jobs.unwrap_or(1);
        let (job, metric) = (part / u64::from(self.metrics), (part % u64::from(self.metrics)) as u32);
        debug_assert!(job < jobs);
        let name = plan.fleet.metric_name(metric, plan.metric_generation(rounds.start));
        let job = self.jobs.map(|_| job);
        let selector = match job {
            Some(job) => format!("{name}{{job=\"{}\"}}", plan.fleet.job(job)),
            None => name,
        };
        Some(Page { metric, rounds, job, selector })
    }

    fn parts(&self) -> u64 {
        u64::from(self.metrics) * self.jobs.unwrap_or(1)
    }
}

impl Page {
    /// The range of time that holds its samples, both ends included, in ms.
    pub(super) fn times(&self, plan: &Plan) -> (i64, i64) {
        (plan.round_ms(self.rounds.start), plan.round_ms(self.rounds.end) - 1)
    }

    /// True for targets that it is about.
    pub(super) fn has_target(&self, target: u64) -> bool {
        self.job.is_none_or(|job| target % JOBS == job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::small;

    #[test]
    fn pages_cover_each_metric_and_round_once_and_stay_small() {
        for (samples_max, churn) in [(1_000_000, None), (100, None), (21, Some(7)), (5, None)] {
            let plan = Plan { metric_churn_ticks: churn, ..small() };
            let pages = Pages::new(&plan, 50, samples_max);
            let mut seen = std::collections::HashSet::new();
            for number in 0..pages.len() {
                let page = pages.get(&plan, number).unwrap();
                let targets = (14..35).filter(|t| page.has_target(*t));
                let samples = targets.clone().count() * page.rounds.len();
                assert!(samples as u64 <= samples_max.max(2), "{samples} of {samples_max}");
                for (target, round) in targets.flat_map(|t| page.rounds.clone().map(move |r| (t, r))) {
                    assert!(seen.insert((target, page.metric, round)));
                    assert_eq!(
                        plan.metric_generation(round),
                        plan.metric_generation(page.rounds.start),
                        "one name"
                    );
                }
            }
            assert_eq!(seen.len(), 21 * 5 * 50);
            assert_eq!(pages.get(&plan, pages.len()), None);
        }
    }
}
