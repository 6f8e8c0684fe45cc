//! Limits on exemplars and metadata in a partition's head.
//!
//! Each of the two may use a share of the head's memory (see [`crate::limits::budget::Budget`]).

use super::Owner;
use crate::partition::Context;
use crate::partition::submission::Submission;
use admission::watermarks;
use head::{MetadataRefusal, Partition};
use std::time::{Duration, Instant};

const MENTION_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Memory for metadata that was granted to submissions of the group being prepared.
    pending_bytes: usize,
    mentioned: Option<Instant>,
}

impl Incoming {
    /// Called when the group is in the head or refused, so the grants no longer need to be remembered.
    pub(super) const fn settle(&mut self) {
        self.pending_bytes = 0;
    }
}

impl Owner {
    /// Discards metadata for which there is no room, and stores the rest of the request. If the request were refused,
    /// its sender would repeat it forever.
    pub(super) fn leave_out_metadata(&mut self, submission: &mut Submission) {
        let Submission { tenant, metadata, outcome, .. } = submission;
        if metadata.is_empty() {
            return;
        }
        let is_full = self.context.heads.is_filled_to(watermarks::NO_NEW_SERIES);
        let limit_bytes = if is_full { 0 } else { self.context.heads.metadata_limit_bytes() };
        let mut first = None;
        {
            let partition = self.partition.head.read();
            let refused = &self.context.metrics.refused_metadata;
            let pending_bytes = &mut self.incoming.pending_bytes;
            metadata.retain_mut(|metadata| {
                let refusal = match partition.check_metadata(tenant, metadata, limit_bytes, *pending_bytes) {
                    Ok(more) => {
                        *pending_bytes += more;
                        return true;
                    }
                    Err(refusal) => refusal,
                };
                match refusal {
                    MetadataRefusal::Bytes if is_full => refused.head_full.inc(),
                    refusal => refused.of(refusal).inc(),
                }
                first.get_or_insert_with(|| (metadata.metric.clone(), refusal));
                outcome.discarded_metadata.push(std::mem::take(metadata));
                false
            });
        }
        let now = self.context.clock.instant();
        let is_due = self.incoming.mentioned.is_none_or(|at| now.duration_since(at) >= MENTION_EVERY);
        if let Some((metric, refusal)) = first.filter(|_| is_due) {
            self.incoming.mentioned = Some(now);
            let (partition, limit) = (self.number, self.context.settings.budget.metadata_bytes() >> 20);
            let why = match refusal {
                MetadataRefusal::Bytes if is_full => {
                    "the head is full; raise its limit with --memory".to_owned()
                }
                MetadataRefusal::Bytes => {
                    format!(
                        "metadata may take {limit} MiB, shared by tenants and partitions; raise the limit with --memory"
                    )
                }
                MetadataRefusal::Families => "the tenant has reached the limit on metric families".to_owned(),
            };
            tracing::info!(partition, %tenant, metric, "metadata of new metric families is discarded: {why}");
        }
    }
}

pub(super) fn trim_exemplars(context: &Context, partition: &mut Partition) {
    let dropped = partition.trim_exemplars(context.heads.exemplar_limit_bytes());
    context.metrics.exemplars_dropped.add(dropped);
}
