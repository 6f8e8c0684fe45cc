//! The path of a write: from an authenticated sender and an encoded request to the outcome.
//!
//! ```text
//!   principal ─▶ admit: may it write now?
//!   request ─▶ gate ─▶ resolve: Decoder (bytes to batch) ─▶ route (times, keys; batch to submissions)
//!   increments of exponential histograms ─▶ totals: added up, then the request is resolved again, in parts
//!   submissions ─▶ gate of those that create series ─▶ store: submit to owners, wait until durable ─▶ outcome
//! ```
//!
//! Each protocol has a [`protocol::Decoder`]. A listener reads the request, calls [`write`] and formats the answer.

mod admission_facts;
pub(crate) mod aggregator;
pub(crate) mod aliases;
mod context;
mod decoder_pool;
pub(crate) mod gates;
mod in_use;
pub(crate) mod ingest;
pub(crate) mod known;
pub(crate) mod names;
mod points;
mod replicas;
mod route;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod turns;

pub(crate) use context::Context;
pub(crate) use decoder_pool::{Decoders, Encoded, Origin};
pub(crate) use in_use::InUse;
pub(crate) use replicas::ElectedReplicas;
pub(crate) use totals::{Steps, Total};
pub(crate) use turns::TurnMetrics;

use crate::ingest_rules::TenantList;
use crate::limits::fair_permits::Permit;
use crate::limits::gate::Pass;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::{Answer, NewPart, NewSeries, Outcome, Submission};
use crate::partition::{Command, QUEUE_MAX};
use crate::refusal::Refusal;
use admission::WriteRefusal;
use admission_facts::AdmissionFacts;
use aggregator::{Aggregator, Contributions, GivenBack};
use gates::Place;
use known::NewSamples;
use model::{Batch, BatchSeries, LabelsBuilder, LabelsRef, Principal, TenantId, TotalsPlace, Values};
use protocol::{Decoder, EncodedLabels};
use route::{Arrival, Load, Prepared, route};
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Instant;
use stdx::budget::Reservation;
use totals::{Unsummed, write_summed};
use turns::{Done, Given, in_turns};

/// Refusal of a whole request or of parts of it. [`Refusal::kind`] says whether the sender should retry. Samples that
/// were stored before the retry are not stored twice.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{refusal}")]
pub(crate) struct Unwritten {
    pub refusal: Refusal,
    /// Number of samples that are durable although the request was refused.
    pub samples: u64,
    pub exemplars: u64,
    /// True if only single series or samples cannot be stored for now, and everything else is durable.
    pub is_partial: bool,
    /// False if certainly nothing of the request is durable. More samples than `samples` may be durable: a partition that refuses its share may
    /// have stored a part of it.
    pub may_be_durable: bool,
}

impl<R: Into<Refusal>> From<R> for Unwritten {
    fn from(refusal: R) -> Self {
        Self { refusal: refusal.into(), samples: 0, exemplars: 0, is_partial: false, may_be_durable: false }
    }
}

/// Writes a request of any protocol. Returns once it is durable.
pub(crate) async fn write<D: Decoder>(
    context: &Arc<Context>,
    decoders: &Arc<Decoders<D>>,
    mut request: Encoded<D>,
) -> Result<Outcome, Unwritten> {
    let began = Instant::now();
    admit(context, &request.principal, request.bytes.len()).await?;
    let (gates, principal) = (&context.gates, request.principal.clone());
    let tenant = principal.tenant.clone();
    let rules = context.ingest.list_of(&tenant);
    let is_large = request.is_large().map_err(Refusal::from)?;
    context.metrics.body_bytes.add(request.bytes.len() as u64);
    let thread = if is_large {
        request.take_memory_ahead()?;
        // large bodies are decoded on blocking threads, one per core
        Some(gates.decoding_permit(&tenant).await)
    } else {
        None
    };
    let known = gates.enter(&tenant, context.overrides.current().of(&tenant))?;
    let place = Place::new(known, None);
    let again = D::HAS_TOTALS.then(|| request.again());
    match resolve(context, decoders, (request, None), rules, thread, place, began).await? {
        Looked::Up(resolved, known) => {
            drop(again); // the body is not needed any more
            store_and_count(context, &principal, known, resolved).await
        }
        Looked::Unsummed { unsummed, memory, others, known } => {
            let again = again.expect("BUG: a protocol without totals has increments of histograms");
            write_summed(context, decoders, again, (unsummed, memory), (others, known), began).await
        }
    }
}

