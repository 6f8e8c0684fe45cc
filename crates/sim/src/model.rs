//! Knows which samples the node must have, and which it may have because their requests got no answer.

use std::collections::{BTreeMap, BTreeSet};

/// Identifies a sample by the numbers of its tenant and series, and its timestamp in milliseconds.
pub type Key = (usize, usize, i64);

/// Identifies the metadata of a metric by the number of its tenant and the name of the metric.
pub type MetadataKey = (usize, String);

/// What one request writes to one partition. It becomes durable as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of the request. It stays the same when the request is repeated.
    pub request: u64,
    /// The samples, each with the bits of its value.
    pub samples: Vec<(Key, u64)>,
    pub metadata: Vec<(MetadataKey, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The samples, each with the bits of its value.
    pub samples: BTreeMap<Key, u64>,
    pub metadata: BTreeMap<MetadataKey, String>,
}

/// Reasons for which the node may refuse some samples of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// There may be no memory, so that new series and out-of-order samples are refused.
    pub no_room: bool,
}

#[derive(Debug, Default)]
pub struct Model {
    refusals: Refusals,
    acknowledged: Found,
    sent: BTreeMap<Key, Vec<u64>>,
    /// Limit on the rows in which each sample is stored: one for each time it was sent, and one more for each
    /// loss of durable data, because an old journal may then replay the sample.
    times: BTreeMap<Key, usize>,
    /// Shares that were refused or got no answer. They may have been stored nevertheless.
    undecided: Vec<Share>,
    /// Samples that were sent and whose result is not known yet. Only the same request may send them again.
    busy: Holds<Key>,
    busy_metadata: Holds<MetadataKey>,
    newest_sent: BTreeMap<(usize, usize), i64>,
    /// Acknowledged samples that may have been deleted, each with the number of the last request that the
    /// delete can have affected.
    doubtful: BTreeMap<Key, u64>,
    /// True if a delete was sent to the tables, but is not answered yet, or has failed. It may still take effect.
    is_delete_open: bool,
    stored: BTreeMap<Key, u64>,
    expired_before_ms: BTreeMap<usize, i64>,
}

/// The samples that were acknowledged when a delete began, and how many times each was acknowledged.
#[derive(Debug)]
pub struct Begun(BTreeMap<Key, u64>);

/// For each key, the request that uses it, and how many copies of that request have no result yet.
#[derive(Debug)]
struct Holds<K>(BTreeMap<K, (u64, usize)>);

impl<K> Default for Holds<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone + std::fmt::Debug> Holds<K> {
    fn is_free_for(&self, request: u64, key: &K) -> bool {
        self.0.get(key).is_none_or(|(holder, _)| *holder == request)
    }

    fn take(&mut self, request: u64, key: &K) {
        let (holder, copies) = self.0.entry(key.clone()).or_insert((request, 0));
        assert_eq!(*holder, request, "BUG: {key:?} is held by another request");
        *copies += 1;
    }

    fn release(&mut self, key: &K) {
        let (_, copies) = self.0.get_mut(key).expect("BUG: released a key that is not held");
        *copies -= 1;
        if *copies == 0 {
            self.0.remove(key);
        }
    }
}

impl Model {
    pub fn new(refusals: Refusals) -> Self {
        Self { refusals, ..Self::default() }
    }

    pub fn is_busy(&self, key: Key) -> bool {
        self.busy.0.contains_key(&key)
    }

    pub fn is_metadata_busy(&self, key: &MetadataKey) -> bool {
        self.busy_metadata.0.contains_key(key)
    }

    /// True if the request of this share may be sent again, because no other request without a result has any
    /// of the same samples or metadata.
    pub fn may_repeat(&self, share: &Share) -> bool {
        share.samples.iter().all(|(key, _)| self.busy.is_free_for(share.request, key))
            && share.metadata.iter().all(|(key, _)| self.busy_metadata.is_free_for(share.request, key))
    }

    pub fn metadata_of(&self, key: &MetadataKey) -> Option<&String> {
        self.acknowledged.metadata.get(key)
    }

