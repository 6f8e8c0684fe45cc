//! Detects which resource was the first to be used up.
//!
//! A rule must hold for [`HOLD_S`] seconds in a row, because a limit is often reached for just a moment.

use super::Look;
use crate::result::Saturation;

const HOLD_S: u32 = 3;

/// A resource counts as used up when its usage exceeds this share of its limit.
const FULL: f64 = 0.95;

/// The machine's memory counts as used up when less than this share of it is available.
const MACHINE_MEMORY_MIN: f64 = 0.03;

struct Rule {
    resource: &'static str,
    rule: &'static str,
    holds: fn(&Facts<'_>) -> Option<String>,
}

struct Facts<'a> {
    look: &'a Look,
    cores: f64,
    memory: f64,
}

impl Facts<'_> {
    fn part(&self, name: &str, limit: f64, full: f64, unit: &str) -> Option<String> {
        let value = self.look.get(name)?;
        (limit > 0.0 && value >= full * limit).then(|| format!("{value:.2} of {limit:.2} {unit}"))
    }

    fn gib_part(&self, name: &str, limit: f64) -> Option<String> {
        let value = self.look.get(name)?;
        let gib = f64::from(1 << 30);
        (limit > 0.0 && value >= FULL * limit)
            .then(|| format!("{:.2} of {:.2} GiB", value / gib, limit / gib))
    }
}

/// All rules, the most specific first. If several rules begin to hold in the same second, the first one is reported.
const RULES: [Rule; 8] = [
    Rule {
        resource: "target memory",
        rule: "memory of the target's control group (without idle file pages) at 95 % of its limit",
        holds: |f| f.gib_part("cgroup/memory", f.look.get("cgroup/memory_limit")?),
    },
    Rule {
        resource: "target CPU",
        rule: "CPU of the target's control group at 95 % of its limit",
        holds: |f| f.part("cgroup/cpu", f.look.get("cgroup/cpu_limit")?, FULL, "cores"),
    },
    Rule {
        resource: "target CPU",
        rule: "the CPU limit of the target's control group throttled it in half of the periods",
        holds: |f| f.part("cgroup/throttled", 1.0, 0.5, "periods"),
    },
    Rule {
        resource: "target CPU",
        rule: "the target alone uses 95 % of the machine's processors",
        holds: |f| f.part("target/cpu", f.cores, FULL, "cores"),
    },
    Rule {
        resource: "open files",
        rule: "the target's open files at 95 % of their limit",
        holds: |f| f.part("target/files", f.look.get("target/files_limit")?, FULL, "files"),
    },
    Rule {
        resource: "disk",
        rule: "the disk of the target's data is busy for 95 % of the time",
        holds: |f| f.part("disk/util", 1.0, FULL, "s in each second"),
    },
    Rule {
        resource: "machine memory",
        rule: "less than 3 % of the machine's memory is available",
        holds: |f| {
            let left = f.look.get("machine/memory_available")? / f.memory;
            (f.memory > 0.0 && left < MACHINE_MEMORY_MIN).then(|| format!("{:.1} % left", left * 100.0))
        },
    },
    Rule {
        resource: "machine CPU",
        rule: "all processes of this machine, including the generator, use 95 % of its processors",
        holds: |f| f.part("machine/cpu", f.cores, FULL, "cores"),
    },
];

#[derive(Debug)]
pub(super) struct SaturationDetector {
    held_s: [u32; RULES.len()],
    first: Option<Saturation>,
    machine_cpu_s: u32,
    looks: u32,
    cores: f64,
    memory: f64,
}

impl Default for SaturationDetector {
    fn default() -> Self {
        Self {
            held_s: Default::default(),
            first: None,
            machine_cpu_s: 0,
            looks: 0,
            cores: std::thread::available_parallelism().map_or(1, usize::from) as f64,
            memory: crate::observe::procfs::memory_total_bytes().unwrap_or(0) as f64,
        }
    }
}

impl SaturationDetector {
    #[cfg(test)]
    pub(super) fn of(cores: f64, memory: f64) -> Self {
        Self { cores, memory, ..Self::default() }
    }

    pub(super) fn update(&mut self, look: &Look, at_s: f64) {
        let facts = Facts { look, cores: self.cores, memory: self.memory };
        self.looks += 1;
        for (at, (rule, held_s)) in RULES.iter().zip(&mut self.held_s).enumerate() {
            let Some(figures) = (rule.holds)(&facts) else {
                *held_s = 0;
                continue;
            };
            *held_s += 1;
            self.machine_cpu_s += u32::from(at == RULES.len() - 1);
            if *held_s == HOLD_S && self.first.is_none() {
                let since_s = (at_s - f64::from(HOLD_S)).max(0.0);
                let why = format!("{}, for {HOLD_S} s: {figures}", rule.rule);
                self.first = Some(Saturation { resource: rule.resource.to_owned(), at_s: since_s, why });
            }
        }
    }

    pub(super) fn first(&self) -> Option<Saturation> {
        self.first.clone()
    }

    pub(super) fn warnings(&self, cores: usize) -> Vec<String> {
        let part = f64::from(self.machine_cpu_s) / f64::from(self.looks.max(1));
        let shared = part > 0.2;
        shared
            .then(|| {
                format!(
                    "all {cores} processors of this machine were busy for {:.0} % of the time: if the generator runs on this machine, the \
                     target could do more on its own machine",
                    part * 100.0
                )
            })
            .into_iter()
            .collect()
    }
}
