//! Model of the expected contents: acknowledged samples, and those whose outcome is unknown.

use std::collections::{BTreeMap, BTreeSet};

/// A sample's place: tenant, series, milliseconds.
pub type Key = (usize, usize, i64);

/// The place of what is said of a metric: tenant, name.
pub type About = (usize, String);

/// One request's share for one partition: all of it becomes durable, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// The request. Copies of it have the same number, and equal shares.
    pub request: u64,
    /// The samples; values as bits.
    pub samples: Vec<(Key, u64)>,
    /// Metadata: what is said of metrics.
    pub metadata: Vec<(About, String)>,
}

/// Contents found in the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Samples; values as bits.
    pub samples: BTreeMap<Key, u64>,
    /// Metadata.
    pub metadata: BTreeMap<About, String>,
}

/// Why a node may leave out a part of a share, and store the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// New series, whole, and samples that are older than the newest of their series, for which there is no room in memory.
    pub no_room: bool,
}

/// The truth.
#[derive(Debug, Default)]
pub struct Model {
    refusals: Refusals,
    /// Last acknowledged contents.
    acknowledged: Found,
    /// All values that were ever sent.
    sent: BTreeMap<Key, Vec<u64>>,
    /// How often each sample may have become durable.
    times: BTreeMap<Key, usize>,
    /// Shares without an answer, or with a refusal: after the next crash they may be there.
    limbo: Vec<Share>,
    /// Samples of shares that are on their way or in limbo: only copies of the same request may send them.
    busy: Holds<Key>,
    busy_metadata: Holds<About>,
    /// The newest sample of each series that was ever sent.
    newest_sent: BTreeMap<(usize, usize), i64>,
    /// Samples before this may have been dropped for their age.
    expired_before_ms: BTreeMap<usize, i64>,
}

/// Requests that hold each key, with the number of copies.
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
        let (_, copies) = self.0.get_mut(key).expect("BUG: what is released was taken");
        *copies -= 1;
        if *copies == 0 {
            self.0.remove(key);
        }
    }
}

impl Model {
    /// Nothing is sent yet.
    pub fn new(refusals: Refusals) -> Self {
        Self { refusals, ..Self::default() }
    }

    /// True where a sample is on its way: what it becomes is not known.
    pub fn is_busy(&self, key: Key) -> bool {
        self.busy.0.contains_key(&key)
    }

    /// The same of metadata.
    pub fn is_metadata_busy(&self, about: &About) -> bool {
        self.busy_metadata.0.contains_key(about)
    }

    /// True if another copy of a share may be sent: no other request with a part of it is in flight.
    pub fn may_repeat(&self, share: &Share) -> bool {
        share.samples.iter().all(|(key, _)| self.busy.is_free_for(share.request, key))
            && share.metadata.iter().all(|(about, _)| self.busy_metadata.is_free_for(share.request, about))
    }

    /// Last acknowledged metadata of a metric.
    pub fn metadata_of(&self, about: &About) -> Option<&String> {
        self.acknowledged.metadata.get(about)
    }

    /// A share goes on its way.
    pub fn send(&mut self, share: &Share) {
        for (key, bits) in &share.samples {
            self.sent.entry(*key).or_default().push(*bits);
            *self.times.entry(*key).or_insert(0) += 1;
            self.busy.take(share.request, key);
            let newest = self.newest_sent.entry((key.0, key.1)).or_insert(key.2);
            *newest = key.2.max(*newest);
        }
        share.metadata.iter().for_each(|(about, _)| self.busy_metadata.take(share.request, about));
    }

    /// A share is durable. So is what earlier copies of it tried.
    pub fn acknowledge(&mut self, share: &Share) {
        share.samples.iter().for_each(|(key, bits)| self.store(*key, *bits));
        self.acknowledged.metadata.extend(share.metadata.iter().cloned());
        self.release(share);
        let (settled, limbo) = std::mem::take(&mut self.limbo).into_iter().partition(|open| open == share);
        self.limbo = limbo;
        let settled: Vec<Share> = settled;
        settled.iter().for_each(|open| self.release(open));
    }

    fn store(&mut self, key: Key, bits: u64) {
        self.acknowledged.samples.insert(key, bits);
    }

    /// Of a share `stored` samples are durable, and the others were refused: which ones, says what is there.
    pub fn acknowledge_some(&mut self, share: &Share, stored: u64, found: &Found) -> Result<(), String> {
        let is_only_copy = |key: &Key| self.busy.0.get(key).is_none_or(|(_, copies)| *copies == 1);
        let is_alone = share.samples.iter().all(|(key, _)| is_only_copy(key));
        let (there, missing): (Vec<_>, Vec<_>) =
            share.samples.iter().copied().partition(|(key, bits)| found.samples.get(key) == Some(bits));
        // what repeats what was there already tells nothing
        let is_news = |(key, bits): &&(Key, u64)| self.acknowledged.samples.get(key) != Some(bits);
        let news: BTreeSet<_> = there.iter().filter(is_news).map(|(key, _)| *key).collect();
        for (key, _) in &missing {
            let has_no_room = self.refusals.no_room && news.iter().all(|other| other.1 != key.1);
            if !has_no_room && !self.may_be_late(*key) {
                return Err(format!("{key:?} was refused without a reason, of {share:x?}"));
            }
        }
        if is_alone && !(news.len()..=there.len()).contains(&(stored as usize)) {
            let (least, most) = (news.len(), there.len());
            return Err(format!("{stored} were stored, and {least} to {most} are there: {share:x?}"));
        }
        there.into_iter().for_each(|(key, bits)| self.store(key, bits));
        self.acknowledged.metadata.extend(share.metadata.iter().cloned());
        self.release(share);
        Ok(())
    }

