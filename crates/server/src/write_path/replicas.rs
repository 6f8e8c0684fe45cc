//! Removes the duplicates that arise if several Prometheus servers scrape the same targets.
//!
//! ```text
//!   series ─▶ labels of cluster and replica ─▶ election ─┬─▶ elected: accepted, without the replica label
//!                                               ▲        └─▶ not elected: left out, but acknowledged as stored
//!                                               └── what became of the elected replica's samples, when the request ends
//! ```
//!
//! This is decided for each series by its labels. A series without both labels is accepted as it is.

use super::Context;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::settings::TenantSettings;
use admission::age::Window;
use admission::election::{Arrival, End, REPLICA_NAME_BYTES_MAX, Vote};
use admission::retry::until_attempt;
use admission::{Postponed, RETRY_AFTER};
use model::{
    Batch, BatchIncrement, BatchSeries, ErrorKind, Exemplar, SeriesBatch, SeriesHasher, SeriesRefusal, Value,
};
use protocol::labels::{describe_labels, find_labels};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// The elected replicas whose samples a request contains. When this is dropped, their elections learn what became of the
/// samples.
#[derive(Debug)]
pub(crate) struct ElectedReplicas {
    context: Arc<Context>,
    state: Arc<TenantState>,
    of_clusters: HashMap<Box<str>, Sent>,
    /// Memory is reserved for this number of clusters.
    clusters_max: usize,
    fate: Fate,
    /// Whether the request has waited for its rules.
    has_waited: bool,
}

/// What a request contains of the elected replica of a cluster.
#[derive(Debug)]
struct Sent {
    replica: Box<str>,
    after_ms: i64,
    has_samples: bool,
    /// Timestamp of the newest sample that may be stored. `None` if there is none: all are duplicates, or have an impossible
    /// time.
    newest_ms: Option<i64>,
    /// Timestamp of the oldest of these samples.
    oldest_ms: Option<i64>,
}

/// What became of a request. Samples of different replicas in a request are not told apart, except that those with an
/// impossible time are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing was stored, and nothing will be.
    Refused,
    /// It was submitted, but has not been answered.
    Unknown,
    /// Nothing was stored, or not in each partition, and the sender sends the request again. This also counts for requests
    /// that end before they are submitted.
    Repeated,
    /// Some samples were stored, or there is nothing left to store.
    Stored,
}

/// A map allocates at least four entries, and grows to at most twice as many as it needs.
const SENT_BYTES: usize = 4 * size_of::<(Box<str>, Sent)>() + 2 * REPLICA_NAME_BYTES_MAX;

impl ElectedReplicas {
    /// Memory that this takes until it is dropped.
    pub(super) const fn bytes(&self) -> u64 {
        (self.clusters_max * SENT_BYTES) as u64
    }

    /// Must be called when the request begins to wait for its rules. Until it ends, other replicas must keep their samples.
    pub(super) fn waits(&mut self) {
        if std::mem::replace(&mut self.has_waited, true) {
            return;
        }
        let mut replicas = self.state.replicas.lock();
        for (cluster, sent) in &self.of_clusters {
            if let Some(oldest_ms) = sent.oldest_ms {
                replicas.waits(cluster, &sent.replica, oldest_ms);
            }
        }
    }

    /// Must be called when the request is submitted. If this is then dropped without an answer, because the sender has gone,
    /// the request may still be stored.
    pub(super) fn submitted(&mut self) {
        self.fate = Fate::Unknown;
    }

    /// Must be called with the answer to the request. `is_share_refused` tells that a partition refused its whole share.
    pub(super) fn answered(mut self, outcome: &Outcome, refused: Option<&Refusal>, is_share_refused: bool) {
        // if only the clocks differ, the sender's may be wrong, and then nothing of it will be stored
        let is_repeated = |refusal: &Refusal| {
            refusal.kind == ErrorKind::Unavailable && refusal.reason != Postponed::Clock.reason()
        };
        self.fate = match refused {
            // the samples of other partitions are stored, but those of this share may only exist in other replicas
            Some(refusal) if is_share_refused && is_repeated(refusal) => Fate::Repeated,
            // samples that a rule drops need no other replica
            _ if outcome.samples + outcome.dropped_samples > 0 => Fate::Stored,
            None if outcome.refused_samples == 0 => Fate::Stored,
            Some(refusal) if is_repeated(refusal) => Fate::Repeated,
            _ => Fate::Refused,
        };
    }
}

impl Drop for ElectedReplicas {
    fn drop(&mut self) {
        if self.of_clusters.is_empty() {
            return;
        }
        let now = self.context.clock.instant();
        let mut replicas = self.state.replicas.lock();
        for (cluster, sent) in &self.of_clusters {
            if let Some(oldest_ms) = sent.oldest_ms.filter(|_| self.has_waited) {
                replicas.waited(cluster, &sent.replica, oldest_ms);
            }
            replicas.ended(cluster, &sent.replica, sent.end(self.fate), now);
        }
    }
}

