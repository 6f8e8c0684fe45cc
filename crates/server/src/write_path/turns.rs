//! Routes bodies in turns, so that one whose rules take long does not keep the others waiting.
//!
//! ```text
//!   small body ─▶ turn in place ─┬─ done ──────────────────────────────────▶ routed
//!                                └─ rules take longer ─┐                       ▲
//!   large body ─▶ permit to decode ─▶ blocking thread ─┼─ decided ─▶ place ────┘
//!                    ▲                                 │
//!                    └── behind other tenants' bodies ─┘
//! ```
//!
//! A body begins with a place among the requests in progress. If its rules need more than the first turn, it gives the place back,
//! and enters again once they are decided. It looks up its series only then. If there is no place at that time, it waits for
//! one, and comes before new requests of its tenant: to be refused would mean that the rules are applied again.
//!
//! Between two turns, a body holds neither a place, nor a thread, nor a permit, only its memory. If its sender goes away, it ends there.

use super::gates::Place;
use super::route::{Arrival, Load, Route, Routed};
use super::{Context, internal};
use crate::limits::fair_permits::Permit;
use crate::refusal::Refusal;
use model::{Batch, LabelsBuilder, Principal, TenantId};
use protocol::EncodedLabels;
use rules::SEARCHED_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::budget::Reservation;
use stdx::clock::Clock;
use stdx::telemetry::{Histogram, LATENCY_BUCKETS_S, Registry};

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

    /// On a thread for large bodies. Others wait for it until the turn ends, so a turn is as long as these may be delayed. Handing the
    /// thread over takes tens of microseconds.
    const ON_THREAD: Self = Self { rules: Some(Duration::from_millis(10)), steps_max: usize::MAX };

    pub(super) const fn begin<'a>(&'a self, clock: &'a dyn Clock, cost: RuleCost) -> Running<'a> {
        Running { turn: self, clock, cost, until: None }
    }
}

/// How many steps rules may take for a series.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RuleCost {
    pub(super) per_byte: usize,
    /// For each byte that rewrite rules look at again, after each match in a name. 0 without such rules.
    pub(super) per_searched_byte: usize,
}

impl RuleCost {
    /// Steps for a series with `bytes` of labels. More are possible if several rules match, or if rules make the name longer.
    fn steps(self, bytes: usize) -> usize {
        let searched = (bytes.saturating_mul(bytes) / 2).min(SEARCHED_BYTES_MAX);
        bytes.saturating_mul(self.per_byte).saturating_add(searched.saturating_mul(self.per_searched_byte))
    }
}

#[derive(Debug)]
pub(super) struct Running<'a> {
    turn: &'a Turn,
    clock: &'a dyn Clock,
    cost: RuleCost,
    /// `None` before rules were applied.
    until: Option<Instant>,
}

impl Running<'_> {
    /// True if rules must not be applied in this turn to another series, with `bytes` of labels.
    ///
    /// A turn on a blocking thread has at least one series, so that each turn comes further.
    pub(super) fn is_over(&mut self, bytes: usize) -> bool {
        if self.cost.steps(bytes) > self.turn.steps_max {
            return true;
        }
        let Some(rules) = self.turn.rules else { return false };
        let now = self.clock.instant();
        now >= *self.until.get_or_insert(now + rules)
    }
}

/// A body that is routed in turns.
pub(super) trait Work: Send + 'static {
    /// Applies rules until the turn ends. Returns false if they must go on in another turn.
    fn decide(&mut self, turn: &Turn) -> Result<bool, Refusal>;

    /// Looks up the series. Must be called once [`Self::decide`] has returned true.
    fn finish(self: Box<Self>) -> Result<(Routed, Reservation), Refusal>;

    /// The body begins to wait for its next turn. Gives back memory that was reserved ahead, as far as it will probably not be needed.
    fn rest(&mut self);
}

/// A routed body, with its memory and its place.
pub(super) struct Done {
    pub(super) routed: Routed,
    pub(super) memory: Reservation,
    pub(super) place: Place,
}

