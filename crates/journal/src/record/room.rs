//! Memory for what a record unpacks to: a few bytes in a journal can mean many in memory.

use super::RecordError;

/// A memory budget from which decoders reserve before they allocate. They release nothing: that is up to the budget's
/// owner, who knows how long the decoded record lives.
pub trait Room {
    /// Buys `bytes` more; false where there are none.
    fn buy(&mut self, bytes: usize) -> bool;
}

/// Any amount: for readers of records that they wrote themselves, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl Room for Unlimited {
    fn buy(&mut self, _: usize) -> bool {
        true
    }
}

impl dyn Room + '_ {
    /// Buys memory of its own for something, whatever was there before.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), RecordError> {
        if self.buy(bytes) { Ok(()) } else { Err(RecordError::NoRoom { bytes }) }
    }

    /// Buys what `into` lacks to hold `count` elements altogether.
    pub(super) fn buy_for<T>(&mut self, into: &Vec<T>, count: usize) -> Result<(), RecordError> {
        match count.checked_sub(into.capacity()) {
            None | Some(0) => Ok(()),
            Some(more) => self.spend(more.saturating_mul(size_of::<T>())),
        }
    }
}
