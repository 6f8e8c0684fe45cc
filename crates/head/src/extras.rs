//! Exemplars and metadata of a partition, each with a limit on bytes. Sealing frees neither. At the limit,
//! the oldest exemplars of the largest tenants are dropped, but new metric families are refused.

use crate::evict::TURN_STEPS;
use crate::exemplars::Exemplars;
use crate::partition::Partition;
use crate::tenant::TenantHead;
use model::{Exemplar, Metadata, SeriesRef, TenantId, TimeRange};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Maximum number of metric families of one tenant in one partition.
const METADATA_MAX: usize = 20_000;

const FAMILY_BYTES: usize = size_of::<Metadata>() + 48;

/// A trim drops exemplars until they take three quarters of the limit, so that the next trim is not needed at
/// once.
const TRIMMED_QUARTERS: usize = 3;

#[derive(Debug, Default)]
pub struct Extras {
    _metadata: BTreeMap<String, Metadata>,
    _exemplars: Exemplars,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataRefusal {
    Families,
    Bytes,
}

/// How much of the limit for all tenants' metadata one tenant may use.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// A tenant may hold at most as many bytes as remain free. `pending_bytes` count as bytes that it holds.
    AsMuchAsIsFree {
        pending_bytes: usize,
    },
    Everything,
}

impl Partition {
    /// Stores exemplars, and marks their series as seen at `now_s`, so that they are not evicted. The caller must call
    /// [`Self::trim_exemplars`] afterwards.
    pub fn put_exemplars(
        &mut self,
        tenant: &TenantId,
        mut exemplars: impl Iterator<Item = (SeriesRef, Exemplar)>,
        now_s: u32,
    ) {
        while !self.put_some_exemplars(tenant, &mut exemplars, now_s) {}
    }

    /// Like [`Self::put_exemplars`], for about fifty microseconds. Returns true after the last exemplar.
    pub fn put_some_exemplars(
        &mut self,
        tenant: &TenantId,
        exemplars: &mut impl Iterator<Item = (SeriesRef, Exemplar)>,
        now_s: u32,
    ) -> bool {
        let Some(mut next) = exemplars.next() else { return true };
        let head = self.tenant_mut(tenant);
        let before = head.exemplars.memory_bytes();
        let mut steps = TURN_STEPS;
        let is_done = loop {
            let (series, exemplar) = next;
            steps = steps.saturating_sub(head.keep(series, now_s));
            head.exemplars.push(series, exemplar);
            if steps == 0 {
                break false;
            }
            match exemplars.next() {
                Some(exemplar) => next = exemplar,
                None => break true,
            }
        };
        let after = head.exemplars.memory_bytes();
        self.exemplar_bytes = self.exemplar_bytes + after - before;
        is_done
    }

    pub fn see_exemplars(&mut self, seen_s: u32) {
        for head in self.tenants.values_mut() {
            for (series, _) in head.exemplars.iter() {
                head.series.get_mut(series.index()).seen_s = seen_s;
            }
        }
    }

    /// If all tenants together exceed `limit_bytes`, drops the oldest exemplars of the largest tenants.
    /// Returns the number of dropped exemplars.
    pub fn trim_exemplars(&mut self, limit_bytes: usize) -> u64 {
        if self.exemplar_bytes <= limit_bytes {
            return 0;
        }
        let held = self.tenants.values().map(|head| head.exemplars.memory_bytes());
        let most = equal_share(held.filter(|bytes| *bytes > 0).collect(), limit_bytes / 4 * TRIMMED_QUARTERS);
        let mut dropped = 0;
        for head in self.tenants.values_mut() {
            let before = head.exemplars.memory_bytes();
            if before > most {
                dropped += head.exemplars.trim(most);
                let freed = before - head.exemplars.memory_bytes();
                self.exemplar_bytes -= freed;
                self.change_bytes -= freed as isize;
            }
        }
        dropped
    }

    /// Takes a tenant's metadata and exemplars out of the head, so that the caller can drop them without the
    /// lock.
    pub fn take_extras(&mut self, tenant: &TenantId) -> Extras {
        let Some(head) = self.tenants.get_mut(tenant) else { return Extras::default() };
        let (before, exemplar_bytes) = (head.memory_bytes(), head.exemplars.memory_bytes());
        let extras =
            Extras { _metadata: std::mem::take(&mut head.metadata), _exemplars: head.exemplars.take() };
        self.metadata_bytes -= std::mem::take(&mut head.metadata_bytes);
        self.exemplar_bytes -= exemplar_bytes - head.exemplars.memory_bytes();
        head.restored_s = None;
        self.change_bytes -= (before - head.memory_bytes()) as isize;
        extras
    }

