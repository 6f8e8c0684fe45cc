//! The path of a written batch, top to bottom.
//!
//! ```text
//!   body ─▶ decode ─▶ check times ─▶ resolve keys ─▶ submit to owners ─▶ wait until durable ─▶ outcome
//! ```

use crate::node::Node;
use crate::owner::Command;
use crate::refusal::{Refusal, grow};
use crate::submission::{NewSeries, Outcome, Submission};
use model::batch::describe_labels;
use model::{Batch, BatchSeries, Exemplar, LabelsBuilder, SeriesError, SeriesKey, SeriesRef, TenantId, caps};
use protocol::remote_write::{Decoder, Version, labels_of};
use std::ops::Range;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stdx::budget::Reservation;
use tokio::sync::oneshot;

#[cfg(test)]
pub(crate) mod tests;

/// Bodies up to this size are decoded where they are; larger ones on a thread of their own, so that no task
/// holds up the others for longer than about half a millisecond.
const INLINE_BYTES_MAX: usize = 1 << 20;

/// How long a request waits for replay to end before it is told to come back.
const REPLAY_WAIT: Duration = Duration::from_secs(5);
const REPLAY_POLL: Duration = Duration::from_millis(10);

/// Warm decoders, kept between requests.
#[derive(Debug)]
pub(crate) struct Decoders {
    seed: u64,
    idle: Mutex<Vec<Workspace>>,
}

/// How many decoders stay warm: more than can work at once.
const IDLE_MAX: usize = 16;

/// A batch that grew beyond this is not kept.
const BATCH_KEPT_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
struct Workspace {
    decoder: Decoder,
    batch: Batch,
    labels: LabelsBuilder,
}

impl Decoders {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Workspace {
        let idle = self.idle.lock().expect("BUG: a decoder panicked").pop();
        idle.unwrap_or_else(|| Workspace {
            decoder: Decoder::new(self.seed),
            batch: Batch::default(),
            labels: LabelsBuilder::new(),
        })
    }

    fn put(&self, workspace: Workspace) {
        let mut idle = self.idle.lock().expect("BUG: a decoder panicked");
        if idle.len() < IDLE_MAX && workspace.batch.memory_bytes() <= BATCH_KEPT_BYTES_MAX {
            idle.push(workspace);
        }
    }
}

/// Writes one request. When this returns `Ok`, what it counts as stored is durable and can be queried.
///
/// `memory` already holds the body's bytes; it grows by what decoding needs.
pub async fn write(
    node: &Node,
    tenant: TenantId,
    version: Version,
    body: Vec<u8>,
    mut memory: Reservation,
) -> Result<Outcome, Refusal> {
    let began = Instant::now();
    wait_for_replay(node).await;
    check_state(node, &tenant)?;
    let decoded_bytes = protocol::remote_write::decoded_len(&body)?;
    let held_bytes = memory.bytes();
    grow(&mut memory, held_bytes + working_bytes(decoded_bytes))?;
    node.shared().metrics.body_bytes.add(body.len() as u64);

    let prepared = if decoded_bytes <= INLINE_BYTES_MAX {
        prepare(node, &tenant, version, &body, memory)
    } else {
        let node = node.clone();
        let task = tokio::task::spawn_blocking(move || prepare(&node, &tenant, version, &body, memory));
        task.await.map_err(|e| internal(format!("decoding failed: {e}")))?
    };
    let Prepared { submissions, mut outcome, creates } = prepared?;

    let answers = submit(node, submissions)?;
    for answer in answers {
        let answer = answer.await.map_err(|_| internal("a partition's owner is gone".into()))?;
        outcome.add(answer?);
    }
    if outcome.no_room && outcome.samples == 0 {
        // Nothing of it was stored, so it can be sent again as it is. Where known series came with the new
        // ones, the sender must go on with the next request, or all its series would wait for the new ones.
        let reason = outcome.errors.first().map(|(error, _)| error.to_string()).unwrap_or_default();
        return Err(Refusal::busy("head_full", reason));
    }
    let metrics = &node.shared().metrics;
    let seconds = if creates { &metrics.seconds_new } else { &metrics.seconds_known };
    seconds.observe(began.elapsed().as_secs_f64());
    metrics.refused_samples.add(outcome.refused_samples);
    Ok(outcome)
}

