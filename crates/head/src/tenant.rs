//! One tenant's series in one partition.

use crate::columns::Columns;
use crate::evict::state::EvictionState;
use crate::exemplars::Exemplars;
use crate::freeze::state::FreezeState;
use crate::growth::{Gained, Growth};
use crate::index::Index;
use crate::labels::LabelSets;
use crate::late::{Effort, Late};
use crate::paged::{Free, Paged};
use crate::pair::{NameCount, PairCount, PairId};
use crate::pairs::Pairs;
use crate::postings::Postings;
use crate::series::{ACTIVE, HIDDEN, Series, UNLINKED, state_of};
use crate::untagged::Births;
use crate::value::Value;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use model::{
    Exemplar, Histogram, LabelsRef, Metadata, Samples, SeriesKey, SeriesRef, SeriesSamples, TimeRange,
    ValueKind, ValuesRef,
};
use roaring::RoaringBitmap;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(test)]
mod tests;

/// A turn stores this many in-order samples, in about fifty microseconds.
const TURN_SAMPLES: usize = 2048;

/// A turn lists at most this many hidden series again, in about fifty microseconds.
const SHOWN_MAX: usize = crate::evict::TURN_STEPS / crate::evict::SERIES_STEPS;

/// Cost of a late sample, as a number of in-order samples.
const LATE_STEPS: usize = 8;
/// Cost of a late sample that rewrites a chunk.
const REWRITE_STEPS: usize = 200;

/// Memory of a tenant without series. Its entry counts twice, because the map of tenants grows by doubling.
/// Its name takes up to 512 bytes.
const TENANT_BYTES: usize = 2 * size_of::<TenantHead>() + 512;

