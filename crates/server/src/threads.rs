use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a thread without which the node cannot work. If the thread panics, the process is aborted; the next
/// start recovers all data from the journal.
pub(crate) fn run_or_abort(thread: &str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        // whatever the log does, the process must not go on without the thread
        let _ = catch_unwind(|| {
            tracing::error!(thread, "BUG: a thread panicked; aborting, the journal will be replayed");
        });
        std::process::abort();
    }
}