/// A replay is short: who comes in the middle of it waits here, inside the bounds on what is in flight,
/// rather than being sent away for whole seconds.
pub(crate) async fn wait_for_replay(node: &Node) {
    let began = Instant::now();
    while !node.is_ready() && !node.is_stopping() && began.elapsed() < REPLAY_WAIT {
        tokio::time::sleep(REPLAY_POLL).await;
    }
}

fn check_state(node: &Node, tenant: &TenantId) -> Result<(), Refusal> {
    if node.is_stopping() {
        return Err(Refusal::stopping());
    }
    if !node.is_ready() {
        return Err(Refusal::busy("replaying", "the journal is being replayed"));
    }
    let (used, limit) = (node.shared().head_bytes(), node.budget().head_bytes);
    if used >= limit {
        let message = format!(
            "the head is full: it holds {} MiB of {} MiB; it grows with --memory",
            used >> 20,
            limit >> 20
        );
        return Err(Refusal::busy("head_full", message));
    }
    let most = node.settings().tenants_max;
    for partition in node.partitions() {
        let head = partition.head.read();
        if head.tenant_count() >= most && head.tenant(tenant).is_none() {
            let message = format!("no room for a new tenant: there are {most} (setting tenants)");
            return Err(Refusal::busy("tenants", message));
        }
    }
    Ok(())
}

/// What decoding and the columns of a body will take: the text itself, and about as much again for a batch
/// of short series.
const fn working_bytes(decoded_bytes: usize) -> u64 {
    2 * decoded_bytes as u64
}

/// What a batch holds in metadata and exemplars, which have memory of their own.
fn extras_bytes(batch: &Batch) -> usize {
    let metadata = |m: &model::Metadata| size_of_val(m) + m.metric.len() + m.help.len() + m.unit.len();
    let exemplar = |(_, e): &(u32, Exemplar)| size_of::<(u32, Exemplar)>() + e.labels.as_bytes().len();
    batch.metadata.iter().map(metadata).sum::<usize>() + batch.exemplars.iter().map(exemplar).sum::<usize>()
}

struct Prepared {
    /// One for each partition that has a share.
    submissions: Vec<(usize, Submission, Answer)>,
    outcome: Outcome,
    creates: bool,
}

type Answer = oneshot::Receiver<Result<Outcome, Refusal>>;

/// Decodes, checks and resolves: everything that needs no owner.
fn prepare(
    node: &Node,
    tenant: &TenantId,
    version: Version,
    body: &[u8],
    memory: Reservation,
) -> Result<Prepared, Refusal> {
    let mut workspace = node.decoders().take();
    let Workspace { decoder, batch, labels } = &mut workspace;
    let prepared = match decoder.decode(version, body, batch) {
        Ok(()) => route(node, tenant, batch, labels, memory),
        Err(error) => Err(error.into()),
    };
    node.decoders().put(workspace);
    prepared
}