/// Stores a request whose series were looked up, and counts its points in the series that are computed from them.
async fn store_and_count(
    context: &Arc<Context>,
    principal: &Principal,
    known: Pass,
    mut resolved: Resolved,
) -> Result<Outcome, Unwritten> {
    let Some(contributions) = resolved.prepared.outcome.contributions.take() else {
        return store_within(context, &principal.tenant, known, resolved).await;
    };
    let (context, principal) = (Arc::clone(context), principal.clone());
    // this goes on if the sender does not wait for the answer: its points may be durable nevertheless
    let storing = tokio::spawn(async move {
        match store_within(&context, &principal.tenant, known, resolved).await {
            Ok(mut outcome) => {
                outcome.contributions = Some(contributions);
                counted(&context, &principal, outcome).await
            }
            Err(unwritten) => Err(left_out(&context, &principal, contributions, unwritten).await),
        }
    });
    storing.await.unwrap_or_else(|error| Err(internal(format!("storing points failed: {error}")).into()))
}

/// Counts the points of a body that is durable in the series that are computed from them, and stores those that come back.
async fn counted(
    context: &Arc<Context>,
    principal: &Principal,
    mut outcome: Outcome,
) -> Result<Outcome, Unwritten> {
    if let Some(given_back) = count(context, principal, &mut outcome).await {
        // If they are refused, the sender sends all points again. Then, these are too old for the output, or it has nothing of their
        // interval, so they are stored with the others.
        let stored = given_back.store_all(context, principal).await;
        let (samples, exemplars) = (outcome.samples, outcome.exemplars);
        outcome.add(stored.map_err(|Unwritten { refusal, samples: more, is_partial, .. }| Unwritten {
            refusal,
            samples: samples + more,
            exemplars,
            is_partial,
            may_be_durable: true,
        })?);
    }
    Ok(outcome)
}

/// After a refusal, makes sure that the request's points do not count in computed series: with a repetition they would count twice, and
/// without one a part of them would be missing.
///
/// If only single series were refused, also stores the points that computed series have taken from the request. Otherwise, these points
/// would never be stored while such a series is refused, however often the request is repeated.
async fn left_out(
    context: &Arc<Context>,
    principal: &Principal,
    contributions: Box<Contributions>,
    mut unwritten: Unwritten,
) -> Unwritten {
    if !unwritten.may_be_durable {
        return unwritten;
    }
    let given_back = leave_out(context, &principal.tenant, contributions).await;
    let Some(given_back) = given_back.filter(|_| unwritten.is_partial) else { return unwritten };
    match given_back.store_all(context, principal).await {
        Ok(Outcome { samples, .. }) => {
            Outcome::add_to_report(&mut unwritten.refusal.message, unwritten.samples, samples);
            unwritten.samples += samples;
            unwritten
        }
        Err(Unwritten { refusal, samples, is_partial, .. }) => Unwritten {
            refusal,
            samples: unwritten.samples + samples,
            exemplars: unwritten.exemplars,
            is_partial,
            may_be_durable: true,
        },
    }
}

/// Leaves the intervals of a body's points out of the series that are computed from them. Returns the points that such a
/// series took from the body.
pub(crate) async fn leave_out(
    context: &Arc<Context>,
    tenant: &TenantId,
    contributions: Box<Contributions>,
) -> Option<GivenBack> {
    aggregate(context, tenant, contributions, Aggregator::leave_out).await
}

/// Counts the points of a body that is durable in the series that are computed from them. Returns those that such a series took
/// from the body, but cannot have any more. They must be stored as they are.
pub(crate) async fn count(
    context: &Arc<Context>,
    principal: &Principal,
    outcome: &mut Outcome,
) -> Option<GivenBack> {
    let contributions = outcome.contributions.take()?;
    aggregate(context, &principal.tenant, contributions, Aggregator::add).await
}

