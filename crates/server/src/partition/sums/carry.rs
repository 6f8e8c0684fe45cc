//! Writes the sums again at the journal's end, so that older records can be deleted.
//!
//! This is done in slices between groups. A sum that changes meanwhile is also written with its samples.

use super::super::Owner;
use super::super::time_share::TimeShare;
use super::{Place, Sums};
use journal::{JournalError, Offset};
use model::TenantId;
use std::time::{Duration, Instant};

/// Number of sums that are written between two groups, which takes about as long as a small group.
const SLICE: usize = 500;

/// Interval between attempts, if the journal cannot be written.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Carrying {
    /// Sums in records below this offset were written again in later records.
    carried: Offset,
    pub(super) running: Option<Running>,
}

#[derive(Debug)]
pub(super) struct Running {
    /// Sums in records below this offset are being written again.
    upto: Offset,
    /// The last sum that was written.
    last: Option<Place>,
    /// What was forgotten when it was written.
    forgotten_ns: u64,
    pub(super) time_share: TimeShare,
}

enum Written {
    /// Sums up to this one. `None` if only what was forgotten.
    Some(Option<Place>),
    All,
}

impl Sums {
    /// Begins to write all sums again, because the journal's records below `upto` will be deleted. Does nothing if earlier
    /// sums are still being written.
    pub(in crate::partition) fn carry(&mut self, upto: Offset, now: Instant) {
        let time_share = TimeShare::from(now);
        self.carrying.running.get_or_insert(Running { upto, last: None, forgotten_ns: 0, time_share });
    }

    /// No sum is lost if the journal's records below this offset are deleted.
    pub(in crate::partition) fn carried(&self) -> Offset {
        if self.is_empty() { Offset(u64::MAX) } else { self.carrying.carried }
    }
}

impl Owner {
    pub(super) fn carry_slice(&mut self, began: Instant) {
        let written = self.write_sums();
        let now = self.context.clock.instant();
        let Some(running) = &mut self.sums.carrying.running else { return };
        match written {
            Ok(Written::Some(last)) => {
                running.last = last.or(running.last.take());
                running.forgotten_ns = self.sums.forgotten_ns;
                running.time_share.record_slice(began, now);
            }
            Ok(Written::All) => {
                self.sums.carrying.carried = running.upto;
                self.sums.carrying.running = None;
                self.truncate_to_mark();
            }
            Err(error) => {
                running.time_share.suspend(now + RETRY);
                self.journal.abandon();
                // the discarded records defined series, which must be defined again in later records
                self.dictionary.forget();
                let partition = self.number;
                tracing::warn!(partition, %error, "cannot write the sums of deltas again; the journal is not truncated meanwhile");
            }
        }
    }

    /// Writes the next sums. If there are no more, but some were forgotten meanwhile, the record only says so.
    fn write_sums(&mut self) -> Result<Written, JournalError> {
        let Self { encoder, journal, dictionary, sums, sealing, .. } = self;
        let Some(running) = &sums.carrying.running else { return Ok(Written::All) };
        let next = sums.after(running.last.as_ref(), SLICE);
        if next.is_none() && sums.forgotten_ns == running.forgotten_ns {
            return Ok(Written::All);
        }
        dictionary.enter(journal.begin()?);
        let appended_bytes = journal.stats().appended_bytes;
        let nobody = TenantId::anonymous();
        let (tenant, keys) = next.unwrap_or((&nobody, Vec::new()));
        encoder.begin(tenant);
        encoder.forgotten(sums.forgotten_ns);
        for key in &keys {
            encoder.sum(*key, sums.get(tenant, *key).expect("BUG: a listed sum is missing"));
        }
        journal.append(encoder.finish())?;
        journal.sync()?;
        // these bytes must not count as unsealed, or they could cause the next seal
        sealing.appended_bytes += journal.stats().appended_bytes - appended_bytes;
        Ok(Written::Some(keys.last().map(|key| (tenant.clone(), *key))))
    }
}