    pub fn send(&mut self, share: &Share) {
        for (key, bits) in &share.samples {
            self.sent.entry(*key).or_default().push(*bits);
            *self.times.entry(*key).or_insert(0) += 1;
            self.busy.take(share.request, key);
            let newest = self.newest_sent.entry((key.0, key.1)).or_insert(key.2);
            *newest = key.2.max(*newest);
        }
        share.metadata.iter().for_each(|(key, _)| self.busy_metadata.take(share.request, key));
    }

    /// The share is durable. If the request was repeated, earlier copies without a result count as settled,
    /// too.
    pub fn acknowledge(&mut self, share: &Share) {
        share.samples.iter().for_each(|(key, bits)| self.store(*key, *bits, share.request));
        self.acknowledged.metadata.extend(share.metadata.iter().cloned());
        self.release(share);
        let (settled, undecided) =
            std::mem::take(&mut self.undecided).into_iter().partition(|open| open == share);
        self.undecided = undecided;
        let settled: Vec<Share> = settled;
        settled.iter().for_each(|open| self.release(open));
    }

    fn store(&mut self, key: Key, bits: u64, request: u64) {
        self.acknowledged.samples.insert(key, bits);
        *self.stored.entry(key).or_insert(0) += 1;
        if self.doubtful.get(&key).is_some_and(|met| request > *met) {
            self.doubtful.remove(&key);
        }
    }

    /// Returns the samples that a delete must remove if it selects them and begins now.
    pub fn begin_delete(&self) -> Begun {
        let stored = |key: &Key| self.stored.get(key).copied().unwrap_or(0);
        let is_settled = |key: &&Key| !self.is_busy(**key);
        Begun(self.acknowledged.samples.keys().filter(is_settled).map(|key| (*key, stored(key))).collect())
    }

    /// A delete has succeeded. The selected samples that were acknowledged before it began are gone, and
    /// those that came later may be gone, too.
    pub fn end_delete(&mut self, begun: &Begun, is_selected: impl Fn(Key) -> bool, last_request: u64) {
        let selected: Vec<Key> =
            self.acknowledged.samples.keys().copied().filter(|key| is_selected(*key)).collect();
        for key in selected {
            let is_same = begun.0.get(&key) == Some(&self.stored.get(&key).copied().unwrap_or(0));
            if is_same && !self.is_busy(key) {
                self.acknowledged.samples.remove(&key);
                self.doubtful.remove(&key);
            } else {
                self.doubtful.insert(key, last_request);
            }
        }
        self.doubt_busy(is_selected, last_request);
        self.is_delete_open = false;
    }

    /// A delete was sent to the tables, but is not answered yet, or has failed. It may still take effect, also on
    /// samples that are sent again from now on.
    pub fn doubt_delete(&mut self, is_selected: impl Fn(Key) -> bool) {
        let selected = self.acknowledged.samples.keys().copied().filter(|key| is_selected(*key));
        self.doubtful.extend(selected.map(|key| (key, u64::MAX)));
        self.doubt_busy(is_selected, u64::MAX);
        self.is_delete_open = true;
    }

    pub const fn is_delete_open(&self) -> bool {
        self.is_delete_open
    }

    fn doubt_busy(&mut self, is_selected: impl Fn(Key) -> bool, last_request: u64) {
        let busy = self.busy.0.keys().copied().filter(|key| is_selected(*key));
        self.doubtful.extend(busy.map(|key| (key, last_request)));
    }

