//! What must be there: the acknowledged samples, and those of which it is not known whether they are.

use std::collections::{BTreeMap, BTreeSet};

/// A sample's place: tenant, series, milliseconds.
pub type Key = (usize, usize, i64);

/// The place of what is said of a metric: tenant, name.
pub type About = (usize, String);

/// One request's share for one partition: all of it becomes durable, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// The samples; values as bits.
    pub samples: Vec<(Key, u64)>,
    /// Metadata: what is said of metrics.
    pub metadata: Vec<(About, String)>,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Samples; values as bits.
    pub samples: BTreeMap<Key, u64>,
    /// Metadata.
    pub metadata: BTreeMap<About, String>,
}

/// The truth.
#[derive(Debug, Default)]
pub struct Model {
    /// What was acknowledged last.
    acknowledged: Found,
    /// All values that were ever sent.
    sent: BTreeMap<Key, Vec<u64>>,
    /// How often each sample may have become durable.
    times: BTreeMap<Key, usize>,
    /// Shares without an answer, or with a refusal: after the next crash they may be there.
    limbo: Vec<Share>,
    /// Samples that nobody may send again, for their share is on its way or in limbo.
    busy: BTreeSet<Key>,
    busy_metadata: BTreeSet<About>,
    /// Samples before this may have been dropped for their age.
    expired_before_ms: BTreeMap<usize, i64>,
}

impl Model {
    /// True where a sample is on its way: what it becomes is not known.
    pub fn is_busy(&self, key: Key) -> bool {
        self.busy.contains(&key)
    }

    /// The same of metadata.
    pub fn is_metadata_busy(&self, about: &About) -> bool {
        self.busy_metadata.contains(about)
    }

    /// What was acknowledged last about a metric.
    pub fn metadata_of(&self, about: &About) -> Option<&String> {
        self.acknowledged.metadata.get(about)
    }

    /// A share goes on its way.
    pub fn send(&mut self, share: &Share) {
        for (key, bits) in &share.samples {
            self.sent.entry(*key).or_default().push(*bits);
            *self.times.entry(*key).or_insert(0) += 1;
            self.busy.insert(*key);
        }
        self.busy_metadata.extend(share.metadata.iter().map(|(about, _)| about.clone()));
    }

    /// A share is durable.
    pub fn acknowledge(&mut self, share: &Share) {
        self.acknowledged.samples.extend(share.samples.iter().copied());
        self.acknowledged.metadata.extend(share.metadata.iter().cloned());
        self.forget(share);
    }

    /// A share is not on its way any more.
    fn forget(&mut self, share: &Share) {
        self.busy.retain(|key| share.samples.iter().all(|(of_share, _)| of_share != key));
        self.busy_metadata.retain(|about| share.metadata.iter().all(|(of_share, _)| of_share != about));
    }

    /// A share was refused, or the process died before its answer.
    pub fn leave_open(&mut self, share: Share) {
        self.limbo.push(share);
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
    /// are there, each whole.
    pub fn settle(&mut self, found: &Found, tore: bool) -> Result<(), String> {
        for share in std::mem::take(&mut self.limbo) {
            let known = &self.acknowledged.metadata;
            let metadata = share.metadata.iter().filter(|(about, text)| known.get(about) != Some(text));
            let metadata = metadata.map(|(about, text)| (None, found.metadata.get(about) == Some(text)));
            // what repeats what was there already tells nothing
            let samples = share.samples.iter().filter(|(key, _)| !self.is_expired(*key));
            let samples = samples.filter(|(key, bits)| self.acknowledged.samples.get(key) != Some(bits));
            let samples = samples.map(|(key, bits)| (Some(key.1), found.samples.get(key) == Some(bits)));
            let parts: BTreeSet<_> =
                samples.chain(metadata).map(|(s, there)| (s.filter(|_| tore), there)).collect();
            if let Some((part, _)) =
                parts.iter().find(|(part, there)| *there && parts.contains(&(*part, false)))
            {
                return Err(format!("of one group a part is there, series {part:?}: {share:x?}"));
            }
            self.forget(&share);
            let there = |key: &Key| parts.contains(&(Some(key.1).filter(|_| tore), true));
            let kept = share.samples.iter().filter(|(key, _)| there(key)).copied();
            self.acknowledged.samples.extend(kept);
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

    /// What must still be there after the data directory of this moment was put back.
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
        self.busy.clear();
        self.busy_metadata.clear();
        self.acknowledged.clone_from(found);
        // what an older journal brings again may lie in tables already
        self.times.values_mut().for_each(|times| *times += 1);
        Ok(())
    }

    fn was_sent(&self, key: Key, value: u64) -> bool {
        self.sent.get(&key).is_some_and(|sent| sent.contains(&value))
    }
}
