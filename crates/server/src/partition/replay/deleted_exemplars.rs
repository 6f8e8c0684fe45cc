//! Applies records which say that exemplars were deleted.
//!
//! Patterns are tested as by the delete itself: once for each value of a label, not once for each series. So a record takes no longer
//! than its delete was allowed to take. One pattern at a time is compiled, so that little memory is enough.

use super::apply::Replay;
use super::{Halt, Owner};
use crate::partition::delete_series::matcher_of;
use crate::query_source::with_filters;
use head::{Selection, TenantHead};
use journal::Offset;
use journal::record::{Condition, DeletedExemplars, Operator};
use model::{LabelsRef, SeriesRef, TenantId};
use query::Matcher;
use roaring::RoaringBitmap;
use stdx::budget::Reservation;

/// If at most this many series are left, they are tested one by one, unless a pattern must run.
const FEW: u64 = 100;

impl Owner {
    /// Applies such a record of a tenant, which is at `offset`. The inner error tells why its bytes cannot be used. If memory runs
    /// out ([`Halt::NoRoom`]), nothing has been applied, and the call can be repeated.
    pub(super) fn delete_replayed_exemplars(
        &mut self,
        replay: &mut Replay,
        tenant: &TenantId,
        deleted: &DeletedExemplars,
        offset: Offset,
    ) -> Result<Result<(), &'static str>, Halt> {
        let all: RoaringBitmap = {
            let head = self.partition.head.read();
            let Some(head) = head.tenant(tenant) else { return Ok(Ok(())) };
            let in_range = head.exemplars().filter(|(_, e)| deleted.range.contains(e.timestamp_ms));
            in_range.map(|(series, _)| series.0).collect()
        };
        let mut selected = RoaringBitmap::new();
        for conditions in &deleted.selectors {
            let mut left = &all - &selected;
            // those that are looked up come first, because they leave few series
            let (first, others): (Vec<_>, Vec<_>) = conditions.iter().partition(|c| is_lookup(c));
            for condition in first.into_iter().chain(others) {
                if left.is_empty() {
                    break;
                }
                self.hear(replay, offset)?;
                let Some((matcher, _memory)) = self.matcher(condition)? else {
                    // the expression was compiled before it was recorded
                    return Ok(Err(
                        "a delete of exemplars with a regular expression that cannot be compiled",
                    ));
                };
                self.keep_matching(&matcher, tenant, &mut left);
            }
            selected |= left;
        }
        let mut head = self.partition.head.write();
        head.delete_exemplars(tenant, &selected, deleted.range);
        self.partition.grew(head.take_change());
        // also if no exemplar was dropped: those of a deleted series may have made room for others before this record
        replay.bereft.insert(tenant.clone());
        Ok(Ok(()))
    }

    /// `None` if the condition cannot be used.
    fn matcher(&self, condition: &Condition) -> Result<Option<(Matcher, Reservation)>, Halt> {
        let (mut memory, mut exhausted) = (self.context.replay.reserve(0)?, None);
        let matcher = matcher_of(condition, |bytes| {
            memory.resize(bytes as u64).map_err(|full| {
                exhausted = Some(full);
                "memory runs out".to_owned()
            })
        });
        if let Some(exhausted) = exhausted {
            return Err(exhausted.into());
        }
        let Ok(matcher) = matcher else { return Ok(None) };
        memory.resize(matcher.pattern_bytes() as u64)?;
        Ok(Some((matcher, memory)))
    }

    /// Removes series that do not match from `series`, and evicted ones.
    fn keep_matching(&self, matcher: &Matcher, tenant: &TenantId, series: &mut RoaringBitmap) {
        let head = &self.partition.head;
        if series.len() <= FEW && !matcher.needs_engine() {
            let head = head.read();
            let matching = |head: &TenantHead| {
                let mut labels = Vec::new();
                let matches = |series: &u32| {
                    labels.clear();
                    head.write_labels(SeriesRef(*series), &mut labels);
                    matcher.matches(LabelsRef::from_canonical(&labels).get(&matcher.name).unwrap_or(""))
                };
                let existing = series.iter().filter(|series| head.has_series(SeriesRef(*series)));
                existing.filter(matches).collect()
            };
            let matching = head.tenant(tenant).map(matching).unwrap_or_default();
            *series = matching;
            return;
        }
        let _pin = head.read().pin();
        *series &= with_filters(std::slice::from_ref(matcher), |filters| {
            let mut selection = Selection::new(filters);
            while !head.read().tenant(tenant).is_none_or(|head| selection.advance(head)) {
                selection.test(|| true);
            }
            selection.into_series()
        });
    }
}

/// True if a selection does not visit all values of the label.
fn is_lookup(condition: &Condition) -> bool {
    condition.operator == Operator::Equal && !condition.value.is_empty()
}
