//! Configures jemalloc, and reads statistics about the heap from it.

use server::{Allocator, HeapStatistics};
use std::ffi::{CString, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::{env, io, process};
use tikv_jemalloc_ctl::{epoch, raw, stats};

/// jemalloc is used because it returns memory to the system even if allocations come and go, and because it
/// reports how much memory it holds.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Configuration of jemalloc. `MALLOC_CONF` in the environment overrides it.
///
/// - `dirty_decay_ms`: freed pages are kept for one second instead of ten, because they belong to no account. In a
///   test with `--memory 128MiB` and four attacks, anonymous memory fell from 132 MiB to 98 MiB.
/// - `narenas`: at most eight. The default is four for each core, and each arena has partly used pages. On 64 cores,
///   these pages alone exceed a small budget.
// SAFETY: jemalloc declares `const char *malloc_conf` for this purpose. The text ends with a zero byte and lives as
// long as the process.
#[unsafe(export_name = "malloc_conf")]
static CONF: &[u8; 30] = b"narenas:8,dirty_decay_ms:1000\0";

#[derive(Debug)]
pub(crate) struct Jemalloc;

impl Allocator for Jemalloc {
    fn statistics(&self) -> Option<HeapStatistics> {
        epoch::advance().ok()?;
        Some(HeapStatistics {
            objects: objects()?,
            allocated_bytes: stats::allocated::read().ok()? as u64,
            resident_bytes: stats::resident::read().ok()? as u64,
        })
    }

    fn write_profile(&self, file: &Path) -> io::Result<()> {
        let name = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: jemalloc declares `prof.dump` as `const char *`, and does not keep the pointer.
        unsafe { raw::write(b"prof.dump\0", name.as_ptr()) }
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Option for heap profiles: jemalloc samples an allocation every 512 KiB on average.
const SAMPLING: &str = "prof:true,lg_prof_sample:19";

/// Makes jemalloc sample allocations for heap profiles. jemalloc reads this option only when a process
/// starts, so the program is executed again with the option, in the same process. If sampling is already on,
/// nothing happens.
pub(crate) fn sample_allocations() -> io::Result<()> {
    // SAFETY: jemalloc declares `opt.prof` as `bool`.
    if unsafe { raw::read(b"opt.prof\0") }.unwrap_or(false) {
        return Ok(());
    }
    let configured = env::var(CONF_VARIABLE).unwrap_or_default();
    if configured.contains("prof:") {
        return Err(io::Error::other(format!("jemalloc does not sample with {CONF_VARIABLE}={configured}")));
    }
    let separator = if configured.is_empty() { "" } else { "," };
    let conf = format!("{configured}{separator}{SAMPLING}");
    let mut arguments = env::args_os();
    let mut command = process::Command::new(env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    Err(command.args(arguments).env(CONF_VARIABLE, conf).exec())
}

const CONF_VARIABLE: &str = "MALLOC_CONF";

fn objects() -> Option<u64> {
    let classes = [
        (&b"arenas.nbins\0"[..], &b"stats.arenas.4096.bins.0.curregs\0"[..]),
        (&b"arenas.nlextents\0"[..], &b"stats.arenas.4096.lextents.0.curlextents\0"[..]),
    ];
    let mut objects = 0;
    for (count, name) in classes {
        let mut mib = [0; 6];
        raw::name_to_mib(name, &mut mib).ok()?;
        // SAFETY: jemalloc declares the number of classes as `unsigned`.
        let count: c_uint = unsafe { raw::read(count) }.ok()?;
        for class in 0..count as usize {
            mib[CLASS_AT] = class;
            // SAFETY: jemalloc declares this number as `size_t`.
            objects += unsafe { raw::read_mib::<usize>(&mib) }.ok()? as u64;
        }
    }
    Some(objects)
}

/// The position of the size class among the dot-separated parts of a statistic's name, counted from 0. The
/// arena 4096 in such a name stands for all arenas together.
const CLASS_AT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jemalloc_is_configured() {
        assert_eq!(tikv_jemalloc_ctl::opt::narenas::read().unwrap(), 8);
    }

    #[test]
    fn allocations_are_counted() {
        let statistics = || Jemalloc.statistics().expect("jemalloc keeps statistics");
        let before = statistics();
        let (small, large): (Vec<_>, Vec<_>) =
            (0..50_000).map(|i| (Box::new(i), vec![0_u8; if i % 1_000 == 0 { 100_000 } else { 0 }])).unzip();
        let during = statistics();
        // loose bounds: other tests allocate at the same time
        let grown = during.objects.saturating_sub(before.objects);
        assert!((45_000..500_000).contains(&grown), "{before:?} {during:?}");
        assert!(during.allocated_bytes > before.allocated_bytes + 5_000_000, "{before:?} {during:?}");
        assert!(during.resident_bytes >= during.allocated_bytes, "{during:?}");
        drop((small, large));
        assert!(statistics().objects < during.objects, "{before:?} {during:?}");
    }
}
