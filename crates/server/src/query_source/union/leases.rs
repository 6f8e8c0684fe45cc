//! Leases on heads, for readers that may wait for their clients.

use super::{Source, canceled};
use crate::query_source::{Canceled, Turns};
use head::Lease;
use model::SeriesRef;
use query::{Matcher, SourceError};
use roaring::RoaringBitmap;
use std::sync::atomic::Ordering;

/// A reader's leases, one for each head. If one is revoked, the head's series are selected again.
#[derive(Debug)]
pub(in crate::query_source) struct Leases<'a> {
    source: &'a Source<'a>,
    matchers: Vec<Matcher>,
    of_heads: Vec<Lease>,
}

impl<'a> Leases<'a> {
    /// Takes the leases. To be called before series are selected.
    pub(in crate::query_source) fn new(source: &'a Source<'a>, matchers: &[Matcher]) -> Self {
        let of_heads =
            source.context.partitions.iter().map(|partition| partition.head.read().lease()).collect();
        Self { source, matchers: matchers.to_vec(), of_heads }
    }

    /// Ask with head `number` locked, before a reference is used.
    pub(in crate::query_source) fn is_revoked(&self, number: usize) -> bool {
        self.of_heads[number].is_revoked()
    }

    /// Selects the series of a head again. Returns those whose references are not below `from`.
    pub(in crate::query_source) fn renew(
        &mut self,
        number: usize,
        from: SeriesRef,
    ) -> Result<RoaringBitmap, SourceError> {
        let Source { context, tenant, canceled: interrupt, .. } = self.source;
        let partition = &context.partitions[number];
        self.source.has_selected_again.store(true, Ordering::Relaxed);
        self.of_heads[number] = partition.head.read().lease();
        let selected = Turns::new(partition, tenant, &**interrupt).select(&self.matchers);
        let mut selected = selected.map_err(|Canceled| canceled())?;
        selected.remove_range(..from.0);
        Ok(selected)
    }
}
