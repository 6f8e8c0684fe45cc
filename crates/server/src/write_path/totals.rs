//! Adds up the points of exponential histograms with delta temporality.
//!
//! ```text
//!   request ─▶ decode ─┬─▶ other points ─▶ stored as of any request
//!                      └─▶ increments, section by section ─▶ add_up: each to its histogram's sum, in one partition ─▶ durable ─▶ totals
//!        └───────▶ decode these points again, with the totals, part by part: cumulative histograms ─▶ samples, in all partitions
//! ```
//!
//! An increment has buckets only for its own values, but it must grow all buckets of the histogram, also those that only others
//! have. So a histogram has one sum with all buckets, and its series are made of it. If the server crashes in between, the sum has
//! the increment, and the sender repeats the request: then the sum is not changed, and the samples are made again.
//!
//! Once increments were added, their request must not be refused for good: the sender would drop it, although they count. So all limits
//! are checked before that, and the samples, whose number is known only afterwards, are stored in parts.
//!
//! A histogram may have far more buckets than its increment, so an increment may need some KB until its samples are stored. If there are
//! many, they are added and stored in sections, one after the other, so that a request of any number of increments needs this for a few
//! of them only.

use super::decoder_pool::Again;
use super::gates::Place;
use super::in_use::{IN_USE_BYTES, InUse};
use super::route::need_bytes_of_floats;
use super::{Answered, Context, Decoders, Encoded, Looked, Unwritten};
use super::{Resolved, answered, internal, resolve, store_and_count, submit};
use crate::limits::gate::Pass;
use crate::partition::submission::{Answer, Outcome, Submission, SubmittedExponential};
use crate::partition::sums::{EXPONENTIAL_BYTES, shared::Stamp};
use crate::refusal::Refusal;
use admission::Postponed;
use admission::age::Window;
use admission::gate::MULTIPLE;
use model::caps::REQUEST_SERIES_MAX;
use model::exponential::ReadOut;
use model::{
    Batch, BatchExponential, ExponentialSum, ExponentialTotals, SeriesKey, SeriesRefusal, TenantId,
    TotalsPart, TotalsPlace, TotalsRoom, ValueKind,
};
use protocol::Decoder;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Reservation;
use tokio::sync::oneshot;

/// Memory that an increment takes, besides itself, until the request is stored: its histogram in use, and places in lists, of which two
/// may be there while one is copied.
const INCREMENT_BYTES: usize = IN_USE_BYTES
    + 2 * size_of::<SubmittedExponential>()
    + 2 * size_of::<Option<Total>>()
    + size_of::<u32>()
    + 4 * size_of::<(SeriesKey, u32)>();

/// Memory that an increment takes besides, while its section is stored.
const SECTION_INCREMENT_BYTES: usize = EXPONENTIAL_BYTES + 2 * size_of::<SubmittedExponential>();

/// A section of a request takes about this fraction of the memory for write requests, unless that is less than the minimum.
const SECTION_OF_MEMORY: u64 = 8;

/// A section has at least this many increments.
const SECTION_MIN: usize = 64;

/// With more increments, a request is decoded again on a blocking thread: each total takes about 20 µs.
const INLINE_MAX: usize = 16;

/// A part of a request has at most this many series, unless one total has more.
const PART_SERIES_MAX: usize = REQUEST_SERIES_MAX / 2;

/// There is memory for a part of this many series, or the request is refused.
const PART_SERIES_MIN: usize = 1024;

/// While others use the memory, the room of a part may be halved so often.
const HALVINGS_MAX: u32 = 4;

/// A part of a request takes about this fraction of the memory for write requests, unless that is less than the minimum.
const PART_OF_MEMORY: u64 = 8;

/// Several reservations of a tenant may together hold at most this multiple of the bytes that are free in the account, also if
/// nobody else uses it (`Account::share`). Only a single reservation may take all.
const SHARE_MULTIPLE: u64 = MULTIPLE;

/// What a decoder needs besides its batch.
const SCRATCH_BYTES: usize = 32 << 10;

/// Usual number of series of a histogram.
const USUAL_SERIES: usize = 32;

