//! Bodies of the benchmarks. `tests/benches.rs` runs them with small inputs. A case is prepared once and can
//! run many times. `callgrind` counts only in [`measured`].

mod chunks;
mod fleet;
mod formats;
mod freeze_and_evict;
pub(crate) mod gorilla;
mod lookup;
mod memory;
mod selection;
pub(crate) mod shapes;

pub(crate) use formats::compare_formats;
pub(crate) use freeze_and_evict::freeze_and_evict;
pub(crate) use memory::{build_fleet, build_tenants};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Divides the sizes in the cases' names. The size to measure is the quotient, but at least 16.
    pub(crate) scale_down: usize,
}

impl Size {
    /// The sizes in the cases' names.
    pub(crate) const FULL: Self = Self { scale_down: 1 };
    /// Small enough for a debug build.
    pub(crate) const SMALL: Self = Self { scale_down: 1000 };

    const fn of(self, full: usize) -> usize {
        let n = full / self.scale_down;
        if n < 16 { 16 } else { n }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Operation, data and size, separated by slashes.
    pub(crate) name: &'static str,
    /// Results are reported per unit, for example per sample.
    pub(crate) unit: &'static str,
    prepare: fn(Size) -> Prepared,
}

pub(crate) struct Prepared {
    /// Number of units that one run processes.
    pub(crate) units: u64,
    /// Memory of all units, for cases that report it.
    pub(crate) bytes: Option<usize>,
    run: Box<dyn FnMut() -> u64>,
}

impl Prepared {
    fn new(units: usize, run: impl FnMut() -> u64 + 'static) -> Self {
        Self { units: units as u64, bytes: None, run: Box::new(run) }
    }

    fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Runs the case once. Returns a checksum of its results.
    pub(crate) fn run(&mut self) -> u64 {
        measured(&mut self.run)
    }
}

impl Case {
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        [lookup::CASES, chunks::CASES, selection::CASES].into_iter().flatten()
    }

    pub(crate) fn prepare(&self, size: Size) -> Prepared {
        (self.prepare)(size)
    }
}

/// The only code that `callgrind` counts. It is never inlined, so that `--toggle-collect` finds it.
#[inline(never)]
fn measured(run: &mut dyn FnMut() -> u64) -> u64 {
    run()
}
