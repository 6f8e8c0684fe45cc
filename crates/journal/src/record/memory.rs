//! Memory reservations for decoders, since a few bytes in a journal can expand to many in memory.

use super::RecordError;

/// A memory budget from which decoders reserve before they allocate. They do not release anything: the budget's owner
/// does, because it knows how long the decoded record lives.
pub trait DecodeMemory {
    /// Reserves `bytes` more; false if they are not available.
    fn reserve(&mut self, bytes: usize) -> bool;
}

/// Memory without a limit, for callers that decode their own records, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl DecodeMemory for Unlimited {
    fn reserve(&mut self, _: usize) -> bool {
        true
    }
}

impl dyn DecodeMemory + '_ {
    /// Reserves `bytes` of new memory.
    pub(super) fn try_reserve(&mut self, bytes: usize) -> Result<(), RecordError> {
        if self.reserve(bytes) { Ok(()) } else { Err(RecordError::NoRoom { bytes }) }
    }

    /// Reserves the memory that `into` lacks to hold `count` elements in total.
    pub(super) fn reserve_for<T>(&mut self, into: &Vec<T>, count: usize) -> Result<(), RecordError> {
        match count.checked_sub(into.capacity()) {
            None | Some(0) => Ok(()),
            Some(more) => self.try_reserve(more.saturating_mul(size_of::<T>())),
        }
    }
}
