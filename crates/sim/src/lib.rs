//! Deterministic simulation of a node. The code of the journal, head, sealer, tables and upkeep is that of a
//! real node, but all of it runs on one thread, in virtual time.
//!
//! ```text
//!              ┌─────────── driver: a random step, again and again ───────────┐
//!              ▼                                                              ▼
//!   write · turn · seal · flush · keep · compact · advance · crash …        model
//!              │                                                              │
//!   server::sim: the parts of a real node ──▶ disk, store, clock, power       │
//!              │                                                              │
//!              └────────────▶ contents found ══ must be ══ contents expected ◀┘
//! ```
//!
//! All random decisions of a run follow from its seed, so [`run`] with the same seed always gives the same
//! trace. [`plan`] draws the parameters of a run, and [`fault`] changes them. [`disk`], [`store`] and
//! [`power`] fail at times. [`model`] knows which samples the node must have, and [`check`] compares.

pub mod check;
pub mod clock;
pub mod deltas;
pub mod disk;
pub mod driver;
pub mod fault;
pub mod fleet;
pub mod importer;
pub mod model;
pub mod plan;
pub mod power;
pub mod store;
pub mod trace;
pub mod traffic;

use driver::Driver;
use fault::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trace::Trace;

#[derive(Debug)]
pub struct Run {
    pub trace: Trace,
    /// Why the run failed, if it did. The last step of the trace is the one that failed.
    pub failure: Option<String>,
}

const SHOWN: usize = 25;

impl Run {
    /// Describes a failed run, with the command that repeats it. `None` if the run has succeeded.
    pub fn report(&self, seed: u64, fault: Option<Fault>) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let steps = self.trace.tail(SHOWN);
        let fault = fault.map_or(String::new(), |fault| format!(" FAULT={}", fault.name()));
        Some(format!(
            "seed {seed} failed:{steps}\n{failure}\nrepeat it with all steps: make sim SEED={seed}{fault}"
        ))
    }
}

/// Simulates the run of a seed, either with the default mix of faults or with one named fault.
pub fn run(seed: u64, fault: Option<Fault>) -> Run {
    let mut driver = Driver::new(seed, fault);
    let ended = catch_unwind(AssertUnwindSafe(|| driver.run()));
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    };
    Run { trace: driver.into_trace(), failure }
}
