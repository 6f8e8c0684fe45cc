use super::stream::StreamTable;
use super::unreadable;
use crate::seal::Lake;
use crate::streams::Shared;
use model::{StreamName, TenantId};
use sql::{Catalog, Memory, Source, SourceError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// At most so many streams are listed. The others can still be queried by name.
const NAMES_MAX: usize = 10_000;

/// The streams of one tenant.
#[derive(Debug)]
pub(crate) struct TenantCatalog {
    pub(crate) tenant: TenantId,
    pub(crate) streams: Arc<Shared>,
    pub(crate) lake: Arc<Lake>,
    /// True if batches that are read stay in memory until the query ends. Otherwise the loader may release them, and a query
    /// that has still to read them then fails with [`SourceError::Expired`].
    pub(crate) keeps_batches: bool,
}

impl Catalog for TenantCatalog {
    fn names(&self) -> Result<Vec<String>, SourceError> {
        let stored = self.lake.tables.streams(&self.tenant, None, NAMES_MAX).map_err(unreadable)?;
        let buffered = self.streams.buffer.streams_of(&self.tenant);
        let buffered = buffered.iter().map(|stream| stream.as_str().to_owned());
        let names: BTreeSet<String> = buffered.chain(stored).collect();
        Ok(names.into_iter().take(NAMES_MAX).collect())
    }

    fn open(&self, name: &str, memory: Memory) -> Result<Option<Arc<dyn Source>>, SourceError> {
        let Ok(stream) = StreamName::parse(name) else { return Ok(None) };
        let table = StreamTable::open(self, stream, memory)?;
        Ok(table.map(|table| Arc::new(table) as _))
    }
}
