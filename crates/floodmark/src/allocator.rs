//! jemalloc, and how soon it gives memory back.

/// jemalloc: gives memory back under churn, and tells what it holds.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Configuration that jemalloc reads at start; `MALLOC_CONF` in the environment goes before it.
///
/// - `dirty_decay_ms`: freed pages stay for a second, where the default is ten. They belong to no account of the budget. Four
///   attacks with `--memory 128MiB` (late samples, new series on 256 connections, slow bodies, exports of long lines) took
///   132 MiB of anonymous memory with the default and 98 MiB so; 100 ms, or fewer arenas, gained nothing more.
/// - `narenas`: eight at the most. The default is four for each core, each with pages of its own that are partly used: on a
///   machine of 64 cores that alone is more than a small budget. Threads keep small blocks beside the arenas, so they seldom meet.
// SAFETY: jemalloc declares `const char *malloc_conf` for exactly this: a pointer to a text that ends with a zero byte and
// stays as long as the process.
#[unsafe(export_name = "malloc_conf")]
static CONF: &[u8; 30] = b"narenas:8,dirty_decay_ms:1000\0";

#[cfg(test)]
mod tests {
    #[test]
    fn jemalloc_is_configured() {
        assert_eq!(tikv_jemalloc_ctl::opt::narenas::read().unwrap(), 8);
    }
}