/// Usual labels of a series.
const LABEL_BYTES: usize = 256;

const NS_PER_MS: u64 = 1_000_000;

/// Points of a request that must be added up before their samples can be stored.
#[derive(Debug, Default)]
pub(super) struct Unsummed {
    pub(super) increments: Vec<BatchExponential>,
    /// The request's message, unless it is the body.
    message: Option<Vec<u8>>,
}

impl Unsummed {
    /// Takes the increments out of a batch.
    pub(super) fn take(batch: &mut Batch) -> Self {
        Self { increments: std::mem::take(&mut batch.exponentials), message: batch.message.take() }
    }

    /// How many increments a section has at most.
    fn section(&self, memory_bytes: u64) -> usize {
        let most = (memory_bytes / SECTION_OF_MEMORY) as usize / SECTION_INCREMENT_BYTES;
        most.max(SECTION_MIN).min(self.increments.len())
    }

    /// Memory of the increments themselves, and of the message in which they are. `body_bytes` is that of the body.
    pub(super) fn bytes(&self, body_bytes: u64) -> u64 {
        let own = self.increments.capacity() * size_of::<BatchExponential>();
        let counts = self.increments.iter().map(BatchExponential::heap_bytes).sum::<usize>();
        (own + counts) as u64 + self.message.as_ref().map_or(body_bytes, |message| message.capacity() as u64)
    }

    fn numbered(self) -> Vec<SubmittedExponential> {
        let numbered = self.increments.into_iter().zip(0..);
        numbered.map(|(point, number)| SubmittedExponential { number, point }).collect()
    }

    /// The increments with their numbers, so that those of a histogram are side by side. For many, this takes milliseconds.
    fn by_histogram(self) -> Vec<SubmittedExponential> {
        let mut all = self.numbered();
        let mut first = HashMap::new();
        for one in &all {
            first.entry(one.point.key).or_insert(one.number);
        }
        // the order of those of a histogram is kept
        all.sort_by_key(|one| first[&one.point.key]);
        all
    }
}

/// The length of the next section. The increments of a histogram stay together if they fit: of those that come in one submission, the
/// latest are recognized if the request is repeated.
fn section_len(left: &[SubmittedExponential], most: usize) -> usize {
    let Some(next) = left.get(most) else { return left.len() };
    let others = left[..most].iter().rposition(|one| one.point.key != next.point.key);
    others.map_or(most, |last| last + 1)
}

/// How large the parts are in which a section is decoded again.
fn room(memory_bytes: u64) -> TotalsRoom {
    let one = need_bytes_of_floats(TotalsRoom { series: 1, label_bytes: LABEL_BYTES });
    let most = (memory_bytes / PART_OF_MEMORY) as usize / one;
    room_of(most.clamp(PART_SERIES_MIN, PART_SERIES_MAX))
}

const fn room_of(series: usize) -> TotalsRoom {
    TotalsRoom { series, label_bytes: series * LABEL_BYTES }
}

/// Memory of a request with increments.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// The message and the increments themselves.
    kept_bytes: u64,
    /// What its increments take until it is stored.
    own_bytes: u64,
    section: usize,
    section_bytes: u64,
    room: TotalsRoom,
    /// What all samples of a section take probably, if they are in one part.
    all_bytes: u64,
}

