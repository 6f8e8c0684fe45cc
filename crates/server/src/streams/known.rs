//! The streams that each tenant has, so that their number can be limited.

use super::buffer::Key;
use crate::refusal::Refusal;
use crate::seal::tenant_tables::TenantTables;
use model::{ErrorKind, StreamName, TenantId};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stdx::budget::{Account, Reservation};
use tokio::sync::Semaphore;

/// Memory of a stream's name, with the free room of the set that has it.
const STREAM_BYTES: u64 = 300;

/// A tenant may hold this many times the memory that is free in the account of records.
const SHARE: u64 = 2;

/// At most this many threads wait for the object store to list a tenant's streams.
const LISTINGS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct KnownStreams {
    pub(crate) listings: Arc<Semaphore>,
    records: Account,
    tenants: Mutex<Tenants>,
}

#[derive(Debug)]
struct Tenants {
    all: HashMap<TenantId, Tenant>,
    memory: Reservation,
}

#[derive(Debug)]
struct Tenant {
    /// The tenant's part of the account of records.
    part: Account,
    streams: HashSet<StreamName>,
    /// True if `streams` has all streams that have tables.
    is_listed: bool,
}

/// A tenant's limit on streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimit {
    pub(crate) streams: usize,
    /// False if it is the default.
    pub(crate) is_given: bool,
}

impl KnownStreams {
    pub(super) fn new(records: Account, names: &Account) -> Self {
        let memory = names.reserve(0).expect("BUG: cannot reserve 0 bytes");
        Self {
            listings: Arc::new(Semaphore::new(LISTINGS_MAX)),
            records,
            tenants: Mutex::new(Tenants { all: HashMap::new(), memory }),
        }
    }

    pub(crate) fn streams_of(&self, tenant: &TenantId) -> Option<usize> {
        self.tenants.lock().all.get(tenant).map(|known| known.streams.len())
    }

    /// Returns the tenant's part of the account of records, if the stream is known.
    pub(crate) fn part_of(&self, (tenant, stream): &Key) -> Option<Account> {
        let tenants = self.tenants.lock();
        let known = tenants.all.get(tenant)?;
        known.streams.contains(stream).then(|| known.part.clone())
    }

    /// Adds a stream that the journal has. Its table may not exist yet.
    pub(super) fn note(&self, (tenant, stream): &Key) {
        let mut tenants = self.tenants.lock();
        let Tenants { all, memory } = &mut *tenants;
        let known = all.entry(tenant.clone()).or_insert_with(|| Tenant::of(&self.records));
        if known.streams.insert(stream.clone()) {
            let streams: usize = all.values().map(|known| 1 + known.streams.len()).sum();
            if memory.resize(streams as u64 * STREAM_BYTES).is_err()
                && let Some(known) = all.get_mut(tenant)
            {
                known.streams.remove(stream);
            }
        }
    }

    /// Adds a stream, unless the tenant has as many as it may have. The first time, the tenant's tables are listed, which
    /// blocks. Returns the tenant's part of the account of records.
    pub(crate) fn add(
        &self,
        tables: &TenantTables,
        key: &Key,
        limit: StreamLimit,
    ) -> Result<Account, Refusal> {
        let (tenant, stream) = key;
        let is_listed = self.tenants.lock().all.get(tenant).is_some_and(|known| known.is_listed);
        // without an answer of the store, records are stored nevertheless, and the next new stream asks again
        let listed = if is_listed { None } else { tables.streams(tenant, limit.streams).ok() };
        let mut tenants = self.tenants.lock();
        let Tenants { all, memory } = &mut *tenants;
        let known = all.entry(tenant.clone()).or_insert_with(|| Tenant::of(&self.records));
        if let Some(listed) = listed {
            known.streams.extend(listed.iter().filter_map(|name| StreamName::parse(name).ok()));
            known.is_listed = true;
        }
        if !known.streams.contains(stream) {
            // in a store that ignores the case of names, they would have the same table
            let is_alike = |other: &&StreamName| other.as_str().eq_ignore_ascii_case(stream.as_str());
            if let Some(other) = known.streams.iter().find(is_alike) {
                if !known.is_listed {
                    // the stream may be older than this rule. Once the store answers, a retry is decided for good
                    return Err(Refusal::busy(
                        "table_unreadable",
                        format!(
                            "the object store does not say whether stream {stream} exists, whose name differs only in case \
                             from stream {other}"
                        ),
                    ));
                }
                return Err(Refusal::invalid(
                    "bad_data",
                    format!(
                        "name of the stream {stream} differs only in case from stream {other}, which exists"
                    ),
                ));
            }
            if known.streams.len() >= limit.streams {
                return Err(limit.refusal());
            }
            known.streams.insert(stream.clone());
        }
        let part = known.part.clone();
        let streams: usize = all.values().map(|known| 1 + known.streams.len()).sum();
        if let Err(full) = memory.resize(streams as u64 * STREAM_BYTES) {
            if let Some(known) = all.get_mut(tenant) {
                known.streams.remove(stream);
            }
            return Err(full.into());
        }
        Ok(part)
    }
}

impl Tenant {
    fn of(records: &Account) -> Self {
        let part = records.part();
        part.share(SHARE, u64::MAX);
        Self { part, streams: HashSet::new(), is_listed: false }
    }
}

impl StreamLimit {
    /// The reason of refusals.
    pub(crate) const REASON: &str = "streams";

    fn refusal(self) -> Refusal {
        let kind = if self.is_given { ErrorKind::Limited } else { ErrorKind::Unavailable };
        let message =
            format!("the tenant has {} streams, which is its limit (setting streams)", self.streams);
        Refusal::new(kind, Self::REASON, message)
    }
}