    /// A share is not on its way any more.
    fn release(&mut self, share: &Share) {
        share.samples.iter().for_each(|(key, _)| self.busy.release(key));
        share.metadata.iter().for_each(|(about, _)| self.busy_metadata.release(about));
    }

    /// A share was sent, and it is certain that nothing of it is there.
    pub fn withdraw(&mut self, share: &Share) {
        self.release(share);
    }

    /// Acknowledged samples.
    pub const fn samples(&self) -> &BTreeMap<Key, u64> {
        &self.acknowledged.samples
    }

    /// A share was refused, or the process died before its answer.
    pub fn leave_open(&mut self, share: Share) {
        self.limbo.push(share);
    }

    /// True if a node may lack room for a sample because its series may have a newer one.
    fn may_be_late(&self, key: Key) -> bool {
        self.refusals.no_room && self.newest_sent.get(&(key.0, key.1)).is_some_and(|newest| key.2 < *newest)
    }

    /// Samples of a tenant before this are too old.
    pub fn expire(&mut self, tenant: usize, before_ms: i64) {
        let expired = self.expired_before_ms.entry(tenant).or_insert(i64::MIN);
        *expired = before_ms.max(*expired);
    }

    fn is_expired(&self, key: Key) -> bool {
        self.expired_before_ms.get(&key.0).is_some_and(|before_ms| key.2 < *before_ms)
    }

    /// How often a sample may lie in files.
    pub fn times(&self, key: Key) -> usize {
        self.times.get(&key).copied().unwrap_or(0)
    }

    /// After a recovery: settles what was open by what is there: the whole share or nothing. Where a power loss `tore`
    /// a group apart, a record of it can be there without the one that says what its series are: then some of its series
    /// are there, each whole. What the node may have refused is not missing.
    pub fn settle(&mut self, found: &Found, tore: bool) -> Result<(), String> {
        let by_series = tore || self.refusals.no_room;
        for share in std::mem::take(&mut self.limbo) {
            let known = &self.acknowledged.metadata;
            let metadata = share.metadata.iter().filter(|(about, text)| known.get(about) != Some(text));
            let metadata = metadata.map(|(about, text)| (None, found.metadata.get(about) == Some(text)));
            // what repeats what was there already tells nothing
            let samples = share.samples.iter().filter(|(key, _)| !self.is_expired(*key));
            let samples = samples.filter(|(key, bits)| self.acknowledged.samples.get(key) != Some(bits));
            let is_there = |key: &Key, bits: &u64| found.samples.get(key) == Some(bits);
            let samples = samples.filter(|(key, bits)| is_there(key, bits) || !self.may_be_late(*key));
            let samples = samples.map(|(key, bits)| (Some(key.1), is_there(key, bits)));
            let parts: BTreeSet<_> =
                samples.chain(metadata).map(|(s, there)| (s.filter(|_| by_series), there)).collect();
            if let Some((part, _)) =
                parts.iter().find(|(part, there)| *there && parts.contains(&(*part, false)))
            {
                return Err(format!("of one group a part is there, series {part:?}: {share:x?}"));
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

    /// Compares what is there with what must be.
    pub fn check(&self, found: &Found) -> Result<(), String> {
        for (key, bits) in &self.acknowledged.samples {
            match found.samples.get(key) {
                Some(value) if value == bits => {}
                Some(value) if self.is_expired(*key) && self.was_sent(*key, *value) => {}
                None if self.is_expired(*key) => {}
                Some(value) => {
                    let sent = &self.sent[key];
                    return Err(format!("{key:?} is {value:x}, must be {bits:x}, sent {sent:x?}"));
                }
                None => {
                    let lost = self.acknowledged.samples.keys();
                    let lost: Vec<_> = lost.filter(|k| !found.samples.contains_key(k)).collect();
                    return Err(format!("{key:?} is lost, must be {bits:x}; all that is lost: {lost:?}"));
                }
            }
        }
        for (key, value) in &found.samples {
            let is_expired = self.is_expired(*key) && self.was_sent(*key, *value);
            if !(self.acknowledged.samples.contains_key(key) || is_expired) {
                return Err(format!("{key:?} is {value:x} and must not be there"));
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

    /// Samples that must survive when the data directory of this moment is restored.
    pub fn copy(&self) -> BTreeSet<Key> {
        self.acknowledged.samples.keys().copied().collect()
    }

    /// As [`Model::check`], where something that was durable was taken away: a disk has lied, or an older directory was put
    /// back. Of what was sent, no more than `kept` need be there, in any of its values. From then on what is there is the
    /// truth.
    pub fn check_after_loss(&mut self, found: &Found, kept: &BTreeSet<Key>) -> Result<(), String> {
        if let Some((key, value)) = found.samples.iter().find(|(key, value)| !self.was_sent(**key, **value)) {
            return Err(format!("{key:?} is {value:x}, which nobody sent"));
        }
        if let Some(key) = kept.iter().find(|k| !self.is_expired(**k) && !found.samples.contains_key(k)) {
            return Err(format!("{key:?} is lost, although it was in tables, or in what was put back"));
        }
        self.limbo.clear();
        self.busy = Holds::default();
        self.busy_metadata = Holds::default();
        self.acknowledged.clone_from(found);
        // what an older journal brings again may lie in tables already
        self.times.values_mut().for_each(|times| *times += 1);
        Ok(())
    }

    fn was_sent(&self, key: Key, value: u64) -> bool {
        self.sent.get(&key).is_some_and(|sent| sent.contains(&value))
    }
}
