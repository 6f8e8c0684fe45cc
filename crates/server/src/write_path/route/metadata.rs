//! Chooses what is new of the metadata of a request.
//!
//! Metadata that a partition has is durable, and is not written again. Rules may give several metrics one name, whose metadata
//! differ. The one that was written last stays: metadata of such a metric is written again only if it has changed.

use super::{Part, Routing};
use crate::write_path::ingest::{Verdict, content_of};
use crate::write_path::turns::Running;
use model::{Batch, Metadata, MetadataRef, SeriesKey};
use std::borrow::Cow;
use stdx::budget::{Exhausted, IncrementalReservation};

/// What rules say about the metadata of a metric.
#[derive(Debug)]
pub(super) enum Metric {
    Unchanged,
    LeftOut,
    Renamed(Box<str>),
}

impl Routing<'_> {
    /// Applies the rules to the names of metrics that have metadata. Returns false if the turn has ended before.
    pub(super) fn decide_metrics(
        &mut self,
        batch: &Batch,
        turn: &mut Running<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<bool, Exhausted> {
        let Some(rules) = self.rules else { return Ok(true) };
        for metadata in batch.metadata().skip(self.progress.metrics.len()) {
            let sent = SeriesKey::of(metadata.metric.as_bytes(), self.context.seed);
            let metric = match rules.recall_metric(sent) {
                Some(Verdict::Unchanged) => Metric::Unchanged,
                Some(Verdict::Dropped(_) | Verdict::Refused) => Metric::LeftOut,
                Some(Verdict::Stored(_)) | None => {
                    if turn.is_over(metadata.metric.len()) {
                        return Ok(false);
                    }
                    reservation.room(&mut self.progress.verdicts, 1)?;
                    match rules.metric(metadata.metric, sent, &mut self.progress.verdicts) {
                        Some(name) if name == metadata.metric => Metric::Unchanged,
                        Some(name) => {
                            reservation.reserve(name.len())?;
                            Metric::Renamed(name.into())
                        }
                        None => Metric::LeftOut,
                    }
                }
            };
            reservation.push(&mut self.progress.metrics, metric)?;
        }
        Ok(true)
    }

    /// Adds new metadata to the partition to which the metric's name hashes. Metadata that this partition already has is
    /// dropped, because it is durable.
    pub(super) fn metadata(
        &mut self,
        batch: &Batch,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let context = self.context;
        for (position, metadata) in batch.metadata().enumerate() {
            let sent = SeriesKey::of(metadata.metric.as_bytes(), context.seed);
            let (key, metric) = match self.progress.metrics.get(position) {
                None | Some(Metric::Unchanged) => (sent, Cow::Borrowed(metadata.metric)),
                Some(Metric::LeftOut) => continue,
                Some(Metric::Renamed(name)) => {
                    (SeriesKey::of(name.as_bytes(), context.seed), Cow::Owned(name.to_string()))
                }
            };
            let metadata = MetadataRef { metric: &metric, ..metadata };
            let number = key.partition(parts.len());
            let head = context.partitions[number].head.read();
            let known = head.tenant(self.tenant).and_then(|head| head.metadata_of(metadata.metric));
            if known.is_some_and(|known| metadata.is(known)) {
                continue;
            }
            if let Some(rules) = self.rules {
                let content = content_of(metadata, context.seed);
                let slot = rules.slot_of_metadata(sent, self.tenant, context.seed);
                if known.is_some() && rules.has_written(slot, content) {
                    continue;
                }
                reservation.push(&mut self.written, (slot, Verdict::Stored(content)))?;
            }
            // the partition lists what it discards
            reservation.reserve(size_of::<Metadata>())?;
            reservation.reserve(metadata.metric.len() + metadata.help.len() + metadata.unit.len())?;
            reservation.push(&mut parts[number].0.metadata, metadata.to_owned())?;
        }
        Ok(())
    }
}
