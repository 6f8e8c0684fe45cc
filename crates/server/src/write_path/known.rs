//! Writes for senders that get no answer, such as Graphite's.
//!
//! ```text
//!   body ─▶ admit ─▶ decode, route ─┬─ samples of known series ─▶ submit ─▶ settle: durable
//!                                   └─ samples of new series ───▶ handed back, to be queued
//! ```
//!
//! A sender without answers cannot repeat what was refused. So the caller keeps the body until it is settled, and writes
//! it again after a refusal. New series must not delay known series, so the
//! caller queues their samples (`listen::lines`). While samples of a series are queued, later ones must not overtake them.
//! So they count as samples of a new series, whether or not it exists by now ([`WaitingSeries`]).

use super::aggregator::Contributions;
use super::decoder_pool::{INLINE_TEXT_BYTES_MAX, NEED_FACTOR, Origin, Points};
use super::gates::Place;
use super::route::{Prepared, Routed};
use super::turns::{Done, Step, first_turn, later_turns};
use super::{Context, Decoders, Submitted, Unwritten, admit, admit_again, settle, submit};
use crate::graphite_rules::Rules;
use crate::limits::fair_permits::Permit;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::{NewPart, NewSeries, Outcome, StreamId};
use crate::refusal::Refusal;
use model::{BatchSeries, Labels, Principal, SeriesKey, TenantId};
use protocol::{Body, Decoder, Encoding};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::{Exhausted, Reservation};

/// A body's place among those of one sender, such as those of a connection.
#[derive(Debug)]
pub(crate) struct BodyStream<'a> {
    /// The same for all bodies of the sender.
    pub(crate) id: StreamId,
    pub(crate) origin: Origin,
    /// When the body was complete, in milliseconds since the Unix epoch. However often it is written again, the age of its
    /// points is judged by this time.
    pub(crate) arrived_ms: i64,
    /// Permit to write the body, held until the samples are durable, but not while rules take long.
    pub(crate) permit: Option<Permit<TenantId>>,
    pub(crate) earlier: &'a mut Earlier,
}

/// Tells which series have samples that were handed back and are neither stored nor dropped yet.
pub(crate) trait WaitingSeries: std::fmt::Debug + Send + Sync {
    /// Appends an entry for each of `series`, or nothing if none of the tenant's series waits.
    fn mark(&self, tenant: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>);

    fn waits(&self, tenant: &TenantId, key: SeriesKey) -> bool;

    /// The labels of a series, if it waits.
    fn labels(&self, tenant: &TenantId, key: SeriesKey) -> Option<Labels>;
}

/// A decoded body, divided into samples of known series and of new series.
pub(super) struct Split {
    prepared: Prepared,
    new: NewSamples,
}

impl Split {
    pub(super) fn of(mut routed: Routed, mut memory: Reservation) -> Result<Self, Exhausted> {
        memory.resize(routed.bytes().min(memory.bytes()))?;
        let parts = routed.take_new();
        // what is remembered of the new series stays until the body is stored, which may take long
        let bytes: usize = parts.iter().map(NewPart::memory_bytes).sum();
        let of_new = memory.split((bytes as u64).min(memory.bytes()));
        let prepared = routed.finish_within(&Arc::new(memory));
        Ok(Self { prepared, new: NewSamples { parts, memory: of_new } })
    }
}

/// Samples of series that do not exist yet.
#[derive(Debug)]
pub(crate) struct NewSamples {
    pub(crate) parts: Vec<NewPart>,
    memory: Reservation,
}