impl Need {
    /// `memory` is what the message and the increments take. Fails if the request can never be stored.
    fn of(unsummed: &Unsummed, memory: &Reservation) -> Result<Self, Refusal> {
        let limit_bytes = memory.limit_bytes();
        let (section, room, count) =
            (unsummed.section(limit_bytes), room(limit_bytes), unsummed.increments.len());
        let need = Self {
            kept_bytes: memory.bytes(),
            own_bytes: (count * INCREMENT_BYTES) as u64,
            section,
            section_bytes: (section * SECTION_INCREMENT_BYTES) as u64,
            room,
            all_bytes: part_bytes(room_of(section * USUAL_SERIES)),
        };
        // a part may exceed its room by what one total has at one time
        let label_bytes = unsummed.increments.iter().map(|one| one.label_bytes).max().unwrap_or(0);
        let beyond =
            TotalsRoom { series: ReadOut::SERIES_MAX, label_bytes: ReadOut::SERIES_MAX * label_bytes };
        let most_bytes = part_bytes(room) + need_bytes_of_floats(beyond) as u64;
        let bytes = need.kept_bytes + need.own_bytes + need.section_bytes + most_bytes;
        let need_bytes = bytes + bytes.div_ceil(SHARE_MULTIPLE);
        if need_bytes > limit_bytes {
            let [need_mib, limit_mib] = [need_bytes, limit_bytes].map(|bytes| bytes >> 20);
            let message = format!(
                "the request has {} deltas of exponential histograms, and needs {need_mib} MiB of the memory for write requests, \
                 which has {limit_mib} MiB: send smaller batches, or raise inflight_bytes or --memory",
                count
            );
            return Err(Refusal::too_large("memory", message));
        }
        Ok(need)
    }
}

impl Need {
    /// What a part takes probably.
    fn part_bytes(&self) -> u64 {
        part_bytes(self.room).min(self.all_bytes)
    }
}

/// What decoding a part takes for series of this size.
const fn part_bytes(room: TotalsRoom) -> u64 {
    (need_bytes_of_floats(room) + SCRATCH_BYTES) as u64
}

/// A request whose increments are added up, section by section. It has all histograms in use.
struct Summing {
    left: Vec<SubmittedExponential>,
    offsets: Arc<[u32]>,
    in_use: Arc<InUse>,
    /// Decides on ages, so that no added point is too old later.
    arrived_ms: i64,
    /// Memory of the message and of the increments, and between two parts that of the next one.
    memory: Reservation,
    /// Memory of a section, held even if the sender no longer waits for the answer.
    section_memory: Arc<Reservation>,
    need: Need,
}

/// Writes a request with increments of histograms. Returns once it is durable. `memory` is what the message and the increments take.
pub(super) async fn write_summed<D: Decoder>(
    context: &Arc<Context>,
    decoders: &Arc<Decoders<D>>,
    mut again: Again<D>,
    (mut unsummed, memory): (Unsummed, Reservation),
    (others, known): (Resolved, Pass),
    began: Instant,
) -> Result<Outcome, Unwritten> {
    let (principal, tenant) = (again.principal.clone(), again.principal.tenant.clone());
    // what can never be stored must not be added up, and if anything of the request is refused for good, nothing must
    let need = Need::of(&unsummed, &memory)?;
    // from here on, the message stands in for the body
    if let Some(message) = unsummed.message.take() {
        again.set_message(message);
    }
    let mut refused = None;
    let stored = store_and_count(context, &principal, known, others).await;
    let mut outcome = unless_partial(stored, &mut refused)?;
    let beside = |unwritten: Unwritten, outcome: &Outcome| Unwritten {
        samples: unwritten.samples + outcome.samples,
        exemplars: unwritten.exemplars + outcome.exemplars,
        ..unwritten
    };
    let takes_thread = unsummed.increments.len() > INLINE_MAX;
    let entered = enter(context, &tenant, unsummed, (memory, need)).await;
    let mut summing = entered.map_err(|unwritten| beside(unwritten, &outcome))?;
    while !summing.left.is_empty() {
        let mut known = Some(place_of(context, &tenant).await);
        let (totals, postponed) =
            summing.add_up(context, &tenant).await.map_err(|refusal| beside(refusal.into(), &outcome))?;
        refused = refused.or(postponed);
        let mut next = Some(TotalsPlace::default());
        while let Some(from) = next {
            let known = match known.take() {
                Some(known) => known,
                None => place_of(context, &tenant).await,
            };
            let (memory, room) =
                summing.memory_of_part().map_err(|refusal| beside(refusal.into(), &outcome))?;
            let (totals, offsets) = (Arc::clone(&totals), Arc::clone(&summing.offsets));
            let part = TotalsPart { totals, offsets, from, room };
            let request = (again.part(part, memory), summing.arrived_ms);
            let written =
                write_part(context, decoders, request, takes_thread, &summing.in_use, known, began).await;
            let (part, left) = written.map_err(|unwritten| beside(unwritten, &outcome))?;
            let part = unless_partial(part, &mut refused).map_err(|unwritten| beside(unwritten, &outcome))?;
            summing.keep_memory();
            outcome.converted_points += part.converted_points;
            outcome.add(part);
            next = left;
        }
    }
    match refused {
        Some(refusal) => {
            let refusal: Refusal = refusal.with_series(outcome.first_refused());
            let (samples, exemplars) = (outcome.samples, outcome.exemplars);
            Err(Unwritten { refusal, samples, exemplars, is_partial: true, may_be_durable: true })
        }
        None => Ok(outcome),
    }
}

