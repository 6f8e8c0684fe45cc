//! The whole machine, which target and generator may share.

use super::{Look, rate};
use std::fs;

/// `USER_HZ`, see [`crate::observe::procfs`].
const TICKS_PER_SECOND: f64 = 100.0;

/// Processors and memory.
#[derive(Debug)]
pub(super) struct Machine {
    before: Option<Ticks>,
}

/// All processors' time so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    busy: u64,
    /// Idle, with a disk to wait for.
    waiting: u64,
    /// Taken by the machine below.
    stolen: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { before: ticks() }
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let now = ticks();
        if let Some((now, before)) = now.zip(self.before) {
            let cores = |now, before| rate(now, before, seconds) / TICKS_PER_SECOND;
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
    parse(&fs::read_to_string("/proc/stat").ok()?)
}

/// `cpu user nice system idle iowait irq softirq steal …`
pub(super) fn parse(text: &str) -> Option<Ticks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let &[user, nice, system, _idle, waiting, irq, softirq, stolen, ..] = fields.as_slice() else {
        return None;
    };
    Some(Ticks { busy: user + nice + system + irq + softirq, waiting, stolen })
}
