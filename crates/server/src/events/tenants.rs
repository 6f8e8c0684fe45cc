//! The logs of all tenants that have a file.
//!
//! A tenant without a file also has an entry while somebody uses its log, so that it never has two logs. The last
//! [`User`] removes the entry again, so that requests that are refused leave nothing behind.

use super::log::{FileBytes, Log};
use model::TenantId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use stdx::budget::{Account, Exhausted, Reservation};

/// Memory of a tenant that has a file.
pub(super) const TENANT_BYTES: u64 = 1024;

type All = Mutex<HashMap<TenantId, Tenant>>;

#[derive(Debug)]
pub(super) struct Tenants {
    account: Account,
    all: Arc<All>,
}

#[derive(Debug)]
struct Tenant {
    log: Arc<tokio::sync::Mutex<Log>>,
    file_bytes: Arc<FileBytes>,
    /// `None` if the file was found at the start, when there was no memory for it.
    _memory: Option<Reservation>,
}

impl Tenant {
    fn new(log: Log, memory: Option<Reservation>) -> Self {
        let file_bytes = log.file_bytes();
        Self { log: Arc::new(tokio::sync::Mutex::new(log)), file_bytes, _memory: memory }
    }
}

impl Tenants {
    pub(super) fn new(account: Account) -> Self {
        Self { account, all: Arc::default() }
    }

    /// Adds a tenant whose file was found at the start.
    pub(super) fn found(&self, tenant: TenantId, log: Log) {
        let memory = self.account.reserve(TENANT_BYTES).ok();
        self.all.lock().insert(tenant, Tenant::new(log, memory));
    }

    /// The log of a tenant. If there is none, `new` makes it, if there is memory for it.
    pub(super) fn log(&self, tenant: &TenantId, new: impl FnOnce() -> Log) -> Result<User, Exhausted> {
        let mut all = self.all.lock();
        let log = match all.entry(tenant.clone()) {
            Entry::Occupied(known) => Arc::clone(&known.get().log),
            Entry::Vacant(place) => {
                let memory = self.account.reserve(TENANT_BYTES)?;
                Arc::clone(&place.insert(Tenant::new(new(), Some(memory))).log)
            }
        };
        Ok(self.user(tenant, log))
    }

    pub(super) fn known_log(&self, tenant: &TenantId) -> Option<User> {
        let all = self.all.lock();
        let log = Arc::clone(&all.get(tenant)?.log);
        Some(self.user(tenant, log))
    }

    fn user(&self, tenant: &TenantId, log: Arc<tokio::sync::Mutex<Log>>) -> User {
        User { all: Arc::clone(&self.all), tenant: tenant.clone(), log: Some(log) }
    }

    pub(super) fn ids(&self) -> Vec<TenantId> {
        self.all.lock().keys().cloned().collect()
    }

    /// Size of a tenant's file, and the largest size since the start.
    pub(super) fn file_bytes(&self, tenant: &TenantId) -> (u64, u64) {
        self.all.lock().get(tenant).map_or((0, 0), |known| (known.file_bytes.get(), known.file_bytes.peak()))
    }
}

/// Somebody who uses a tenant's log, or waits for it. Must be dropped after the log is unlocked.
#[derive(Debug)]
pub(super) struct User {
    all: Arc<All>,
    tenant: TenantId,
    /// `None` only while it is dropped.
    log: Option<Arc<tokio::sync::Mutex<Log>>>,
}

impl User {
    pub(super) fn log(&self) -> &Arc<tokio::sync::Mutex<Log>> {
        self.log.as_ref().expect("BUG: a log is used after its end")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // others get the log or leave it only under this lock, so exactly one of them is the last
        let mut all = self.all.lock();
        self.log = None;
        let Some(known) = all.get_mut(&self.tenant) else { return };
        if Arc::get_mut(&mut known.log).is_some_and(|log| !log.get_mut().has_file()) {
            all.remove(&self.tenant);
        }
    }
}