impl Sent {
    fn end(&self, fate: Fate) -> End {
        match (fate, self.newest_ms) {
            (_, None) if self.has_samples => End::Refused,
            (_, None) => End::Nothing,
            (Fate::Refused, Some(_)) => End::Refused,
            (Fate::Unknown, Some(newest_ms)) => End::Unknown(newest_ms),
            (Fate::Repeated, Some(_)) => End::Repeated,
            (Fate::Stored, Some(newest_ms)) => End::Stored(newest_ms),
        }
    }
}

/// Removes samples of replicas that are not elected, and counts them in `outcome`. Memory that this takes is reserved
/// in `memory`. Returns how many samples are refused only because it is uncertain whether they are duplicates.
pub(super) fn deduplicate(
    context: &Arc<Context>,
    state: &Arc<TenantState>,
    own: &TenantSettings,
    arrived_ms: i64,
    batch: &mut Batch,
    outcome: &mut Outcome,
    memory: &mut Reservation,
) -> Result<u64, Exhausted> {
    let arrival = Arrival { now: context.clock.instant(), now_ms: arrived_ms, failover: own.ha_failover() };
    let Batch { bytes, floats, histograms, .. } = batch;
    let mut reservation = IncrementalReservation::new(memory);
    let mut deduplicator = Deduplicator {
        context,
        state,
        own,
        arrival,
        window: Window::at(arrived_ms, context.settings.past_ms, context.settings.future_ms),
        hasher: SeriesHasher::new(context.seed),
        bytes,
        run: None,
        elected: ElectedReplicas {
            context: Arc::clone(context),
            state: Arc::clone(state),
            of_clusters: HashMap::new(),
            clusters_max: 0,
            fate: Fate::Repeated,
            has_waited: false,
        },
        uncertain_samples: 0,
        failover_wait: RETRY_AFTER,
        outcome,
    };
    deduplicator.pass(floats, &mut reservation)?;
    deduplicator.pass(histograms, &mut reservation)?;
    deduplicator.end_run();
    let Deduplicator { elected, uncertain_samples, outcome, .. } = deduplicator;
    context.metrics.deduplicated_samples.add(outcome.deduplicated_samples);
    outcome.elected = (!elected.of_clusters.is_empty()).then(|| Box::new(elected));
    Ok(uncertain_samples)
}

struct Deduplicator<'a> {
    context: &'a Arc<Context>,
    state: &'a Arc<TenantState>,
    own: &'a TenantSettings,
    arrival: Arrival,
    /// Samples outside of this window will be refused.
    window: Window,
    hasher: SeriesHasher,
    /// The bytes in which the labels of all series are stored.
    bytes: &'a mut Vec<u8>,
    /// The run to which the last series with both labels belongs.
    run: Option<Run>,
    elected: ElectedReplicas,
    uncertain_samples: u64,
    /// How long the sender of the last samples that are uncertain should wait.
    failover_wait: Duration,
    outcome: &'a mut Outcome,
}

/// Consecutive series of the same replica. The decision is made once for all of them.
struct Run {
    cluster: String,
    replica: String,
    decision: Result<Vote, SeriesRefusal>,
    has_samples: bool,
    newest_ms: Option<i64>,
    oldest_ms: Option<i64>,
}

enum Decision {
    Untouched,
    /// Samples later than this are stored; the others are duplicates.
    After(i64),
    Duplicate,
    /// Duplicates if all are older than this. Otherwise, all are refused.
    OlderAreDuplicates(i64),
    Refused(SeriesRefusal),
}

impl Decision {
    const fn accepts(&self, timestamp_ms: i64) -> bool {
        match self {
            Self::Untouched => true,
            Self::After(after_ms) => timestamp_ms > *after_ms,
            Self::Duplicate | Self::OlderAreDuplicates(_) | Self::Refused(_) => false,
        }
    }
}