fn route(
    node: &Node,
    tenant: &TenantId,
    batch: &mut Batch,
    labels: &mut LabelsBuilder,
    mut memory: Reservation,
) -> Result<Prepared, Refusal> {
    // a small 2.0 body can name long labels many times over
    let held = (batch.memory_bytes() + extras_bytes(batch)) as u64;
    if held > memory.bytes() {
        grow(&mut memory, held)?;
    }
    let memory = Arc::new(memory);
    let mut outcome = refused_by_decoder(batch);
    leave_out_impossible_times(node, batch, &mut outcome);

    let mut parts: Vec<(Submission, Answer)> = node.partitions().iter().map(|_| part(tenant)).collect();
    let mut unknown = Vec::new();
    resolve_known(node, tenant, batch, &mut parts, &mut unknown);
    let creates = !unknown.is_empty();
    for position in unknown {
        let series = &batch.series[position as usize];
        if series.samples.is_empty() {
            continue; // exemplars of a series that nobody knows yet: there is nothing to store them with
        }
        let seed = node.shared().seed;
        match labels_of(batch.label_bytes(series), labels) {
            Ok(labels) => {
                let key = SeriesKey::of(labels.as_bytes(), seed);
                let number = key.partition(node.partitions().len());
                let part = &mut parts[number].0;
                // labels that came in another order than ours have a key of their own, which no one knows
                let known = if key == series.key { None } else { resolve(node, number, tenant, key) };
                match known {
                    Some(known) => add_known(part, batch, position, known),
                    None => add_new(part, batch, position, key, labels),
                }
            }
            Err(error) => {
                let text = || describe_labels(batch.label_bytes(series));
                outcome.refuse(error, u64::from(series.samples.end - series.samples.start), text);
            }
        }
    }
    for metadata in batch.metadata.drain(..) {
        let key = SeriesKey::of(metadata.metric.as_bytes(), node.shared().seed);
        parts[key.partition(node.partitions().len())].0.metadata.push(metadata);
    }
    let submissions = parts
        .into_iter()
        .enumerate()
        .filter(|(_, (submission, _))| !submission.is_empty())
        .map(|(partition, (mut submission, answer))| {
            submission.memory = Some(Arc::clone(&memory));
            (partition, submission, answer)
        })
        .collect();
    Ok(Prepared { submissions, outcome, creates })
}

fn part(tenant: &TenantId) -> (Submission, Answer) {
    let (reply, answer) = oneshot::channel();
    (Submission::new(tenant.clone(), reply), answer)
}

fn refused_by_decoder(batch: &Batch) -> Outcome {
    let text = |range: &Range<u32>| describe_labels(&batch.bytes[range.start as usize..range.end as usize]);
    Outcome {
        refused_samples: batch.refused_samples,
        refused_series: batch.refused_series,
        errors: batch
            .refused
            .iter()
            .take(Outcome::ERRORS_MAX)
            .map(|(error, labels)| (error.clone(), text(labels)))
            .collect(),
        ..Outcome::default()
    }
}

