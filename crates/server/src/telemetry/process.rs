//! Metrics about the build, and about the process with the names that Prometheus' client libraries use.

use crate::node::Node;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Source commit of this build, if the build was given one.
const REVISION: &str = match option_env!("FLOODMARK_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

pub(super) fn register(node: &Node) {
    let r = node.registry();
    // read only once: otherwise, a change of the clock would look like a restart
    let started_s = node.reads().clock.now_ms() as f64 / 1000.0;
    let help = "Start time of the process, in seconds since the Unix epoch.";
    r.gauge_fn("process_start_time_seconds", help, &[], move || started_s);
    r.counter_fn("process_cpu_seconds_total", "User and system CPU time.", cpu_seconds);
    let gauge = |name, help, read: fn() -> f64| r.gauge_fn(name, help, &[], read);
    gauge("process_resident_memory_bytes", "Resident memory.", || Status::read().resident_bytes);
    gauge("process_virtual_memory_bytes", "Virtual memory.", || Status::read().virtual_bytes);
    gauge("process_threads", "Threads.", || Status::read().threads);
    gauge("process_open_fds", "Open files and connections.", open_files);
    gauge("process_max_fds", "Limit on open files and connections.", || {
        getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |most| most as f64)
    });
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", REVISION),
        ("target", &target),
        ("profile", if cfg!(debug_assertions) { "debug" } else { "release" }),
    ];
    r.gauge_fn("floodmark_build_info", "Build information; the value is 1.", &labels, || 1.0);
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Number of open files, without the folder `/proc/self/fd` itself, which is open while it is listed.
fn open_files() -> f64 {
    std::fs::read_dir("/proc/self/fd").map_or(f64::NAN, |files| files.count().saturating_sub(1) as f64)
}

/// Fields of `/proc/self/status`. A field that is missing is NaN.
#[derive(Debug, PartialEq)]
struct Status {
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
}

impl Status {
    fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|v| v.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        Self {
            resident_bytes: field("VmRSS") * 1024.0,
            virtual_bytes: field("VmSize") * 1024.0,
            threads: field("Threads"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_as_the_kernel_writes_it() {
        let text = "Name:\tVmRSS:\nVmPeak:\t  300 kB\nVmSize:\t  200 kB\nVmRSS:\t     12 kB\nThreads:\t7\n";
        let expected = Status { resident_bytes: 12288.0, virtual_bytes: 204_800.0, threads: 7.0 };
        assert_eq!(Status::parse(text), expected);
        let Status { resident_bytes, virtual_bytes, threads } = Status::read();
        assert!(resident_bytes > 1e6 && virtual_bytes >= resident_bytes && threads >= 1.0);
        assert!(Status::parse("").threads.is_nan());
    }
}
