//! Writes the sums again at the journal's end, so that older records can be deleted.
//!
//! This is done in slices between groups. A sum that changes meanwhile is also written with its samples.

use super::super::Owner;
use super::super::time_share::TimeShare;
use super::{OTHERS, Place, Sums};
use journal::{Journal, JournalError, Offset, RecordEncoder};
use model::{Accumulator, TenantId};
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
    /// The last tenant of which it was written what was forgotten. This happens after all sums.
    last_tenant: Option<TenantId>,
    pub(super) time_share: TimeShare,
}

enum Written {
    /// Sums up to this one.
    Sums(Place),
    /// What was forgotten of tenants up to this one, and there are more.
    Forgotten(TenantId),
    All,
}

impl Sums {
    /// Begins to write all sums again, because the journal's records below `upto` will be deleted. Does nothing if earlier
    /// sums are still being written.
    pub(in crate::partition) fn carry(&mut self, upto: Offset, now: Instant) {
        let time_share = TimeShare::from(now);
        self.carrying.running.get_or_insert(Running { upto, last: None, last_tenant: None, time_share });
    }

    /// No sum is lost if the journal's records below this offset are deleted.
    pub(in crate::partition) fn carried(&self) -> Offset {
        if self.is_empty() { Offset(u64::MAX) } else { self.carrying.carried }
    }
}

/// Writes what was forgotten of tenants that are not listed, if anything. The record may be of any tenant.
fn write_others(
    others_ns: u64,
    encoder: &mut RecordEncoder,
    journal: &mut dyn Journal,
) -> Result<(), JournalError> {
    if others_ns == 0 {
        return Ok(());
    }
    encoder.begin(&TenantId::anonymous());
    encoder.forgotten(0);
    encoder.sum(OTHERS, &Accumulator::new(others_ns, 0));
    journal.append(encoder.finish())?;
    Ok(())
}

impl Owner {
    pub(super) fn carry_slice(&mut self, began: Instant) {
        let written = self.write_sums();
        let now = self.context.clock.instant();
        let Some(running) = &mut self.sums.carrying.running else { return };
        match written {
            Ok(Written::Sums(last)) => {
                running.last = Some(last);
                running.time_share.record_slice(began, now);
            }
            Ok(Written::Forgotten(last)) => {
                running.last_tenant = Some(last);
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

    /// Writes the next sums. If there are no more, writes what was forgotten of the next tenants.
    fn write_sums(&mut self) -> Result<Written, JournalError> {
        let Self { encoder, journal, dictionary, sums, sealing, .. } = self;
        let Some(running) = &sums.carrying.running else { return Ok(Written::All) };
        let next = sums.after(running.last.as_ref(), SLICE);
        let mut tenants = sums.forgotten.after(running.last_tenant.as_ref()).peekable();
        if next.is_none() && tenants.peek().is_none() && sums.forgotten.others_ns() == 0 {
            return Ok(Written::All);
        }
        dictionary.enter(journal.begin()?);
        let appended_bytes = journal.stats().appended_bytes;
        let written = if let Some((tenant, keys)) = next {
            encoder.begin(tenant);
            encoder.forgotten(sums.forgotten_ns(tenant));
            let mut last = None;
            for key in &keys {
                encoder.sum(*key, sums.get(tenant, *key).expect("BUG: a listed sum is missing"));
                last = Some(*key);
                // sums of histograms may be large
                if encoder.is_full() {
                    break;
                }
            }
            journal.append(encoder.finish())?;
            last.map_or(Written::All, |key| Written::Sums((tenant.clone(), key)))
        } else {
            let mut last = None;
            for (tenant, forgotten_ns) in tenants.by_ref().take(SLICE) {
                encoder.begin(tenant);
                encoder.forgotten(forgotten_ns);
                journal.append(encoder.finish())?;
                last = Some(tenant);
            }
            match (last, tenants.peek()) {
                (Some(last), Some(_)) => Written::Forgotten(last.clone()),
                // at the end, because tenants that were listed may have become others meanwhile
                _ => {
                    write_others(sums.forgotten.others_ns(), encoder, journal.as_mut())?;
                    Written::All
                }
            }
        };
        journal.sync()?;
        // these bytes must not count as unsealed, or they could cause the next seal
        sealing.appended_bytes += journal.stats().appended_bytes - appended_bytes;
        Ok(written)
    }
}
