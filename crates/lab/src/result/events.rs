//! Timed events of a run.

use serde::{Deserialize, Serialize};

/// Something worth a mark in every chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Since the begin of the load, in seconds.
    pub at_s: f64,
    pub kind: EventKind,
    /// In a few words.
    pub text: String,
}

/// Kinds of events, by who caused them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The shape began another step.
    Step,
    /// A fault was done to the target, or taken back.
    Fault,
    /// A fault or an observation that this machine does not allow was left out.
    Skipped,
    /// The target: it was started anew, it froze, it came back.
    Target,
    /// The run: it was stopped, a limit of its own was reached.
    Run,
}

impl Event {
    /// At `at_s` seconds since the begin.
    pub fn new(at_s: f64, kind: EventKind, text: impl Into<String>) -> Self {
        // more digits than these do not always come back from JSON as they were
        let at_s = (at_s * 1e6).round() / 1e6;
        Self { at_s, kind, text: text.into() }
    }
}
