//! The work of a search, counted so that its caller can stop it in time.

/// The caller stopped the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Steps between two checks for cancellation. They take less than a millisecond.
const CHECK_STEPS: usize = 1 << 16;

/// Steps that a seek of a node counts for: it takes about as long as comparing so many characters.
pub(crate) const SEEK_STEPS: usize = 256;

/// Counts steps, and asks now and then whether to go on. A step compares one character of a name with one of a pattern.
pub struct Steps<'g> {
    left: usize,
    go_on: &'g mut dyn FnMut() -> bool,
}

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<'g> Steps<'g> {
    pub fn new(go_on: &'g mut dyn FnMut() -> bool) -> Self {
        Self { left: CHECK_STEPS, go_on }
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<(), Stopped> {
        match self.left.checked_sub(count) {
            Some(left) => self.left = left,
            None => {
                self.left = CHECK_STEPS;
                if !(self.go_on)() {
                    return Err(Stopped);
                }
            }
        }
        Ok(())
    }
}