impl NewSamples {
    pub(crate) fn of(part: NewPart, memory: Reservation) -> Self {
        Self { parts: vec![part], memory }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Keeps only the times of the samples, which take less memory.
    pub(crate) fn into_times(self) -> Times {
        let Self { parts, mut memory } = self;
        let times = parts.into_iter().map(|NewPart { series, mut timestamps, .. }| {
            let mut of_series: Vec<(SeriesKey, Range<u32>)> = Vec::with_capacity(series.len());
            for NewSeries { key, samples, .. } in series {
                timestamps[samples.start as usize..samples.end as usize].sort_unstable();
                of_series.push((key, samples));
            }
            of_series.sort_unstable_by_key(|(key, _)| *key);
            PartTimes { series: of_series, timestamps }
        });
        let parts: Vec<_> = times.collect();
        let bytes: usize = parts.iter().map(PartTimes::memory_bytes).sum();
        drop(memory.split(memory.bytes().saturating_sub(bytes as u64)));
        Times { parts, _memory: memory }
    }

    /// Leaves out the samples whose key and time are selected.
    pub(crate) fn leave_out(&mut self, is_selected: impl Fn(SeriesKey, i64) -> bool) {
        for NewPart { series, timestamps, values } in &mut self.parts {
            for NewSeries { key, samples, .. } in series.iter_mut() {
                let (start, mut end) = (samples.start, samples.start);
                for sample in samples.clone() {
                    if !is_selected(*key, timestamps[sample as usize]) {
                        timestamps[end as usize] = timestamps[sample as usize];
                        values.keep(sample as usize, end as usize);
                        end += 1;
                    }
                }
                *samples = start..end;
            }
            series.retain(|series| !series.samples.is_empty());
        }
        self.parts.retain(|part| !part.series.is_empty());
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl Iterator<Item = SeriesKey> {
        self.parts.iter().flat_map(|part| &part.series).map(|series| series.key)
    }

    pub(crate) fn points(&self) -> u64 {
        let series = self.parts.iter().flat_map(|part| &part.series);
        series.map(|series| u64::from(series.samples.end - series.samples.start)).sum()
    }
}

/// The times of samples, by series.
#[derive(Debug)]
pub(crate) struct Times {
    parts: Vec<PartTimes>,
    _memory: Reservation,
}

#[derive(Debug)]
struct PartTimes {
    /// In the order of their keys.
    series: Vec<(SeriesKey, Range<u32>)>,
    /// Those of a series are in order.
    timestamps: Vec<i64>,
}

impl PartTimes {
    fn memory_bytes(&self) -> usize {
        self.series.capacity() * size_of::<(SeriesKey, Range<u32>)>()
            + self.timestamps.capacity() * size_of::<i64>()
    }
}

impl Times {
    pub(crate) fn contain(&self, key: SeriesKey, time_ms: i64) -> bool {
        self.parts.iter().any(|PartTimes { series, timestamps }| {
            let first = series.partition_point(|(other, _)| *other < key);
            let same = series[first..].iter().take_while(|(other, _)| *other == key);
            same.map(|(_, samples)| &timestamps[samples.start as usize..samples.end as usize])
                .any(|times| times.binary_search(&time_ms).is_ok())
        })
    }
}

/// A body whose known series were submitted to the partitions.
#[derive(Debug)]
pub(crate) struct Sent {
    tenant: Arc<TenantState>,
    submitted: Submitted,
    outcome: Outcome,
    began: Instant,
    place: Place,
}

impl Sent {
    /// Waits until all samples of known series are durable. The outcome does not count samples of new series.
    pub(crate) async fn settle(mut self, context: &Arc<Context>) -> Result<Outcome, Refused> {
        let _passing = context.traffic.enter();
        let contributions = self.outcome.contributions.take();
        match settle(context, &self.tenant, self.submitted, self.outcome, false, self.began).await {
            Ok(outcome) => {
                self.place.pass.is_served = true;
                Ok(Outcome { contributions, ..outcome })
            }
            Err(unwritten) => Err(Refused { unwritten, contributions }),
        }
    }
}

/// Why an attempt to write a body has failed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) unwritten: Unwritten,
    /// What computed series would have got from the body.
    pub(crate) contributions: Option<Box<Contributions>>,
}

impl Refused {
    /// Adds what an earlier attempt to write the same body has done.
    pub(crate) fn add_earlier(&mut self, earlier: Result<Outcome, Self>) {
        let (contributions, may_be_durable) = match earlier {
            Ok(outcome) => (outcome.contributions, true),
            Err(refused) => (refused.contributions, refused.unwritten.may_be_durable),
        };
        self.contributions = self.contributions.take().or(contributions);
        self.unwritten.may_be_durable |= may_be_durable;
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { unwritten: refusal.into(), contributions: None }
    }
}

/// A body after the first of its turns.
pub(crate) enum Begun {
    Sent(Box<(Sent, NewSamples)>),
    Later(Later),
}

/// A body whose rules take long. It holds nothing that others wait for, and nothing of it is written yet.
pub(crate) struct Later {
    /// True if the tenant has rules of its own. Rules on names are the same for all.
    pub(crate) are_of_tenant: bool,
    sent: Pin<Box<dyn Future<Output = Written> + Send>>,
}

type Written = Result<(Sent, NewSamples), Refusal>;

impl Later {
    /// Waits for the rules, and submits the samples of known series.
    pub(crate) async fn sent(self) -> Written {
        self.sent.await
    }
}

/// What earlier attempts to write a body leave to the next one.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// True if the body counted as a request against rate limits. A body that is written again does not count again.
    request: bool,
    /// True once its samples were submitted and counted.
    pub(crate) samples: bool,
    /// The rules by which the body was submitted. With others, points already stored could be stored again under another name.
    carbon_rules: Option<Arc<Rules>>,
}