/// What became of a body in a turn.
pub(super) enum Step<W> {
    Done(Box<Done>),
    /// Its rules must go on.
    Rules(Box<W>),
    /// Its rules are decided, but there was no place.
    Decided(Box<W>),
}

/// Routes a body in as many turns as it needs. The first one is on a blocking thread if the caller passes a permit for it in
/// `thread`.
pub(super) async fn in_turns<W: Work>(
    context: &Arc<Context>,
    tenant: &TenantId,
    thread: Option<Permit<TenantId>>,
    place: Place,
    begin: impl FnOnce() -> Result<Box<W>, Refusal> + Send + 'static,
) -> Result<Done, Refusal> {
    let first = first_turn(context, tenant, thread, place, begin).await?;
    later_turns(context, tenant, first).await
}

/// The first of the turns of [`in_turns`].
pub(super) async fn first_turn<W: Work>(
    context: &Arc<Context>,
    tenant: &TenantId,
    thread: Option<Permit<TenantId>>,
    place: Place,
    begin: impl FnOnce() -> Result<Box<W>, Refusal> + Send + 'static,
) -> Result<Step<W>, Refusal> {
    match thread {
        Some(permit) => on_thread(context, tenant, permit, Some(place), begin).await,
        None => {
            let _passing = context.traffic.enter();
            let _turn = context.gates.decoding_turn(tenant).await;
            take_turn(context, tenant, begin()?, &Turn::IN_PLACE, Some(place))
        }
    }
}

/// All other turns. Nothing is written before this returns.
pub(super) async fn later_turns<W: Work>(
    context: &Arc<Context>,
    tenant: &TenantId,
    mut step: Step<W>,
) -> Result<Done, Refusal> {
    let gates = &context.gates;
    loop {
        let (work, place, permit) = match step {
            Step::Done(done) => return Ok(*done),
            Step::Rules(work) => {
                let _waiting = context.metrics.turns.rules.begin();
                (work, None, gates.decoding_permit(tenant).await)
            }
            Step::Decided(work) => {
                let _waiting = context.metrics.turns.places.begin();
                let settings = context.overrides.current();
                let pass = gates.enter_when_free(tenant, settings.of(tenant)).await;
                (work, Some(Place::new(pass, None)), gates.decoding_permit_first(tenant).await)
            }
        };
        step = on_thread(context, tenant, permit, place, move || Ok(work)).await?;
    }
}

async fn on_thread<W: Work>(
    context: &Arc<Context>,
    tenant: &TenantId,
    permit: Permit<TenantId>,
    place: Option<Place>,
    begin: impl FnOnce() -> Result<Box<W>, Refusal> + Send + 'static,
) -> Result<Step<W>, Refusal> {
    let _passing = context.traffic.enter();
    let (context, tenant) = (Arc::clone(context), tenant.clone());
    let task = tokio::task::spawn_blocking(move || {
        let step = begin().and_then(|work| take_turn(&context, &tenant, work, &Turn::ON_THREAD, place));
        drop(permit); // it is held until the turn ends
        step
    });
    task.await.map_err(|error| internal(format!("decoding failed: {error}")))?
}

fn take_turn<W: Work>(
    context: &Context,
    tenant: &TenantId,
    mut work: Box<W>,
    turn: &Turn,
    place: Option<Place>,
) -> Result<Step<W>, Refusal> {
    if !work.decide(turn)? {
        work.rest();
        return Ok(Step::Rules(work)); // without its place
    }
    let place = place.or_else(|| {
        let settings = context.overrides.current();
        let pass = context.gates.enter(tenant, settings.of(tenant)).ok()?;
        Some(Place::new(pass, None))
    });
    let Some(place) = place else {
        work.rest();
        return Ok(Step::Decided(work));
    };
    let (routed, memory) = work.finish()?;
    Ok(Step::Done(Box::new(Done { routed, memory, place })))
}

/// A batch that no decoder has made.
pub(super) struct Given {
    batch: Batch,
    labels: LabelsBuilder,
    memory: Reservation,
    route: Route,
}

