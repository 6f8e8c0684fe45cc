//! Fetches keys from all the key URLs in `auth_file`.

use super::issuer::{Issuer, Keys};
use super::key_url::{FetchMetrics, KeyUrl, Shared};
use crate::outgoing::Outgoing;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::budget::Account;
use stdx::telemetry::Registry;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

#[derive(Debug)]
pub(in crate::auth) struct KeyUrls {
    urls: RwLock<BTreeMap<Arc<str>, Arc<KeyUrl>>>,
    changed: Notify,
    shared: Shared,
}

/// Limit on the URLs fetched at once. Each answer may take 256 KiB of memory.
const FETCHES_MAX: usize = 2;

impl KeyUrls {
    pub(super) fn new(memory: Account, r: &Registry) -> Self {
        let fetching = Arc::new(Semaphore::new(FETCHES_MAX));
        let shared = Shared { memory, fetching, metrics: FetchMetrics::new(r) };
        Self { urls: RwLock::default(), changed: Notify::new(), shared }
    }

    pub(super) fn get(&self, url: &str) -> Option<Arc<KeyUrl>> {
        self.urls.read().get(url).cloned()
    }

    /// Sets the URLs to fetch from: those of `issuers`. A URL that was already in use keeps its keys.
    pub(in crate::auth) fn follow(&self, issuers: &[Issuer]) {
        let wanted = issuers.iter().filter_map(|issuer| match &issuer.keys {
            Keys::Url(url, uri) => Some((url, uri)),
            Keys::File(_) => None,
        });
        let mut urls = self.urls.write();
        let mut next = BTreeMap::new();
        for (url, uri) in wanted {
            let new = || Arc::new(KeyUrl::new(uri.clone(), self.shared.clone()));
            next.insert(Arc::clone(url), urls.get(url).cloned().unwrap_or_else(new));
        }
        if !next.keys().eq(urls.keys()) {
            *urls = next;
            self.changed.notify_one();
        }
    }

    /// Fetches keys until the future is dropped. Each URL has a task.
    pub(in crate::auth) async fn run(&self) {
        let mut client = None;
        loop {
            let mut tasks = JoinSet::new();
            for url in self.urls.read().values() {
                let (url, client) = (Arc::clone(url), client.get_or_insert_with(Outgoing::new).clone());
                tasks.spawn(async move { url.run(client).await });
            }
            self.changed.notified().await;
        }
    }
}
