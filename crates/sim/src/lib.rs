//! Deterministic simulation of a node. Journal, head, owners, sealer, tables and upkeep are real. They run on one
//! thread under virtual time.
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
//! One seed determines all randomness: [`run`] of a seed always gives the same trace. [`disk`], [`store`] and [`power`]
//! inject faults. [`plan`] draws a run's parameters, [`fault`] changes them. [`model`] has the expected contents,
//! [`check`] the invariants.

pub mod check;
pub mod clock;
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
    /// Failure at the last step, if any.
    pub failure: Option<String>,
}

/// Steps shown in the report of a failed run.
const SHOWN: usize = 25;

impl Run {
    /// Report of a failed run; `None` if it succeeded.
    pub fn report(&self, seed: u64, fault: Option<Fault>) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let steps = self.trace.tail(SHOWN);
        let fault = fault.map_or(String::new(), |fault| format!(" FAULT={}", fault.name()));
        Some(format!(
            "seed {seed} failed:{steps}\n{failure}\nrepeat it with all steps: make sim SEED={seed}{fault}"
        ))
    }
}

/// Runs a seed, with the default mix of faults or one named fault.
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
