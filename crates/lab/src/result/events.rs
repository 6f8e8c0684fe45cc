//! Timed events of a run.

use serde::{Deserialize, Serialize};

/// An event. Every chart marks it.
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
    /// This machine does not permit a fault or an observation.
    Skipped,
    /// The target was restarted, stopped answering, or answered again.
    Target,
    /// The run was stopped, or reached one of its limits.
    Run,
}

impl Event {
    /// Creates an event at `at_s` seconds since the start.
    pub fn new(at_s: f64, kind: EventKind, text: impl Into<String>) -> Self {
        // JSON does not preserve more digits
        let at_s = (at_s * 1e6).round() / 1e6;
        Self { at_s, kind, text: text.into() }
    }
}
