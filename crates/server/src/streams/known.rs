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
    /// Memory of names.
    names: Account,
    tenants: Mutex<HashMap<TenantId, Tenant>>,
}

#[derive(Debug)]
struct Tenant {
    /// The tenant's part of the account of records.
    part: Account,
    /// Memory of the names, from the tenant's part of their account.
    memory: Reservation,
    /// By the name in lower case, because in a store that ignores case, streams whose names differ only in case would share a
    /// table. A key has several streams only if they are older than this rule.
    streams: HashMap<StreamName, Vec<Known>>,
    /// Number of names in `streams`.
    count: usize,
    /// The largest value of `count`.
    peak: usize,
    /// True if `streams` has all streams that have tables.
    is_listed: bool,
    /// True if there was a request since idle tenants were forgotten last.
    is_used: bool,
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
        Self {
            listings: Arc::new(Semaphore::new(LISTINGS_MAX)),
            records,
            names: names.clone(),
            tenants: Mutex::default(),
        }
    }

    pub(crate) fn streams_of(&self, tenant: &TenantId) -> Option<usize> {
        self.tenants.lock().get(tenant).map(|known| known.count)
    }

    /// The largest number of the tenant's streams since they were loaded.
    pub(crate) fn peak_of(&self, tenant: &TenantId) -> Option<usize> {
        self.tenants.lock().get(tenant).map(|known| known.peak)
    }

    /// Returns the tenant's part of the account of records, if all these streams are known.
    pub(crate) fn part_of<'a>(
        &self,
        tenant: &TenantId,
        mut streams: impl Iterator<Item = &'a StreamName>,
    ) -> Option<Account> {
        let mut tenants = self.tenants.lock();
        let known = tenants.get_mut(tenant)?;
        known.is_used = true;
        streams
            .all(|name| known.like(name).is_some_and(|known| known.name == *name))
            .then(|| known.part.clone())
    }

    /// Notes that a stream has records in the journal. Its table may not exist yet.
    pub(super) fn note(&self, tenant: &TenantId, stream: &StreamName) {
        let mut tenants = self.tenants.lock();
        let known = self.tenant(&mut tenants, tenant);
        known.is_used = true;
        // without memory for its name, the stream is found again in the store
        let is_noted = known.insert(stream, true);
        known.is_listed &= is_noted;
        Self::drop_empty(&mut tenants, tenant);
    }

    /// Forgets tenants that had no request since the last call. Their streams are listed again when they have one.
    pub(super) fn forget_idle(&self) {
        self.tenants.lock().retain(|_, known| {
            let has_claims = known.streams.values().flatten().any(|known| !known.is_stored);
            std::mem::take(&mut known.is_used) || has_claims
        });
    }

    fn tenant<'a>(&self, tenants: &'a mut HashMap<TenantId, Tenant>, tenant: &TenantId) -> &'a mut Tenant {
        if !tenants.contains_key(tenant) {
            tenants.insert(tenant.clone(), Tenant::of(&self.records, &self.names));
        }
        tenants.get_mut(tenant).expect("BUG: a tenant is missing that was just added")
    }

    /// A tenant without streams takes no memory.
    fn drop_empty(tenants: &mut HashMap<TenantId, Tenant>, tenant: &TenantId) {
        if tenants.get(tenant).is_some_and(|known| known.streams.is_empty()) {
            tenants.remove(tenant);
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
        let is_listed = self.tenants.lock().get(tenant).is_some_and(|known| known.is_listed);
        // without an answer of the store, records are stored nevertheless, and the next new stream asks again
        let listed =
            if is_listed { None } else { tables.streams(tenant, None, limit.streams + SPARE.len()).ok() };
        let mut tenants = self.tenants.lock();
        let known = self.tenant(&mut tenants, tenant);
        known.is_used = true;
        if let Some(listed) = &listed {
            let mut names = listed.iter().filter_map(|name| StreamName::parse(name).ok());
            known.is_listed = names.all(|name| known.insert(&name, true));
        }
        let exists = |stream: &StreamName| {
            listed.as_ref().is_some_and(|listed| listed.iter().any(|name| name == stream.as_str()))
        };
        let mut added = Added { part: known.part.clone(), new: Vec::new(), refused: Vec::new() };
        let spare =
            SPARE.iter().filter(|name| StreamName::parse(name).is_ok_and(|name| known.like(&name).is_some()));
        let mut count = known.count - spare.count();
        for stream in streams {
            let is_spare = SPARE.contains(&stream.as_str());
            let like_spare = SPARE.into_iter().find(|name| name.eq_ignore_ascii_case(stream.as_str()));
            let alike = match known.like(stream) {
                Some(Known { name, .. }) if name == stream => continue,
                Some(Known { name, .. }) => Some(name.as_str()),
                // else, records for which no other stream is named could not be stored any more
                None => like_spare.filter(|_| !is_spare),
            };
            match alike {
                Some(name) if !known.is_listed => {
                    // the stream may be older than this rule. Once the store answers, a retry is decided for good
                    let message = format!(
                        "the object store does not say whether stream {stream} exists, whose name differs only in case from stream {name}"
                    );
                    known.forget(&added.new);
                    Self::drop_empty(&mut tenants, tenant);
                    return Err(Refusal::busy("table_unreadable", message));
                }
                Some(name) => {
                    let message =
                        format!("name of the stream {stream} differs only in case from stream {name}");
                    added.refused.push((stream.clone(), Refusal::invalid("bad_data", message)));
                }
                None if count >= limit.streams && !is_spare => {
                    added.refused.push((stream.clone(), limit.refusal()));
                }
                None if exists(stream) => {}
                None => {
                    if known.insert(stream, false) {
                        added.new.push(stream.clone());
                        count += usize::from(!is_spare);
                        continue;
                    }
                    let message = "memory for the names of streams is short; streams of idle tenants are forgotten within two hours";
                    added.refused.push((stream.clone(), Refusal::busy(StreamLimit::REASON, message)));
                }
            }
        }
        Self::drop_empty(&mut tenants, tenant);
        Ok(added)
    }

    /// Removes streams that were added, unless a record was stored meanwhile. If another request is about to store one, the
    /// stream is noted again.
    pub(crate) fn forget(&self, tenant: &TenantId, streams: &[StreamName]) {
        let mut tenants = self.tenants.lock();
        if let Some(known) = tenants.get_mut(tenant) {
            known.forget(streams);
        }
        Self::drop_empty(&mut tenants, tenant);
    }
}

