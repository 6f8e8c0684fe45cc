//! Connections with an unfinished message. When memory runs short, those that have exceeded their patience
//! for longest are closed.
//!
//! An unfinished message takes memory until it is complete or its time is over. Without this, a few senders that never
//! finish their messages would keep everybody else from sending for that long, and again and again.
//!
//! A connection that has sent a complete message is given ten times as long ([`PATIENCE_IF_PROVEN`]): its
//! next message may be unfinished for long only because the server lacks the memory to read the rest of it.

use model::TenantId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Exhausted;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection is not closed before its message has been unfinished for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same for a connection that has sent a complete message.
const PATIENCE_IF_PROVEN: Duration = Duration::from_secs(10);

/// At most one entry for each open connection.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    next: u64,
    connections: BTreeMap<Key, (TenantId, Arc<Notify>)>,
    /// The keys of each tenant's connections.
    of_tenants: HashMap<TenantId, BTreeSet<Key>>,
}

/// When a connection may be closed, and the connection's number. Connections are closed in this order.
type Key = (Instant, u64);

/// A connection, which may have an unfinished message. Dropping it removes the connection.
#[derive(Debug)]
pub(super) struct Holder {
    all: Arc<Unfinished>,
    tenant: TenantId,
    number: u64,
    is_proven: bool,
    key: Option<Key>,
    closed: Arc<Notify>,
}

impl Unfinished {
    pub(super) fn holder(self: &Arc<Self>, tenant: TenantId) -> Holder {
        let mut waiting = self.0.lock();
        waiting.next += 1;
        let (all, closed) = (Arc::clone(self), Arc::default());
        Holder { all, tenant, number: waiting.next, is_proven: false, key: None, closed }
    }

    /// Closes the connection that has exceeded its patience for longest, of all tenants. Returns false if
    /// none has.
    pub(super) fn close_most_overdue(&self, now: Instant) -> bool {
        let mut waiting = self.0.lock();
        let first = waiting.connections.first_key_value().map(|(key, _)| *key);
        waiting.close(first, now)
    }

    /// Makes room for a tenant whose memory was refused. If only its share is used up, only its own connections may be
    /// closed.
    pub(super) fn make_room(&self, tenant: &TenantId, refused: &Exhausted, now: Instant) -> bool {
        match refused.share_bytes {
            Some(_) => {
                let mut waiting = self.0.lock();
                let first = waiting.of_tenants.get(tenant).and_then(BTreeSet::first).copied();
                waiting.close(first, now)
            }
            None => self.close_most_overdue(now),
        }
    }
}

impl Holders {
    fn close(&mut self, key: Option<Key>, now: Instant) -> bool {
        let Some(key) = key.filter(|(from, _)| *from <= now) else { return false };
        self.remove(key).inspect(|closed| closed.notify_one()).is_some()
    }

    fn remove(&mut self, key: Key) -> Option<Arc<Notify>> {
        let (tenant, closed) = self.connections.remove(&key)?;
        if let Some(keys) = self.of_tenants.get_mut(&tenant) {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_tenants.remove(&tenant);
            }
        }
        Some(closed)
    }
}

impl Holder {
    /// Records when the connection's unfinished message began. `None` if it has none, or if it is the server that makes it
    /// wait.
    pub(super) fn set(&mut self, since: Option<Instant>) {
        let patience = if self.is_proven { PATIENCE_IF_PROVEN } else { PATIENCE };
        let key = since.map(|since| (since + patience, self.number));
        if key == self.key {
            return;
        }
        let mut waiting = self.all.0.lock();
        if let Some(before) = self.key {
            waiting.remove(before);
        }
        if let Some(key) = key {
            let tenant = self.tenant.clone();
            waiting.of_tenants.entry(tenant.clone()).or_default().insert(key);
            waiting.connections.insert(key, (tenant, Arc::clone(&self.closed)));
        }
        drop(waiting);
        self.key = key;
    }

    /// Records that the connection has sent a complete message.
    pub(super) fn prove(&mut self) {
        self.is_proven = true;
    }

    /// Returns when the connection has to be closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    fn is_empty(all: &Unfinished) -> bool {
        let waiting = all.0.lock();
        waiting.connections.is_empty() && waiting.of_tenants.is_empty()
    }

    #[tokio::test]
    async fn the_most_overdue_connection_is_closed_first() {
        let all = Arc::new(Unfinished::default());
        let [mut first, mut second, mut third] = [(); 3].map(|()| all.holder(TenantId::anonymous()));
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        second.set(Some(at(0)));
        first.set(Some(at(10)));
        third.set(Some(at(5)));
        third.set(None);
        assert!(!all.close_most_overdue(at(999)), "none is old enough");
        assert!(all.close_most_overdue(at(1000)) && !all.close_most_overdue(at(1009)));
        assert!(all.close_most_overdue(at(1010)) && !all.close_most_overdue(at(9999)));
        for (holder, is_closed) in [(&first, true), (&second, true), (&third, false)] {
            let closed = timeout(Duration::ZERO, holder.closed()).await;
            assert_eq!(closed.is_ok(), is_closed);
        }
        third.set(Some(at(0)));
        drop(third);
        assert!(!all.close_most_overdue(at(9999)) && is_empty(&all));
    }

    #[test]
    fn senders_of_complete_messages_have_more_patience() {
        let all = Arc::new(Unfinished::default());
        let [mut known, mut attacker] = [(); 2].map(|()| all.holder(TenantId::anonymous()));
        known.prove();
        let now = Instant::now();
        known.set(Some(now));
        for round in 0..9 {
            let began = now + Duration::from_secs(round);
            attacker = all.holder(TenantId::anonymous());
            attacker.set(Some(began));
            assert!(!all.close_most_overdue(began + Duration::from_millis(999)), "round {round}");
            assert!(all.close_most_overdue(began + PATIENCE), "round {round}");
            assert!(!is_empty(&all), "the attacker is closed, and not the sender of complete messages");
        }
        drop(attacker);
        assert!(all.close_most_overdue(now + PATIENCE_IF_PROVEN) && is_empty(&all));
    }

    #[test]
    fn a_tenant_that_has_used_up_its_share_closes_its_own_connections() {
        let all = Arc::new(Unfinished::default());
        let tenant = |name: &str| TenantId::parse(name).unwrap();
        let [mut quiet, mut own] = ["quiet", "own"].map(|name| all.holder(tenant(name)));
        let now = Instant::now();
        let later = now + PATIENCE * 2;
        quiet.set(Some(now));
        own.set(Some(now + PATIENCE));
        let refused = |share_bytes| Exhausted {
            account: "unwritten",
            asked_bytes: 1,
            used_bytes: 1,
            limit_bytes: 1,
            share_bytes,
        };
        assert!(!all.make_room(&tenant("other"), &refused(Some(1)), later));
        assert!(all.make_room(&tenant("own"), &refused(Some(1)), later));
        assert!(!all.make_room(&tenant("own"), &refused(Some(1)), later));
        assert!(all.make_room(&tenant("own"), &refused(None), later), "the most overdue of all");
        assert!(is_empty(&all));
    }
}
