//! Untagged series, which have no label besides the metric name, and which of them are new.
//!
//! Each series that is created gets the next number of the tenant's *births*. A page of a hundred series keeps the
//! latest of its births, so readers find the new series of millions in a fraction of a millisecond, and writers pay for
//! one store.

use crate::series::{GONE, HIDDEN, HISTOGRAM};
use crate::tenant::TenantHead;
use model::SeriesRef;
use model::labels::METRIC_NAME;

/// Series whose latest birth is kept together.
const PAGE: usize = 128;

/// A turn takes this many steps, about a millisecond. Looking at a series takes a step, and one more for each
/// [`STEP_BYTES`] of its name.
const TURN_STEPS: usize = 8_000;

const STEP_BYTES: usize = 64;

/// Pages without new series that are passed in one step.
const STEP_PAGES: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Births {
    /// Number of births of the tenant in this partition, including earlier heads of the tenant.
    count: u64,
    /// Value of `count` when this head began.
    before: u64,
    /// Latest birth on each page.
    latest: Vec<u64>,
    /// When the removed series were last seen: the latest of these times, in seconds of the clock of appends.
    removed_seen_s: Option<u32>,
}

impl Births {
    pub(crate) fn after(count: u64) -> Self {
        Self { count, before: count, ..Self::default() }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn note(&mut self, series: SeriesRef) {
        let page = series.index() / PAGE;
        if page >= self.latest.len() {
            self.latest.resize(page + 1, 0);
        }
        self.count += 1;
        self.latest[page] = self.count;
    }

    pub(crate) fn note_removed(&mut self, seen_s: u32) {
        self.removed_seen_s = self.removed_seen_s.max(Some(seen_s));
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.latest.capacity() * size_of::<u64>()
    }
}

/// Walk over the names of untagged series, in turns. Names may occur more than once.
#[derive(Debug)]
pub struct UntaggedWalk {
    since: u64,
    next: usize,
}

impl UntaggedWalk {
    /// A walk over series born after [`TenantHead::births`] was `since`, and perhaps some older ones.
    pub const fn since(since: u64) -> Self {
        Self { since, next: 0 }
    }

    /// Runs one turn. Returns true after the last turn.
    pub fn names(&mut self, head: &TenantHead, mut take: impl FnMut(&str)) -> bool {
        let (mut steps, mut passed) = (TURN_STEPS, 0);
        while let Some(latest) = head.births.latest.get(self.next / PAGE) {
            if steps == 0 {
                return false;
            }
            if *latest <= self.since {
                self.next = (self.next / PAGE + 1) * PAGE;
                passed += 1;
                steps -= usize::from(passed % STEP_PAGES == 0);
                continue;
            }
            steps -= 1;
            if let Some(name) = head.untagged_name(SeriesRef(self.next as u32)) {
                steps = steps.saturating_sub(name.len() / STEP_BYTES);
                take(name);
            }
            self.next += 1;
        }
        true
    }
}

impl TenantHead {
    /// Number of series that were created, or listed again, so far. Continues to count if the tenant's head is removed
    /// and comes back.
    pub const fn births(&self) -> u64 {
        self.births.count()
    }

    /// True if a series that was born after [`Self::births`] was `births`, at `since_s` or later, may have been removed.
    pub fn may_have_lost(&self, births: u64, since_s: u32) -> bool {
        let removed = self.births.removed_seen_s.is_some_and(|seen_s| seen_s >= since_s);
        self.births() > births && (removed || self.births.before > births)
    }

    /// The name of a series of floats, if it has no other labels. `None` for other series, for hidden ones, and if there
    /// is no series with this number.
    pub fn untagged_name(&self, series: SeriesRef) -> Option<&str> {
        let state = self.series.find(series.index())?.state;
        if state & (GONE | HIDDEN | HISTOGRAM) != 0 {
            return None;
        }
        let (name, value) = self.pairs.text(self.labels.only(series)?);
        (name == METRIC_NAME).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Idle, Partition};
    use model::{Labels, SeriesKey, TenantId};
    use std::collections::BTreeSet;
    use stdx::rng::Rng;