    /// Drops the exemplars in `range` of these series.
    pub fn delete_exemplars(&mut self, tenant: &TenantId, series: &RoaringBitmap, range: TimeRange) {
        let Some(head) = self.tenants.get_mut(tenant) else { return };
        let before = head.exemplars.memory_bytes();
        head.exemplars
            .retain(|of, exemplar| !(range.contains(exemplar.timestamp_ms) && series.contains(of.0)));
        let freed = before - head.exemplars.memory_bytes();
        self.exemplar_bytes -= freed;
        self.change_bytes -= freed as isize;
    }

    pub const fn exemplar_bytes(&self) -> usize {
        self.exemplar_bytes
    }

    /// Returns the number of bytes by which memory would grow, or the reason to refuse the metadata.
    /// `limit_bytes` is the limit for all tenants together. `pending_bytes` is the size of metadata that was
    /// approved but is not stored yet.
    pub fn check_metadata(
        &self,
        tenant: &TenantId,
        metadata: &Metadata,
        limit_bytes: usize,
        pending_bytes: usize,
    ) -> Result<usize, MetadataRefusal> {
        self.check(self.tenant(tenant), metadata, limit_bytes, Share::AsMuchAsIsFree { pending_bytes })
    }

    pub fn put_metadata(
        &mut self,
        tenant: &TenantId,
        metadata: Metadata,
        limit_bytes: usize,
    ) -> Result<(), MetadataRefusal> {
        self.check_metadata(tenant, &metadata, limit_bytes, 0)?;
        self.metadata_bytes = self.metadata_bytes.wrapping_add_signed(self.tenant_mut(tenant).put(metadata));
        Ok(())
    }

    /// Restores metadata from before a restart, up to the limit for all tenants together. If the tenant has
    /// no series, its metadata is kept as if it was last seen at `now_s`.
    pub fn restore_metadata(
        &mut self,
        tenant: &TenantId,
        metadata: Metadata,
        limit_bytes: usize,
        now_s: u32,
    ) -> Result<(), MetadataRefusal> {
        self.check(self.tenant(tenant), &metadata, limit_bytes, Share::Everything)?;
        let head = self.tenant_mut(tenant);
        head.restored_s = Some(now_s);
        let grown = head.put(metadata);
        self.metadata_bytes = self.metadata_bytes.wrapping_add_signed(grown);
        Ok(())
    }

    pub const fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    fn check(
        &self,
        head: Option<&TenantHead>,
        metadata: &Metadata,
        limit_bytes: usize,
        share: Share,
    ) -> Result<usize, MetadataRefusal> {
        let (known, families, own_bytes) = match head {
            Some(head) => (head.metadata_of(&metadata.metric), head.metadata.len(), head.metadata_bytes),
            None => (None, 0, 0),
        };
        let before = known.map_or(0, bytes_of);
        let more = bytes_of(metadata).saturating_sub(before);
        if known.is_none() && families >= METADATA_MAX {
            return Err(MetadataRefusal::Families);
        }
        let fits = match share {
            Share::AsMuchAsIsFree { pending_bytes } => {
                let more = pending_bytes + more;
                own_bytes + more <= limit_bytes.saturating_sub(self.metadata_bytes + more)
            }
            Share::Everything => self.metadata_bytes + more <= limit_bytes,
        };
        if more == 0 || fits { Ok(more) } else { Err(MetadataRefusal::Bytes) }
    }
}

impl TenantHead {
    /// Stores metadata. Returns the change of memory in bytes.
    fn put(&mut self, metadata: Metadata) -> isize {
        let mut grown = bytes_of(&metadata) as isize;
        if let Some(known) = self.metadata.get_mut(&metadata.metric) {
            grown -= bytes_of(known) as isize;
            *known = metadata;
        } else {
            self.metadata.insert(metadata.metric.clone(), metadata);
        }
        self.metadata_bytes = self.metadata_bytes.wrapping_add_signed(grown);
        grown
    }
}

const fn bytes_of(metadata: &Metadata) -> usize {
    2 * metadata.metric.len() + metadata.help.len() + metadata.unit.len() + FAMILY_BYTES
}

/// Max-min fair share: the largest number of bytes that each tenant may keep, so that all of them together
/// keep at most `total`. `usize::MAX` if nobody has to drop anything.
fn equal_share(mut held: Vec<usize>, total: usize) -> usize {
    held.sort_unstable();
    let (mut left, count) = (total, held.len());
    for (i, bytes) in held.into_iter().enumerate() {
        let share = left / (count - i);
        if bytes > share {
            return share;
        }
        left -= bytes;
    }
    usize::MAX
}
