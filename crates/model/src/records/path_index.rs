use super::{Attribute, AttributeKind};
use std::hash::{BuildHasher, RandomState};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Finds attributes by path and type: a hash table of their numbers, in which a number that finds its slot taken goes to the
/// next one. It has no copies of the paths.
///
/// Paths come from clients and may be long, so the hash is one that is fast for long texts and has a random seed.
#[derive(Debug)]
pub(super) struct PathIndex {
    seed: u64,
    /// At most half of them are in use. Their number is a power of two.
    slots: Vec<u32>,
}

/// The slot is free.
const FREE: u32 = u32::MAX;

const SLOTS_MIN: usize = 32;

impl PathIndex {
    pub(super) fn new() -> Self {
        Self { seed: RandomState::new().hash_one(0), slots: vec![FREE; SLOTS_MIN] }
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    pub(super) fn find(&self, attributes: &[Attribute], path: &str, kind: AttributeKind) -> Option<u32> {
        let mut slot = self.hash(path, kind);
        loop {
            let number = self.slots[slot & (self.slots.len() - 1)];
            if number == FREE {
                return None;
            }
            let attribute = &attributes[number as usize];
            if attribute.kind() == kind && *attribute.path == *path {
                return Some(number);
            }
            slot += 1;
        }
    }

    /// Adds the last of the attributes.
    pub(super) fn add_last(&mut self, attributes: &[Attribute]) {
        if 2 * attributes.len() > self.slots.len() {
            self.slots = vec![FREE; 2 * self.slots.len()];
            attributes.iter().zip(0..).for_each(|(attribute, number)| self.add(attribute, number));
        } else if let Some(last) = attributes.last() {
            self.add(last, attributes.len() as u32 - 1);
        }
    }

    fn add(&mut self, attribute: &Attribute, number: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash(&attribute.path, attribute.kind());
        while self.slots[slot & mask] != FREE {
            slot += 1;
        }
        self.slots[slot & mask] = number;
    }

    /// A number of up to 63 bits, so that it can be increased.
    fn hash(&self, path: &str, kind: AttributeKind) -> usize {
        (xxh3_64_with_seed(path.as_bytes(), self.seed ^ kind as u64) >> 1) as usize
    }
}
