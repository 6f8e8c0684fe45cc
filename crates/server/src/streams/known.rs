//! The streams that each tenant has, so that their number can be limited.

use crate::refusal::Refusal;
use crate::seal::tenant_tables::TenantTables;
use model::{ErrorKind, StreamName, TenantId};
use parking_lot::Mutex;
use protocol::records::otlp::Signal;
use std::collections::HashMap;
use std::sync::Arc;
use stdx::budget::{Account, Reservation};
use tokio::sync::Semaphore;

/// Memory of a stream's name, also in lower case, with the free room of the map that has it.
const STREAM_BYTES: u64 = 400;

/// Streams that a tenant may have beyond its limit: those of records for which no other stream is named, or can be added.
const SPARE: [&str; 2] = [Signal::Logs.stream(), Signal::Traces.stream()];

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
    /// By the name in lower case: in a store that ignores the case of names, others would have the same table. Only streams
    /// that are older than this rule have a name in common.
    streams: HashMap<StreamName, Vec<Known>>,
    /// True if `streams` has all streams that have tables.
    is_listed: bool,
}

#[derive(Debug)]
struct Known {
    name: StreamName,
    /// False until a record of the stream is stored.
    is_stored: bool,
}

/// What became of the streams of a request.
#[derive(Debug)]
pub(crate) struct Added {
    /// The tenant's part of the account of records.
    pub(crate) part: Account,
    /// Streams that were not there before. They are [forgotten](KnownStreams::forget) if no record of them is stored.
    pub(crate) new: Vec<StreamName>,
    pub(crate) refused: Vec<(StreamName, Refusal)>,
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

    /// Returns the tenant's part of the account of records, if all these streams are known.
    pub(crate) fn part_of<'a>(
        &self,
        tenant: &TenantId,
        mut streams: impl Iterator<Item = &'a StreamName>,
    ) -> Option<Account> {
        let tenants = self.tenants.lock();
        let known = tenants.all.get(tenant)?;
        streams
            .all(|name| known.like(name).is_some_and(|known| known.name == *name))
            .then(|| known.part.clone())
    }

    /// Notes that a stream has records in the journal. Its table may not exist yet.
    pub(super) fn note(&self, tenant: &TenantId, stream: &StreamName) {
        let mut tenants = self.tenants.lock();
        let Tenants { all, memory } = &mut *tenants;
        let known = match all.get_mut(tenant) {
            Some(known) => known,
            None => all.entry(tenant.clone()).or_insert_with(|| Tenant::of(&self.records)),
        };
        if !known.insert(stream, true) {
            return;
        }
        if memory.resize(memory_bytes(all)).is_err()
            && let Some(known) = all.get_mut(tenant)
        {
            known.remove(stream);
        }
    }

    /// Adds the streams of a request. The first time, the tenant's tables are listed, which blocks. A stream that cannot be
    /// added is returned with the reason. Adds none if it is not certain yet, so that no record is refused for good.
    pub(crate) fn add(
        &self,
        tables: &TenantTables,
        tenant: &TenantId,
        streams: &[StreamName],
        limit: StreamLimit,
    ) -> Result<Added, Refusal> {
        let is_listed = self.tenants.lock().all.get(tenant).is_some_and(|known| known.is_listed);
        // without an answer of the store, records are stored nevertheless, and the next new stream asks again
        let listed = if is_listed { None } else { tables.streams(tenant, limit.streams + SPARE.len()).ok() };
        let mut tenants = self.tenants.lock();
        let Tenants { all, memory } = &mut *tenants;
        let known = all.entry(tenant.clone()).or_insert_with(|| Tenant::of(&self.records));
        if let Some(listed) = listed {
            for name in listed.iter().filter_map(|name| StreamName::parse(name).ok()) {
                known.insert(&name, true);
            }
            known.is_listed = true;
        }
        let mut added = Added { part: known.part.clone(), new: Vec::new(), refused: Vec::new() };
        let spare =
            SPARE.iter().filter(|name| StreamName::parse(name).is_ok_and(|name| known.like(&name).is_some()));
        let mut count = known.streams.len() - spare.count();
        for stream in streams {
            let is_spare = SPARE.contains(&stream.as_str());
            match known.like(stream) {
                Some(Known { name, .. }) if name == stream => continue,
                Some(Known { name, .. }) if !known.is_listed => {
                    // the stream may be older than this rule. Once the store answers, a retry is decided for good
                    let message = format!(
                        "the object store does not say whether stream {stream} exists, whose name differs only in case from stream {name}"
                    );
                    known.forget(&added.new);
                    return Err(Refusal::busy("table_unreadable", message));
                }
                Some(Known { name, .. }) => {
                    let message = format!(
                        "name of the stream {stream} differs only in case from stream {name}, which exists"
                    );
                    added.refused.push((stream.clone(), Refusal::invalid("bad_data", message)));
                }
                None if count >= limit.streams && !is_spare => {
                    added.refused.push((stream.clone(), limit.refusal()));
                }
                None => {
                    known.insert(stream, false);
                    added.new.push(stream.clone());
                    count += usize::from(!is_spare);
                }
            }
        }
        match memory.resize(memory_bytes(all)) {
            Ok(()) => Ok(added),
            Err(full) => {
                if let Some(known) = all.get_mut(tenant) {
                    known.forget(&added.new);
                }
                Err(full.into())
            }
        }
    }

    /// Removes streams that were added, unless a record was stored meanwhile. If another request is about to store one, the
    /// stream is noted again.
    pub(crate) fn forget(&self, tenant: &TenantId, streams: &[StreamName]) {
        let mut tenants = self.tenants.lock();
        let Tenants { all, memory } = &mut *tenants;
        if let Some(known) = all.get_mut(tenant) {
            known.forget(streams);
        }
        memory.resize(memory_bytes(all)).expect("BUG: cannot reserve less");
    }
}