/// What was stored. A refusal of single series or samples is noted in `refused` and ends nothing: the sender repeats the
/// request because of them, but perhaps in vain, and the other histograms must be added up all the same.
fn unless_partial(
    stored: Result<Outcome, Unwritten>,
    refused: &mut Option<Refusal>,
) -> Result<Outcome, Unwritten> {
    match stored {
        Err(Unwritten { refusal, samples, exemplars, is_partial: true, .. }) => {
            refused.get_or_insert(refusal);
            Ok(Outcome { samples, exemplars, ..Outcome::default() })
        }
        stored => stored,
    }
}

/// Waits for a place among the requests in progress.
async fn place_of(context: &Context, tenant: &TenantId) -> Pass {
    let settings = context.overrides.current();
    context.gates.enter_when_free(tenant, settings.of(tenant)).await
}

/// Writes a part of a request. Also returns where the next part begins.
async fn write_part<D: Decoder>(
    context: &Arc<Context>,
    decoders: &Arc<Decoders<D>>,
    (request, arrived_ms): (Encoded<D>, i64),
    takes_thread: bool,
    in_use: &Arc<InUse>,
    known: Pass,
    began: Instant,
) -> Result<(Result<Outcome, Unwritten>, Option<TotalsPlace>), Unwritten> {
    let principal = request.principal.clone();
    let tenant = principal.tenant.clone();
    let thread = match takes_thread || request.is_large().map_err(Refusal::from)? {
        true => Some(context.gates.decoding_permit(&tenant).await),
        false => None,
    };
    let (rules, place) = (context.ingest.list_of(&tenant), Place::new(known, None));
    let request = (request, Some(arrived_ms));
    match resolve(context, decoders, request, rules, thread, place, began).await? {
        Looked::Up(mut resolved, known) => {
            for (_, submission, _) in &mut resolved.prepared.submissions {
                submission.in_use = Some(Arc::clone(in_use));
            }
            let left = resolved.left;
            Ok((store_and_count(context, &principal, known, resolved).await, left))
        }
        Looked::Unsummed { .. } => {
            Err(internal("a request has increments although they were added up".into()).into())
        }
    }
}

/// Waits until no other request uses the histograms of a request. It has no place among the requests in progress: the others may
/// need one to come to an end. The requests that wait are limited by a gate of their own.
async fn enter(
    context: &Arc<Context>,
    tenant: &TenantId,
    unsummed: Unsummed,
    (mut memory, need): (Reservation, Need),
) -> Result<Summing, Unwritten> {
    memory.resize(need.kept_bytes + need.own_bytes)?;
    let own = memory.split(need.own_bytes);
    let keys = unsummed.increments.iter().map(|one| one.key).collect();
    let mut in_use = match context.histograms.try_enter(tenant, keys, own) {
        Ok(in_use) => in_use,
        Err((keys, own)) => {
            let settings = context.overrides.current();
            let bytes = need.kept_bytes + need.own_bytes;
            let _waiting = context.gates.enter_summing(tenant, settings.of(tenant), bytes)?;
            context.histograms.enter(tenant, keys, own).await?
        }
    };
    // what cannot be stored now must not be added up, either
    memory.resize(need.kept_bytes + need.section_bytes + need.part_bytes())?;
    let section_memory = Arc::new(memory.split(need.section_bytes));
    in_use.stamp = context.heads.shared_sums.stamp(tenant, context.steady_s());
    let (in_use, arrived_ms) = (Arc::new(in_use), context.clock.now_ms());
    let offsets = unsummed.increments.iter().map(|one| one.offset).collect();
    let left = match need.section < unsummed.increments.len() {
        true => {
            let thread = context.gates.decoding_permit(tenant).await;
            let sorting = tokio::task::spawn_blocking(move || (unsummed.by_histogram(), thread));
            sorting.await.map_err(|error| internal(format!("sorting increments failed: {error}")))?.0
        }
        false => unsummed.numbered(),
    };
    Ok(Summing { left, offsets, in_use, arrived_ms, memory, section_memory, need })
}

