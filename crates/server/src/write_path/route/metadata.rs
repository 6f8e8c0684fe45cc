use super::{Part, Routing};
use crate::write_path::ingest::Verdict;
use admission::Postponed;
use model::{Batch, MetadataRef, SeriesKey};
use std::borrow::Cow;
use stdx::budget::{Exhausted, IncrementalReservation};

impl Routing<'_> {
    /// Adds new metadata to the partition to which the metric's name hashes. Metadata that this partition already has is
    /// dropped, because it is durable.
    pub(super) fn metadata(
        &mut self,
        batch: &Batch,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let context = self.context;
        for metadata in batch.metadata() {
            let mut key = SeriesKey::of(metadata.metric.as_bytes(), context.seed);
            let mut metric = Cow::Borrowed(metadata.metric);
            if let Some(rules) = self.rules {
                match rules.recall_metric(key) {
                    Some(Verdict::Unchanged) => {}
                    Some(Verdict::Dropped(_) | Verdict::Refused) => continue,
                    Some(Verdict::Stored(_)) | None => {
                        if self.is_rule_time_up() {
                            self.outcome.postpone(Postponed::RuleTime);
                            continue;
                        }
                        reservation.room(&mut self.verdicts, 1)?;
                        match rules.metric(metadata.metric, key, &mut self.verdicts) {
                            Some(name) => metric = name,
                            None => continue,
                        }
                    }
                }
                if metric != metadata.metric {
                    key = SeriesKey::of(metric.as_bytes(), context.seed);
                }
            }
            let metadata = MetadataRef { metric: &metric, ..metadata };
            let number = key.partition(parts.len());
            let head = context.partitions[number].head.read();
            let known = head.tenant(self.tenant).and_then(|head| head.metadata_of(metadata.metric));
            if known.is_none_or(|known| !metadata.is(known)) {
                reservation.reserve(metadata.metric.len() + metadata.help.len() + metadata.unit.len())?;
                reservation.push(&mut parts[number].0.metadata, metadata.to_owned())?;
            }
        }
        Ok(())
    }
}
