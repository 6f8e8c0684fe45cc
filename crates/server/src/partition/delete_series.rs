//! What a delete of samples does in a partition, besides the tombstone in the table's log.
//!
//! ```text
//!   record in the journal: exemplars of earlier records are void ─▶ drop them from the head
//!         ─▶ hide series of which nothing is left, some in each turn: no list names them any more ─▶ answer
//!         ─▶ the next eviction removes them, once no reader or writer refers to them
//! ```
//!
//! Exemplars and samples that arrive meanwhile may stay, with their series.

use super::Owner;
use super::time_share::{SLICES_MAX, TimeShare};
use crate::refusal::Refusal;
use head::{Hiding, Pin, TenantHead};
use journal::RecordEncoder;
use journal::record::{Condition, DeletedExemplars, Operator};
use model::TenantId;
use query::{MatchOp, Matcher, MatcherError};
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tables::Delete;
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<(), Refusal>>;

#[derive(Debug)]
pub(crate) struct DeleteSeries {
    pub(crate) tenant: TenantId,
    pub(crate) delete: Arc<Delete>,
    /// The series that the delete selects.
    pub(crate) series: RoaringBitmap,
    /// A pin from before the series were selected.
    pub(crate) pin: Pin,
    /// Answered once the journal says that the exemplars are void, and lists name none of the series of which nothing is
    /// left.
    pub(crate) reply: Reply,
}

/// Deletes that are not answered yet. There are only as many as may run at a time.
#[derive(Debug)]
pub(super) struct Deleting {
    time_share: TimeShare,
    /// Deletes with series that must still be visited. They take turns.
    hiding: VecDeque<Visit>,
    /// Deletes whose series are all hidden, while an eviction takes other series of the tenant out of the lists. The deletes
    /// could not select these.
    hidden: Vec<(TenantId, Reply)>,
}

#[derive(Debug)]
struct Visit {
    tenant: TenantId,
    series: Hiding,
    _pin: Pin,
    reply: Reply,
}

impl Deleting {
    pub(super) const fn new(now: Instant) -> Self {
        Self { time_share: TimeShare::from(now), hiding: VecDeque::new(), hidden: Vec::new() }
    }

    /// When the owner should hide further series; `None` if there are none.
    pub(super) fn wants_turn(&self) -> Option<Instant> {
        (!self.hiding.is_empty()).then_some(self.time_share.due())
    }
}

impl Owner {
    pub(super) fn delete_series(&mut self, request: DeleteSeries) {
        let DeleteSeries { tenant, delete, series, pin, reply } = request;
        let deleted = deleted_exemplars(&delete);
        if let Err(refusal) = self.record_delete(|encoder| encoder.deleted_exemplars(&tenant, &deleted)) {
            let _ = reply.send(Err(refusal)); // the receiver may be gone
            return;
        }
        // replay takes long only for patterns that need an engine
        self.sealing.deletes += u32::from(delete.selectors.iter().flatten().any(Matcher::needs_engine));
        {
            let mut head = self.partition.head.write();
            head.delete_exemplars(&tenant, &series, delete.range);
            self.partition.grew(head.take_change());
        }
        let mut series = Hiding::new(series, delete.range);
        if let Some(head) = self.partition.head.read().tenant(&tenant) {
            series.note_exemplars(head);
        }
        self.deleting.hiding.push_back(Visit { tenant, series, _pin: pin, reply });
    }

    pub(super) fn hide_turn(&mut self) {
        for _ in 0..SLICES_MAX {
            let began = self.context.clock.instant();
            if began < self.deleting.time_share.due() || self.stopping {
                break;
            }
            let Some(mut visit) = self.deleting.hiding.pop_front() else { break };
            let is_done = {
                let mut head = self.partition.head.write();
                let is_done = head.hide_turn(&visit.tenant, &mut visit.series);
                self.partition.grew(head.take_change());
                is_done
            };
            self.deleting.time_share.record_slice(began, self.context.clock.instant());
            match is_done {
                true => self.deleting.hidden.push((visit.tenant, visit.reply)),
                false => self.deleting.hiding.push_back(visit),
            }
        }
        self.answer_deletes();
    }

    fn answer_deletes(&mut self) {
        for (tenant, reply) in std::mem::take(&mut self.deleting.hidden) {
            let is_unlisting =
                self.partition.head.read().tenant(&tenant).is_some_and(TenantHead::is_unlisting);
            match is_unlisting {
                true => self.deleting.hidden.push((tenant, reply)),
                false => _ = reply.send(Ok(())), // the receiver may be gone
            }
        }
    }

    /// Makes a record durable which says that something was deleted.
    pub(super) fn record_delete(
        &mut self,
        record: impl FnOnce(&mut RecordEncoder) -> &[u8],
    ) -> Result<(), Refusal> {
        let Self { journal, dictionary, encoder, context, number, .. } = self;
        let write = || {
            dictionary.enter(journal.begin()?);
            journal.append(record(encoder))?;
            journal.sync()
        };
        let written = write();
        written.map(drop).map_err(|error| {
            // the discarded records defined series, which must be defined again in later records
            dictionary.forget();
            journal.abandon();
            context.metrics.group_failures.inc();
            tracing::warn!(partition = *number, %error, "cannot write a delete to the journal; the request fails, and should be repeated");
            Refusal::from(&error)
        })
    }
}

fn deleted_exemplars(delete: &Delete) -> DeletedExemplars {
    let condition = |matcher: &Matcher| Condition {
        label: matcher.name.clone(),
        operator: match matcher.op {
            MatchOp::Equal => Operator::Equal,
            MatchOp::NotEqual => Operator::NotEqual,
            MatchOp::Regex => Operator::Regex,
            MatchOp::NotRegex => Operator::NotRegex,
        },
        value: matcher.value.clone(),
    };
    let selectors = delete.selectors.iter().map(|selector| selector.iter().map(condition).collect());
    DeletedExemplars { range: delete.range, selectors: selectors.collect() }
}

/// See [`Matcher::new_reserving`].
pub(super) fn matcher_of(
    Condition { label, operator, value }: &Condition,
    reserve: impl FnMut(usize) -> Result<(), String>,
) -> Result<Matcher, MatcherError> {
    let op = match operator {
        Operator::Equal => MatchOp::Equal,
        Operator::NotEqual => MatchOp::NotEqual,
        Operator::Regex => MatchOp::Regex,
        Operator::NotRegex => MatchOp::NotRegex,
    };
    Matcher::new_reserving(label, op, value, reserve)
}
