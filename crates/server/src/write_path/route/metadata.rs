//! Chooses what is new of the metadata of a request.
//!
//! Metadata that a partition has is durable, and is not written again. Rules may give several metrics one name, whose metadata
//! differ. The one that was written last stays: metadata of such a metric is written again only if it has changed.

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
            let sent = SeriesKey::of(metadata.metric.as_bytes(), context.seed);
            let mut key = sent;
            let mut metric = Cow::Borrowed(metadata.metric);
            if let Some(rules) = self.rules {
                match rules.recall_metric(sent) {
                    Some(Verdict::Unchanged) => {}
                    Some(Verdict::Dropped(_) | Verdict::Refused) => continue,
                    Some(Verdict::Stored(_)) | None => {
                        if self.is_rule_time_up() {
                            self.outcome.postpone(Postponed::RuleTime);
                            continue;
                        }
                        reservation.room(&mut self.verdicts, 1)?;
                        match rules.metric(metadata.metric, sent, &mut self.verdicts) {
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
            if known.is_some_and(|known| metadata.is(known)) {
                continue;
            }
            if let Some(rules) = self.rules {
                let content = content_of(metadata, context.seed);
                if known.is_some() && rules.has_written(sent, content) {
                    continue;
                }
                let written = (rules.slot_of_metadata(sent), Verdict::Stored(content));
                reservation.push(&mut self.written, written)?;
            }
            reservation.reserve(metadata.metric.len() + metadata.help.len() + metadata.unit.len())?;
            reservation.push(&mut parts[number].0.metadata, metadata.to_owned())?;
        }
        Ok(())
    }
}

fn content_of(metadata: MetadataRef<'_>, seed: u64) -> SeriesKey {
    let MetadataRef { kind, help, unit, .. } = metadata;
    let of = |text: &str, number: u64| SeriesKey::of(text.as_bytes(), seed ^ number).0;
    // three numbers, so that texts of different fields differ
    SeriesKey(of(kind.as_str(), 1) ^ of(help, 2) ^ of(unit, 3))
}
