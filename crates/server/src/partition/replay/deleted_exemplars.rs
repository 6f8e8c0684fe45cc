//! Applies records which say that exemplars were deleted.
//!
//! Patterns are tested only with label values of series that have exemplars in the range of the delete, and once with each value.
//! Conditions are applied in the order in which the delete applied them, so it tested these values too, but not those of series
//! that it did not find: replay restores series with exemplars that were evicted when the delete came. So a record may take longer
//! than its delete, and a dictionary ends after some deletes, or before the next one if many exemplars were evicted
//! (`delays_replay` in `seal.rs`). One pattern at a time is compiled, so that little memory is enough.

use super::apply::Replay;
use super::{Halt, Owner};
use crate::partition::delete_series::matcher_of;
use crate::query_source::with_filters;
use journal::Offset;
use journal::record::{Condition, DeletedExemplars};
use model::{SeriesRef, TenantId};
use query::Matcher;
use roaring::RoaringBitmap;
use std::collections::HashMap;
use stdx::budget::Reservation;

/// Commands are handled after this many series, and after each test of a pattern.
const SERIES: usize = 1000;

/// Conditions without a pattern that needs an engine are tested with the values of so few series one by one. For more series, the
/// values of the label are visited instead if they are not more than the series.
const FEW: u64 = 100;

/// Upper bound on the memory of a remembered answer, also while their table grows.
const ANSWER_BYTES: usize = 64;

const NOT_COMPILED: &str = "a delete of exemplars with a regular expression that cannot be compiled";

/// Conditions are applied in this order, as `head::Selection` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// Values that match are looked up, and no others are visited.
    Lookup,
    /// A series without the label does not match.
    Strict,
    Lenient,
}

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
        let mut has_patterns = false;
        for conditions in &deleted.selectors {
            let mut left = &all - &selected;
            if left.is_empty() {
                break;
            }
            let Some(ordered) = self.ordered(replay, conditions, offset, &mut has_patterns)? else {
                return Ok(Err(NOT_COMPILED));
            };
            for condition in ordered {
                if left.is_empty() {
                    break;
                }
                self.hear_between_tests(replay, offset)?;
                let Some((matcher, mut memory)) = self.matcher(condition)? else {
                    return Ok(Err(NOT_COMPILED));
                };
                memory.resize(memory.bytes() + left.len() * ANSWER_BYTES as u64)?;
                left = self.matching(replay, &matcher, tenant, &left, offset)?;
            }
            selected |= left;
        }
        let mut head = self.partition.head.write();
        head.delete_exemplars(tenant, &selected, deleted.range);
        self.partition.grew(head.take_change());
        // also if no exemplar was dropped: those of a deleted series may have made room for others before this record
        replay.bereft.insert(tenant.clone());
        self.sealing.deletes += u32::from(has_patterns);
        Ok(Ok(()))
    }

    /// The conditions in the order in which they are applied; `None` if one of them cannot be used. Compiles each pattern,
    /// because only this tells whether it lists values. Sets `has_patterns` if one of them needs an engine.
    fn ordered<'c>(
        &mut self,
        replay: &mut Replay,
        conditions: &'c [Condition],
        offset: Offset,
        has_patterns: &mut bool,
    ) -> Result<Option<Vec<&'c Condition>>, Halt> {
        let mut ordered = Vec::with_capacity(conditions.len());
        for condition in conditions {
            self.hear_between_tests(replay, offset)?;
            let Some((matcher, _memory)) = self.matcher(condition)? else { return Ok(None) };
            *has_patterns |= matcher.needs_engine();
            ordered.push((Order::of(&matcher), condition));
        }
        ordered.sort_by_key(|(order, _)| *order);
        Ok(Some(ordered.into_iter().map(|(_, condition)| condition).collect()))
    }

    /// `None` if the condition cannot be used, although its expression was compiled before it was recorded.
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

    /// Those of the series that match, without evicted ones.
    pub(super) fn matching(
        &mut self,
        replay: &mut Replay,
        matcher: &Matcher,
        tenant: &TenantId,
        series: &RoaringBitmap,
        offset: Offset,
    ) -> Result<RoaringBitmap, Halt> {
        {
            let partition = self.partition.head.read();
            let Some(head) = partition.tenant(tenant) else { return Ok(RoaringBitmap::new()) };
            let has_few_values = || {
                let values = head.name_count(&matcher.name).map_or(0, |name| name.values);
                series.len() > FEW && values as u64 <= series.len()
            };
            if Order::of(matcher) == Order::Lookup || (!matcher.needs_engine() && has_few_values()) {
                let selected = with_filters(std::slice::from_ref(matcher), |filters| head.select(filters));
                return Ok(selected & series);
            }
        }
        let mut matching = RoaringBitmap::new();
        // for each label pair; commands may evict series and their pairs, but only records create series, so that no number
        // is reused
        let mut answers: HashMap<Option<u32>, bool> = HashMap::new();
        for (i, series) in series.iter().enumerate() {
            if i % SERIES == SERIES - 1 {
                self.hear_between_tests(replay, offset)?;
            }
            let (pair, value) = {
                let partition = self.partition.head.read();
                let head = partition.tenant(tenant).filter(|head| head.has_series(SeriesRef(series)));
                let Some(head) = head else { continue };
                let found = head.value_of(SeriesRef(series), &matcher.name);
                let pair = found.map(|(pair, _)| pair);
                if let Some(matches) = answers.get(&pair) {
                    if *matches {
                        matching.insert(series);
                    }
                    continue;
                }
                (pair, found.map_or_else(String::new, |(_, value)| value.to_owned()))
            };
            // without the lock, because a pattern may take long
            let matches = matcher.matches(&value);
            replay.tested += 1;
            answers.insert(pair, matches);
            if matches {
                matching.insert(series);
            }
            if matcher.needs_engine() {
                self.hear_between_tests(replay, offset)?;
            }
        }
        Ok(matching)
    }
}

impl Order {
    fn of(matcher: &Matcher) -> Self {
        if matcher.matches_empty() {
            Self::Lenient
        } else if !matcher.is_negative() && matcher.set_matches().is_some() {
            Self::Lookup
        } else {
            Self::Strict
        }
    }
}
