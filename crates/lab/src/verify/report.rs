//! What a verification has found.

use super::check::Example;
use serde::{Deserialize, Serialize};

/// Result of a verification. All counts are numbers of samples unless their name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifyReport {
    pub acknowledged: u64,
    /// True if all samples were sent as datagrams, so that none of them is owed.
    pub datagrams: bool,
    /// Acknowledged samples that queries returned, whatever their value.
    pub read_back: u64,
    /// Acknowledged samples that queries did not return.
    pub lost: u64,
    /// Samples that a query returned in addition to another sample with the same series and timestamp.
    pub doubled: u64,
    pub wrong: u64,
    /// Samples that queries returned with a slightly different value, within [`super::VerifyOptions::tolerance`].
    pub rounded: u64,
    /// Samples that queries returned although none was sent with that timestamp.
    pub unexpected: u64,
    /// Samples that queries returned although the target had not acknowledged them. This is no fault, because the
    /// acknowledgement may have been lost.
    pub unacknowledged: u64,
    pub late: u64,
    /// Acknowledged samples that cannot be read, because a later sample is in the same slot. They count as read back if
    /// the later sample is there.
    pub superseded: u64,
    /// For statsd: values that were stored although a later one had been sent two seconds before. This is no fault, because
    /// datagrams may be lost.
    pub stale: u64,
    /// Series with the same metric names that this run did not send. They usually come from other runs.
    pub foreign_series: u64,
    /// Samples that only queries for less have returned, because the answers to larger queries were cut short.
    pub cut_short: u64,
    /// Answers without some samples of which the target itself said that they may not be complete.
    pub incomplete: u64,
    /// What the target said of the first of these answers.
    pub said: Option<String>,
    pub queries: u64,
    pub wall_s: f64,
    pub examples: Vec<Example>,
}

impl VerifyReport {
    /// True if queries returned every acknowledged sample once with the right value, and no unexpected samples. A
    /// verification without any acknowledged sample proves nothing, and is good only for datagrams.
    pub fn is_good(&self) -> bool {
        self.faults() == 0 && self.read_back == self.acknowledged && (self.acknowledged > 0 || self.datagrams)
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Adds the report on other samples, for example those of another tenant or machine.
    pub fn join(&mut self, other: &Self, examples_max: usize) {
        let Self { acknowledged, read_back, lost, doubled, wrong, unexpected, unacknowledged, .. } = other;
        self.acknowledged += acknowledged;
        self.datagrams |= other.datagrams;
        self.read_back += read_back;
        self.lost += lost;
        self.doubled += doubled;
        self.wrong += wrong;
        self.unexpected += unexpected;
        self.unacknowledged += unacknowledged;
        self.rounded += other.rounded;
        self.late += other.late;
        self.superseded += other.superseded;
        self.stale += other.stale;
        self.foreign_series += other.foreign_series;
        self.cut_short += other.cut_short;
        self.incomplete += other.incomplete;
        self.said = self.said.take().or_else(|| other.said.clone());
        self.queries += other.queries;
        self.wall_s += other.wall_s;
        for example in &other.examples {
            if self.examples.iter().filter(|e| e.fault == example.fault).count() < examples_max {
                self.examples.push(example.clone());
            }
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.lost + self.doubled + self.wrong + self.unexpected
    }
}