/// Samples before 1970 or too far ahead of the clock. Almost never any: one pass over the column tells.
fn leave_out_impossible_times(node: &Node, batch: &mut Batch, outcome: &mut Outcome) {
    let latest_ms =
        node.shared().clock.now_ms().saturating_add(node.settings().future_ms).min(caps::TIMESTAMP_MS_MAX);
    let possible = caps::TIMESTAMP_MS_MIN..=latest_ms;
    let (oldest, newest) =
        batch.timestamps.iter().fold((i64::MAX, i64::MIN), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
    if batch.timestamps.is_empty() || (possible.contains(&oldest) && possible.contains(&newest)) {
        return;
    }
    let old = std::mem::take(&mut batch.series);
    let (times, values) = (std::mem::take(&mut batch.timestamps), std::mem::take(&mut batch.values));
    for series in old {
        let start = batch.timestamps.len() as u32;
        for i in series.samples.start as usize..series.samples.end as usize {
            if possible.contains(&times[i]) {
                batch.timestamps.push(times[i]);
                batch.values.push(values[i]);
                continue;
            }
            let reason = match times[i] < caps::TIMESTAMP_MS_MIN {
                true => "before 1970",
                false => "too far in the future (setting future_limit)",
            };
            let error = SeriesError::Timestamp { timestamp_ms: times[i], reason };
            outcome.refuse(error, 1, || describe_labels(batch.label_bytes(&series)));
        }
        let samples = start..batch.timestamps.len() as u32;
        batch.series.push(BatchSeries { samples, ..series });
    }
}

/// Sorts the samples of known series into their partitions' submissions; the rest is `unknown`.
fn resolve_known(
    node: &Node,
    tenant: &TenantId,
    batch: &mut Batch,
    parts: &mut [(Submission, Answer)],
    unknown: &mut Vec<u32>,
) {
    let count = parts.len();
    let mut exemplars = std::mem::take(&mut batch.exemplars).into_iter().peekable();
    let mut known: Vec<Option<SeriesRef>> = Vec::new();
    let track = exemplars.peek().is_some();
    if track {
        known.resize(batch.series.len(), None);
    }
    for (number, (partition, (part, _))) in node.partitions().iter().zip(parts.iter_mut()).enumerate() {
        let head = partition.head.read();
        let head = head.tenant(tenant);
        let share = batch.timestamps.len() / count + batch.timestamps.len() / (4 * count);
        part.refs.reserve(share);
        part.timestamps.reserve(share);
        part.values.reserve(share);
        for (position, series) in batch.series.iter().enumerate() {
            if series.key.partition(count) != number {
                continue;
            }
            let Some(found) = head.and_then(|h| h.resolve(series.key)) else {
                unknown.push(position as u32);
                continue;
            };
            if track {
                known[position] = Some(found);
            }
            for i in series.samples.start as usize..series.samples.end as usize {
                part.refs.push(found);
                part.timestamps.push(batch.timestamps[i]);
                part.values.push(batch.values[i]);
            }
        }
    }
    for (position, exemplar) in exemplars {
        match known[position as usize] {
            Some(series) => {
                let partition = batch.series[position as usize].key.partition(count);
                parts[partition].0.exemplars.push((series, exemplar));
            }
            None => batch.exemplars.push((position, exemplar)),
        }
    }
}

fn resolve(node: &Node, partition: usize, tenant: &TenantId, key: SeriesKey) -> Option<SeriesRef> {
    node.partitions()[partition].head.read().tenant(tenant)?.resolve(key)
}

fn add_known(part: &mut Submission, batch: &Batch, position: u32, known: SeriesRef) {
    let samples = &batch.series[position as usize].samples;
    for i in samples.start as usize..samples.end as usize {
        part.refs.push(known);
        part.timestamps.push(batch.timestamps[i]);
        part.values.push(batch.values[i]);
    }
    let mine = exemplars_of(&batch.exemplars, position).iter();
    part.exemplars.extend(mine.map(|(_, e)| (known, e.clone())));
}

fn add_new(part: &mut Submission, batch: &Batch, position: u32, key: SeriesKey, labels: model::Labels) {
    let samples = &batch.series[position as usize].samples;
    let start = part.new_timestamps.len() as u32;
    let (from, to) = (samples.start as usize, samples.end as usize);
    part.new_timestamps.extend_from_slice(&batch.timestamps[from..to]);
    part.new_values.extend_from_slice(&batch.values[from..to]);
    part.new.push(NewSeries {
        key,
        labels,
        samples: start..part.new_timestamps.len() as u32,
        exemplars: exemplars_of(&batch.exemplars, position).iter().map(|(_, e)| e.clone()).collect(),
    });
}

/// The exemplars of the series at `position`. They come in the order of their series, so a body full of new
/// series with exemplars costs a search each and not a pass over all.
fn exemplars_of(exemplars: &[(u32, Exemplar)], position: u32) -> &[(u32, Exemplar)] {
    let from = exemplars.partition_point(|(p, _)| *p < position);
    let count = exemplars[from..].partition_point(|(p, _)| *p == position);
    &exemplars[from..from + count]
}

fn submit(node: &Node, submissions: Vec<(usize, Submission, Answer)>) -> Result<Vec<Answer>, Refusal> {
    let mut answers = Vec::with_capacity(submissions.len());
    for (partition, submission, answer) in submissions {
        match node.commands()[partition].try_send(Command::Write(Box::new(submission))) {
            Ok(()) => answers.push(answer),
            Err(TrySendError::Full(_)) => {
                return Err(Refusal::busy(
                    "queue_full",
                    "a partition's queue is full: the disk or the processor is behind",
                ));
            }
            Err(TrySendError::Disconnected(_)) => return Err(Refusal::stopping()),
        }
    }
    Ok(answers)
}

const fn internal(message: String) -> Refusal {
    Refusal { kind: model::ErrorKind::Internal, reason: "bug", message }
}