impl Summing {
    /// Adds up the increments of the next section. Returns when the sums are durable. Also returns why the sender must repeat the
    /// request, if some increments could not be added now.
    async fn add_up(
        &mut self,
        context: &Arc<Context>,
        tenant: &TenantId,
    ) -> Result<(ExponentialTotals, Option<Refusal>), Refusal> {
        let _passing = context.traffic.enter();
        let Self { left, offsets, in_use, arrived_ms, section_memory, need, .. } = self;
        let rest = left.split_off(section_len(left, need.section));
        let section = std::mem::replace(left, rest);
        let of_section = section.len();
        let from = (in_use.stamp, Some(&*in_use));
        let Adding { totals, mut outcome, mut submissions } =
            divide(context, tenant, (section, offsets.len()), from, *arrived_ms);
        for (_, submission, _) in &mut submissions {
            submission.memory = Some(Arc::clone(section_memory));
        }
        let submitted = submit(context, submissions);
        let state = context.tenant(tenant);
        let Answered { refused, is_share_refused } = answered(context, &state, submitted, &mut outcome).await;
        match refused {
            Some(refusal) if is_share_refused => Err(refusal),
            refused => Ok((complete((totals, of_section), outcome.totals), refused)),
        }
    }

    /// Memory for decoding a part, and how large it may be. If others have taken the memory since the last part, it is smaller.
    fn memory_of_part(&mut self) -> Result<(Reservation, TotalsRoom), Refusal> {
        let Need { kept_bytes, mut room, .. } = self.need;
        self.memory.resize(kept_bytes)?;
        let mut memory = self.memory.split(0);
        let mut halvings = 0;
        while let Err(full) = memory.advance(part_bytes(room).min(self.need.all_bytes)) {
            halvings += 1;
            if halvings > HALVINGS_MAX {
                return Err(full.into());
            }
            room = room_of(room.series / 2);
        }
        Ok((memory, room))
    }

    /// Takes the memory for the next part as soon as the one before has given it back.
    fn keep_memory(&mut self) {
        // if others have it, the next part is smaller
        let _ = self.memory.resize(self.need.kept_bytes + self.need.part_bytes());
    }
}

/// What an increment has added up to, or why it was not added.
pub(crate) type Total = Result<ExponentialSum, SeriesRefusal>;

/// Submissions with their partitions, and where the answers will come.
type Shares = Vec<(usize, Submission, Answer)>;

/// Increments on their way to the partitions.
struct Adding {
    /// What is known already: which of them are refused for their times.
    totals: Vec<Option<Total>>,
    outcome: Outcome,
    submissions: Shares,
}

