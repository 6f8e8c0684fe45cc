//! Routes bodies in turns, so that one whose rules take long does not keep the others waiting.
//!
//! ```text
//!   small body ─▶ turn in place ─┬─ done ──────────────────────────────────▶ routed
//!                                └─ rules take longer ─┐                       ▲
//!   large body ─▶ permit to decode ─▶ blocking thread ─┼───────── done ────────┘
//!                    ▲                                 │
//!                    └── behind other tenants' bodies ─┘
//! ```
//!
//! Between two turns, a body holds neither a thread nor a permit, only its memory. If its sender goes away, it ends there.

use super::route::{Arrival, Load, Route, Routed};
use super::{Context, internal};
use crate::limits::fair_permits::Permit;
use crate::refusal::Refusal;
use model::{Batch, LabelsBuilder, Principal, TenantId};
use protocol::EncodedLabels;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::budget::Reservation;
use stdx::clock::Clock;

/// How long rules may be applied to a body until it is the turn of others. Only the rules for one series can take longer, at
/// most 0.2 s.
#[derive(Debug)]
pub(super) struct Turn {
    /// `None` for a turn without an end.
    rules: Option<Duration>,
    /// A series that may need more steps than this waits for the next turn.
    steps_max: usize,
}

impl Turn {
    pub(super) const WHOLE: Self = Self { rules: None, steps_max: usize::MAX };

    /// On a thread with async code, whose other tasks wait. Usual rules take less than a hundredth of the steps that their
    /// expressions may take.
    const IN_PLACE: Self = Self { rules: Some(Duration::from_micros(500)), steps_max: 2 << 20 };

    const ON_THREAD: Self = Self { rules: Some(Duration::from_millis(100)), steps_max: usize::MAX };

    /// The rules take at most `steps_per_byte` steps for each byte of a series.
    pub(super) const fn begin<'a>(&'a self, clock: &'a dyn Clock, steps_per_byte: usize) -> Running<'a> {
        Running { turn: self, clock, steps_per_byte, until: None }
    }
}

#[derive(Debug)]
pub(super) struct Running<'a> {
    turn: &'a Turn,
    clock: &'a dyn Clock,
    steps_per_byte: usize,
    /// `None` before rules were applied.
    until: Option<Instant>,
}

impl Running<'_> {
    /// True if rules must not be applied to another series in this turn. It has `bytes` of labels.
    ///
    /// A turn on a blocking thread has at least one series, so that each turn comes further.
    pub(super) fn is_over(&mut self, bytes: usize) -> bool {
        if bytes.saturating_mul(self.steps_per_byte) > self.turn.steps_max {
            return true;
        }
        let Some(rules) = self.turn.rules else { return false };
        let now = self.clock.instant();
        now >= *self.until.get_or_insert(now + rules)
    }
}

/// What became of a body in a turn: it is routed, or must go on in another turn.
pub(super) type Step<W> = ControlFlow<(Routed, Reservation), Box<W>>;

/// Routes a body in as many turns as it needs. The first one is on a blocking thread if the caller passes a permit for it in
/// `thread`.
pub(super) async fn in_turns<W: Send + 'static>(
    context: &Arc<Context>,
    tenant: &TenantId,
    thread: Option<Permit<TenantId>>,
    begin: impl FnOnce(&Turn) -> Result<Step<W>, Refusal> + Send + 'static,
    go_on: impl Fn(Box<W>, &Turn) -> Result<Step<W>, Refusal> + Clone + Send + 'static,
) -> Result<(Routed, Reservation), Refusal> {
    let mut step = match thread {
        Some(permit) => on_thread(context, permit, begin).await?,
        None => {
            let _passing = context.traffic.enter();
            let _turn = context.gates.decoding_turn(tenant).await;
            begin(&Turn::IN_PLACE)?
        }
    };
    loop {
        let work = match step {
            Step::Break(routed) => return Ok(routed),
            Step::Continue(work) => work,
        };
        let permit = context.gates.decoding_permit(tenant).await;
        let go_on = go_on.clone();
        step = on_thread(context, permit, move |turn| go_on(work, turn)).await?;
    }
}

async fn on_thread<W: Send + 'static>(
    context: &Arc<Context>,
    permit: Permit<TenantId>,
    work: impl FnOnce(&Turn) -> Result<Step<W>, Refusal> + Send + 'static,
) -> Result<Step<W>, Refusal> {
    let _passing = context.traffic.enter();
    let task = tokio::task::spawn_blocking(move || {
        let step = work(&Turn::ON_THREAD);
        drop(permit); // it is held until the turn ends
        step
    });
    task.await.map_err(|error| internal(format!("decoding failed: {error}")))?
}

/// A batch that no decoder has made.
pub(super) struct Given {
    batch: Batch,
    labels: LabelsBuilder,
    memory: Reservation,
    route: Route,
}

impl Given {
    /// Must be called as the first step of [`in_turns`].
    pub(super) fn begin(
        context: &Arc<Context>,
        principal: Principal,
        arrival: Arrival,
        mut batch: Batch,
        mut memory: Reservation,
        turn: &Turn,
    ) -> Result<Step<Self>, Refusal> {
        let mut labels = LabelsBuilder::new();
        let mut load =
            Load { form: &EncodedLabels, batch: &mut batch, labels: &mut labels, memory: &mut memory };
        let route = Route::begin(context, principal, arrival, &mut load)?;
        Self::go_on(Box::new(Self { batch, labels, memory, route }), turn)
    }

    pub(super) fn go_on(mut given: Box<Self>, turn: &Turn) -> Result<Step<Self>, Refusal> {
        let Self { batch, labels, memory, route } = &mut *given;
        let mut load = Load { form: &EncodedLabels, batch, labels, memory };
        if !route.decide(&mut load, turn)? {
            return Ok(Step::Continue(given));
        }
        let routed = route.finish(&mut load)?;
        Ok(Step::Break((routed, given.memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::clock::ManualClock;

    #[test]
    fn a_turn_ends_after_its_time_and_before_a_series_that_may_take_long() {
        let clock = ManualClock::at(0);
        let mut in_place = Turn::IN_PLACE.begin(&clock, 1000);
        assert!(in_place.is_over(3000), "3 million steps");
        assert!(!in_place.is_over(2000));
        clock.advance(1);
        assert!(in_place.is_over(10));
        for _ in 0..3 {
            let mut on_thread = Turn::ON_THREAD.begin(&clock, 1000);
            assert!(!on_thread.is_over(usize::MAX), "there is no progress");
            clock.advance(99);
            assert!(!on_thread.is_over(10));
            clock.advance(1);
            assert!(on_thread.is_over(10));
        }
        let mut whole = Turn::WHOLE.begin(&clock, usize::MAX);
        assert!(!whole.is_over(usize::MAX));
        clock.advance(1_000_000);
        assert!(!whole.is_over(usize::MAX));
    }
}