/// What is to be done with the points of a body, at a time in milliseconds.
type Aggregate = fn(&Aggregator, &TenantId, Box<Contributions>, i64) -> Option<GivenBack>;

/// Passes the points of a body to the aggregator. If they are many, this is done on a thread without async code.
async fn aggregate(
    context: &Arc<Context>,
    tenant: &TenantId,
    contributions: Box<Contributions>,
    what: Aggregate,
) -> Option<GivenBack> {
    let now_ms = context.clock.now_ms();
    if contributions.count() <= aggregator::INLINE_MAX {
        return what(&context.aggregator, tenant, contributions, now_ms);
    }
    let (context, tenant) = (Arc::clone(context), tenant.clone());
    // this goes on if the sender does not wait for the answer
    let counted = tokio::spawn(async move {
        let thread = context.gates.decoding_permit(&tenant).await;
        let counting = tokio::task::spawn_blocking(move || {
            let given_back = what(&context.aggregator, &tenant, contributions, now_ms);
            drop(thread);
            given_back
        });
        counting.await
    });
    counted.await.flatten().unwrap_or_else(|error| {
        tracing::error!("counting points in computed series failed: {error}");
        None
    })
}

impl GivenBack {
    /// Number of points in the batch.
    pub(crate) const fn points(&self) -> u64 {
        self.batch.floats.values.len() as u64
    }

    /// Why points are lost.
    pub(crate) fn refusal(&self) -> Refusal {
        let message = format!("no memory to store {} points that computed series cannot have", self.lost);
        Refusal::busy("memory", message)
    }

    /// The points of the batch, as those of series that may not exist. `None` if rules may still change these series, or if there is no
    /// memory. It is the node's memory, because the points may have been refused for lack of the tenant's.
    pub(crate) fn to_new(&self, context: &Context, tenant: &TenantId) -> Option<NewSamples> {
        if context.ingest.list_of(tenant).is_some() {
            return None;
        }
        let Batch { bytes, floats, .. } = &self.batch;
        let new = |BatchSeries { key, labels, samples }: &BatchSeries| {
            let labels = &bytes[labels.start as usize..labels.end as usize];
            let labels = LabelsRef::from_canonical(labels).to_owned();
            NewSeries { key: *key, labels, samples: samples.clone(), exemplars: Vec::new() }
        };
        let needed = self.batch.memory_bytes() + floats.series.len() * size_of::<NewSeries>();
        let memory = context.inflight.reserve(needed as u64).ok()?;
        let (timestamps, values) = (floats.timestamps.clone(), Values::Floats(floats.values.clone()));
        let part = NewPart { series: floats.series.iter().map(new).collect(), timestamps, values };
        Some(NewSamples::of(part, memory))
    }

    /// Stores the points of the batch, if no others are lost.
    async fn store_all(&self, context: &Arc<Context>, principal: &Principal) -> Result<Outcome, Unwritten> {
        match self.lost {
            0 => self.store(context, principal).await,
            _ => Err(self.refusal().into()),
        }
    }

    /// Stores the points of the batch.
    pub(crate) async fn store(
        &self,
        context: &Arc<Context>,
        principal: &Principal,
    ) -> Result<Outcome, Unwritten> {
        let (settings, tenant) = (context.overrides.current(), context.tenant(&principal.tenant));
        let account = tenant.inflight(settings.of(&principal.tenant));
        let memory = account.reserve(self.batch.memory_bytes() as u64)?;
        let mut batch = self.copy();
        store_batch(context, principal, &mut batch, memory, Source::Output, Instant::now()).await
    }
}

/// Where the samples of a batch come from if no decoder has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The node itself. Rules on what is stored do not apply.
    Node,
    Sender,
    /// They waited for the creation of their series, which have their final labels. They count against no rate limit again, and
    /// their age was judged when they arrived.
    Queue,
    /// They are of a body that is durable. A computed series took them from it, but could not have them. Like those of
    /// the queue, they were counted and judged before.
    Output,
}

/// Writes a batch of the node's own metrics. `memory` is the reservation for the batch.
pub(crate) async fn write_batch(
    context: &Arc<Context>,
    principal: &Principal,
    batch: &mut Batch,
    memory: Reservation,
) -> Result<Outcome, Unwritten> {
    admit(context, principal, batch.bytes.len()).await?;
    store_batch(context, principal, batch, memory, Source::Node, Instant::now()).await
}

