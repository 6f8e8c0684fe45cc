//! Jobs that were interrupted because they took too long.
//!
//! An interrupted job leaves no result. So it gets twice as much time at the next attempt, and its table's other jobs
//! come first. After its fifth attempt it rests for an hour after each, so that it leaves time to others. Patterns of
//! deletes can make jobs this slow; queries hide the deleted samples meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time limit of a job's first attempt, besides the time for its bytes ([`BYTES_PER_SECOND`]).
pub(super) const JOB_TIME: Duration = Duration::from_secs(10);

/// Speed that the time limit allows for. A merge is several times as fast, even on a busy machine.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// From this interruption on, a job rests after each one. The fifth attempt has 16 times the time of the
/// first: 160 s for a small job, and 37 minutes for one of 512 MiB.
const INTERRUPTIONS_MAX: u32 = 5;

/// The time of an attempt is at most 2^7 times that of the first. So a small job keeps others waiting for 21 minutes at
/// most, and a large one ends even if it reads only 32 KiB a second.
const DOUBLINGS_MAX: u32 = 7;

const REST: Duration = Duration::from_secs(3600);

/// If more jobs are interrupted, some are forgotten, and begin again with the time of a first attempt.
const JOBS_MAX: usize = 1000;

/// The slow jobs of a table, by the path of their first file, or by their day.
#[derive(Debug, Default)]
pub(super) struct SlowJobs(BTreeMap<String, Slow>);

#[derive(Debug)]
struct Slow {
    interruptions: u32,
    at: Instant,
}

impl SlowJobs {
    /// Time for the next attempt.
    pub(super) fn allowed(&self, job: &str, bytes: u64) -> Duration {
        let first = JOB_TIME.saturating_add(Duration::from_secs(bytes / BYTES_PER_SECOND));
        first.saturating_mul(2_u32.pow(self.interruptions(job).min(DOUBLINGS_MAX)))
    }

    pub(super) fn interruptions(&self, job: &str) -> u32 {
        self.0.get(job).map_or(0, |slow| slow.interruptions)
    }

    pub(super) fn rests(&self, job: &str, now: Instant) -> bool {
        self.0.get(job).is_some_and(|slow| {
            slow.interruptions >= INTERRUPTIONS_MAX && now.saturating_duration_since(slow.at) < REST
        })
    }

    /// Returns true if the job rests from now on.
    pub(super) fn interrupted(&mut self, job: &str, now: Instant) -> bool {
        if self.0.len() >= JOBS_MAX && !self.0.contains_key(job) {
            self.0.pop_first();
        }
        let slow = self.0.entry(job.into()).or_insert(Slow { interruptions: 0, at: now });
        *slow = Slow { interruptions: slow.interruptions.saturating_add(1), at: now };
        slow.interruptions >= INTERRUPTIONS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ended(&mut self, job: &str) {
        self.0.remove(job);
    }

    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|job, _| exists(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_job_gets_more_time_and_then_rests() {
        let (mut jobs, now) = (SlowJobs::default(), Instant::now());
        let mut allowed = Vec::new();
        while !jobs.rests("a", now) {
            allowed.push(jobs.allowed("a", 8 << 20).as_secs());
            assert_eq!(jobs.interrupted("a", now), allowed.len() == 5);
        }
        assert_eq!(allowed, [12, 24, 48, 96, 192]);
        let later = now + REST;
        assert!(!jobs.rests("a", later) && !jobs.rests("b", now));
        assert_eq!(jobs.allowed("a", 8 << 20).as_secs(), 384, "the rest does not begin the times anew");
        assert!(jobs.interrupted("a", later) && jobs.rests("a", later));
        jobs.ended("a");
        assert_eq!((jobs.interruptions("a"), jobs.allowed("a", 0)), (0, JOB_TIME));
        (0..2 * JOBS_MAX).for_each(|n| _ = jobs.interrupted(&n.to_string(), now));
        assert_eq!(jobs.0.len(), JOBS_MAX);
        jobs.retain(|_| false);
        assert!(jobs.0.is_empty());
    }
}
