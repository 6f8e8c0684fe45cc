//! Relocation: if a tenant cannot be sealed, copies its samples to the journal's end, so that the journal's older part
//! can be deleted.
//!
//! ```text
//!   journal   │ T  o  T  o  o  o  o  o  o  o  o │ T' T'
//!             └── retained because of T ────────┘
//!
//!   T   records of a blocked tenant       T'  copies of T's samples
//!   o   records of other tenants, all in tables
//! ```
//!
//! The tenant's samples are frozen first. The tenant's writes are refused until the copy ends. If replay finds
//! originals and copies, it loads each sample once.

use super::Owner;
use crate::refusal::Refusal;
use head::TenantHead;
use journal::{JournalError, Offset};
use model::{LabelsRef, SeriesRef, SeriesSamples, TenantId, TimeRange, ValueKind};
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

/// In one turn, about this many samples are written and synced, as many as in a large group.
const TURN_SAMPLES: usize = 32 << 10;

/// In one turn, at most this many series are visited, because many series may have no samples.
const TURN_SERIES: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Relocate {
    pub(crate) tenants: BTreeSet<TenantId>,
    pub(crate) reply: SyncSender<Relocated>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relocated {
    /// Every sample of the relocated tenants is frozen if it is in a record below this offset.
    pub(crate) upto: Offset,
    /// Offset at which the copy starts; `None` if not all samples were copied.
    pub(crate) from: Option<Offset>,
}

#[derive(Debug)]
pub(super) struct Relocating {
    request: Relocate,
    step: Step,
    /// Tenants that this step has not completed. The last one is processed next.
    waiting: Vec<TenantId>,
    due: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Freeze,
    Write { began: Offset, next: Place },
}

#[derive(Debug, Clone, Copy)]
struct Place {
    series: SeriesRef,
    from_ms: i64,
}

impl Place {
    const START: Self = Self { series: SeriesRef(0), from_ms: i64::MIN };
}

impl Relocating {
    pub(super) fn new(request: Relocate, now: Instant) -> Self {
        let waiting = request.tenants.iter().cloned().collect();
        Self { request, step: Step::Freeze, waiting, due: now }
    }

    pub(super) const fn wants_turn(&self) -> Instant {
        self.due
    }
}

impl Owner {
    pub(super) fn turn_away_relocating(&mut self) {
        let Self { group, slicing, relocating: Some(relocating), .. } = self else { return };
        for submission in group.extract_if(.., |s| relocating.request.tenants.contains(&s.tenant)) {
            slicing.ended(&submission);
            let message = format!(
                "samples of tenant {} are being moved to the journal's end, because the tenant's table cannot be written; retry",
                submission.tenant
            );
            submission.refuse_all(Refusal::busy("table_unwritable", message).of_tenant());
        }
    }

    /// Continues the relocation if its next turn is due. The sealer gets a reply after the last turn.
    pub(super) fn relocate_turn(&mut self) {
        let began = self.context.clock.instant();
        let Some(mut relocating) = self.relocating.take_if(|relocating| relocating.wants_turn() <= began)
        else {
            return;
        };
        let from = match relocating.step {
            Step::Freeze => {
                self.freeze_all_turn(&mut relocating);
                None
            }
            Step::Write { began: from, next } => match self.write_turn(&mut relocating.waiting, next) {
                Ok(next) => {
                    relocating.step = Step::Write { began: from, next };
                    relocating.waiting.is_empty().then_some(Some(from))
                }
                Err(error) => {
                    self.journal.abandon();
                    self.dictionary.forget();
                    tracing::warn!(partition = self.number, %error, "cannot relocate samples of blocked tenants to the journal's end; the journal's older part is kept");
                    Some(None)
                }
            },
        };
        self.publish_stats();
        match from {
            Some(from) => {
                let relocated = Relocated { upto: self.journal.durable_end(), from };
                let _ = relocating.request.reply.send(relocated); // the sealer may be gone
            }
            None => {
                // The relocation takes at most half of the owner's time. If it took less, sealing would be delayed.
                let now = self.context.clock.instant();
                relocating.due = now + now.duration_since(began);
                self.relocating = Some(relocating);
            }
        }
    }

    fn freeze_all_turn(&self, relocating: &mut Relocating) {
        if let Some(tenant) = relocating.waiting.last() {
            let mut head = self.partition.head.write();
            if head.freeze_all_turn(tenant) {
                relocating.waiting.pop();
            }
            self.partition.grew(head.take_change());
        }
        if relocating.waiting.is_empty() {
            relocating.waiting = relocating.request.tenants.iter().cloned().collect();
            // between two groups, the head and the journal have the same samples
            relocating.step = Step::Write { began: self.journal.durable_end(), next: Place::START };
        }
    }

    /// Copies some samples of the next tenant to the journal's end and syncs them. Returns the place at which to
    /// continue.
    fn write_turn(&mut self, waiting: &mut Vec<TenantId>, mut next: Place) -> Result<Place, JournalError> {
        let Some(tenant) = waiting.last() else { return Ok(next) };
        self.dictionary.enter(self.journal.begin()?);
        let Self { encoder, journal, dictionary, label_bytes, partition, .. } = self;
        let partition = partition.head.read();
        let Some(head) = partition.tenant(tenant) else {
            waiting.pop();
            return Ok(Place::START);
        };
        let end = SeriesRef(head.series_end() as u32);
        // all values in a record must have the same kind
        let kind = if next.series < end { head.kind(next.series) } else { ValueKind::default() };
        encoder.begin_of(tenant, kind);
        let (mut samples, mut written, mut series_left) = (SeriesSamples::new(kind), 0, TURN_SERIES);
        while next.series < end
            && head.kind(next.series) == kind
            && written < TURN_SAMPLES
            && series_left > 0
            && !encoder.is_full()
        {
            let mut until_ms = read_some(head, next, &mut samples);
            if !samples.timestamps().is_empty() && dictionary.of(tenant).insert(next.series) {
                label_bytes.clear();
                head.write_labels(next.series, label_bytes);
                encoder.define(next.series, LabelsRef::from_canonical(label_bytes));
            }
            match &samples {
                SeriesSamples::Floats(samples) => {
                    for (timestamp_ms, value) in samples.iter_from(0) {
                        encoder.sample(next.series, timestamp_ms, value);
                    }
                }
                SeriesSamples::Histograms(samples) => {
                    for (timestamp_ms, value) in samples.timestamps.iter().zip(&samples.values) {
                        encoder.histogram(next.series, *timestamp_ms, value);
                        if encoder.is_full() {
                            until_ms = Some(*timestamp_ms);
                            break;
                        }
                    }
                }
            }
            written += samples.timestamps().len();
            series_left -= 1;
            next = match until_ms {
                Some(until_ms) => Place { from_ms: until_ms + 1, ..next },
                None => Place { series: SeriesRef(next.series.0 + 1), ..Place::START },
            };
        }
        if next.series >= end {
            waiting.pop();
            next = Place::START;
        }
        drop(partition);
        if !encoder.is_empty() {
            journal.append(encoder.finish())?;
            dictionary.grow(encoder.definitions(), encoder.definition_bytes());
            journal.sync()?;
        }
        Ok(next)
    }
}

/// Reads about as many samples of a series as fit into one turn, beginning at `place`. Returns the end of the time
/// range that was read, or `None` if the series has no more samples. All its samples must be frozen.
fn read_some(head: &TenantHead, place: Place, out: &mut SeriesSamples) -> Option<i64> {
    out.clear_for(head.kind(place.series));
    let range = head.frozen_range(place.series)?;
    let start_ms = range.start_ms.max(place.from_ms);
    let mut end_ms = range.end_ms;
    let count = |end_ms| head.samples_at_most(place.series, TimeRange::new(start_ms, end_ms));
    while start_ms < end_ms && count(end_ms) > TURN_SAMPLES {
        end_ms = start_ms + (end_ms - start_ms) / 2;
    }
    if start_ms <= end_ms {
        head.read_any(place.series, TimeRange::new(start_ms, end_ms), out);
    }
    (end_ms < range.end_ms).then_some(end_ms)
}

#[cfg(test)]
mod tests;