impl Deduplicator<'_> {
    /// Removes the series and samples that are not accepted. The others keep their order.
    fn pass<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let (mut kept, mut samples_kept) = (0, 0);
        let (mut increment, mut increments_kept) = (0, 0);
        let mut exemplars = Exemplars::default();
        let window = self.window;
        for position in 0..batch.series.len() {
            let mut series = batch.series[position].clone();
            let mut decision = self.decide(&mut series, reservation)?;
            if let Decision::OlderAreDuplicates(from_ms) = decision {
                let times = &batch.timestamps[range(&series.samples)];
                decision = match times.iter().all(|time_ms| *time_ms < from_ms) {
                    true => Decision::Duplicate,
                    false => Decision::Refused(SeriesRefusal::ElectedNotStored),
                };
            }
            let sent = series.samples.len();
            series.samples = keep_samples(batch, &series, &decision, &mut samples_kept);
            if let (Decision::After(_), Some(run)) = (&decision, &mut self.run) {
                let times = &batch.timestamps[range(&series.samples)];
                let possible = || times.iter().copied().filter(|time_ms| window.contains(*time_ms));
                run.has_samples |= !times.is_empty();
                run.newest_ms = run.newest_ms.max(possible().max());
                run.oldest_ms = run.oldest_ms.into_iter().chain(possible()).min();
            }
            let lost_exemplars =
                exemplars.keep(&mut batch.exemplars, position as u32, kept as u32, &decision);
            self.count(&decision, &series, (sent - series.samples.len()) as u64, lost_exemplars);
            let is_kept = matches!(decision, Decision::Untouched | Decision::After(_));
            if batch.increments.get(increment).is_some_and(|found| found.series == position as u32) {
                // the increment of a series whose only sample was left out has nothing to be added to
                if is_kept && !series.samples.is_empty() {
                    batch.increments[increments_kept] =
                        BatchIncrement { series: kept as u32, ..batch.increments[increment] };
                    increments_kept += 1;
                }
                increment += 1;
            }
            if is_kept {
                batch.series[kept] = series;
                kept += 1;
            }
        }
        batch.increments.truncate(increments_kept);
        batch.series.truncate(kept);
        batch.timestamps.truncate(samples_kept);
        batch.values.truncate(samples_kept);
        batch.exemplars.truncate(exemplars.kept);
        Ok(())
    }

    /// Decides whether a series is accepted. If it is from an elected replica, removes its replica label.
    fn decide(
        &mut self,
        series: &mut BatchSeries,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Decision, Exhausted> {
        let labels = range(&series.labels);
        let own = self.own;
        let found =
            find_labels(&self.bytes[labels.clone()], [&own.ha_cluster_label.0, &own.ha_replica_label.0]);
        let Some([cluster, replica]) = found else { return Ok(Decision::Untouched) };
        let is_last =
            |run: &Run| run.cluster.as_bytes() == cluster.value && run.replica.as_bytes() == replica.value;
        let in_labels = replica.range;
        if !self.run.as_ref().is_some_and(is_last) {
            let (Some(cluster), Some(replica)) = (name(cluster.value), name(replica.value)) else {
                return Ok(Decision::Untouched);
            };
            self.begin_run(cluster, replica, reservation)?;
        }
        let run = self.run.as_ref().expect("BUG: no run has begun");
        Ok(match &run.decision {
            Ok(Vote::Elected(after_ms) | Vote::After(after_ms)) => {
                let after_ms = *after_ms;
                self.leave_out_label(series, in_labels, reservation)?;
                Decision::After(after_ms)
            }
            Ok(Vote::Duplicate) => Decision::Duplicate,
            Ok(Vote::Undecided) => Decision::Refused(SeriesRefusal::ElectedNotStored),
            Ok(Vote::UndecidedFrom(from_ms)) => Decision::OlderAreDuplicates(*from_ms),
            Err(error) => Decision::Refused(error.clone()),
        })
    }

    fn begin_run(
        &mut self,
        cluster: String,
        replica: String,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        self.end_run();
        let decision = match self.elected.of_clusters.get(cluster.as_str()) {
            Some(sent) if *sent.replica == *replica => Ok(Vote::After(sent.after_ms)),
            // if the samples of the elected replica in this request are refused, the sender sends both again
            Some(sent) if sent.newest_ms.is_some() => Ok(Vote::Duplicate),
            _ => self.vote(&cluster, &replica, reservation)?,
        };
        let (newest_ms, oldest_ms) = (None, None);
        self.run = Some(Run { cluster, replica, decision, has_samples: false, newest_ms, oldest_ms });
        Ok(())
    }

    /// Lets the election of the cluster decide. If the request has impossible samples of its elected replica, these do not
    /// count as a sign of life.
    fn vote(
        &mut self,
        cluster: &str,
        replica: &str,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Result<Vote, SeriesRefusal>, Exhausted> {
        let Self { context, state, own, arrival, .. } = *self;
        if let Some(sent) = self.elected.of_clusters.remove(cluster) {
            state.replicas.lock().ended(cluster, &sent.replica, sent.end(Fate::Refused), arrival.now);
        }
        let vote = || {
            let account = &context.heads.replicas;
            state.replicas.lock().vote((cluster, replica), arrival, own.limits.ha_clusters, account)
        };
        let mut decision = vote();
        if matches!(decision, Err(SeriesRefusal::NoRoomForClusters { .. })) {
            context.tenants.forget_silent_clusters(&context.overrides.current(), arrival.now);
            decision = vote();
        }
        if matches!(decision, Ok(Vote::Undecided | Vote::UndecidedFrom(_))) {
            // half of the time, because the elected replica may be stored before the end
            let until_failover = state.replicas.lock().until_failover(cluster, arrival);
            self.failover_wait = until_failover.map_or(RETRY_AFTER, |time| until_attempt(time / 2));
        }
        if matches!(decision, Ok(Vote::Elected(_))) {
            context.metrics.replicas_elected.inc();
        }
        if let Ok(Vote::Elected(after_ms) | Vote::After(after_ms)) = decision {
            if self.elected.of_clusters.len() == self.elected.clusters_max {
                if let Err(full) = reservation.reserve(SENT_BYTES) {
                    state.replicas.lock().ended(cluster, replica, End::Refused, arrival.now);
                    return Err(full);
                }
                self.elected.clusters_max += 1;
            }
            let (has_samples, newest_ms, oldest_ms) = (false, None, None);
            let sent = Sent { replica: replica.into(), after_ms, has_samples, newest_ms, oldest_ms };
            self.elected.of_clusters.insert(cluster.into(), sent);
        }
        Ok(decision)
    }

    fn end_run(&mut self) {
        if let Some(Run { cluster, replica, has_samples, newest_ms, oldest_ms, .. }) = self.run.take()
            && let Some(sent) = self.elected.of_clusters.get_mut(cluster.as_str())
            && *sent.replica == *replica
        {
            sent.has_samples |= has_samples;
            sent.newest_ms = sent.newest_ms.max(newest_ms);
            sent.oldest_ms = sent.oldest_ms.into_iter().chain(oldest_ms).min();
        }
    }

    /// Gives a series a copy of its labels without the label at `left_out`. The copy is appended to the stored
    /// labels.
    fn leave_out_label(
        &mut self,
        series: &mut BatchSeries,
        left_out: Range<usize>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let labels = range(&series.labels);
        reservation.room(self.bytes, labels.len() - left_out.len())?;
        let at = self.bytes.len();
        self.bytes.extend_from_within(labels.start..labels.start + left_out.start);
        self.bytes.extend_from_within(labels.start + left_out.end..labels.end);
        series.key = self.hasher.key(&self.bytes[at..]);
        series.labels = at as u32..self.bytes.len() as u32;
        Ok(())
    }

    fn count(&mut self, decision: &Decision, series: &BatchSeries, samples: u64, exemplars: u64) {
        let outcome = &mut *self.outcome;
        let Decision::Refused(error) = decision else {
            outcome.deduplicated_samples += samples;
            outcome.deduplicated_exemplars += exemplars;
            return;
        };
        let bytes = &*self.bytes;
        outcome.refuse(error.clone(), samples, || describe_labels(&bytes[range(&series.labels)]));
        outcome.refused_exemplars += exemplars;
        outcome.postpone(match error {
            SeriesRefusal::TooManyClusters { .. } => {
                Postponed::Clusters { is_configured: self.own.limits.ha_clusters_is_given }
            }
            SeriesRefusal::ElectedNotStored => {
                self.uncertain_samples += samples;
                Postponed::Replica(self.failover_wait)
            }
            _ => Postponed::SeriesState,
        });
    }
}

/// Converts the name of a cluster or a replica. Returns `None` if it is too long or not UTF-8.
fn name(value: &[u8]) -> Option<String> {
    let text = str::from_utf8(value).ok()?;
    (text.len() <= REPLICA_NAME_BYTES_MAX).then(|| text.to_owned())
}

/// Moves the accepted samples of a series to directly behind the samples kept before. Returns where they are now.
fn keep_samples<V: Value>(
    batch: &mut SeriesBatch<V>,
    series: &BatchSeries,
    decision: &Decision,
    kept: &mut usize,
) -> Range<u32> {
    let start = *kept;
    for i in range(&series.samples) {
        let timestamp_ms = batch.timestamps[i];
        if decision.accepts(timestamp_ms) {
            batch.timestamps[*kept] = timestamp_ms;
            batch.values.swap(*kept, i);
            *kept += 1;
        }
    }
    start as u32..*kept as u32
}

#[derive(Default)]
struct Exemplars {
    read: usize,
    kept: usize,
}

impl Exemplars {
    /// Keeps the accepted exemplars of the series at `position`, which is at `new_position` from now on. Returns how
    /// many exemplars were not accepted.
    fn keep(
        &mut self,
        all: &mut [(u32, Exemplar)],
        position: u32,
        new_position: u32,
        decision: &Decision,
    ) -> u64 {
        let mut lost = 0;
        while let Some((of, exemplar)) = all.get_mut(self.read)
            && *of == position
        {
            if decision.accepts(exemplar.timestamp_ms) {
                *of = new_position;
                all.swap(self.kept, self.read);
                self.kept += 1;
            } else {
                lost += 1;
            }
            self.read += 1;
        }
        lost
    }
}

fn range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