/// Decodes a body that is not compressed, and submits its samples of known series. Returns the samples of new series.
///
/// Bodies of a stream that are sent one after the other are stored in this order, if their samples of new series are queued
/// before the next body is sent.
pub(crate) async fn send<D: Decoder>(
    context: &Arc<Context>,
    decoders: &Arc<Decoders<D>>,
    principal: &Principal,
    format: D::Format,
    bytes: &Arc<Vec<u8>>,
    waiting: &Arc<dyn WaitingSeries>,
    stream: BodyStream<'_>,
) -> Result<Begun, Refusal> {
    let (began, BodyStream { id, origin, arrived_ms, permit, earlier }) = (Instant::now(), stream);
    if earlier.request {
        admit_again(context, principal).await?;
    } else {
        admit(context, principal, bytes.len()).await?;
        earlier.request = true;
        context.metrics.body_bytes.add(bytes.len() as u64);
    }
    let (gates, settings) = (&context.gates, context.overrides.current());
    let own = settings.of(&principal.tenant);
    let tenant = context.tenant(&principal.tenant);
    let mut memory = tenant.inflight(own).reserve(0)?;
    let rules = context.ingest.list_of(&principal.tenant);
    let thread = if bytes.len() > INLINE_TEXT_BYTES_MAX {
        take_memory_ahead(&mut memory, bytes.len())?;
        Some(gates.decoding_permit(&principal.tenant).await)
    } else {
        None
    };
    let place = Place::new(gates.enter(&principal.tenant, own)?, permit);
    tenant.peaks.writes.note(place.pass.number as u64);
    let (is_counted, are_of_tenant) = (earlier.samples, rules.is_some());
    let of_earlier = earlier.carbon_rules.take().filter(|_| is_counted);
    let carbon_rules = of_earlier.unwrap_or_else(|| context.rules.current());
    earlier.carbon_rules = Some(Arc::clone(&carbon_rules));
    let (arrived_ms, waiting) = (Some(arrived_ms), Some(Arc::clone(waiting)));
    let points = Points { origin, arrived_ms, is_counted, waiting, carbon_rules, rules };
    let begin = {
        let (context, decoders) = (Arc::clone(context), Arc::clone(decoders));
        let (principal, bytes) = (principal.clone(), Arc::clone(bytes));
        move || {
            let body = Body { encoding: Encoding::Identity, bytes: &bytes };
            decoders.begin(&context, principal, (format, body), points, memory)
        }
    };
    let sent = move |context: &Arc<Context>, done: Done| {
        let Done { routed, memory, place } = done;
        let Split { prepared: Prepared { mut submissions, outcome, .. }, new } = Split::of(routed, memory)?;
        submissions.iter_mut().for_each(|(_, submission, _)| submission.stream = Some(id));
        let submitted = submit(context, submissions);
        Ok((Sent { tenant, submitted, outcome, began, place }, new))
    };
    match first_turn(context, &principal.tenant, thread, place, begin).await? {
        Step::Done(done) => sent(context, *done).map(|sent| Begun::Sent(Box::new(sent))),
        step => {
            let (context, tenant) = (Arc::clone(context), principal.tenant.clone());
            let sent = Box::pin(async move {
                let done = later_turns(&context, &tenant, step).await?;
                sent(&context, done)
            });
            Ok(Begun::Later(Later { are_of_tenant, sent }))
        }
    }
}

/// Reserves the memory that a large body will probably need. Otherwise, many bodies could be started and none completed.
fn take_memory_ahead(memory: &mut Reservation, body_bytes: usize) -> Result<(), Exhausted> {
    match memory.advance(NEED_FACTOR * body_bytes as u64) {
        Err(full) if !full.is_for_good() => Err(full),
        _ => Ok(()), // the body may need less than the estimate
    }
}