#[derive(Debug)]
pub struct TenantHead {
    pub(crate) index: Index,
    pub(crate) pairs: Pairs,
    pub(crate) labels: LabelSets,
    pub(crate) series: Paged<Series>,
    /// Numbers of evicted series, which new series reuse.
    pub(crate) free: Free,
    pub(crate) evicting: EvictionState,
    /// Series that are in no postings, and not evicted yet.
    pub(crate) hidden: RoaringBitmap,
    pub(crate) late: HashMap<SeriesRef, Late>,
    pub(crate) frozen_late: HashMap<SeriesRef, Late>,
    pub(crate) frozen: FreezeState,
    pub(crate) metadata: BTreeMap<String, Metadata>,
    pub(crate) metadata_bytes: usize,
    pub(crate) exemplars: Exemplars,
    pub(crate) active: usize,
    pub(crate) chunk_bytes: usize,
    pub(crate) late_bytes: usize,
    pub(crate) samples_fresh: u64,
    pub(crate) evicted: u64,
    pub(crate) births: Births,
    /// Time at which replay last restored metadata, in seconds of the clock of appends.
    pub(crate) restored_s: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct ExistingSeries {
    /// References below this number exist, except those in `absent`.
    pub(crate) end: u32,
    /// References below `end` that belong to no series.
    pub(crate) absent: RoaringBitmap,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppendStats {
    /// Samples newer than all others of their series.
    pub in_order: u64,
    /// Samples out of order, or at a known time with another value.
    pub late: u64,
    /// Repetitions of samples that the head already holds. They are not stored.
    pub duplicates: u64,
}

impl AppendStats {
    pub fn add(&mut self, other: Self) {
        self.in_order += other.in_order;
        self.late += other.late;
        self.duplicates += other.duplicates;
    }
}

impl TenantHead {
    /// An empty head. The secret `seed` makes collisions unpredictable.
    pub fn new(seed: u64) -> Self {
        Self::born_after(seed, 0)
    }

    /// An empty head that counts births from `births` on.
    pub(crate) fn born_after(seed: u64, births: u64) -> Self {
        Self {
            index: Index::default(),
            pairs: Pairs::new(seed),
            labels: LabelSets::default(),
            series: Paged::default(),
            free: Free::default(),
            evicting: EvictionState::default(),
            hidden: RoaringBitmap::new(),
            late: HashMap::new(),
            frozen_late: HashMap::new(),
            frozen: FreezeState::default(),
            metadata: BTreeMap::new(),
            metadata_bytes: 0,
            exemplars: Exemplars::default(),
            active: 0,
            chunk_bytes: 0,
            late_bytes: 0,
            samples_fresh: 0,
            evicted: 0,
            births: Births::after(births),
            restored_s: None,
        }
    }

    /// The series of a key, for appending. Does not find a series that is about to be evicted;
    /// [`Self::create`] brings the series back.
    #[inline]
    pub fn resolve(&self, key: SeriesKey) -> Option<SeriesRef> {
        self.index.get(key)
    }

    /// Whether [`Self::vet`] was called last with this version.
    #[inline]
    pub fn is_vetted(&self, series: SeriesRef, version: NonZeroU16) -> bool {
        self.series.get(series.index()).vetted.load(Relaxed) == version.get()
    }

    /// Notes that the caller's rules of this version leave a series as it is. This is forgotten when the series is evicted.
    pub fn vet(&self, series: SeriesRef, version: NonZeroU16) {
        self.series.get(series.index()).vetted.store(version.get(), Relaxed);
    }

    /// The series of a key, for reading. Also finds a series that is about to be evicted, because a writer
    /// may still append to it.
    pub fn find(&self, key: SeriesKey) -> Option<SeriesRef> {
        self.index.get_any(key)
    }

    /// Finds or creates a series of floats. `key` is the hash of the canonical `labels`.
    pub fn create(&mut self, key: SeriesKey, labels: LabelsRef<'_>) -> SeriesRef {
        self.create_of(ValueKind::Float, key, labels)
    }

    /// Finds or creates a series with values of `kind`. `key` is the hash of the canonical `labels`.
    pub fn create_of(&mut self, kind: ValueKind, key: SeriesKey, labels: LabelsRef<'_>) -> SeriesRef {
        let key = key.of_kind(kind);
        if let Some(known) = self.index.relink(key) {
            self.series.get_mut(known.index()).state &= !UNLINKED;
            return known;
        }
        assert!(self.series.len() < crate::index::SERIES_MAX, "BUG: the tenant has 2^31 series");
        let series = SeriesRef(self.free.pop(self.series.len()));
        self.labels.insert(series, labels, &mut self.pairs);
        self.series.put(series.index(), Series::new(self.frozen.epoch, kind));
        self.index.insert(key, series);
        self.births.note(series);
        series
    }

    /// Like [`Self::create_of`], for a series that was sent at `now_s`. If it is new, [`Self::gained`] counts
    /// it.
    pub fn create_sent(
        &mut self,
        kind: ValueKind,
        key: SeriesKey,
        labels: LabelsRef<'_>,
        now_s: u32,
    ) -> SeriesRef {
        let before = self.series_count();
        let series = self.create_of(kind, key, labels);
        if self.series_count() > before {
            let (ids, metric_at) = self.labels.inserted();
            self.pairs.count_new(ids, metric_at, now_s);
        }
        series
    }

    /// Metrics and label pairs with the most new series from [`Self::growth_since_s`] to `now_s`.
    pub fn gained(&self, now_s: u32) -> Gained<'_> {
        self.pairs.gained(now_s)
    }

    #[cfg(test)]
    pub(crate) fn growth_bytes(&self) -> usize {
        self.pairs.growth_bytes()
    }

    /// Start of the period of [`Self::gained`]: an hour to seventy minutes before `now_s`.
    pub const fn growth_since_s(now_s: u32) -> u32 {
        Growth::since_s(now_s)
    }

    /// Time of a series' newest sample; `i64::MIN` before the first.
    #[inline]
    pub fn newest_ms(&self, series: SeriesRef) -> i64 {
        self.series.get(series.index()).open.last_ms()
    }

    pub(crate) fn newest_of_all_ms(&self) -> Option<i64> {
        let known = (0..self.series.len()).filter_map(|i| self.series.find(i));
        let newest_ms = known.map(|series| series.open.last_ms()).max();
        newest_ms.filter(|newest_ms| *newest_ms != i64::MIN)
    }

    /// Stores admitted samples, which arrived at `now_s`. Never fails.
    pub fn append<'a>(
        &mut self,
        refs: &'a [SeriesRef],
        timestamps: &'a [i64],
        values: impl Into<ValuesRef<'a>>,
        now_s: u32,
    ) -> AppendStats {
        let mut columns = Columns::new(refs, timestamps, values.into());
        let mut stats = AppendStats::default();
        while !columns.is_empty() {
            stats.add(self.append_some(&mut columns, now_s));
        }
        stats
    }

    /// Moves samples from the front of `columns` into the head, for about fifty microseconds.
    pub fn append_some(&mut self, columns: &mut Columns<'_>, now_s: u32) -> AppendStats {
        let turn = columns.first(TURN_SAMPLES);
        let (done, stats) = match turn.values {
            ValuesRef::Floats(values) => self.append_turn(turn.refs, turn.timestamps, values, now_s),
            ValuesRef::Histograms(values) => self.append_turn(turn.refs, turn.timestamps, values, now_s),
        };
        columns.skip(done);
        stats
    }

