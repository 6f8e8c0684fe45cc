//! Writes one partition's frozen series to files. The files are invisible until they are committed.
//!
//! Series are decoded one by one under a short lock, and written in the table's order.

use super::error::SealError;
use crate::partition::shared::PartitionShared;
use crate::seal::Context;
use head::FrozenOrder;
use model::{LabelsRef, Samples, SeriesKey, TenantId, ValueKind};
use std::sync::Arc;
use stdx::budget::{Account, Exhausted, Reservation};
use tables::stage::Encoded;
use tables::{BlockStager, Date, FileStem, Stretch, Table, WriteLimits};

const FILE_BYTES_MAX: usize = 64 << 20;

/// Memory for staging the samples of one partition, and limits that keep staging within it.
#[derive(Debug)]
pub(super) struct Workspace {
    limits: WriteLimits,
    /// Limit on the bytes of encoded files that are waiting to be stored.
    pub(super) waiting_bytes: usize,
    _memory: Reservation,
}

impl Workspace {
    /// Reserves half of the account `flush`. The other half is for compaction.
    pub(super) fn reserve(flush: &Account) -> Result<Self, Exhausted> {
        let bytes = flush.limit_bytes() / 2;
        // an encoder takes up to three times the memory of its row group
        let row_group_bytes = (bytes as usize / 12).clamp(128 << 10, 4 << 20);
        let open_bytes = bytes as usize / 2;
        let limits = WriteLimits { row_group_bytes, file_bytes: FILE_BYTES_MAX, open_bytes };
        Ok(Self { limits, waiting_bytes: bytes as usize / 8, _memory: flush.reserve(bytes)? })
    }
}

/// Encodes the frozen series that a tenant has in one partition, beginning with the day after `after`. Gives up if
/// `go_on` returns false.
pub(super) fn encode_tenant(
    context: &Context,
    partition: &PartitionShared,
    tenant: &TenantId,
    table: &Arc<Table>,
    workspace: &Workspace,
    after: Option<Date>,
    go_on: &mut impl FnMut() -> bool,
) -> Result<Encoded, SealError> {
    let random = &context.lake.random;
    let attempt = u128::from(random.fresh()) << 64 | u128::from(random.fresh());
    let stem = FileStem::sealed(attempt);
    let mut stager = BlockStager::new(table, stem, workspace.limits, after);
    let since_ms = after.map_or(i64::MIN, |day| day.end_ms() + 1);
    let (mut order, mut turn) = (FrozenOrder::since(since_ms), Vec::new());
    let (mut samples, mut labels) = (Samples::default(), Vec::new());
    let mut is_last = false;
    while !is_last {
        turn.clear();
        is_last = with_head(partition, tenant, |head| order.turn(head, &mut turn));
        if !go_on() {
            return Err(SealError::Stopping);
        }
        for series in &turn {
            samples.clear();
            labels.clear();
            with_head(partition, tenant, |head| {
                if head.frozen_range(*series).is_some_and(|range| !stager.is_behind(range.start_ms)) {
                    match head.kind(*series) {
                        ValueKind::Float => head.read_frozen(*series, &mut samples),
                        ValueKind::Histogram => return Err(SealError::Histograms),
                    }
                    head.write_labels(*series, &mut labels);
                }
                Ok(())
            })?;
            if !samples.is_empty() {
                stager.push(&Stretch {
                    labels: LabelsRef::from_canonical(&labels),
                    key: SeriesKey::of(&labels, context.seed),
                    timestamps: &samples.timestamps,
                    values: &samples.values,
                })?;
            }
            if !go_on() {
                return Err(SealError::Stopping);
            }
        }
    }
    Ok(stager.encode()?)
}

fn with_head<R>(
    partition: &PartitionShared,
    tenant: &TenantId,
    look: impl FnOnce(&head::TenantHead) -> R,
) -> R {
    let partition = partition.head.read();
    look(partition.tenant(tenant).expect("BUG: a tenant's frozen head disappeared"))
}