fn in_lower_case(name: &StreamName) -> StreamName {
    match name.as_str().bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => StreamName::parse(&name.as_str().to_ascii_lowercase())
            .expect("BUG: a name in lower case is not valid"),
        false => name.clone(),
    }
}

impl Tenant {
    fn of(records: &Account, names: &Account) -> Self {
        let [part, own_names] = [records, names].map(Account::part);
        part.share(SHARE, u64::MAX);
        // the only tenant leaves something, too, because names are forgotten late
        own_names.share(SHARE, names.limit_bytes() - names.limit_bytes() / 8);
        let memory = own_names.reserve(0).expect("BUG: cannot reserve 0 bytes");
        Self { part, memory, streams: HashMap::new(), count: 0, peak: 0, is_listed: false, is_used: true }
    }

    /// The stream with this name, or else one whose name differs only in case.
    fn like(&self, name: &StreamName) -> Option<&Known> {
        let alike = self.streams.get(&in_lower_case(name))?;
        alike.iter().find(|known| known.name == *name).or(alike.first())
    }

    /// Returns false if there is no memory for the name.
    fn insert(&mut self, name: &StreamName, is_stored: bool) -> bool {
        if let Some(alike) = self.streams.get_mut(&in_lower_case(name))
            && let Some(known) = alike.iter_mut().find(|known| known.name == *name)
        {
            known.is_stored |= is_stored;
            return true;
        }
        // the tenant itself takes as much as a stream
        if self.memory.resize((self.count as u64 + 2) * STREAM_BYTES).is_err() {
            return false;
        }
        let known = Known { name: name.clone(), is_stored };
        self.streams.entry(in_lower_case(name)).or_default().push(known);
        self.count += 1;
        self.peak = self.peak.max(self.count);
        true
    }

    fn remove(&mut self, name: &StreamName) {
        let in_lower_case = in_lower_case(name);
        let Some(alike) = self.streams.get_mut(&in_lower_case) else { return };
        let before = alike.len();
        alike.retain(|known| known.name != *name);
        self.count -= before - alike.len();
        if alike.is_empty() {
            self.streams.remove(&in_lower_case);
        }
        let shrunk = self.memory.resize((self.count as u64 + 1) * STREAM_BYTES);
        debug_assert!(shrunk.is_ok(), "BUG: a reservation cannot shrink");
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