    /// Stores samples from the front of the columns. Late samples and hidden series may end the turn early. Returns the
    /// number of stored samples.
    fn append_turn<V: Value>(
        &mut self,
        refs: &[SeriesRef],
        timestamps: &[i64],
        values: &[V],
        now_s: u32,
    ) -> (usize, AppendStats) {
        let mut stats = AppendStats::default();
        let awake = ACTIVE | state_of(V::KIND) | self.frozen.epoch;
        let (mut grown, mut late_steps, mut shown) = (0, 0, 0);
        let mut done = refs.len();
        for (i, ((series_ref, &timestamp_ms), value)) in refs.iter().zip(timestamps).zip(values).enumerate() {
            let mut series = self.series.get_mut(series_ref.index());
            let before_s = std::mem::replace(&mut series.seen_s, now_s);
            if series.state != awake {
                if series.state & HIDDEN != 0 {
                    if shown == SHOWN_MAX {
                        done = i;
                        break;
                    }
                    shown += 1;
                    self.show(*series_ref);
                    series = self.series.get_mut(series_ref.index());
                }
                self.active += usize::from(series.state & ACTIVE == 0);
                grown += series.wake(awake);
            }
            if timestamp_ms > series.open.last_ms() || series.is_newest_released(timestamp_ms) {
                // A request that is repeated brings no newer sample. Before the first one, `before_s` is 0.
                let goes_on = before_s != now_s && before_s != 0 && timestamp_ms > series.open.last_ms();
                series.set_lasting((series.is_lasting() || goes_on) && !value.is_stale());
                grown += series.append(timestamp_ms, value);
                stats.in_order += 1;
            } else if repeats_newest(series, timestamp_ms, value) {
                stats.duplicates += 1;
            } else {
                series.set_late(true);
                stats.late += 1;
                late_steps += self.append_late(*series_ref, timestamp_ms, value);
                if late_steps >= TURN_SAMPLES {
                    done = i + 1;
                    break;
                }
            }
        }
        self.chunk_bytes = self.chunk_bytes.wrapping_add_signed(grown);
        self.samples_fresh += stats.in_order + stats.late;
        (done, stats)
    }

    /// Stores a late sample. Returns its cost, as a number of in-order samples.
    #[cold]
    fn append_late<V: Value>(&mut self, series: SeriesRef, timestamp_ms: i64, value: &V) -> usize {
        let (late, before) = match self.late.entry(series) {
            Entry::Occupied(late) => {
                let before = late.get().heap_bytes();
                (late.into_mut(), before)
            }
            Entry::Vacant(vacant) => (vacant.insert(V::no_late()), 0),
        };
        let effort = V::late_mut(late).insert(timestamp_ms, value.clone(), series);
        self.late_bytes = self.late_bytes + late.heap_bytes() - before;
        match effort {
            Effort::Little => LATE_STEPS,
            Effort::Rewrite => REWRITE_STEPS,
        }
    }

    pub fn set_seen(&mut self, series: SeriesRef, seen_s: u32) {
        self.series.get_mut(series.index()).seen_s = seen_s;
    }

    pub fn metadata(&self) -> impl Iterator<Item = &Metadata> {
        self.metadata.values()
    }

