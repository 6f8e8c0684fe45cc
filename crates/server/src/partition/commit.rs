//! Commits a group: makes it durable, then visible to queries, and then answers its requests.

use super::Owner;
use super::extras::trim_exemplars;
use super::outage::OutageMessage;
use super::sums::record::Progress;
use crate::partition::submission::Submission;
use crate::refusal::Refusal;
use head::AppendStats;
use journal::{JournalError, RecordEncoder};
use model::{LabelsRef, SeriesRef, ValuesRef};
use parking_lot::RwLockWriteGuard;
use std::sync::atomic::Ordering;

impl Owner {
    pub(super) fn commit(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        match self.make_durable(&mut group) {
            Ok(()) => {
                if let Some(outage) = self.outage.ended(self.context.clock.instant()) {
                    let OutageMessage { groups, lasted } = outage;
                    tracing::info!(
                        partition = self.number,
                        refused = groups,
                        ?lasted,
                        "the journal can be written again; write requests are accepted again"
                    );
                }
                self.apply(&mut group);
                self.sums.keep_changes();
                for mut submission in group.drain(..) {
                    let stored = submission.stored_samples();
                    submission.outcome.samples += stored;
                    self.context.metrics.samples.add(stored);
                    submission.state.samples.stored.add(stored);
                    submission.increments.summed = None;
                    match submission.is_last_slice() {
                        true => {
                            self.slicing.ended(&submission);
                            submission.answer();
                        }
                        false => {
                            let weight = self.context.weight(&submission.tenant);
                            self.slicing.enqueue_rest(submission, weight);
                        }
                    }
                }
            }
            Err(error) => {
                // the discarded records defined series, which must be defined again in later records
                self.dictionary.forget();
                self.journal.abandon();
                self.sums.discard_changes();
                self.context.metrics.group_failures.inc();
                if let Some(OutageMessage { groups, lasted }) =
                    self.outage.failed(self.context.clock.instant())
                {
                    let partition = self.number;
                    tracing::warn!(partition, refused = groups, ?lasted, %error, "cannot write a group of requests to the journal; these requests are refused");
                }
                for submission in group.drain(..) {
                    self.slicing.ended(&submission);
                    submission.refuse_all(Refusal::from(&error));
                }
            }
        }
        self.incoming.settle();
        self.publish_stats();
        self.group = group;
    }

    fn make_durable(&mut self, group: &mut [Submission]) -> Result<(), JournalError> {
        self.dictionary.enter(self.journal.begin()?);
        for submission in group {
            if submission.is_last_slice() {
                submission.outcome.exemplars = submission.exemplars.len() as u64;
            }
            self.sum_up(submission);
            self.add_exponentials(submission);
            self.record(submission)?;
        }
        let began = self.context.clock.instant();
        self.journal.sync()?;
        let took = self.context.clock.instant().saturating_duration_since(began);
        self.group_limit.synced(took);
        self.context.metrics.sync_seconds.observe(took.as_secs_f64());
        Ok(())
    }