/// Writes a part of what [`admit`] has admitted as one request. If the tenant has rules, `batch` is empty afterwards.
pub(crate) async fn write_admitted(
    context: &Arc<Context>,
    principal: &Principal,
    batch: &mut Batch,
    memory: Reservation,
) -> Result<Outcome, Unwritten> {
    store_batch(context, principal, batch, memory, Source::Sender, Instant::now()).await
}

/// Writes samples that came in an earlier request, which counted against the tenant's rate limits.
pub(crate) async fn write_counted(
    context: &Arc<Context>,
    principal: &Principal,
    batch: &mut Batch,
    memory: Reservation,
) -> Result<Outcome, Unwritten> {
    let began = Instant::now();
    admit_again(context, principal).await?;
    store_batch(context, principal, batch, memory, Source::Queue, began).await
}

async fn store_batch(
    context: &Arc<Context>,
    principal: &Principal,
    batch: &mut Batch,
    mut memory: Reservation,
    source: Source,
    began: Instant,
) -> Result<Outcome, Unwritten> {
    let tenant = &principal.tenant;
    let known = context.gates.enter(tenant, context.overrides.current().of(tenant))?;
    let (now_ms, is_counted) = (context.clock.now_ms(), matches!(source, Source::Queue | Source::Output));
    // otherwise, a refused attempt could remove samples, which the next would not count
    let arrived_ms = (!is_counted).then_some(now_ms);
    let is_final = matches!(source, Source::Node | Source::Queue);
    let rules = if is_final { None } else { context.ingest.list_of(tenant) };
    // they were taken before the rules on names were asked
    let carbon_rules = (source == Source::Output).then(|| context.rules.current());
    let (is_aggregated, waiting, has_rules) = (false, None, rules.is_some());
    let arrival =
        Arrival { now_ms, arrived_ms, is_counted, is_final, is_aggregated, carbon_rules, rules, waiting };
    let (routed, memory, known) = if has_rules {
        let begin = {
            let (context, principal, batch) = (Arc::clone(context), principal.clone(), std::mem::take(batch));
            move || Given::begin(&context, principal, arrival, batch, memory)
        };
        let place = Place::new(known, None);
        let Done { routed, memory, place } = in_turns(context, tenant, None, place, begin).await?;
        (routed, memory, place.pass)
    } else {
        let labels = &mut LabelsBuilder::new();
        let mut load = Load { form: &EncodedLabels, batch, labels, memory: &mut memory };
        (route(context, principal, arrival, &mut load)?, memory, known)
    };
    let mut prepared = routed.finish(memory)?;
    for (_, submission, _) in &mut prepared.submissions {
        submission.is_of_node = source == Source::Node;
    }
    store_within(context, tenant, known, Resolved { prepared, left: None, began }).await
}

/// Stores a request whose series were looked up. `known` is its pass through the gate of known series, which every
/// request enters first.
async fn store_within(
    context: &Arc<Context>,
    tenant: &TenantId,
    known: Pass,
    resolved: Resolved,
) -> Result<Outcome, Unwritten> {
    let state = context.tenant(tenant);
    state.peaks.writes.note(known.number as u64);
    // a request that creates series may have to wait long, and must not take the place of others in the gate of known
    // series
    let mut pass = if resolved.prepared.creates {
        drop(known);
        let settings = context.overrides.current();
        let entered = context.gates.enter_creating(tenant, settings.of(tenant), resolved.prepared.bytes);
        if entered.is_err() {
            let now = context.clock.instant();
            resolved.prepared.submissions.iter().for_each(|(_, submission, _)| submission.note_left_out(now));
        }
        let creating = entered?;
        state.peaks.creating.note(creating.number as u64);
        creating
    } else {
        known
    };
    let creates = resolved.prepared.creates;
    let outcome = store(context, &state, resolved).await?;
    pass.is_served = true;
    if creates {
        context.gates.both().0.count_served(tenant);
    }
    Ok(outcome)
}

