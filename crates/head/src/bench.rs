//! Bodies of the micro-benchmarks; the tests run them small, so that they never rot.
//!
//! `cargo bench -p head` prints them all (see `benches/head.rs` for its arguments). Each case is prepared
//! outside of the measurement and may then be run any number of times; what is measured is one call of
//! [`measured`], which is also the function that `callgrind` counts in.

mod chunks;
mod fleet;
mod formats;
mod gorilla;
mod leaving;
mod lookup;
mod memory;
mod selection;
mod shapes;

pub use formats::{FormatRow, compare_formats};
pub use leaving::{LeavingRow, leave};
pub use memory::{MemoryReport, build_fleet, build_tenants};

/// How much a case is to do.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The number of series for cases that have no number in their name is this, and for the others their
    /// number divided by `scale_down`.
    pub scale_down: usize,
}

impl Size {
    /// As the names of the cases say.
    pub const FULL: Self = Self { scale_down: 1 };
    /// Small enough for a test in debug.
    pub const SMALL: Self = Self { scale_down: 1000 };

    const fn of(self, full: usize) -> usize {
        let n = full / self.scale_down;
        if n < 16 { 16 } else { n }
    }
}

/// Something to measure.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// `what/of what/how many`.
    pub name: &'static str,
    /// What the result is divided by.
    pub unit: &'static str,
    prepare: fn(Size) -> Prepared,
}

/// A case that is ready to run.
#[expect(missing_debug_implementations, reason = "a closure")]
pub struct Prepared {
    /// Units in one run.
    pub units: u64,
    /// Bytes of memory that all units take together, where that is of interest.
    pub bytes: Option<usize>,
    run: Box<dyn FnMut() -> u64>,
}

impl Prepared {
    fn new(units: usize, run: impl FnMut() -> u64 + 'static) -> Self {
        Self { units: units as u64, bytes: None, run: Box::new(run) }
    }

    fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Runs it once and returns a checksum of what came out.
    pub fn run(&mut self) -> u64 {
        measured(&mut self.run)
    }
}

impl Case {
    /// All cases.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        [lookup::CASES, chunks::CASES, selection::CASES].into_iter().flatten()
    }

    /// Makes what the case needs.
    pub fn prepare(&self, size: Size) -> Prepared {
        (self.prepare)(size)
    }
}

/// The measured region. Never inlined, so that `--toggle-collect` finds it.
#[inline(never)]
fn measured(run: &mut dyn FnMut() -> u64) -> u64 {
    run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_small() {
        for case in Case::all() {
            let mut prepared = case.prepare(Size::SMALL);
            assert!(prepared.units > 0, "{}", case.name);
            assert!(prepared.run() != prepared.run().wrapping_add(1), "{}", case.name);
        }
    }

    #[test]
    fn formats_are_compared_small() {
        let rows = compare_formats(4, 300, 1);
        assert!(rows.len() >= 10, "{rows:?}");
        assert!(rows.iter().all(|r| r.bytes_per_sample > 0.0));
    }

    #[test]
    fn samples_and_series_leave_small() {
        let rows = leave(3000, 2);
        assert!(rows.last().is_some_and(|row| row.stage == "evict" && row.bytes < 30.0), "{rows:?}");
    }

    #[test]
    fn a_fleet_is_built_small() {
        let report = build_fleet(2000, 4);
        assert_eq!(report.series, 2000);
        assert!(report.parts.iter().map(|(_, bytes)| bytes).sum::<usize>() < 2000 * 1024, "{report:?}");
    }
}
