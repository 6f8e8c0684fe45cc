//! Events during a run, which reports list with their time.

use serde::{Deserialize, Serialize};

/// Something that happened during a run. Every chart shows it as a vertical line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at_s: f64,
    pub kind: EventKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    Step,
    Fault,
    /// A fault or an observation was left out, because this machine does not permit it.
    Skipped,
    /// The target was restarted, stopped answering, or answered again.
    Target,
    /// The run was stopped, or reached one of its limits.
    Run,
}

impl Event {
    pub fn new(at_s: f64, kind: EventKind, text: impl Into<String>) -> Self {
        // rounded to what JSON preserves, so that a result is equal after it is written and read
        let at_s = (at_s * 1e6).round() / 1e6;
        Self { at_s, kind, text: text.into() }
    }
}