    /// Writes the samples of a submission's current slice to the journal. Series that the journal's current
    /// dictionary does not define yet are defined in the same record.
    fn record(&mut self, submission: &Submission) -> Result<(), JournalError> {
        let Self { encoder, journal, dictionary, label_bytes, partition, sums, .. } = self;
        let partition = partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let defined = dictionary.of(&submission.tenant);
        let mut define = |series: SeriesRef, encoder: &mut RecordEncoder| {
            if defined.insert(series) {
                let head = head.expect("BUG: a resolved series has no head");
                label_bytes.clear();
                head.write_labels(series, label_bytes);
                encoder.define(series, LabelsRef::from_canonical(label_bytes));
            }
        };
        let kind = submission.values.kind();
        encoder.begin_of(&submission.tenant, kind);
        let (mut definitions, mut definition_bytes) = (0, 0);
        let mut end_record = |encoder: &mut RecordEncoder| {
            journal.append(encoder.finish())?;
            definitions += encoder.definitions();
            definition_bytes += encoder.definition_bytes();
            encoder.begin_of(&submission.tenant, kind);
            Ok::<_, JournalError>(())
        };
        let columns = submission.columns();
        let changed = submission.changed_sums();
        match columns.values() {
            ValuesRef::Floats(values) if changed.is_empty() => {
                for ((&series, &timestamp_ms), &value) in
                    columns.refs().iter().zip(columns.timestamps()).zip(values)
                {
                    if encoder.is_full() {
                        end_record(encoder)?;
                    }
                    define(series, encoder);
                    encoder.sample(series, timestamp_ms, value);
                }
            }
            ValuesRef::Floats(values) => {
                let mut progress = Progress::new(changed);
                let samples = columns.refs().iter().zip(columns.timestamps()).zip(values);
                for (number, ((&series, &timestamp_ms), &value)) in samples.enumerate() {
                    if progress.may_end_before(number) && (encoder.is_full() || progress.is_full()) {
                        progress.finish(&submission.tenant, sums, encoder);
                        end_record(encoder)?;
                    }
                    define(series, encoder);
                    encoder.sample(series, timestamp_ms, value);
                    progress.passed(number);
                }
                progress.finish(&submission.tenant, sums, encoder);
            }
            ValuesRef::Histograms(values) => {
                for ((&series, &timestamp_ms), value) in
                    columns.refs().iter().zip(columns.timestamps()).zip(values)
                {
                    if encoder.is_full() {
                        end_record(encoder)?;
                    }
                    define(series, encoder);
                    encoder.histogram(series, timestamp_ms, value);
                }
            }
        }
        if submission.is_last_slice() {
            for metadata in &submission.metadata {
                if encoder.is_full() {
                    end_record(encoder)?;
                }
                encoder.metadata(metadata);
            }
            for (series, exemplar) in &submission.exemplars {
                if encoder.is_full() {
                    end_record(encoder)?;
                }
                define(*series, encoder);
                encoder.exemplar(*series, exemplar);
            }
        }
        for key in &submission.increments.changed_exponentials {
            if encoder.is_full() {
                end_record(encoder)?;
            }
            encoder.forgotten(sums.forgotten_ns(&submission.tenant));
            let sum = sums.get(&submission.tenant, *key);
            encoder.sum(*key, sum.expect("BUG: a sum that was changed is missing"));
        }
        if !encoder.is_empty() {
            journal.append(encoder.finish())?;
            definitions += encoder.definitions();
            definition_bytes += encoder.definition_bytes();
        }
        dictionary.grow(definitions, definition_bytes);
        Ok(())
    }

    /// Adds durable submissions to the head. Readers get a chance in between, because the lock is released at
    /// intervals.
    fn apply(&mut self, group: &mut [Submission]) {
        let (now_s, limit_bytes) = (self.context.steady_s(), self.context.heads.metadata_limit_bytes());
        let mut stats = AppendStats::default();
        let mut grown = 0;
        let mut partition = self.partition.head.write();
        // a submission whose samples were all refused must not create its tenant, which would take memory
        let is_left =
            |s: &&mut Submission| !(s.refs.is_empty() && s.metadata.is_empty() && s.exemplars.is_empty());
        for submission in group.iter_mut().filter(is_left) {
            let before = partition.memory_bytes_of(&submission.tenant);
            let mut columns = submission.columns();
            loop {
                stats.add(partition.tenant_mut(&submission.tenant).append_some(&mut columns, now_s));
                if columns.is_empty() {
                    break;
                }
                RwLockWriteGuard::bump(&mut partition);
            }
            if submission.is_last_slice() {
                for metadata in submission.metadata.drain(..) {
                    // the room for metadata may have been used up since this request was admitted
                    let check = partition.check_metadata(&submission.tenant, &metadata, limit_bytes, 0);
                    if let Err(refusal) = check {
                        self.context.metrics.refused_metadata.of(refusal).inc();
                        submission.outcome.discarded_metadata.push(metadata);
                        continue;
                    }
                    let put = partition.put_metadata(&submission.tenant, metadata, limit_bytes);
                    debug_assert!(put.is_ok(), "metadata for which there is room is refused");
                }
                let mut exemplars = submission.exemplars.drain(..);
                while !partition.put_some_exemplars(&submission.tenant, &mut exemplars, now_s) {
                    RwLockWriteGuard::bump(&mut partition);
                }
            }
            if let Some(head) = partition.tenant(&submission.tenant) {
                submission.state.hold(self.number, head.series_count(), head.memory_bytes());
            }
            grown += partition.memory_bytes_of(&submission.tenant) as isize - before as isize;
        }
        trim_exemplars(&self.context, &mut partition);
        grown += partition.take_change();
        if stats.late > 0 && self.slicing.counts_late(self.context.clock.instant()) {
            self.partition.count_late(&partition, &self.context.lake.blocked);
        }
        drop(partition);
        if stats.in_order + stats.late > 0 {
            let unsealed = &self.partition.unsealed_since_ms;
            let now_ms = self.context.clock.now_ms();
            let _ = unsealed.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed); // keeps the oldest
        }
        self.partition.grew(grown);
        self.context.metrics.late_samples.add(stats.late);
        self.context.metrics.duplicate_samples.add(stats.duplicates);
    }
}