    /// Finds out which of the samples in doubt were deleted. Those whose requests have no result yet are left
    /// for later.
    pub fn settle_deletes(&mut self, found: &Found) {
        if self.is_delete_open {
            return;
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        let (busy, settled) = doubtful.into_iter().partition(|(key, _)| self.is_busy(*key));
        self.doubtful = busy;
        let settled: BTreeMap<Key, u64> = settled;
        for key in settled.into_keys().filter(|key| !found.samples.contains_key(key)) {
            self.acknowledged.samples.remove(&key);
        }
    }

    /// The node has stored `stored` samples of a share and refused the others. `found` shows which of them
    /// are there.
    pub fn acknowledge_some(&mut self, share: &Share, stored: u64, found: &Found) -> Result<(), String> {
        let is_only_copy = |key: &Key| self.busy.0.get(key).is_none_or(|(_, copies)| *copies == 1);
        let is_alone = share.samples.iter().all(|(key, _)| is_only_copy(key));
        let (there, missing): (Vec<_>, Vec<_>) =
            share.samples.iter().copied().partition(|(key, bits)| found.samples.get(key) == Some(bits));
        // if the sample was there before, it does not show whether this share was stored
        let is_news = |(key, bits): &&(Key, u64)| self.acknowledged.samples.get(key) != Some(bits);
        let news: BTreeSet<_> = there.iter().filter(is_news).map(|(key, _)| *key).collect();
        for (key, _) in &missing {
            let has_no_room = self.refusals.no_room && news.iter().all(|other| other.1 != key.1);
            if !has_no_room && !self.may_be_late(*key) {
                return Err(format!("{key:?} of {share:x?} was refused without a reason"));
            }
        }
        if is_alone && !(news.len()..=there.len()).contains(&(stored as usize)) {
            let (least, most) = (news.len(), there.len());
            return Err(format!("{stored} samples were stored instead of {least} to {most}: {share:x?}"));
        }
        there.into_iter().for_each(|(key, bits)| self.store(key, bits, share.request));
        self.acknowledged.metadata.extend(share.metadata.iter().cloned());
        self.release(share);
        Ok(())
    }

    /// Allows other requests to use the keys of this share again.
    fn release(&mut self, share: &Share) {
        share.samples.iter().for_each(|(key, _)| self.busy.release(key));
        share.metadata.iter().for_each(|(key, _)| self.busy_metadata.release(key));
    }

    /// A share was sent, but nothing of it was stored.
    pub fn withdraw(&mut self, share: &Share) {
        self.release(share);
    }

    pub const fn samples(&self) -> &BTreeMap<Key, u64> {
        &self.acknowledged.samples
    }

    /// It is not known whether a share was stored: it was refused, or the process died before it answered.
    pub fn leave_open(&mut self, share: Share) {
        self.undecided.push(share);
    }

    /// True if the node may refuse a sample because it is out of order and there is no memory.
    fn may_be_late(&self, key: Key) -> bool {
        self.refusals.no_room && self.newest_sent.get(&(key.0, key.1)).is_some_and(|newest| key.2 < *newest)
    }

    pub fn expire(&mut self, tenant: usize, before_ms: i64) {
        let expired = self.expired_before_ms.entry(tenant).or_insert(i64::MIN);
        *expired = before_ms.max(*expired);
    }

    pub fn may_be_expired(&self, key: Key) -> bool {
        self.is_expired(key)
    }

    fn is_expired(&self, key: Key) -> bool {
        self.expired_before_ms.get(&key.0).is_some_and(|before_ms| key.2 < *before_ms)
    }

    pub fn times(&self, key: Key) -> usize {
        self.times.get(&key).copied().unwrap_or(0)
    }

    /// After a restart, finds out which shares without a result were stored. Each must be there as a whole or
    /// not at all. But if a power loss `tore` a group, definitions may be missing, so that some series of a
    /// share are there and others are not. If memory may run out, refused samples may be missing, too.
    pub fn settle(&mut self, found: &Found, tore: bool) -> Result<(), String> {
        let by_series = tore || self.refusals.no_room;
        for share in std::mem::take(&mut self.undecided) {
            let known = &self.acknowledged.metadata;
            let metadata = share.metadata.iter().filter(|(key, text)| known.get(key) != Some(text));
            let metadata = metadata.map(|(key, text)| (None, found.metadata.get(key) == Some(text)));
            // if the sample was there before, it does not show whether this share was stored
            let samples = share.samples.iter().filter(|(key, _)| !self.is_expired(*key));
            let samples = samples.filter(|(key, bits)| self.acknowledged.samples.get(key) != Some(bits));
            let is_there = |key: &Key, bits: &u64| found.samples.get(key) == Some(bits);
            let samples = samples.filter(|(key, bits)| {
                is_there(key, bits) || !(self.may_be_late(*key) || self.doubtful.contains_key(key))
            });
            let samples = samples.map(|(key, bits)| (Some(key.1), is_there(key, bits)));
            let parts: BTreeSet<_> =
                samples.chain(metadata).map(|(s, there)| (s.filter(|_| by_series), there)).collect();
            if let Some((part, _)) =
                parts.iter().find(|(part, there)| *there && parts.contains(&(*part, false)))
            {
                return Err(format!("only a part of a group survived, series {part:?} did not: {share:x?}"));
            }
            self.release(&share);
            let is_kept = |(key, bits): &&(Key, u64)| {
                parts.contains(&(Some(key.1).filter(|_| by_series), true)) && is_there(key, bits)
            };
            self.acknowledged.samples.extend(share.samples.iter().filter(is_kept).copied());
            if parts.contains(&(None, true)) {
                self.acknowledged.metadata.extend(share.metadata.iter().cloned());
            }
        }
        Ok(())
    }

    pub fn check(&self, found: &Found) -> Result<(), String> {
        for (key, bits) in &self.acknowledged.samples {
            match found.samples.get(key) {
                Some(value) if value == bits => {}
                Some(value) if self.is_expired(*key) && self.was_sent(*key, *value) => {}
                None if self.is_expired(*key) || self.doubtful.contains_key(key) => {}
                Some(value) => {
                    let sent = &self.sent[key];
                    return Err(format!(
                        "{key:?} has the value {value:x} instead of {bits:x}; sent values: {sent:x?}"
                    ));
                }
                None => {
                    let lost = self.acknowledged.samples.keys();
                    let lost: Vec<_> = lost.filter(|k| !found.samples.contains_key(k)).collect();
                    return Err(format!(
                        "{key:?} with the value {bits:x} is lost; all lost samples: {lost:?}"
                    ));
                }
            }
        }
        for (key, value) in &found.samples {
            let is_expired = self.is_expired(*key) && self.was_sent(*key, *value);
            if !(self.acknowledged.samples.contains_key(key) || is_expired) {
                return Err(format!("{key:?} has the value {value:x}, but must not exist"));
            }
        }
        if found.metadata != self.acknowledged.metadata {
            return Err(format!(
                "metadata is {:?}, must be {:?}",
                found.metadata, self.acknowledged.metadata
            ));
        }
        Ok(())
    }

    /// If the data directory is copied now, these samples must be there after the copy is restored.
    pub fn copy(&self) -> BTreeSet<Key> {
        self.acknowledged.samples.keys().copied().collect()
    }

    /// Checks what is left after durable data was lost. The samples in `kept` must be there, with any value
    /// that was ever sent. From now on, the model expects what was found.
    pub fn check_after_loss(&mut self, found: &Found, kept: &BTreeSet<Key>) -> Result<(), String> {
        if let Some((key, value)) = found.samples.iter().find(|(key, value)| !self.was_sent(**key, **value)) {
            return Err(format!("{key:?} has the value {value:x}, which was never sent"));
        }
        if let Some(key) = kept.iter().find(|k| !self.is_expired(**k) && !found.samples.contains_key(k)) {
            return Err(format!("{key:?} is lost, although it was in tables, or in the restored backup"));
        }
        self.undecided.clear();
        self.busy = Holds::default();
        self.busy_metadata = Holds::default();
        self.acknowledged.clone_from(found);
        // an old journal may replay samples that are already in tables
        self.times.values_mut().for_each(|times| *times += 1);
        Ok(())
    }

    fn was_sent(&self, key: Key, value: u64) -> bool {
        self.sent.get(&key).is_some_and(|sent| sent.contains(&value))
    }
}
