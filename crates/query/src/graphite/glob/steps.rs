//! Steps of a match, between which the request may be interrupted.

use crate::interrupt::Interrupt;

/// Number of steps between two questions, which take less than a tenth of a millisecond.
const STEPS_PER_QUESTION: usize = 1 << 14;

/// The request is interrupted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stopped;

#[derive(Debug)]
pub(super) struct Steps<'i> {
    left: usize,
    interrupt: Option<&'i dyn Interrupt>,
}

impl<'i> Steps<'i> {
    pub(super) const fn new(interrupt: Option<&'i dyn Interrupt>) -> Self {
        Self { left: STEPS_PER_QUESTION, interrupt }
    }

    #[inline]
    pub(super) fn take(&mut self, steps: usize) -> Result<(), Stopped> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.ask(),
        }
    }

    #[cold]
    fn ask(&mut self) -> Result<(), Stopped> {
        self.left = STEPS_PER_QUESTION;
        if self.interrupt.is_some_and(|interrupt| interrupt.is_set()) { Err(Stopped) } else { Ok(()) }
    }
}
