//! Removes the duplicates that arise if several Prometheus servers scrape the same targets.
//!
//! ```text
//!   series ─▶ labels of cluster and replica ─▶ election ─┬─▶ elected: accepted, without the replica label
//!                                                        └─▶ not elected: left out, but acknowledged as stored
//! ```
//!
//! This is decided for each series by its labels. A series without both labels is accepted as it is.

use super::Context;
use crate::limits::tenant_state::TenantState;
use crate::partition::submission::Outcome;
use crate::settings::TenantSettings;
use admission::Postponed;
use admission::election::{Arrival, REPLICA_NAME_BYTES_MAX, Vote};
use model::{Batch, BatchSeries, Exemplar, SeriesBatch, SeriesHasher, SeriesRefusal, Value};
use protocol::labels::{describe_labels, find_labels};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Removes samples of replicas that are not elected, and counts them in `outcome`. Memory that this takes is reserved
/// in `memory`.
pub(super) fn deduplicate(
    context: &Context,
    state: &TenantState,
    own: &TenantSettings,
    arrived_ms: i64,
    batch: &mut Batch,
    outcome: &mut Outcome,
    memory: &mut Reservation,
) -> Result<(), Exhausted> {
    let arrival = Arrival { now: context.clock.instant(), now_ms: arrived_ms, failover: own.ha_failover() };
    let Batch { bytes, floats, histograms, .. } = batch;
    let hasher = SeriesHasher::new(context.seed);
    let (mut reservation, run) = (IncrementalReservation::new(memory), None);
    let mut deduplicator = Deduplicator { context, state, own, arrival, hasher, bytes, run, outcome };
    deduplicator.pass(floats, &mut reservation)?;
    deduplicator.pass(histograms, &mut reservation)?;
    deduplicator.end_run();
    context.metrics.deduplicated_samples.add(outcome.deduplicated_samples);
    Ok(())
}

struct Deduplicator<'a> {
    context: &'a Context,
    state: &'a TenantState,
    own: &'a TenantSettings,
    arrival: Arrival,
    hasher: SeriesHasher,
    /// The bytes in which the labels of all series are stored.
    bytes: &'a mut Vec<u8>,
    /// The run to which the last series with both labels belongs.
    run: Option<Run>,
    outcome: &'a mut Outcome,
}

/// Consecutive series of the same replica. The decision is made once for all of them.
struct Run {
    cluster: String,
    replica: String,
    decision: Result<Vote, SeriesRefusal>,
    newest_ms: i64,
}

enum Decision {
    Untouched,
    /// Samples later than this are stored; the others are duplicates.
    After(i64),
    Duplicate,
    Refused(SeriesRefusal),
}

impl Decision {
    const fn accepts(&self, timestamp_ms: i64) -> bool {
        match self {
            Self::Untouched => true,
            Self::After(after_ms) => timestamp_ms > *after_ms,
            Self::Duplicate | Self::Refused(_) => false,
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
        let mut exemplars = Exemplars::default();
        for position in 0..batch.series.len() {
            let mut series = batch.series[position].clone();
            let decision = self.decide(&mut series, reservation)?;
            let sent = series.samples.len();
            series.samples = keep_samples(batch, &series, &decision, &mut samples_kept);
            let newest_ms = batch.timestamps[range(&series.samples)].iter().max();
            if let (Decision::After(_), Some(run), Some(newest_ms)) = (&decision, &mut self.run, newest_ms) {
                run.newest_ms = run.newest_ms.max(*newest_ms);
            }
            let lost_exemplars =
                exemplars.keep(&mut batch.exemplars, position as u32, kept as u32, &decision);
            self.count(&decision, &series, (sent - series.samples.len()) as u64, lost_exemplars);
            if matches!(decision, Decision::Untouched | Decision::After(_)) {
                batch.series[kept] = series;
                kept += 1;
            }
        }
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
            self.begin_run(cluster, replica);
        }
        let run = self.run.as_ref().expect("BUG: no run has begun");
        Ok(match &run.decision {
            Ok(Vote::Elected(after_ms) | Vote::After(after_ms)) => {
                let after_ms = *after_ms;
                self.leave_out_label(series, in_labels, reservation)?;
                Decision::After(after_ms)
            }
            Ok(Vote::Duplicate) => Decision::Duplicate,
            Err(error) => Decision::Refused(error.clone()),
        })
    }

    fn begin_run(&mut self, cluster: String, replica: String) {
        self.end_run();
        let Self { context, state, own, arrival, .. } = *self;
        let vote = || {
            let account = &context.heads.replicas;
            state.replicas.lock().vote((&cluster, &replica), arrival, own.limits.ha_clusters, account)
        };
        let mut decision = vote();
        if matches!(decision, Err(SeriesRefusal::NoRoomForClusters { .. })) {
            context.tenants.forget_silent_clusters(&context.overrides.current(), arrival.now);
            decision = vote();
        }
        if matches!(decision, Ok(Vote::Elected(_))) {
            context.metrics.replicas_elected.inc();
        }
        self.run = Some(Run { cluster, replica, decision, newest_ms: i64::MIN });
    }

    /// Ends the run, and tells the election the time of the newest sample that was accepted in it.
    fn end_run(&mut self) {
        if let Some(Run { cluster, newest_ms, .. }) = self.run.take()
            && newest_ms > i64::MIN
        {
            self.state.replicas.lock().accepted(&cluster, newest_ms);
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
            SeriesRefusal::TooManyClusters { .. } => Postponed::Clusters,
            _ => Postponed::NewSeries,
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
