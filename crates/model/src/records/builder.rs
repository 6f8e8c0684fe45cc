use super::path_index::PathIndex;
use super::{Attribute, AttributeKind, AttributeValue, Records};
use crate::caps::BATCH_ATTRIBUTES_MAX;
use stdx::budget::{Exhausted, IncrementalReservation};

/// Builds a batch, record after record.
///
/// Most records have the same attributes in the same order as the one before, so the attribute that followed the last one
/// there is tried before the path is looked up.
#[derive(Debug)]
pub struct RecordsBuilder {
    records: Records,
    /// The attribute that was put after each attribute, the last time. Has one more element, for the first of a record.
    followers: Vec<u32>,
    known: PathIndex,
    /// Position in `followers` of the last attribute that was put.
    last: usize,
    /// Attributes of the record that is being built, in the order of their values.
    put: Vec<u32>,
}

/// A batch has [`BATCH_ATTRIBUTES_MAX`] attributes, and would need another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {BATCH_ATTRIBUTES_MAX} different attributes in one request")]
pub struct TooManyAttributes;

/// Why [`RecordsBuilder::put_reserved`] cannot add a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    #[error(transparent)]
    TooManyAttributes(#[from] TooManyAttributes),
    #[error(transparent)]
    Memory(#[from] Exhausted),
}

/// No attribute has this number.
const NONE: u32 = u32::MAX;

/// Upper bound on the memory of a new attribute, besides its path and its values: its places in the lists and in the
/// index, which may have twice the room that they need, or four times, and are moved when they grow.
const ATTRIBUTE_BYTES_MAX: usize = 512;

const _: () = assert!(3 * size_of::<Attribute>() + 16 * size_of::<u32>() < ATTRIBUTE_BYTES_MAX);

impl Default for RecordsBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordsBuilder {
    pub fn new() -> Self {
        Self {
            records: Records::default(),
            followers: vec![NONE],
            known: PathIndex::new(),
            last: 0,
            put: Vec::new(),
        }
    }

    /// Number of records that are complete.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a value to the record that is being built. If it already has a value of this path, the later one wins.
    #[inline]
    pub fn put(&mut self, path: &str, value: AttributeValue<'_>) -> Result<(), TooManyAttributes> {
        let kind = value.kind();
        let attribute = match self.follower(path, kind).or_else(|| self.look_up(path, kind)) {
            Some(attribute) => attribute,
            None => self.create(path, kind)?,
        };
        self.set(attribute, value);
        Ok(())
    }

    /// Adds a value like [`Self::put`], and reserves the memory that the batch needs for it first.
    #[inline]
    pub fn put_reserved(
        &mut self,
        path: &str,
        value: AttributeValue<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), PutError> {
        let kind = value.kind();
        let attribute = match self.follower(path, kind).or_else(|| self.look_up(path, kind)) {
            Some(attribute) => attribute,
            None => {
                self.check_number()?;
                memory.reserve(ATTRIBUTE_BYTES_MAX + path.len())?;
                self.create(path, kind)?
            }
        };
        let column = &mut self.records.attributes[attribute as usize];
        memory.room(&mut column.rows, 1)?;
        column.values.room(value, memory)?;
        self.set(attribute, value);
        Ok(())
    }

    /// The attribute that followed the last one in the record before, if it is this one.
    #[inline(always)]
    fn follower(&self, path: &str, kind: AttributeKind) -> Option<u32> {
        let follower = self.followers[self.last];
        let attribute = self.records.attributes.get(follower as usize)?;
        (attribute.kind() == kind && *attribute.path == *path).then_some(follower)
    }

    #[inline(never)]
    fn look_up(&self, path: &str, kind: AttributeKind) -> Option<u32> {
        self.known.find(&self.records.attributes, path, kind)
    }

    #[cold]
    fn create(&mut self, path: &str, kind: AttributeKind) -> Result<u32, TooManyAttributes> {
        self.check_number()?;
        let number = self.records.attributes.len();
        self.records.attributes.push(Attribute::new(path, kind));
        self.followers.push(NONE);
        self.known.add_last(&self.records.attributes);
        Ok(number as u32)
    }

    /// Fails if there can be no other attribute.
    const fn check_number(&self) -> Result<(), TooManyAttributes> {
        match self.records.attributes.len() < BATCH_ATTRIBUTES_MAX {
            true => Ok(()),
            false => Err(TooManyAttributes),
        }
    }

    #[inline(always)]
    fn set(&mut self, attribute: u32, value: AttributeValue<'_>) {
        self.followers[self.last] = attribute;
        self.last = attribute as usize + 1;
        let row = self.records.len() as u32;
        let column = &mut self.records.attributes[attribute as usize];
        if column.rows.last() == Some(&row) {
            column.values.truncate(column.rows.len() - 1);
        } else {
            column.rows.push(row);
            self.put.push(attribute);
        }
        column.values.push(value);
    }

    /// Completes the record. If the record has values of different types for a path, all are kept.
    pub fn end(&mut self, time_us: i64) {
        self.records.times_us.push(time_us);
        self.put.clear();
        self.last = 0;
    }

    /// Completes the record like [`Self::end`], and reserves memory for its time first.
    pub fn end_reserved(
        &mut self,
        time_us: i64,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        memory.room(&mut self.records.times_us, 1)?;
        self.end(time_us);
        Ok(())
    }

    /// Drops the record that is being built. Its attributes still count for the limit on attributes.
    pub fn abandon(&mut self) {
        let row = self.records.len() as u32;
        for attribute in self.put.drain(..) {
            let column = &mut self.records.attributes[attribute as usize];
            if column.rows.last() == Some(&row) {
                column.rows.pop();
                column.values.truncate(column.rows.len());
            }
        }
        self.last = 0;
    }

    pub fn memory_bytes(&self) -> usize {
        let lists = size_of::<u32>() * (self.followers.capacity() + self.put.capacity());
        self.records.memory_bytes() + lists + self.known.memory_bytes()
    }

    /// Returns the batch. Attributes without values, whose records were all dropped, are left out.
    pub fn finish(mut self) -> Records {
        self.abandon();
        self.records.attributes.retain(|attribute| !attribute.rows.is_empty());
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;
    use stdx::rng::Rng;

    #[test]
    fn records_have_the_values_that_were_put() {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for _ in 0..100 {
            let (mut builder, mut expected) = (RecordsBuilder::new(), Vec::new());
            for row in 0..rng.below(30) {
                let mut record = std::collections::BTreeMap::new();
                for _ in 0..rng.below(8) {
                    let path = format!("p{}", rng.below(5));
                    let text = format!("t{}", rng.below(100));
                    let value = match rng.below(3) {
                        0 => AttributeValue::Int(rng.below(100) as i64),
                        1 => AttributeValue::Bool(true),
                        _ => AttributeValue::Text(&text),
                    };
                    builder.put(&path, value).unwrap();
                    record.insert((path, value.kind()), format!("{value:?}"));
                }
                match rng.below(4) {
                    0 => builder.abandon(),
                    _ => {
                        builder.end(row as i64);
                        expected.push(record);
                    }
                }
            }
            let records = builder.finish();
            assert_eq!(records.len(), expected.len());
            let mut found = vec![std::collections::BTreeMap::new(); records.len()];
            for attribute in &records.attributes {
                assert!(
                    attribute.rows.is_sorted_by(|a, b| a < b)
                        && attribute.rows.len() == attribute.values.len()
                );
                for (at, row) in attribute.rows.iter().enumerate() {
                    let key = (attribute.path.to_string(), attribute.kind());
                    found[*row as usize].insert(key, format!("{:?}", attribute.values.get(at)));
                }
            }
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_number_of_attributes_is_limited() {
        let mut builder = RecordsBuilder::new();
        for n in 0..BATCH_ATTRIBUTES_MAX {
            builder.put(&n.to_string(), AttributeValue::Int(1)).unwrap();
        }
        assert_eq!(builder.put("more", AttributeValue::Int(1)), Err(TooManyAttributes));
        // it takes no memory
        let account = Account::new("test", 1);
        let mut memory = account.reserve(0).unwrap();
        let more = builder.put_reserved(
            "more",
            AttributeValue::Int(1),
            &mut IncrementalReservation::new(&mut memory),
        );
        assert_eq!(more, Err(PutError::TooManyAttributes(TooManyAttributes)));
        builder.abandon();
        assert!(builder.finish().attributes.is_empty());
    }
}
