use crate::error::TableError;
use std::sync::Arc;

/// Cancels reads: they fail with [`TableError::Canceled`].
///
/// The condition is checked for each file, row group and batch, and as [`Pace`] determines, without locks.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    pub const NEVER: Self = Self(None);

    /// Cancels reads once `is_set` returns true, which must then stay true.
    pub fn when(is_set: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_set)))
    }

    fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|is_set| is_set())
    }

    pub(crate) fn check(&self) -> Result<(), TableError> {
        if self.is_set() { Err(TableError::Canceled) } else { Ok(()) }
    }

    /// Turns a decoder's error into [`TableError::Canceled`] if the read was canceled. The error has to be converted
    /// here because a filter can only return an error of its library.
    pub(super) fn or(&self, error: TableError) -> TableError {
        if self.is_set() { TableError::Canceled } else { error }
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.0.is_some()).finish()
    }
}

/// Checks a [`Stop`] after a number of rows or short values, and before each long value, which may be slow to match.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    done: usize,
}

impl Pace {
    /// The stop condition is checked after values of this many bytes in total.
    const BYTES: usize = 1024;

    /// A row counts as this many bytes. A value counts as this many bytes more than its length.
    const ONE: usize = 16;

    /// Call this before each row, with 0 as `bytes`, or before each value, with its length.
    pub(crate) fn check(&mut self, stop: &Stop, bytes: usize) -> Result<(), TableError> {
        self.done += Self::ONE + bytes;
        if self.done < Self::BYTES {
            return Ok(());
        }
        self.done = 0;
        stop.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn stop_is_checked_for_each_long_value_and_for_batches_of_short_ones() {
        let check = |bytes: usize, expected: usize| {
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&asked);
            let stop = Stop::when(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                false
            });
            let mut pace = Pace::default();
            (0..640).for_each(|_| pace.check(&stop, bytes).unwrap());
            assert_eq!(asked.load(Ordering::Relaxed), expected, "values of {bytes} bytes");
        };
        check(0, 10);
        check(16, 20);
        check(1008, 640);
        check(16 << 10, 640);
    }
}
