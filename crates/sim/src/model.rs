//! What must be there: the acknowledged samples, and those of which it is not known whether they are.

use std::collections::{BTreeMap, BTreeSet};

/// A sample's place: tenant, series, milliseconds.
pub type Key = (usize, usize, i64);

/// One request's share for one partition: all of it becomes durable, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The samples; values as bits.
    pub samples: Vec<(Key, u64)>,
}

/// The truth.
#[derive(Debug, Default)]
pub struct Model {
    /// The value that was acknowledged last.
    acknowledged: BTreeMap<Key, u64>,
    /// All values that were ever sent.
    sent: BTreeMap<Key, Vec<u64>>,
    /// How often each sample may have become durable.
    times: BTreeMap<Key, usize>,
    /// Shares without an answer, or with a refusal: after the next crash they may be there.
    limbo: Vec<Share>,
    /// Samples that nobody may send again, for their share is on its way or in limbo.
    busy: BTreeSet<Key>,
    /// Samples before this may have been dropped for their age.
    expired_before_ms: BTreeMap<usize, i64>,
}

impl Model {
    /// True where a sample is on its way: what it becomes is not known.
    pub fn is_busy(&self, key: Key) -> bool {
        self.busy.contains(&key)
    }

    /// A share goes on its way.
    pub fn send(&mut self, share: &Share) {
        for (key, bits) in &share.samples {
            self.sent.entry(*key).or_default().push(*bits);
            *self.times.entry(*key).or_insert(0) += 1;
            self.busy.insert(*key);
        }
    }

    /// A share is durable.
    pub fn acknowledge(&mut self, share: &Share) {
        for (key, bits) in &share.samples {
            self.acknowledged.insert(*key, *bits);
            self.busy.remove(key);
        }
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

    /// Samples that were acknowledged and are not expired.
    pub fn len(&self) -> usize {
        self.acknowledged.keys().filter(|key| !self.is_expired(**key)).count()
    }

    /// Nothing was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// After a recovery: settles what was open by what is there.
    pub fn settle(&mut self, found: &BTreeMap<Key, u64>) -> Result<(), String> {
        for share in std::mem::take(&mut self.limbo) {
            let known = share.samples.iter().filter(|(key, _)| !self.is_expired(*key));
            // one that repeats what was there already tells nothing
            let known: Vec<_> =
                known.filter(|(key, bits)| self.acknowledged.get(key) != Some(bits)).collect();
            let there = known.iter().filter(|(key, bits)| found.get(key) == Some(bits)).count();
            if there != 0 && there != known.len() {
                return Err(format!("{there} of {} samples of one group are there: {known:?}", known.len()));
            }
            if there > 0 {
                self.acknowledge(&share);
            }
            self.busy.retain(|key| share.samples.iter().all(|(of_share, _)| of_share != key));
        }
        Ok(())
    }

    /// Compares what is there with what must be.
    pub fn check(&self, found: &BTreeMap<Key, u64>) -> Result<(), String> {
        for (key, bits) in &self.acknowledged {
            match found.get(key) {
                Some(value) if value == bits => {}
                Some(value) if self.is_expired(*key) && self.was_sent(*key, *value) => {}
                None if self.is_expired(*key) => {}
                Some(value) => {
                    return Err(format!(
                        "{key:?} is {value:x}, must be {bits:x}, sent {:x?}",
                        self.sent[key]
                    ));
                }
                None => return Err(format!("{key:?} is lost, must be {bits:x}")),
            }
        }
        for (key, value) in found {
            if !(self.acknowledged.contains_key(key) || self.is_expired(*key) && self.was_sent(*key, *value))
            {
                return Err(format!("{key:?} is {value:x} and must not be there"));
            }
        }
        Ok(())
    }

    /// As [`Model::check`], where a disk has lied about what is durable: nothing may be there that was not sent. From then
    /// on what is there is the truth.
    pub fn check_after_lies(&mut self, found: &BTreeMap<Key, u64>) -> Result<(), String> {
        if let Some((key, value)) = found.iter().find(|(key, value)| !self.was_sent(**key, **value)) {
            return Err(format!("{key:?} is {value:x}, which nobody sent"));
        }
        self.limbo.clear();
        self.busy.clear();
        self.acknowledged.clone_from(found);
        Ok(())
    }

    fn was_sent(&self, key: Key, value: u64) -> bool {
        self.sent.get(&key).is_some_and(|sent| sent.contains(&value))
    }
}