fn memory_bytes(tenants: &HashMap<TenantId, Tenant>) -> u64 {
    let streams: usize = tenants.values().map(|known| 1 + known.streams.len()).sum();
    streams as u64 * STREAM_BYTES
}

fn in_lower_case(name: &StreamName) -> StreamName {
    match name.as_str().bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => StreamName::parse(&name.as_str().to_ascii_lowercase())
            .expect("BUG: a name in lower case is not valid"),
        false => name.clone(),
    }
}

impl Tenant {
    fn of(records: &Account) -> Self {
        let part = records.part();
        part.share(SHARE, u64::MAX);
        Self { part, streams: HashMap::new(), is_listed: false }
    }

    /// The stream with this name, or else one whose name differs only in case.
    fn like(&self, name: &StreamName) -> Option<&Known> {
        let alike = self.streams.get(&in_lower_case(name))?;
        alike.iter().find(|known| known.name == *name).or(alike.first())
    }

    /// Returns false if the stream was known.
    fn insert(&mut self, name: &StreamName, is_stored: bool) -> bool {
        let alike = self.streams.entry(in_lower_case(name)).or_default();
        if let Some(known) = alike.iter_mut().find(|known| known.name == *name) {
            known.is_stored |= is_stored;
            return false;
        }
        alike.push(Known { name: name.clone(), is_stored });
        true
    }

    fn remove(&mut self, name: &StreamName) {
        let in_lower_case = in_lower_case(name);
        if let Some(alike) = self.streams.get_mut(&in_lower_case) {
            alike.retain(|known| known.name != *name);
            if alike.is_empty() {
                self.streams.remove(&in_lower_case);
            }
        }
    }

    fn forget(&mut self, names: &[StreamName]) {
        for name in names {
            if self.like(name).is_some_and(|known| known.name == *name && !known.is_stored) {
                self.remove(name);
            }
        }
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