    /// Metadata of the metric families that follow `metric` in the order of names, for callers that read it
    /// in turns.
    pub fn metadata_after<'a>(
        &'a self,
        metric: Option<&str>,
    ) -> impl Iterator<Item = &'a Metadata> + use<'a> {
        let after = metric.map_or(Bound::Unbounded, Bound::Excluded);
        self.metadata.range::<str, _>((after, Bound::Unbounded)).map(|(_, metadata)| metadata)
    }

    pub fn metadata_of(&self, metric: &str) -> Option<&Metadata> {
        self.metadata.get(metric)
    }

    /// The exemplars, oldest first.
    pub fn exemplars(&self) -> impl Iterator<Item = &(SeriesRef, Exemplar)> {
        self.exemplars.iter()
    }

    /// Exemplars with the number `from` or a higher one, for callers that read them in turns. When exemplars are deleted, or
    /// evicted with their series, the numbers of later ones become smaller ([`Self::exemplars_removed`]).
    pub fn exemplars_from(&self, from: u64) -> impl Iterator<Item = (u64, &SeriesRef, &Exemplar)> {
        self.exemplars.iter_from(from)
    }

    /// Number of exemplars that were deleted or evicted so far. If it grew by n, numbers became smaller by at most n.
    pub const fn exemplars_removed(&self) -> u64 {
        self.exemplars.removed()
    }

    pub fn kind(&self, series: SeriesRef) -> ValueKind {
        self.series.get(series.index()).kind()
    }

    /// Appends a series' samples inside `range` to `out`, in ascending order of time. If several samples were
    /// written for one time, only the last of them counts. `V` must be the type of the series' values.
    pub fn read<V: Value>(&self, series_ref: SeriesRef, range: TimeRange, out: &mut Samples<V>) {
        let from = out.len();
        let series = self.series.get(series_ref.index());
        assert!(series.kind() == V::KIND, "BUG: samples are read as the wrong kind");
        series.read(range, out);
        self.all_late_of(series, series_ref).for_each(|late| V::late(late).merge_into(range, out, from));
    }

    /// Like [`Self::read`], but for a series of any kind. Clears `out` first.
    pub fn read_any(&self, series: SeriesRef, range: TimeRange, out: &mut SeriesSamples) {
        out.clear_for(self.kind(series));
        match out {
            SeriesSamples::Floats(out) => self.read::<f64>(series, range, out),
            SeriesSamples::Histograms(out) => self.read::<Histogram>(series, range, out),
        }
    }

    /// A close upper bound on the number of samples that [`Self::read`] appends. It is found without
    /// decoding.
    pub fn samples_at_most(&self, series_ref: SeriesRef, range: TimeRange) -> usize {
        let series = self.series.get(series_ref.index());
        let late = self.all_late_of(series, series_ref).map(|late| late.samples_at_most(range));
        series.samples_at_most(range) + late.sum::<usize>()
    }

    pub fn has_samples(&self, series_ref: SeriesRef, range: TimeRange) -> bool {
        let series = self.series.get(series_ref.index());
        series.has_samples(range) || self.all_late_of(series, series_ref).any(|l| l.has_samples(range))
    }

    /// Late samples of a series in order of writing: the frozen ones, then newer ones, which win at equal
    /// times.
    pub(crate) fn all_late_of(&self, series: &Series, series_ref: SeriesRef) -> impl Iterator<Item = &Late> {
        let frozen = self.frozen_late_of(series, series_ref);
        let fresh = if series.has_late() && !self.frozen.is_whole(series) {
            self.late.get(&series_ref)
        } else {
            None
        };
        frozen.into_iter().chain(fresh)
    }

    pub(crate) fn frozen_late_of(&self, series: &Series, series_ref: SeriesRef) -> Option<&Late> {
        let has = if self.frozen.is_whole(series) { series.has_late() } else { series.has_frozen_late() };
        if has { self.frozen_late.get(&series_ref) } else { None }
    }

    /// The metric name of a series, and the number of its label pair.
    pub fn metric_name(&self, series: SeriesRef) -> Option<(u32, &str)> {
        self.labels.metric(series, &self.pairs).map(|pair| (pair.0, self.pairs.text(pair).1))
    }

    pub fn write_labels(&self, series: SeriesRef, out: &mut Vec<u8>) {
        self.labels.write(series, &self.pairs, out);
    }

    /// Names of the labels of all series, or of the series in `among`, unsorted. A [`crate::Walk`] does this
    /// in turns.
    pub fn label_names<'a>(&'a self, among: Option<&'a RoaringBitmap>) -> impl Iterator<Item = &'a str> {
        let used = move |id| is_among(self.pairs.postings(id), among);
        let names = (0..self.pairs.ends().0).filter_map(|number| self.pairs.name(number, 0));
        names.filter_map(move |(name, mut all)| all.any(used).then_some(name))
    }

    /// Values that a label has in all series, or in the series of `among`, unsorted.
    pub fn label_values<'a>(
        &'a self,
        name: &str,
        among: Option<&'a RoaringBitmap>,
    ) -> impl Iterator<Item = &'a str> {
        let used = move |id: &PairId| is_among(self.pairs.postings(*id), among);
        self.pairs.of_name(name, 0).filter(used).map(|id| self.pairs.text(id).1)
    }

    /// Compares the labels of two series in table order, without the metric name.
    pub(crate) fn compare_labels(&self, a: SeriesRef, b: SeriesRef) -> Ordering {
        self.labels.compare(a, b, &self.pairs)
    }

    pub(crate) const fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Number of series with a label pair, in constant time.
    pub fn series_with(&self, name: &str, value: &str) -> usize {
        self.pairs.find(name, value).map_or(0, |id| self.pairs.postings(id).len())
    }

    /// Number of series of the metric name with the most, and the highest such number so far, in constant time.
    pub fn largest_metric(&self) -> (usize, usize) {
        let sizes = self.pairs.metric_sizes();
        (sizes.largest(), sizes.peak())
    }

    /// For each value of a label, the number of its label pair and its count of series. Starts at the pair
    /// with the number `from`, in ascending order of numbers.
    pub fn values_from(&self, name: &str, from: u32) -> impl Iterator<Item = (u32, usize)> {
        self.pairs.of_name(name, from).map(|id| (id.0, self.pairs.postings(id).len()))
    }

    /// Number and value of a series' label pair with this name; `None` if the series has no such label.
    pub fn value_of(&self, series: SeriesRef, name: &str) -> Option<(u32, &str)> {
        let pair = self.labels.named(series, self.pairs.number_of(name)?, &self.pairs)?;
        Some((pair.0, self.pairs.text(pair).1))
    }

    pub fn has_value(&self, name: &str, value: &str) -> bool {
        self.series_with(name, value) > 0
    }

    pub fn name(&self, number: usize) -> Option<NameCount<'_>> {
        self.pairs.name_count(number)
    }

    pub fn name_count(&self, name: &str) -> Option<NameCount<'_>> {
        self.pairs.name_count(self.pairs.number_of(name)? as usize)
    }

    /// Number of label names that series have, and one more than the largest number that any name has.
    pub fn names_count(&self) -> (usize, usize) {
        self.pairs.names_count()
    }

    /// True if a series got a sample lately ([`crate::Idle::retire_before_s`]).
    pub fn is_active(&self, series: SeriesRef) -> bool {
        self.series.get(series.index()).state & ACTIVE != 0
    }

    /// The value of a label at this position, which is below [`NameCount::values`].
    pub fn nth_value(&self, name: &str, position: usize) -> Option<&str> {
        self.pairs.nth_of_name(name, position).map(|id| self.pairs.text(id).1)
    }

    pub fn pair_count(&self) -> usize {
        self.pairs.count()
    }

    pub fn pair(&self, number: usize) -> Option<PairCount<'_>> {
        self.pairs.pair_count(number)
    }

    /// One more than the largest number of a label pair.
    pub const fn pairs_end(&self) -> usize {
        self.pairs.ends().1
    }

    /// Number of series in memory, including those that are hidden or being evicted.
    pub const fn series_count(&self) -> usize {
        self.series.len() - self.free.len()
    }

    pub const fn series_end(&self) -> usize {
        self.series.len()
    }

    /// The existing series, for callers that visit them in turns.
    pub(crate) fn existing_series(&self) -> ExistingSeries {
        let absent = self.free.set() | &self.evicting.removing | &self.hidden;
        ExistingSeries { end: self.series.len() as u32, absent }
    }

    /// True from a freeze to the end of the release.
    pub const fn is_frozen(&self) -> bool {
        self.frozen.samples > 0
    }

    pub const fn active_count(&self) -> usize {
        self.active
    }

    /// Memory of the structures, without the allocator's overhead.
    pub fn memory_bytes(&self) -> usize {
        self.memory_parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Memory of late samples, including the frozen ones.
    pub fn late_bytes(&self) -> usize {
        self.late.allocation_size() + self.frozen_late.allocation_size() + self.late_bytes
    }

    fn removal_bytes(&self) -> usize {
        let hidden_bytes = if self.hidden.is_empty() { 0 } else { self.series.len() / 8 };
        self.free.memory_bytes(self.series.len())
            + self.evicting.memory_bytes(self.series.len())
            + hidden_bytes
    }

    pub fn memory_parts(&self) -> [(&'static str, usize); 8] {
        [
            ("the tenant itself", TENANT_BYTES),
            ("index", self.index.memory_bytes()),
            ("pairs and postings", self.pairs.memory_bytes()),
            ("label sets", self.labels.memory_bytes()),
            ("series", self.series.memory_bytes() + self.removal_bytes() + self.births.memory_bytes()),
            ("chunks", self.chunk_bytes),
            ("late samples", self.late_bytes()),
            ("metadata and exemplars", self.metadata_bytes + self.exemplars.memory_bytes()),
        ]
    }
}

fn repeats_newest<V: Value>(series: &Series, timestamp_ms: i64, value: &V) -> bool {
    !series.has_late()
        && timestamp_ms == series.open.last_ms()
        && series.open.newest().is_some_and(|newest| newest == value.fingerprint())
}

/// True if `among` has at least one of the series. Without `among`, true if there are any series.
fn is_among(postings: &Postings, among: Option<&RoaringBitmap>) -> bool {
    match among {
        Some(set) => postings.intersects(set),
        None => !postings.is_empty(),
    }
}
