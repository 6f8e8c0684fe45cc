//! CPU and memory of the whole machine.

use super::{Look, rate};
use procfs::prelude::*;
use procfs::{CpuTime, KernelStats};

#[derive(Debug)]
pub(super) struct Machine {
    before: Option<Ticks>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    /// Time in which the CPU was idle because of a disk (iowait).
    waiting: u64,
    /// Time in which the hypervisor gave the CPU to other machines (steal).
    stolen: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { before: ticks() }
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let now = ticks();
        if let Some((now, before)) = now.zip(self.before) {
            let cores = |now, before| rate(now, before, seconds) / procfs::ticks_per_second() as f64;
            look.set("machine/cpu", "cores", cores(now.busy, before.busy));
            look.set("machine/iowait", "cores", cores(now.waiting, before.waiting));
            look.set("machine/stolen", "cores", cores(now.stolen, before.stolen));
        }
        self.before = now.or(self.before);
        if let Some(available) = crate::observe::procfs::memory_available_bytes() {
            look.set("machine/memory_available", "bytes", available as f64);
        }
    }
}

fn ticks() -> Option<Ticks> {
    Some(Ticks::of(&KernelStats::current().ok()?.total))
}

impl Ticks {
    fn of(time: &CpuTime) -> Self {
        let of = |part: Option<u64>| part.unwrap_or(0);
        Self {
            busy: time.user + time.nice + time.system + of(time.irq) + of(time.softirq),
            waiting: of(time.iowait),
            stolen: of(time.steal),
        }
    }
}
