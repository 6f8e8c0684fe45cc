//! Bodies of the micro-benchmarks. `tests/benches.rs` runs them with small inputs, so that they keep working.
//!
//! `cargo bench -p head` runs all of them (see `main.rs` for its arguments). A case is prepared outside of
//! the measurement and can then run any number of times. A measurement is one call of [`measured`], the only
//! function in which `callgrind` counts.

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

/// Amount of work of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Divisor of the size in the name of a case. The quotient is raised to at least 16.
    pub(crate) scale_down: usize,
}

impl Size {
    /// The sizes in the names of the cases.
    pub(crate) const FULL: Self = Self { scale_down: 1 };
    /// Small enough for a test in debug.
    pub(crate) const SMALL: Self = Self { scale_down: 1000 };

    const fn of(self, full: usize) -> usize {
        let n = full / self.scale_down;
        if n < 16 { 16 } else { n }
    }
}

/// A benchmark case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Operation, data and size, separated by slashes.
    pub(crate) name: &'static str,
    /// Unit by which the result is divided.
    pub(crate) unit: &'static str,
    prepare: fn(Size) -> Prepared,
}

/// A case that is ready to run.
pub(crate) struct Prepared {
    /// Units in one run.
    pub(crate) units: u64,
    /// Bytes of memory that all units take together, for cases that report it.
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

    /// Runs the case once and returns a checksum of its results.
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

/// The only region in which `callgrind` counts. It is never inlined, so that `--toggle-collect` finds it.
#[inline(never)]
fn measured(run: &mut dyn FnMut() -> u64) -> u64 {
    run()
}
