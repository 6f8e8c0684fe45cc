//! Timed events of a run.

use serde::{Deserialize, Serialize};

/// Something worth a mark in every chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event, in seconds since the start of the load.
    pub at_s: f64,
    pub kind: EventKind,
    /// Description, in a few words.
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
    /// The target was restarted, froze, or came back.
    Target,
    /// The run: it was stopped, a limit of its own was reached.
    Run,
}

impl Event {
    /// Creates an event at `at_s` seconds since the start.
    pub fn new(at_s: f64, kind: EventKind, text: impl Into<String>) -> Self {
        // more digits than these do not always come back from JSON as they were
        let at_s = (at_s * 1e6).round() / 1e6;
        Self { at_s, kind, text: text.into() }
    }
}
