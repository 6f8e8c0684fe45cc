//! What a verification has found.

use super::check::Example;
use serde::{Deserialize, Serialize};

/// Over statsd, the target owes at least this share of the values that it should have stored, unless a rule says otherwise.
/// Values may be absent from the intervals around a restart, or because datagrams were lost.
pub const STORED_MIN: f64 = 0.9;

/// Result of a verification. All counts are numbers of samples unless their name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifyReport {
    pub acknowledged: u64,
    /// True if all samples were sent as Graphite's datagrams, none of which is owed. Over statsd, false.
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
    /// For statsd: values that were sent later than two seconds after their time. This is no fault: the target's clock is
    /// behind, or its times are the beginnings of intervals.
    pub early: u64,
    /// For statsd: how much later, at most.
    pub early_s: f64,
    /// For statsd: values of which it is not known whether they were sent. They are not owed.
    pub unknown: u64,
    /// For statsd: values that the target should have stored, as far as this is known.
    pub expected: u64,
    /// For statsd: those of them that no query has returned. There are also whole intervals that the target has left out.
    pub absent: u64,
    /// For statsd: values that are not owed, because the ledger was full.
    pub unnoted: u64,
    /// For statsd: number of times at which the target has stored values, and their mean distance.
    pub intervals: u64,
    pub interval_s: f64,
    /// For statsd: how often the lab has looked for new values during the load, how often this has failed, and why the last
    /// time.
    pub looks: u64,
    pub looks_failed: u64,
    pub look_error: Option<String>,
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
    /// verification without any acknowledged sample proves nothing, so it is not good, except for Graphite's datagrams, none
    /// of which is owed. Over statsd, at least [`STORED_MIN`] of what should be stored must be owed and not stale.
    pub fn is_good(&self) -> bool {
        self.is_good_if_stored(STORED_MIN)
    }

    /// The same. Over statsd, at least this share of the values must be owed that the target should have stored.
    pub fn is_good_if_stored(&self, stored_min: f64) -> bool {
        let is_proved = match self.looks {
            0 => self.acknowledged > 0 || self.datagrams,
            _ => {
                self.acknowledged > 0
                    && self.stored_at_least(stored_min).is_ok_and(|stored| stored >= stored_min)
            }
        };
        self.faults() == 0 && self.read_back == self.acknowledged && is_proved
    }

    /// For statsd: [`Self::stored`], or 0 if it is not known, and no share is demanded.
    pub(crate) fn stored_at_least(&self, stored_min: f64) -> Result<f64, &'static str> {
        self.stored().or_else(|why| if stored_min > 0.0 { Err(why) } else { Ok(0.0) })
    }

    /// For statsd: how many of the values that the target should have stored are owed, and are not stale, as a share.
    ///
    /// # Errors
    /// The error says why this is not known.
    pub fn stored(&self) -> Result<f64, &'static str> {
        if self.acknowledged == 0 {
            return Err("no query has returned a value that the target has stored");
        }
        if self.expected == 0 {
            return Err(
                "it is not known what the target should have stored: the run had too few intervals, or gauges were sent more \
                 rarely than the target stores them",
            );
        }
        let fresh = self.acknowledged.saturating_sub(self.stale);
        let all = self.acknowledged + self.absent + self.unknown + self.unnoted;
        Ok(fresh as f64 / all as f64)
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
        self.early += other.early;
        self.early_s = self.early_s.max(other.early_s);
        self.expected += other.expected;
        self.unknown += other.unknown;
        self.absent += other.absent;
        self.unnoted += other.unnoted;
        self.intervals += other.intervals;
        self.interval_s = self.interval_s.max(other.interval_s);
        self.looks += other.looks;
        self.looks_failed += other.looks_failed;
        self.look_error = self.look_error.take().or_else(|| other.look_error.clone());
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
