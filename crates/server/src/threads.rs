//! Threads: what happens when one panics, and which of them run first.

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

/// Asks the kernel for short time slices for the calling thread. When it wakes up, it then need not wait until a thread with
/// longer slices, such as the sealer's, has used up its own, which takes up to 4 ms. The thread's share of the processors
/// stays the same.
///
/// Linux heeds this since version 6.12; earlier ones ignore the slice. Source: `sched_setattr(2)`, and the kernel's commit
/// "sched/eevdf: Use sched_attr::sched_runtime to set request/slice suggestion".
pub fn prefer_short_slices() {
    #[cfg(target_os = "linux")]
    {
        const SLICE_NS: u64 = 100_000; // the shortest that the kernel grants
        const KEEP_POLICY: u64 = 8;

        /// `struct sched_attr` of the first version.
        #[repr(C)]
        struct Attributes {
            size: u32,
            policy: u32,
            flags: u64,
            nice: i32,
            priority: u32,
            runtime_ns: u64,
            deadline_ns: u64,
            period_ns: u64,
        }

        // the call sets the priority, too, which must not change
        let Ok(nice) = rustix::process::getpriority_process(None) else { return };
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: 0,
            flags: KEEP_POLICY,
            nice,
            priority: 0,
            runtime_ns: SLICE_NS,
            deadline_ns: 0,
            period_ns: 0,
        };
        // SAFETY: the kernel reads `size` bytes of the attributes, and 0 is the calling thread
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) }; // it is only a wish
    }
}