    fn add(partition: &mut Partition, tenant: &TenantId, pairs: &[(&str, &str)], now_s: u32) {
        let labels = Labels::from_pairs(pairs);
        let head = partition.tenant_mut(tenant);
        let series = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
        head.append(&[series], &[i64::from(now_s) * 1000], [1.0].as_slice(), now_s);
    }

    fn names(partition: &Partition, tenant: &TenantId, since: u64) -> BTreeSet<String> {
        let (mut walk, mut found, mut is_done) = (UntaggedWalk::since(since), BTreeSet::new(), false);
        while !is_done {
            is_done = partition.tenant(tenant).is_none_or(|head| {
                walk.names(head, |name| {
                    found.insert(name.to_owned());
                })
            });
        }
        found
    }

    fn evict(partition: &mut Partition, before_s: u32) {
        partition.freeze(|_| true);
        while !partition.release_turn(|_| true) {}
        while !matches!(partition.evict_turn(Idle::before(before_s), |_, _| ()), crate::Evicted::Done(_)) {}
        partition.remove_empty(Idle::before(before_s), |_| ());
    }

    /// A reader that knows the births of its last visit, and when that was, finds every new name, or learns that it may
    /// have missed some.
    #[test]
    fn new_names_are_found_and_lost_ones_are_noticed() {
        let mut rng = Rng::announced();
        let tenant = TenantId::anonymous();
        let (mut found_some, mut missed_some) = (0, 0);
        for _ in 0..20 {
            let mut partition = Partition::new(1);
            let (mut known, mut all): (BTreeSet<String>, BTreeSet<String>) = Default::default();
            let (mut births, mut visited_s) = (0, 0);
            for now_s in 1..40 {
                for _ in 0..rng.below(300) {
                    let name = format!("n{}", rng.below(1000));
                    match rng.chance(0.5) {
                        true => add(&mut partition, &tenant, &[("__name__", &name), ("a", "b")], now_s),
                        false => {
                            add(&mut partition, &tenant, &[("__name__", &name)], now_s);
                            all.insert(name);
                        }
                    }
                }
                if rng.chance(0.3) {
                    evict(&mut partition, now_s.saturating_sub(rng.below(8) as u32) + 1);
                }
                if rng.chance(0.4) {
                    let has_lost = match partition.tenant(&tenant) {
                        Some(head) => head.may_have_lost(births, visited_s),
                        None => partition.births_of(&tenant) > births,
                    };
                    let now = partition.births_of(&tenant);
                    let new = names(&partition, &tenant, births);
                    assert!(new.is_subset(&all), "{new:?}");
                    found_some += new.len();
                    known.extend(new);
                    if has_lost {
                        missed_some += 1;
                        known.clone_from(&all);
                    }
                    assert_eq!(known, all);
                    (births, visited_s) = (now, now_s + 1);
                }
            }
        }
        assert!(found_some > 200 && missed_some > 3, "{found_some}, {missed_some}");
    }

    #[test]
    fn untagged_series_have_only_a_name() {
        let (mut partition, tenant) = (Partition::new(1), TenantId::anonymous());
        for pairs in [
            &[("__name__", "a.b")][..],
            &[("job", "x")],
            &[("__name__", "c"), ("job", "x")],
            &[("__name__", "d")],
        ] {
            add(&mut partition, &tenant, pairs, 1);
        }
        let labels = Labels::from_pairs(&[("__name__", "h")]);
        let key = SeriesKey::of(labels.as_bytes(), 1);
        partition.tenant_mut(&tenant).create_of(model::ValueKind::Histogram, key, labels.as_ref());
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(names(&partition, &tenant, 0), all(&["a.b", "d"]));
        let births = partition.births_of(&tenant);
        assert_eq!(names(&partition, &tenant, births), all(&[]));
        (0..20_000).for_each(|i| add(&mut partition, &tenant, &[("__name__", &format!("e{i}"))], 2));
        let new = names(&partition, &tenant, births);
        assert!(new.len() >= 20_000 && new.contains("e19999"));
    }
}