/// Divides increments among the partitions. Those of a histogram stay together and keep their order. The request has `count` in all.
fn divide(
    context: &Arc<Context>,
    tenant: &TenantId,
    (increments, count): (Vec<SubmittedExponential>, usize),
    (stamp, in_use): (Stamp, Option<&Arc<InUse>>),
    arrived_ms: i64,
) -> Adding {
    let mut totals = vec![None; count];
    let mut outcome = Outcome::default();
    let mut parts: Vec<Vec<SubmittedExponential>> = Vec::new();
    parts.resize_with(context.partitions.len(), Vec::new);
    let window = Window::at(arrived_ms, context.settings.past_ms, context.settings.future_ms);
    for SubmittedExponential { number, point } in increments {
        // one that is refused for its time must not be in the sum
        let timestamp_ms = (point.increment.end_ns / NS_PER_MS) as i64;
        if !window.contains(timestamp_ms) {
            let (reason, is_in_doubt) = window.reason(timestamp_ms, context.wall.doubt(&*context.clock));
            if is_in_doubt {
                outcome.postpone(Postponed::Clock);
            }
            totals[number as usize] = Some(Err(SeriesRefusal::Timestamp { timestamp_ms, reason }));
            continue;
        }
        let part = &mut parts[point.key.partition(context.partitions.len())];
        part.push(SubmittedExponential { number, point });
    }

    let state = context.tenant(tenant);
    let mut submissions = Vec::new();
    for (partition, part) in parts.into_iter().enumerate() {
        if part.is_empty() {
            continue;
        }
        let (reply, answer) = oneshot::channel();
        let mut submission = Submission::new(Arc::clone(&state), ValueKind::Float, reply);
        submission.increments.stamp = stamp;
        submission.increments.exponentials = part;
        submission.in_use = in_use.cloned();
        submissions.push((partition, submission, answer));
    }
    Adding { totals, outcome, submissions }
}

/// Adds what the partitions have said of the increments of a section, whose number is `of_section`.
fn complete(
    (mut totals, of_section): (Vec<Option<Total>>, usize),
    answered: Vec<(u32, Total)>,
) -> ExponentialTotals {
    for (number, total) in answered {
        totals[number as usize] = Some(total);
    }
    let known = totals.iter().flatten().count();
    assert_eq!(known, of_section, "BUG: a partition has not said what an increment added up to");
    totals.into()
}

/// A request in steps, for a caller that waits for the answers of the partitions itself, and has one request of a histogram at a time.
#[derive(Debug)]
pub(crate) struct Steps<D: Decoder> {
    again: Again<D>,
    next: Step<D>,
}

#[derive(Debug)]
enum Step<D: Decoder> {
    Begin(Encoded<D>),
    /// The other points are being stored.
    Others(Unsummed),
    /// Increments are being added up.
    Totals {
        totals: Vec<Option<Total>>,
        offsets: Arc<[u32]>,
        arrived_ms: i64,
    },
    Part {
        part: TotalsPart,
        arrived_ms: i64,
    },
    End,
}

impl<D: Decoder> Steps<D> {
    /// With the least room, so that each part has what one total says of one time.
    const ROOM: TotalsRoom = TotalsRoom { series: 1, label_bytes: 1 };

    pub(crate) fn new(request: Encoded<D>) -> Self {
        Self { again: request.again(), next: Step::Begin(request) }
    }