impl Given {
    pub(super) fn begin(
        context: &Arc<Context>,
        principal: Principal,
        arrival: Arrival,
        mut batch: Batch,
        mut memory: Reservation,
    ) -> Result<Box<Self>, Refusal> {
        let mut labels = LabelsBuilder::new();
        let mut load =
            Load { form: &EncodedLabels, batch: &mut batch, labels: &mut labels, memory: &mut memory };
        let route = Route::begin(context, principal, arrival, &mut load)?;
        Ok(Box::new(Self { batch, labels, memory, route }))
    }
}

impl Work for Given {
    fn decide(&mut self, turn: &Turn) -> Result<bool, Refusal> {
        let Self { batch, labels, memory, route } = self;
        route.decide(&mut Load { form: &EncodedLabels, batch, labels, memory }, turn)
    }

    fn finish(mut self: Box<Self>) -> Result<(Routed, Reservation), Refusal> {
        let Self { batch, labels, memory, route } = &mut *self;
        let routed = route.finish(&mut Load { form: &EncodedLabels, batch, labels, memory })?;
        Ok((routed, self.memory))
    }

    fn rest(&mut self) {
        self.route.rest(); // nothing is reserved ahead
    }
}

/// Metrics of bodies that wait between two turns.
#[derive(Debug)]
pub(crate) struct TurnMetrics {
    /// For the rules to go on.
    rules: Waiting,
    /// For a place, once the rules are decided.
    places: Waiting,
}

#[derive(Debug)]
struct Waiting {
    bodies: Arc<AtomicU64>,
    seconds: Histogram,
}

impl TurnMetrics {
    pub(crate) fn new(r: &Registry) -> Self {
        let waiting = |what| {
            let bodies = Arc::<AtomicU64>::default();
            let read = Arc::clone(&bodies);
            let help = "Bodies whose rules take long and that wait between two turns, by what they wait for.";
            let labels = &[("for", what)];
            r.gauge_fn("floodmark_ingest_rules_waiting_requests", help, labels, move || {
                read.load(Ordering::Relaxed) as f64
            });
            let help = "Time that a body waited between two turns, by what it waited for.";
            let name = "floodmark_ingest_rules_wait_seconds";
            Waiting { bodies, seconds: r.histogram(name, help, labels, LATENCY_BUCKETS_S) }
        };
        Self { rules: waiting("turn"), places: waiting("place") }
    }
}

impl Waiting {
    /// Counts a body as waiting until the result is dropped.
    fn begin(&self) -> Waits<'_> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        Waits { waiting: self, since: Instant::now() }
    }
}

struct Waits<'a> {
    waiting: &'a Waiting,
    since: Instant,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.waiting.bodies.fetch_sub(1, Ordering::Relaxed);
        self.waiting.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::clock::ManualClock;

    #[test]
    fn a_turn_ends_after_its_time_and_before_a_series_that_may_take_long() {
        let clock = ManualClock::at(0);
        let cost = RuleCost { per_byte: 1000, per_searched_byte: 0 };
        let rewrites = RuleCost { per_byte: 64, per_searched_byte: 64 };
        let mut rewriting = Turn::IN_PLACE.begin(&clock, rewrites);
        assert!(!rewriting.is_over(200) && rewriting.is_over(300), "names with many matches take a thread");
        let mut in_place = Turn::IN_PLACE.begin(&clock, cost);
        assert!(in_place.is_over(3000), "3 million steps");
        assert!(!in_place.is_over(2000));
        clock.advance(1);
        assert!(in_place.is_over(10));
        for _ in 0..3 {
            let mut on_thread = Turn::ON_THREAD.begin(&clock, cost);
            assert!(!on_thread.is_over(usize::MAX), "there is no progress");
            clock.advance(9);
            assert!(!on_thread.is_over(10));
            clock.advance(1);
            assert!(on_thread.is_over(10));
        }
        let mut whole = Turn::WHOLE.begin(&clock, RuleCost { per_byte: usize::MAX, ..cost });
        assert!(!whole.is_over(usize::MAX));
        clock.advance(1_000_000);
        assert!(!whole.is_over(usize::MAX));
    }
}
