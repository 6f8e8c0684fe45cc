//! Batches that are durable, but may be missing from tables.

use super::batch::Batch;
use journal::Offset;
use model::{StreamName, TenantId};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) type Key = (TenantId, StreamName);

/// A batch, and where the journal has it.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) offset: Offset,
    pub(crate) batch: Batch,
    /// When it became durable, or was replayed.
    pub(crate) since: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    inner: Mutex<Inner>,
    /// Notified when batches leave the buffer.
    released: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    streams: BTreeMap<Key, Waiting>,
    bytes: u64,
}

/// The batches of one stream, in the order of their offsets.
#[derive(Debug)]
struct Waiting {
    batches: VecDeque<Arc<Durable>>,
    bytes: u64,
}

impl Waiting {
    /// How long the oldest batch has waited.
    fn age(&self, now: Instant) -> Duration {
        self.batches.front().map_or(Duration::ZERO, |first| now.saturating_duration_since(first.since))
    }
}

/// Which streams should be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// Streams whose oldest batch has waited for this long.
    pub(crate) after: Duration,
    /// Streams with this many bytes.
    pub(crate) bytes: u64,
    /// If all streams together have this many bytes, the one with the most is due.
    pub(crate) total_bytes: u64,
}

/// Totals of all streams, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) streams: usize,
    pub(crate) batches: usize,
    pub(crate) bytes: u64,
    /// How long the oldest batch has waited.
    pub(crate) lag: Duration,
}

impl Buffer {
    /// Adds a batch, whose offset must be higher than those of all before it.
    pub(super) fn add(&self, durable: Durable) {
        let bytes = durable.batch.memory.bytes();
        let key = (durable.batch.tenant.clone(), durable.batch.stream.clone());
        let mut inner = self.inner.lock();
        inner.bytes += bytes;
        let waiting =
            inner.streams.entry(key).or_insert_with(|| Waiting { batches: VecDeque::new(), bytes: 0 });
        debug_assert!(waiting.batches.back().is_none_or(|last| last.offset < durable.offset));
        waiting.bytes += bytes;
        waiting.batches.push_back(Arc::new(durable));
    }

    /// The stream that should be loaded first, of those for which `may` is true: the one that has waited longest, or, if
    /// there is little memory left, the one with the most bytes. One that has waited for far too long comes before both.
    pub(crate) fn due(&self, due: Due, now: Instant, may: impl Fn(&Key) -> bool) -> Option<Key> {
        let inner = self.inner.lock();
        let is_due = |waiting: &Waiting| waiting.age(now) >= due.after || waiting.bytes >= due.bytes;
        let streams = || inner.streams.iter().filter(|(key, _)| may(key));
        let oldest = streams().max_by_key(|(_, waiting)| waiting.age(now))?;
        let first = if oldest.1.age(now) >= 2 * due.after {
            oldest
        } else if streams().map(|(_, waiting)| waiting.bytes).sum::<u64>() >= due.total_bytes {
            streams().max_by_key(|(_, waiting)| waiting.bytes)?
        } else {
            streams().filter(|(_, waiting)| is_due(waiting)).max_by_key(|(_, waiting)| waiting.age(now))?
        };
        Some(first.0.clone())
    }

    /// Streams that have batches, with the offset behind the last one of each.
    pub(super) fn ends(&self, of: impl Fn(&Key) -> bool) -> Vec<(Key, Offset)> {
        let inner = self.inner.lock();
        let all = inner.streams.iter().filter(|(key, _)| of(key));
        all.filter_map(|(key, waiting)| Some((key.clone(), Offset(waiting.batches.back()?.offset.0 + 1))))
            .collect()
    }

    /// Offset of a stream's first batch.
    pub(super) fn first_of(&self, key: &Key) -> Option<Offset> {
        self.inner.lock().streams.get(key)?.batches.front().map(|first| first.offset)
    }

    /// The batches of a stream, in the order of their offsets.
    pub(crate) fn batches(&self, key: &Key) -> Vec<Arc<Durable>> {
        let inner = self.inner.lock();
        inner.streams.get(key).map_or_else(Vec::new, |waiting| waiting.batches.iter().cloned().collect())
    }

    pub(crate) fn has_any_of(&self, tenant: &TenantId) -> bool {
        self.inner.lock().streams.keys().any(|(of, _)| of == tenant)
    }

    /// The streams of a tenant that have batches here.
    #[cfg(feature = "sql")]
    pub(crate) fn streams_of(&self, tenant: &TenantId) -> Vec<StreamName> {
        let inner = self.inner.lock();
        let streams = inner.streams.keys().filter(|(of, _)| of == tenant);
        streams.map(|(_, stream)| stream.clone()).collect()
    }

    /// Drops the batches of a stream below an offset, because they are in its table.
    pub(crate) fn release(&self, key: &Key, upto: Offset) {
        let mut inner = self.inner.lock();
        let Some(waiting) = inner.streams.get_mut(key) else { return };
        let mut released = Vec::new();
        while waiting.batches.front().is_some_and(|first| first.offset < upto)
            && let Some(first) = waiting.batches.pop_front()
        {
            released.push(first);
        }
        let bytes = released.iter().map(|durable| durable.batch.memory.bytes()).sum::<u64>();
        waiting.bytes -= bytes;
        if waiting.batches.is_empty() {
            inner.streams.remove(key);
        }
        inner.bytes -= bytes;
        drop(inner);
        drop(released); // their memory is free before those who wait for it go on
        self.released.notify_all();
    }

    /// Waits until batches leave the buffer, for at most this long.
    pub(super) fn wait_for_release(&self, most: Duration) {
        let mut inner = self.inner.lock();
        let _ = self.released.wait_for(&mut inner, most); // the caller tries again in either case
    }

    /// Offset of the first batch that may be in no table.
    pub(super) fn first(&self) -> Option<Offset> {
        let inner = self.inner.lock();
        inner.streams.values().filter_map(|waiting| waiting.batches.front()).map(|first| first.offset).min()
    }

    pub(crate) fn totals(&self, now: Instant) -> Totals {
        let inner = self.inner.lock();
        Totals {
            streams: inner.streams.len(),
            batches: inner.streams.values().map(|waiting| waiting.batches.len()).sum(),
            bytes: inner.bytes,
            lag: inner.streams.values().map(|waiting| waiting.age(now)).max().unwrap_or_default(),
        }
    }
}
