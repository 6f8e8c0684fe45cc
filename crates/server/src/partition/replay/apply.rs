//! Applies records to the head, and keeps state between records.

use super::buffers::Buffers;
use super::marks::Marks;
use super::pace::Wait;
use super::references::References;
use super::{Halt, known};
use crate::partition::Context;
use crate::partition::Owner;
use crate::partition::extras::trim_exemplars;
use head::Partition;
use journal::DictionaryId;
use model::{SeriesKey, TenantId};
use std::collections::BTreeSet;
use std::time::Instant;
use stdx::budget::Exhausted;

#[derive(Debug)]
pub(super) struct Replay {
    pub(super) seen_s: u32,
    pub(super) seed: u64,
    pub(super) marks: Marks,
    /// True if no table has samples of this record or of later ones. The samples replayed so far may then be frozen.
    pub(super) can_freeze: bool,
    pub(super) buffers: Buffers,
    pub(super) dictionary: Option<DictionaryId>,
    /// Position of the current record in its dictionary.
    pub(super) number: u32,
    pub(super) references: References,
    pub(super) records: u64,
    pub(super) samples: u64,
    /// Number of samples that were skipped because they are in tables.
    pub(super) sealed: u64,
    /// Number of samples that were skipped because damage destroyed the definition of their series.
    pub(super) nameless: u64,
    /// Number of label values that were tested for deletes of exemplars.
    pub(super) tested: u64,
    pub(super) looked_at: Option<Instant>,
    pub(super) memory_wait: Option<Wait>,
    /// Of the current record, if its patterns are being tested.
    pub(super) testing: Option<Wait>,
    /// Tenants whose series without samples and exemplars must be evicted after replay, because exemplars were deleted.
    pub(super) bereft: BTreeSet<TenantId>,
}

impl Replay {
    pub(super) fn of(owner: &Owner) -> Result<Self, Halt> {
        let context = &owner.context;
        Ok(Self {
            // This is one second ago, because `evict_unneeded` marks needed series as used now, and can then evict all
            // others.
            seen_s: context.steady_s().saturating_sub(1),
            seed: context.seed,
            marks: Marks::of(context.lake.mark(owner.number)),
            can_freeze: false,
            buffers: Buffers::new(context.replay.reserve(0)?),
            dictionary: None,
            number: 0,
            references: owner.references()?,
            records: 0,
            samples: 0,
            sealed: 0,
            nameless: 0,
            tested: 0,
            looked_at: None,
            memory_wait: None,
            testing: None,
            bereft: BTreeSet::new(),
        })
    }

    /// Applies a record which says that its tenant was deleted. Drops the tenant's metadata and exemplars, and its
    /// series too if none of them has samples. Returns how the head's memory has changed.
    pub(super) fn forget(&mut self, partition: &mut Partition) -> isize {
        let tenant = &self.buffers.record.tenant;
        drop(partition.take_extras(tenant));
        // later records define anew every series that they use, so the earlier definitions are not needed
        if partition.remove_without_samples(tenant) {
            self.references.forget(tenant);
        }
        partition.take_change()
    }

    /// Applies the record that was decoded last. If its samples are `sealed`, they are left out. `grown` is increased
    /// by the number of bytes by which the head grows. If memory runs out, only definitions have been applied, and
    /// the call can be repeated.
    pub(super) fn apply(
        &mut self,
        sealed: bool,
        context: &Context,
        partition: &mut Partition,
        grown: &mut isize,
    ) -> Result<(), Exhausted> {
        let record = &mut self.buffers.record;
        let (slots, memory) = self.references.of(&record.tenant)?;
        if sealed {
            let has_extras = !record.metadata.is_empty() || !record.exemplars.is_empty();
            if !has_extras && !record.definitions.iter().any(|(given, _)| slots.wants(given, self.number)) {
                self.sealed += record.refs.len() as u64;
                return Ok(());
            }
        }
        *grown -= partition.memory_bytes_of(&record.tenant) as isize;
        let head = partition.tenant_mut(&record.tenant);
        let mut defined = Ok(());
        for (given, labels) in record.definitions.iter() {
            if !sealed || slots.wants(given, self.number) {
                let key = SeriesKey::of(labels.as_bytes(), self.seed);
                let series = head.create_of(record.values.kind(), key, labels);
                head.set_seen(series, self.seen_s);
                defined = slots.set(given, series, memory);
                if defined.is_err() {
                    break;
                }
            }
        }
        if defined.is_ok() {
            if sealed {
                self.sealed += record.refs.len() as u64;
            } else {
                let may_repeat = self.marks.may_repeat(&record.tenant) && known::ascends(record);
                // every sample has a definition unless the journal is damaged
                self.nameless += record.translate(|given| slots.series(given)) as u64;
                if may_repeat {
                    known::leave_out(head, record);
                }
                head.append(&record.refs, &record.timestamps, &record.values, self.seen_s);
                self.samples += record.refs.len() as u64;
            }
            for metadata in record.metadata.drain(..) {
                let limit_bytes = context.heads.metadata_limit_bytes();
                let restored = partition.restore_metadata(&record.tenant, metadata, limit_bytes, self.seen_s);
                restored.unwrap_or_else(|refusal| context.metrics.refused_metadata.of(refusal).inc());
            }
            let exemplars = record.exemplars.drain(..);
            let exemplars = exemplars.filter_map(|(given, exemplar)| Some((slots.series(given)?, exemplar)));
            partition.put_exemplars(&record.tenant, exemplars, self.seen_s);
        }
        *grown += partition.memory_bytes_of(&record.tenant) as isize;
        trim_exemplars(context, partition);
        *grown += partition.take_change();
        defined
    }
}