/// Checks whether the sender may write now. This comes before decoding, so that refused requests cost little.
pub(crate) async fn admit(
    context: &Arc<Context>,
    principal: &Principal,
    body_bytes: usize,
) -> Result<(), Refusal> {
    admit_again(context, principal).await?;
    count_request(context, principal, body_bytes)
}

/// Like [`admit`], for records.
pub(crate) async fn admit_records(
    context: &Arc<Context>,
    principal: &Principal,
    body_bytes: usize,
) -> Result<(), Refusal> {
    admission::write::rights(principal)?;
    context.readiness.wait_for_replay().await;
    let has_streams = context.has_streams(&principal.tenant);
    admission::write::check_records(principal, has_streams, &AdmissionFacts(context))?;
    count_request(context, principal, body_bytes)
}

/// Counts a request against the tenant's rate limits.
fn count_request(context: &Context, principal: &Principal, body_bytes: usize) -> Result<(), Refusal> {
    let (settings, now) = (context.overrides.current(), context.clock.instant());
    let tenant = context.tenant(&principal.tenant);
    Ok(tenant.admit(settings.of(&principal.tenant), body_bytes as u64, now)?)
}

/// Like [`admit`], for what has counted against rate limits before.
async fn admit_again(context: &Arc<Context>, principal: &Principal) -> Result<(), Refusal> {
    admission::write::rights(principal)?;
    context.readiness.wait_for_replay().await;
    check(context, principal)
}

/// Like [`admit`], but does not wait for replay and does not count the request against rate limits.
pub(crate) fn check(context: &Arc<Context>, principal: &Principal) -> Result<(), Refusal> {
    Ok(admission::write::check(principal, &AdmissionFacts(context))?)
}

/// What became of a request that was decoded.
enum Looked {
    Up(Resolved, Pass),
    /// Its increments of histograms must be added up, and it must be decoded again. `memory` is what they and the message take.
    Unsummed {
        unsummed: Unsummed,
        memory: Reservation,
        others: Resolved,
        known: Pass,
    },
}

/// Decodes a request and looks up its series. This begins on a blocking thread if the caller passes a permit for it in `thread`.
/// The request arrives now, unless `arrived_ms` says when.
async fn resolve<D: Decoder>(
    context: &Arc<Context>,
    decoders: &Arc<Decoders<D>>,
    (request, arrived_ms): (Encoded<D>, Option<i64>),
    rules: Option<TenantList>,
    thread: Option<Permit<TenantId>>,
    place: Place,
    began: Instant,
) -> Result<Looked, Refusal> {
    let (tenant, body_bytes) = (request.principal.tenant.clone(), request.memory.bytes());
    let begin = {
        let (context, decoders) = (Arc::clone(context), Arc::clone(decoders));
        move || decoders.begin_request(&context, (request, arrived_ms), rules)
    };
    let Done { mut routed, mut memory, place } = in_turns(context, &tenant, thread, place, begin).await?;
    let (unsummed, left, known) = (std::mem::take(&mut routed.unsummed), routed.left.take(), place.pass);
    if unsummed.increments.is_empty() {
        return Ok(Looked::Up(Resolved { prepared: routed.finish(memory)?, left, began }, known));
    }
    // all other memory is that of the other points
    let kept_bytes = unsummed.bytes(body_bytes);
    if memory.bytes() < kept_bytes + routed.bytes() {
        memory.resize(kept_bytes + routed.bytes())?;
    }
    let kept = memory.split(kept_bytes);
    let others = Resolved { prepared: routed.finish(memory)?, left, began };
    Ok(Looked::Unsummed { unsummed, memory: kept, others, known })
}

struct Resolved {
    prepared: Prepared,
    /// Where the next part of the request begins, if it is stored in parts.
    left: Option<TotalsPlace>,
    began: Instant,
}

/// Submits each partition's share of the request to the partition's owner, and waits until all shares are durable.
async fn store(
    context: &Arc<Context>,
    tenant: &TenantState,
    resolved: Resolved,
) -> Result<Outcome, Unwritten> {
    let _passing = context.traffic.enter();
    let Resolved { prepared: Prepared { submissions, outcome, creates, .. }, began, .. } = resolved;
    let submitted = submit(context, submissions);
    settle(context, tenant, submitted, outcome, creates, began).await
}

