//! Threads whose panic aborts the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a thread that the node needs, and aborts the process if it panics. A partition without its owner can neither write nor
/// be trusted. Without the sealer or upkeep, memory and disk would fill up unnoticed. The next start recovers everything from
/// the journal.
pub(crate) fn run_or_abort(thread: &str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!(thread, "BUG: a thread panicked; aborting, the journal will be replayed");
        std::process::abort();
    }
}