    /// Returns the submissions of the next step, which may be none, or `None` at the end. `answered` is what the partitions have said
    /// in the step before, none of which may have refused its share.
    pub(crate) fn next(
        &mut self,
        context: &Arc<Context>,
        decoders: &Arc<Decoders<D>>,
        answered: Vec<(u32, Total)>,
    ) -> Result<Option<Shares>, Refusal> {
        let (part, arrived_ms) = match std::mem::replace(&mut self.next, Step::End) {
            Step::Begin(request) => {
                let (mut routed, memory) = decoders.prepare_step(context, (request, None))?;
                let mut unsummed = std::mem::take(&mut routed.unsummed);
                if !unsummed.increments.is_empty() {
                    if let Some(message) = unsummed.message.take() {
                        self.again.set_message(message);
                    }
                    self.next = Step::Others(unsummed);
                }
                return Ok(Some(routed.finish(memory)?.submissions));
            }
            Step::Others(unsummed) => {
                let arrived_ms = context.clock.now_ms();
                let tenant = &self.again.principal.tenant;
                let stamp = context.heads.shared_sums.stamp(tenant, context.steady_s());
                let offsets: Arc<[u32]> = unsummed.increments.iter().map(|one| one.offset).collect();
                let increments = (unsummed.numbered(), offsets.len());
                let Adding { totals, submissions, .. } =
                    divide(context, tenant, increments, (stamp, None), arrived_ms);
                self.next = Step::Totals { totals, offsets, arrived_ms };
                return Ok(Some(submissions));
            }
            Step::Totals { totals, offsets, arrived_ms } => {
                let totals = complete((totals, offsets.len()), answered);
                let from = TotalsPlace::default();
                (TotalsPart { totals, offsets, from, room: Self::ROOM }, arrived_ms)
            }
            Step::Part { part, arrived_ms } => (part, arrived_ms),
            Step::End => return Ok(None),
        };
        let request = self.again.part(part.clone(), context.inflight.reserve(0)?);
        let (mut routed, memory) = decoders.prepare_step(context, (request, Some(arrived_ms)))?;
        if let Some(from) = routed.left.take() {
            self.next = Step::Part { part: TotalsPart { from, ..part }, arrived_ms };
        }
        Ok(Some(routed.finish(memory)?.submissions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Exponential, Increment};
    use std::collections::BTreeSet;
    use stdx::budget::Account;
    use stdx::rng::Rng;

    fn unsummed(keys: impl IntoIterator<Item = u128>) -> Unsummed {
        let increment = |key| BatchExponential {
            key: SeriesKey(key),
            increment: Increment::default(),
            counts: Arc::<Exponential>::default(),
            label_bytes: 600,
            offset: 0,
        };
        Unsummed { increments: keys.into_iter().map(increment).collect(), message: None }
    }

    #[test]
    fn increments_of_a_histogram_are_in_the_same_section_if_they_fit() {
        let mut rng = Rng::announced();
        for _ in 0..200 {
            let (histograms, most) = (1 + rng.below(30), 1 + rng.below(20) as usize);
            let keys: Vec<_> = (0..rng.below(200)).map(|_| u128::from(rng.below(histograms))).collect();
            let mut left = unsummed(keys.clone()).by_histogram();
            let (mut numbers, mut sections) = (BTreeSet::new(), Vec::new());
            while !left.is_empty() {
                let rest = left.split_off(section_len(&left, most));
                let section = std::mem::replace(&mut left, rest);
                assert!(section.len() <= most);
                for one in &section {
                    assert_eq!(one.point.key.0, keys[one.number as usize]);
                    assert!(numbers.insert(one.number), "each increment is added once");
                }
                sections.push(section);
            }
            assert_eq!(numbers.len(), keys.len());
            for key in 0..u128::from(histograms) {
                let of = |section: &Vec<SubmittedExponential>| -> Vec<u32> {
                    section.iter().filter(|one| one.point.key.0 == key).map(|one| one.number).collect()
                };
                let of: Vec<_> = sections.iter().map(of).filter(|numbers| !numbers.is_empty()).collect();
                assert!(of.concat().is_sorted(), "in the order of the request");
                assert!(of.len() <= 1 || of.concat().len() > most, "{of:?} with {most} at once");
            }
        }
    }

    /// Sections make the memory of a request depend little on the number of its increments.
    #[test]
    fn many_increments_fit_into_little_memory() {
        const MIB: u64 = 1 << 20;
        let account = Account::new("inflight", 32 * MIB).part();
        account.share(SHARE_MULTIPLE, u64::MAX);
        let unsummed = unsummed(0..8192);
        let kept = account.reserve(unsummed.bytes(3 * MIB)).unwrap();
        let need = Need::of(&unsummed, &kept).unwrap();
        assert!(need.section < 8192 && need.kept_bytes + need.own_bytes < 13 * MIB, "{need:?}");
        assert!(need.section_bytes <= 4 * MIB && need.part_bytes() <= 5 * MIB, "{need:?}");
        let few = self::unsummed(0..4);
        let few = Need::of(&few, &account.reserve(few.bytes(1000)).unwrap()).unwrap();
        assert_eq!(few.section, 4);
        assert!(few.section_bytes + few.own_bytes < MIB / 16 && few.part_bytes() < MIB / 4, "{few:?}");
        // what can never be stored is refused before it is added up
        let account = Account::new("inflight", 12 * MIB).part();
        let kept = account.reserve(unsummed.bytes(3 * MIB)).unwrap();
        let refused = Need::of(&unsummed, &kept).unwrap_err();
        assert_eq!((refused.kind, refused.message.contains("--memory")), (model::ErrorKind::TooLarge, true));
    }
}
