use super::Driver;
use crate::clock::SimClock;
use crate::plan::Plan;
use crate::traffic::Times;
use stdx::clock::Clock;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The errors that the node's clock can have. A clock that is ahead is never wrong by between [`DRIFT_MS`]
/// and a day, because a node that starts would trust such a jump.
const ERRORS_MS: [i64; 8] =
    [0, 0, DRIFT_MS, 2 * DAY_MS, 30 * DAY_MS, 365 * DAY_MS, -3 * HOUR_MS, -12 * HOUR_MS];

/// An error of the clock up to this size cannot be detected.
const DRIFT_MS: i64 = 20 * MINUTE_MS;

/// A wrong clock is corrected within this time. It must be less than a day, because after a day the node may
/// trust the wrong clock.
const NOTICED_MS: i64 = 20 * HOUR_MS;

/// After this time, the node trusts its clock, if the clock was not set meanwhile.
const BELIEVED_MS: u64 = 8 * DAY_MS as u64;

/// What time it is for the node and for the senders, whose clocks are always right.
pub(super) fn times(plan: &Plan, clock: &SimClock) -> Times {
    let node_ms = clock.now_ms();
    Times { senders_ms: if plan.wrong_clocks { clock.true_ms() } else { node_ms }, node_ms }
}

impl Driver {
    /// Lets time pass. If the clock would be wrong for longer than [`NOTICED_MS`], it is corrected first.
    pub(super) fn advance(&mut self) {
        let most = [1000, 20_000, 1_000_000, 20_000_000][self.below(4) as usize];
        let by_ms = self.below(most);
        let wrong_for_ms = self.wrong_since_ms.map_or(0, |since_ms| self.clock.steady_ms() - since_ms);
        if wrong_for_ms + by_ms as i64 > NOTICED_MS {
            self.correct_clock();
        }
        self.trace(format!("{by_ms} ms pass"));
        self.clock.advance(by_ms);
    }

    pub(super) fn set_clock(&mut self) {
        if self.plan.wrong_clocks {
            return self.draw_clock_error();
        }
        let by_ms = self.below(2 * 7_200_000) as i64 - 7_200_000;
        self.trace(format!("clock set by {by_ms} ms"));
        self.clock.set(by_ms);
    }

    pub(super) fn draw_clock_error(&mut self) {
        let error_ms = ERRORS_MS[self.below(ERRORS_MS.len() as u64) as usize];
        self.trace(format!("the clock is wrong by {error_ms} ms"));
        self.clock.set_wrong_by(error_ms);
        if error_ms == 0 {
            self.wrong_since_ms = None;
        } else {
            self.wrong_since_ms.get_or_insert(self.clock.steady_ms());
        }
    }

    fn correct_clock(&mut self) {
        self.trace("the clock is corrected");
        self.clock.set_wrong_by(0);
        self.wrong_since_ms = None;
    }

    /// Tells the model which samples may be gone because they are older than the retention.
    pub(super) fn expire(&self) {
        let Some(retention_ms) = self.plan.retention_ms else { return };
        let now_ms =
            if self.plan.wrong_clocks { self.clock.true_ms() + DRIFT_MS } else { self.clock.now_ms() };
        let before_ms = now_ms - retention_ms;
        (0..self.plan.tenants).for_each(|tenant| self.traffic.borrow_mut().model.expire(tenant, before_ms));
    }

    pub(super) fn check_expiry(&mut self) -> Result<(), String> {
        self.correct_clock();
        self.keep();
        self.clock.next_step();
        self.clock.advance(BELIEVED_MS);
        self.keep();
        let left = crate::check::in_tables(self.node(), &self.fleet)?;
        match left.keys().next() {
            Some(key) => Err(format!("samples that did not expire: {}, {key:?} among them", left.len())),
            None => self.check_now(),
        }
    }
}