/// The answers of all partitions.
struct Answered {
    /// Why the sender must repeat the request, if it must.
    refused: Option<Refusal>,
    /// Whether a partition has refused its share.
    is_share_refused: bool,
}

/// Waits for all answers, and adds them to the outcome.
async fn answered(
    context: &Context,
    tenant: &TenantState,
    submitted: Submitted,
    outcome: &mut Outcome,
) -> Answered {
    let Submitted { answers, mut refused } = submitted;
    for answer in answers {
        match answer.await {
            Ok(Ok(share)) => outcome.add(share),
            Ok(Err(refusal)) => _ = refused.get_or_insert(refusal),
            Err(_) => {
                _ = refused.get_or_insert_with(|| internal("a partition's owner thread has ended".into()))
            }
        }
    }
    let is_share_refused = refused.is_some();
    if !outcome.postponed.is_empty()
        && let Some(what) = tenant.shortage.lock().worth_a_retry(&outcome.postponed, context.clock.instant())
    {
        refused.get_or_insert_with(|| {
            let refusal = WriteRefusal::Postponed { what, report: outcome.report() };
            Refusal::from(refusal).with_cause(outcome.cause_of(what))
        });
    }
    Answered { refused, is_share_refused }
}

/// Waits until all shares of a request are durable. If one is refused, this still waits for the others, because the
/// answer says how many samples were stored.
async fn settle(
    context: &Arc<Context>,
    tenant: &TenantState,
    submitted: Submitted,
    mut outcome: Outcome,
    creates: bool,
    began: Instant,
) -> Result<Outcome, Unwritten> {
    let has_submitted = !submitted.answers.is_empty();
    let mut elected = outcome.elected.take();
    if let Some(elected) = &mut elected {
        elected.submitted();
    }
    let Answered { refused, is_share_refused } = answered(context, tenant, submitted, &mut outcome).await;
    if let Some(elected) = elected {
        elected.answered(&outcome, refused.as_ref(), is_share_refused);
    }
    let metrics = &context.metrics;
    // if a partition has refused its whole share, the sender repeats the request, and what is left out counts then
    if !is_share_refused {
        metrics.refused_samples.add(outcome.refused_samples);
        tenant.samples.refused.add(outcome.refused_samples);
        metrics.refused_exemplars.add(outcome.refused_exemplars);
    }
    if let Some(refusal) = refused {
        let refusal = refusal.with_series(outcome.first_refused());
        return Err(Unwritten {
            refusal,
            samples: outcome.samples,
            exemplars: outcome.exemplars,
            is_partial: !is_share_refused,
            may_be_durable: has_submitted || !is_share_refused,
        });
    }
    if let Some(effects) = outcome.rules.take() {
        context.ingest.settle(&tenant.id, &effects, &outcome.discarded_metadata, context.seed);
    }
    if outcome.has_created && outcome.postponed.is_empty() {
        tenant.shortage.lock().found_room();
    }
    let seconds = if creates { &metrics.seconds_new } else { &metrics.seconds_known };
    seconds.observe(began.elapsed().as_secs_f64());
    Ok(outcome)
}

#[derive(Debug)]
pub(crate) struct Submitted {
    /// Will receive the answers of the partitions to which a share was submitted.
    pub(crate) answers: Vec<Answer>,
    /// The refusal of the first share that could not be submitted. Later shares were not tried.
    pub(crate) refused: Option<Refusal>,
}

pub(crate) fn submit(context: &Arc<Context>, submissions: Vec<(usize, Submission, Answer)>) -> Submitted {
    let mut answers = Vec::with_capacity(submissions.len());
    for (partition, submission, answer) in submissions {
        let refusal = match context.commands[partition].try_send(Command::Write(Box::new(submission))) {
            Ok(()) => {
                answers.push(answer);
                continue;
            }
            Err(TrySendError::Full(_)) => WriteRefusal::QueueFull { limit: QUEUE_MAX }.into(),
            Err(TrySendError::Disconnected(_)) => Refusal::stopping(),
        };
        return Submitted { answers, refused: Some(refusal) };
    }
    Submitted { answers, refused: None }
}

pub(crate) fn internal(message: String) -> Refusal {
    Refusal::new(model::ErrorKind::Internal, "bug", message)
}
