//! One group: make it durable, then visible, then answer.

use super::Owner;
use super::outage::Mention;
use crate::refusal::Refusal;
use crate::submission::Submission;
use head::{AppendStats, TenantHead};
use journal::{JournalError, RecordEncoder};
use model::{LabelsRef, SeriesError, SeriesRef};
use protocol::remote_write::describe_labels;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Owner {
    /// Commits the group. Its submissions are all answered afterwards.
    pub(super) fn commit(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        match self.make_durable(&mut group) {
            Ok(()) => {
                if let Some(outage) = self.outage.ended(self.node.clock.instant()) {
                    let Mention { groups, lasted } = outage;
                    tracing::info!(
                        partition = self.number,
                        refused = groups,
                        ?lasted,
                        "groups are durable again"
                    );
                }
                self.apply(&mut group);
                for submission in group.drain(..) {
                    self.node.metrics.samples.add(submission.outcome.samples);
                    submission.answer();
                }
            }
            Err(error) => {
                // definitions that were in the void records must be written again
                self.dictionary.forget();
                self.journal.abandon();
                self.node.metrics.group_failures.inc();
                if let Some(Mention { groups, lasted }) = self.outage.failed(self.node.clock.instant()) {
                    let partition = self.number;
                    tracing::warn!(partition, refused = groups, ?lasted, %error, "group not durable, refused");
                }
                for submission in group.drain(..) {
                    submission.turn_away(Refusal::from(&error));
                }
            }
        }
        self.publish_stats();
        self.group = group; // keeps its memory
    }

    fn make_durable(&mut self, group: &mut [Submission]) -> Result<(), JournalError> {
        self.dictionary.enter(self.journal.begin()?);
        for submission in group {
            self.leave_out_the_too_old(submission);
            submission.outcome.samples = submission.refs.len() as u64;
            submission.outcome.exemplars = submission.exemplars.len() as u64;
            self.record(submission)?;
        }
        let began = Instant::now();
        self.journal.sync()?;
        self.node.metrics.sync_seconds.observe(began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Samples before the out-of-order window of their series are not accepted.
    fn leave_out_the_too_old(&self, submission: &mut Submission) {
        let window_ms = self.node.settings.out_of_order_window_ms;
        let partition = self.partition.head.read();
        let Some(head) = partition.tenant(&submission.tenant) else { return };
        let too_old = |series: SeriesRef, timestamp_ms: i64| {
            let newest_ms = head.newest_ms(series);
            (timestamp_ms < newest_ms.saturating_sub(window_ms)).then_some(newest_ms)
        };
        let any = submission.refs.iter().zip(&submission.timestamps).any(|(s, t)| too_old(*s, *t).is_some());
        if !any {
            return;
        }
        let mut kept = 0;
        let mut refused = None;
        for i in 0..submission.refs.len() {
            let (series, timestamp_ms) = (submission.refs[i], submission.timestamps[i]);
            match too_old(series, timestamp_ms) {
                Some(_) if refused == Some(series) => submission.outcome.refuse_more(1),
                Some(newest_ms) => {
                    refused = Some(series);
                    let error = SeriesError::TooOld { timestamp_ms, newest_ms, window_ms };
                    submission.outcome.refuse(error, 1, || labels_text(head, series));
                }
                None => {
                    submission.refs[kept] = series;
                    submission.timestamps[kept] = timestamp_ms;
                    submission.values[kept] = submission.values[i];
                    kept += 1;
                }
            }
        }
        submission.refs.truncate(kept);
        submission.timestamps.truncate(kept);
        submission.values.truncate(kept);
    }

    /// Writes a submission's journal records (one, unless it is huge), with the definitions that the
    /// dictionary lacks.
    fn record(&mut self, submission: &Submission) -> Result<(), JournalError> {
        let Self { encoder, journal, dictionary, label_bytes, partition, .. } = self;
        let partition = partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let defined = dictionary.of(&submission.tenant);
        let mut define = |series: SeriesRef, encoder: &mut RecordEncoder| {
            if defined.insert(series) {
                let head = head.expect("BUG: a resolved series has a head");
                label_bytes.clear();
                head.write_labels(series, label_bytes);
                encoder.define(series, LabelsRef::from_canonical(label_bytes));
            }
        };
        encoder.begin(&submission.tenant);
        let mut definition_bytes = 0;
        let mut next_record = |encoder: &mut RecordEncoder| {
            if encoder.is_full() {
                journal.append(encoder.finish())?;
                definition_bytes += encoder.definition_bytes();
                encoder.begin(&submission.tenant);
            }
            Ok::<_, JournalError>(())
        };
        let samples = submission.refs.iter().zip(&submission.timestamps).zip(&submission.values);
        for ((series, timestamp_ms), value) in samples {
            next_record(encoder)?;
            define(*series, encoder);
            encoder.sample(*series, *timestamp_ms, *value);
        }
        for metadata in &submission.metadata {
            next_record(encoder)?;
            encoder.metadata(metadata);
        }
        for (series, exemplar) in &submission.exemplars {
            next_record(encoder)?;
            define(*series, encoder);
            encoder.exemplar(*series, exemplar);
        }
        if !encoder.is_empty() {
            journal.append(encoder.finish())?;
            definition_bytes += encoder.definition_bytes();
        }
        dictionary.grow(definition_bytes);
        Ok(())
    }

    /// What is durable becomes visible.
    fn apply(&self, group: &mut [Submission]) {
        let now_s = self.node.now_s();
        let mut stats = AppendStats::default();
        let mut grown = 0;
        let mut partition = self.partition.head.write();
        // of a submission that was refused whole, not even the tenant may stay: it takes memory
        let is_left =
            |s: &&mut Submission| !(s.refs.is_empty() && s.metadata.is_empty() && s.exemplars.is_empty());
        for submission in group.iter_mut().filter(is_left) {
            let before = partition.memory_bytes_of(&submission.tenant);
            let head = partition.tenant_mut(&submission.tenant);
            stats.add(head.append(&submission.refs, &submission.timestamps, &submission.values, now_s));
            submission.metadata.drain(..).for_each(|m| head.put_metadata(m));
            submission.exemplars.drain(..).for_each(|(s, e)| head.put_exemplar(s, e, now_s));
            grown += head.memory_bytes() as isize - before as isize;
        }
        drop(partition);
        if stats.in_order + stats.late > 0 {
            let unsealed = &self.partition.unsealed_since_ms;
            let now_ms = self.node.clock.now_ms();
            let _ = unsealed.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed); // the oldest counts
        }
        self.partition.grew(grown);
        self.node.metrics.late_samples.add(stats.late);
        self.node.metrics.duplicate_samples.add(stats.duplicates);
    }
}

fn labels_text(head: &TenantHead, series: SeriesRef) -> String {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    describe_labels(&bytes)
}
