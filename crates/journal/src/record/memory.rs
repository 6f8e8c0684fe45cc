//! Limits the memory of decoders, because a few bytes of a journal may expand to many.

use super::RecordError;

/// A memory budget that decoders ask before they allocate. The caller gives the memory back.
pub trait DecodeMemory {
    /// Reserves `bytes` more. Returns false if they are not available.
    fn reserve(&mut self, bytes: usize) -> bool;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl DecodeMemory for Unlimited {
    fn reserve(&mut self, _: usize) -> bool {
        true
    }
}

impl dyn DecodeMemory + '_ {
    pub(super) fn try_reserve(&mut self, bytes: usize) -> Result<(), RecordError> {
        if self.reserve(bytes) { Ok(()) } else { Err(RecordError::NoRoom { bytes }) }
    }

    /// Reserves enough memory for `into` to hold `count` elements.
    pub(super) fn reserve_for<T>(&mut self, into: &Vec<T>, count: usize) -> Result<(), RecordError> {
        match count.checked_sub(into.capacity()) {
            None | Some(0) => Ok(()),
            Some(more) => self.try_reserve(more.saturating_mul(size_of::<T>())),
        }
    }
}
