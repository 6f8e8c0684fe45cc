//! Named faults: each bends a plan so that every run of it meets one kind of trouble early and often.
//!
//! The everyday mix of [`Plan::of`] has all that is cheap to have in every run. What needs settings, traffic or steps of
//! its own is a fault, with seeds of its own in the tests, so that a failure says by its name where to look.

use crate::plan::{Plan, Step};
use clap::ValueEnum;
use stdx::rng::Rng;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Clients repeat requests: after a refusal, after a lost answer, across restarts, beside the first copy.
    Resends,
    /// Samples come late, inside the out-of-order window and beyond it.
    LateSamples,
}

impl Fault {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Resends, Self::LateSamples];

    /// Steps of a run, before it drains: at least, and how many more at most.
    const STEPS: (usize, u64) = (25, 40);

    /// The name that the command line takes.
    pub fn name(self) -> String {
        self.to_possible_value().expect("BUG: no fault is hidden").get_name().to_string()
    }

    /// Bends a plan.
    pub fn apply(self, plan: &mut Plan, rng: &mut Rng) {
        plan.steps = Self::STEPS.0 + rng.below(Self::STEPS.1) as usize;
        match self {
            Self::Resends => {
                plan.load.resends = 0.3 + 0.4 * rng.unit();
                plan.weights.at_least(Step::Crash, 3);
                plan.weights.at_least(Step::Flush, 6);
            }
            Self::LateSamples => {
                plan.load.window_ms = Some([1000, 60_000, 3_600_000][rng.below(3) as usize]);
                // a series that was evicted has no newest sample, and takes any
                plan.evicts = rng.chance(0.3);
                plan.load.metadata = !plan.evicts;
            }
        }
    }
}
