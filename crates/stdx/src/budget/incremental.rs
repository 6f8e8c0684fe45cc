use super::{Exhausted, Reservation};

/// Reserves memory for work that cannot say in advance how much it needs. Memory is reserved just
/// before each allocation.
///
/// ```text
///   reservation.push(&mut values, value)?   a vector that grows: its new capacity is reserved before it is allocated
///   reservation.reserve(labels.len())?       a value with heap memory of its own
/// ```
#[derive(Debug)]
pub struct IncrementalReservation<'a> {
    memory: &'a mut Reservation,
    /// Bytes that are reserved, but not yet used for a value.
    unused_bytes: u64,
}

const PIECE_BYTES: u64 = 16 << 10;

/// A collection that has to grow gets at least this many bytes at once, so that it does not grow in many
/// small steps.
const ROOM_BYTES_MIN: usize = 1 << 10;

/// A collection for which memory is reserved before it grows.
pub trait Growing {
    const ELEMENT_BYTES: usize;
    fn len_and_capacity(&self) -> (usize, usize);
    fn reserve_exact(&mut self, more: usize);
}

impl<T> Growing for Vec<T> {
    const ELEMENT_BYTES: usize = size_of::<T>();

    #[inline(always)]
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn reserve_exact(&mut self, more: usize) {
        self.reserve_exact(more);
    }
}

impl Growing for String {
    const ELEMENT_BYTES: usize = 1;

    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn reserve_exact(&mut self, more: usize) {
        self.reserve_exact(more);
    }
}

impl<'a> IncrementalReservation<'a> {
    pub const fn new(memory: &'a mut Reservation) -> Self {
        Self { memory, unused_bytes: 0 }
    }

    /// Reserves `bytes` for a value that allocates memory outside of the collection, such as a
    /// string.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let bytes = bytes as u64;
        if self.unused_bytes < bytes {
            let piece = bytes.max(PIECE_BYTES);
            self.memory.resize(self.memory.bytes() + piece)?;
            self.unused_bytes += piece;
        }
        self.unused_bytes -= bytes;
        Ok(())
    }

    /// Bytes that are reserved in all.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Appends a value. If the vector has to grow, the memory is reserved first.
    #[inline(always)]
    pub fn push<T>(&mut self, vec: &mut Vec<T>, value: T) -> Result<(), Exhausted> {
        self.room(vec, 1)?;
        vec.push(value);
        Ok(())
    }

    pub fn extend(&mut self, vec: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Exhausted> {
        self.room(vec, bytes.len())?;
        vec.extend_from_slice(bytes);
        Ok(())
    }

    /// Ensures that `more` elements can be added. If there is spare capacity, nothing is reserved,
    /// because it was reserved when the collection grew.
    #[inline(always)]
    pub fn room<G: Growing>(&mut self, into: &mut G, more: usize) -> Result<(), Exhausted> {
        let (len, capacity) = into.len_and_capacity();
        if capacity - len < more {
            let half_as_much_again = capacity + capacity / 2;
            let least = half_as_much_again.max(ROOM_BYTES_MIN / G::ELEMENT_BYTES);
            self.grow(into, least.max(len + more))?;
        }
        Ok(())
    }

    /// Grows a collection to exactly `capacity` elements. While its elements are moved, both the
    /// old and the new allocation are reserved.
    #[cold]
    #[inline(never)]
    pub fn grow<G: Growing>(&mut self, into: &mut G, capacity: usize) -> Result<(), Exhausted> {
        let bytes = |elements: usize| (elements * G::ELEMENT_BYTES) as u64;
        let (len, old_capacity) = into.len_and_capacity();
        self.memory.resize(self.memory.bytes() + bytes(capacity))?;
        into.reserve_exact(capacity - len);
        self.memory.resize(self.memory.bytes() - bytes(old_capacity))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Account;

    #[test]
    fn growth_is_reserved() {
        let account = Account::new("inflight", 10_000);
        let mut memory = account.reserve(100).unwrap();
        let mut reservation = IncrementalReservation::new(&mut memory);
        let mut vec: Vec<u64> = Vec::new();
        let error = loop {
            match reservation.push(&mut vec, 1) {
                Ok(()) => assert!(vec.capacity() * 8 <= 9_900),
                Err(error) => break error,
            }
        };
        assert!(error.is_for_good(), "{error}");
        assert!(vec.len() * 8 > 2_000 && vec.len() == vec.capacity());
        assert_eq!(memory.bytes(), 100 + vec.capacity() as u64 * 8);
    }

    #[test]
    fn existing_capacity_is_not_reserved() {
        let account = Account::new("inflight", 0);
        let mut memory = account.reserve(0).unwrap();
        let mut reservation = IncrementalReservation::new(&mut memory);
        let mut vec: Vec<u64> = Vec::with_capacity(10);
        (0..10).for_each(|i| reservation.push(&mut vec, i).unwrap());
        assert!(reservation.push(&mut vec, 10).is_err());
        assert!(reservation.reserve(1).is_err() && reservation.reserve(0).is_ok());
    }
}
