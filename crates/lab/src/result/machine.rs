use crate::observe::procfs;
use serde::{Deserialize, Serialize};
use std::fs;

/// Properties of a machine. The name of the host is omitted on purpose, because results are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    pub cpu: String,
    pub memory_bytes: u64,
    pub kernel: String,
    pub arch: String,
}

impl Machine {
    /// Describes this machine. Properties that cannot be found out stay empty.
    pub fn this() -> Self {
        let kernel = |file: &str| fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: procfs::cpu_name().unwrap_or_default(),
            memory_bytes: procfs::memory_total_bytes().unwrap_or(0),
            kernel: format!("{} {}", kernel("ostype").trim(), kernel("osrelease").trim()).trim().to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && !machine.arch.is_empty());
    }
}
