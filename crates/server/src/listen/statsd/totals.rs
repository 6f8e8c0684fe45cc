//! What the lines of statsd add up to.

use model::labels::METRIC_NAME;
use model::{Batch, BatchSeries, Labels, LabelsBuilder, SeriesKey};
use protocol::statsd::{Kind, Line, Value};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use stdx::budget::{Account, Exhausted, IncrementalReservation, Reservation};
use stdx::rng::Rng;

/// Intervals without a value after which a series is forgotten, unless its last value is not stored yet. A counter then begins at zero
/// again.
const IDLE_MAX: u32 = 60;

/// Limit on the labels of a series. A timer becomes five series, each with all labels, at the end of an interval.
const LABEL_BYTES_MAX: usize = 4 << 10;

/// Limit on the series, which bounds the work at the end of an interval.
const SERIES_MAX: usize = 100_000;

/// Values of a timer of which the quantiles are computed. Of more, a random sample is kept.
const TIMER_VALUES_MAX: usize = 1024;

/// Limit on the members of a set.
const SET_MEMBERS_MAX: usize = 64 << 10;

const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];

/// Totals may take 1/`ACCOUNT_PART` of the account.
const ACCOUNT_PART: u64 = 4;

/// Memory that a series takes besides its labels: two keys, its entries in a table that is at least 7/16 full, and its place in the order.
const ENTRY_BYTES: usize = 4 * size_of::<Series>() + 2 * KEY_BYTES;

/// Memory of a further key of a series.
const KEY_BYTES: usize = 2 * size_of::<SeriesKey>() + 3 * size_of::<(SeriesKey, usize)>();

/// Limit on the keys of a series. Lines that have further orders of its tags take a little longer.
const KEYS_MAX: usize = 8;

/// Memory of a member of a set, in a table that is at least 7/16 full.
const MEMBER_BYTES: usize = 24;

/// Begins what is hashed for the key of labels. No kind has this number.
const OF_LABELS: u8 = u8::MAX;

/// Why a value does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    Malformed,
    /// The labels are invalid or too long, or the value would make the total infinite.
    Invalid,
    Memory,
    SetSize,
}

/// A batch ends with the series that reaches one of these limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) series: usize,
    pub(super) label_bytes: usize,
    /// Values of timers, which are sorted.
    pub(super) values: usize,
}

/// A part of the values of an interval.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) batch: Batch,
    /// Reservation for the batch.
    pub(super) memory: Reservation,
    /// The series whose samples are in the batch, for [`Totals::stored`].
    pub(super) series: Range<usize>,
    /// Where the next part begins, if there are more series.
    pub(super) next: Option<usize>,
    /// Why the last series of the part is not in the batch: it did not fit into the memory, although the batch was empty.
    pub(super) left_out: Option<Exhausted>,
}

#[derive(Debug)]
pub(super) struct Totals {
    /// Positions in `series`, by [`Series::keys`].
    positions: HashMap<SeriesKey, usize>,
    series: Vec<Series>,
    account: Account,
    memory: Reservation,
    used_bytes: u64,
    seed: u64,
    rng: Rng,
    /// True if a series or value found no room since series were last forgotten.
    is_short: bool,
    builder: LabelsBuilder,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Series {
    /// The hash of the kind with the labels, then those of the kind with a line's text of name and tags, one for each order of the
    /// tags.
    keys: Vec<SeriesKey>,
    labels: Labels,
    state: State,
    has_changed: bool,
    /// True if the latest value is not stored yet. Always false for sets, whose members are not stored later.
    is_unstored: bool,
    idle: u32,
    bytes: u64,
    /// Memory for the values of the interval.
    interval_bytes: u64,
}

#[derive(Debug)]
enum State {
    Counter(f64),
    Gauge(f64),
    Timer(Timer),
    Set(HashSet<u64>),
}

/// The count and the sum go on; the values are those of the interval.
#[derive(Debug, Default)]
struct Timer {
    count: f64,
    sum: f64,
    seen: u64,
    values: Vec<f64>,
    /// Number of values for which memory is reserved.
    room: usize,
}

impl Totals {
    pub(super) fn new(account: Account, seed: u64) -> Self {
        Self {
            positions: HashMap::new(),
            series: Vec::new(),
            memory: account.reserve(0).expect("BUG: cannot reserve 0 bytes"),
            account,
            used_bytes: 0,
            seed,
            rng: Rng::new(seed),
            is_short: false,
            builder: LabelsBuilder::new(),
            text: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, line: &[u8]) -> Result<(), Dropped> {
        let line = Line::parse(line).map_err(|_| Dropped::Malformed)?;
        let place = self.place(&line)?;
        for value in line.values() {
            self.add_value(place, value, line.weight)?;
        }
        Ok(())
    }

    /// Finds the series of a line, or makes it. The labels are built only for a text that is not known.
    fn place(&mut self, line: &Line<'_>) -> Result<usize, Dropped> {
        self.text.clear();
        self.text.push(line.kind as u8);
        self.text.extend_from_slice(line.name);
        self.text.push(b'\n');
        self.text.extend_from_slice(line.tags);
        let key = SeriesKey::of(&self.text, self.seed);
        if let Some(place) = self.positions.get(&key) {
            return Ok(*place);
        }
        let labels = line.labels(&mut self.builder).map_err(|_| Dropped::Invalid)?;
        if labels.as_bytes().len() > LABEL_BYTES_MAX {
            return Err(Dropped::Invalid);
        }
        let own_key = self.key_of(line.kind, &labels);
        if let Some(place) = self.positions.get(&own_key) {
            let place = *place;
            self.add_key(place, key);
            return Ok(place);
        }
        if self.series.len() >= SERIES_MAX {
            self.is_short = true;
            return Err(Dropped::Memory);
        }
        let bytes = (ENTRY_BYTES + labels.as_bytes().len()) as u64;
        self.reserve(bytes)?;
        let state = match line.kind {
            Kind::Counter => State::Counter(0.0),
            Kind::Gauge => State::Gauge(0.0),
            Kind::Timer => State::Timer(Timer::default()),
            Kind::Set => State::Set(HashSet::new()),
        };
        let place = self.series.len();
        self.series.push(Series {
            keys: vec![own_key, key],
            labels,
            state,
            has_changed: false,
            is_unstored: false,
            idle: 0,
            bytes,
            interval_bytes: 0,
        });
        self.positions.extend([(own_key, place), (key, place)]);
        Ok(place)
    }

    fn key_of(&mut self, kind: Kind, labels: &Labels) -> SeriesKey {
        self.text.clear();
        self.text.extend_from_slice(&[OF_LABELS, kind as u8]);
        self.text.extend_from_slice(labels.as_bytes());
        SeriesKey::of(&self.text, self.seed)
    }

    /// Remembers the key of another text for a series, if there is room.
    fn add_key(&mut self, place: usize, key: SeriesKey) {
        if self.series[place].keys.len() >= KEYS_MAX || !self.reserve_if_free(KEY_BYTES as u64) {
            return;
        }
        let series = &mut self.series[place];
        series.bytes += KEY_BYTES as u64;
        series.keys.push(key);
        self.positions.insert(key, place);
    }

    fn add_value(&mut self, place: usize, value: Value<'_>, weight: f64) -> Result<(), Dropped> {
        if !self.series[place].state.stays_finite(value, weight) {
            return Err(Dropped::Invalid);
        }
        let needed = match (&self.series[place].state, value) {
            (State::Timer(timer), _) if timer.values.len() == timer.room => {
                let more = timer.room.max(4).min(TIMER_VALUES_MAX - timer.values.len());
                more * size_of::<f64>()
            }
            (State::Set(members), Value::Member(member)) => {
                let member = self.member(member);
                match (members.contains(&member), members.len() < SET_MEMBERS_MAX) {
                    (true, _) => 0,
                    (false, true) => MEMBER_BYTES,
                    (false, false) => return Err(Dropped::SetSize),
                }
            }
            _ => 0,
        };
        self.reserve(needed as u64)?;
        let member = match value {
            Value::Member(member) => self.member(member),
            Value::Number(_) | Value::Change(_) => 0,
        };
        let Self { series, rng, .. } = self;
        let series = &mut series[place];
        series.interval_bytes += needed as u64;
        series.has_changed = true;
        // the members of a set are those of an interval, and are not stored later
        series.is_unstored = !matches!(series.state, State::Set(_));
        match (&mut series.state, value) {
            (State::Counter(total), Value::Number(number)) => *total += number * weight,
            (State::Gauge(now), Value::Number(number)) => *now = number,
            (State::Gauge(now), Value::Change(change)) => *now += change,
            (State::Timer(timer), Value::Number(number)) => timer.add(number, weight, needed, rng),
            (State::Set(members), Value::Member(_)) => _ = members.insert(member),
            (state, value) => unreachable!("BUG: {value:?} is no value of {state:?}"),
        }
        Ok(())
    }

    fn member(&self, member: &[u8]) -> u64 {
        SeriesKey::of(member, self.seed).0 as u64
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), Dropped> {
        if !self.reserve_if_free(bytes) {
            self.is_short = true;
            return Err(Dropped::Memory);
        }
        Ok(())
    }

    /// Reserves memory. Returns false if there is none. No series is forgotten because of that.
    fn reserve_if_free(&mut self, bytes: u64) -> bool {
        let used = self.used_bytes + bytes;
        let is_within = used <= self.account.limit_bytes() / ACCOUNT_PART;
        if !is_within || (used > self.memory.bytes() && self.memory.resize(used).is_err()) {
            return false;
        }
        self.used_bytes = used;
        true
    }

    /// Makes a batch of the series from `first` on, with the time of the interval's end, and begins a new interval for them.
    ///
    /// If the memory is full, the batch ends before the series that does not fit, which is tried again once this batch is
    /// stored. If it is the first one, it is left out, so that it does not keep back all others.
    pub(super) fn batch(
        &mut self,
        first: usize,
        limits: Limits,
        now_ms: i64,
        mut memory: Reservation,
    ) -> Part {
        let mut batch = Batch::default();
        let mut room = self.account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let mut reservation = IncrementalReservation::new(&mut memory);
        let (builder, seed) = (&mut self.builder, self.seed);
        let mut out = Out { batch: &mut batch, reservation: &mut reservation, builder, seed, now_ms };
        let (mut at, mut values, mut left_out) = (first, 0, None);
        while left_out.is_none()
            && let Some(series) = self.series.get_mut(at)
            && at - first < limits.series
            && out.batch.bytes.len() < limits.label_bytes
            && values < limits.values
        {
            let mark = out.mark();
            if let Err(full) = out.add_series(series).and_then(|()| room.resize(writing_bytes(out.batch))) {
                out.return_to(mark);
                if mark.series > 0 {
                    break;
                }
                left_out = Some(full);
            }
            values += series.end_interval();
            self.used_bytes -= std::mem::take(&mut series.interval_bytes);
            at += 1;
        }
        let next = (at < self.series.len()).then_some(at);
        Part { batch, memory, series: first..at, next, left_out }
    }

    /// Records that the samples of these series in the last batch are stored. Must be called before series are forgotten.
    pub(super) fn stored(&mut self, series: Range<usize>) {
        // a value may have come meanwhile
        self.series[series].iter_mut().for_each(|series| series.is_unstored &= series.has_changed);
    }

    /// Forgets series that have had no values for long, and whose last value is stored. If there was no room for others, it also
    /// forgets those whose last value is not, and returns their number.
    pub(super) fn forget_idle(&mut self) -> u64 {
        let (is_short, mut place, mut lost) = (std::mem::take(&mut self.is_short), 0, 0);
        while let Some(series) = self.series.get(place) {
            // a value may have come after the interval was stored
            if series.idle < IDLE_MAX || series.has_changed || (series.is_unstored && !is_short) {
                place += 1;
                continue;
            }
            lost += u64::from(series.is_unstored);
            self.used_bytes -= series.bytes + series.interval_bytes;
            for key in self.series.swap_remove(place).keys {
                self.positions.remove(&key);
            }
            if let Some(moved) = self.series.get(place) {
                self.positions.extend(moved.keys.iter().map(|key| (*key, place)));
            }
        }
        let used_bytes = self.used_bytes;
        self.memory.resize(used_bytes).expect("BUG: a reservation cannot shrink");
        lost
    }

    /// Number of series with values that are not stored.
    pub(super) fn unstored(&self) -> u64 {
        self.series.iter().filter(|series| series.is_unstored || series.has_changed).count() as u64
    }

    #[cfg(test)]
    pub(super) fn series_count(&self) -> usize {
        self.series.len()
    }
}

impl Series {
    /// Begins a new interval. Returns the number of values that were sorted at the end of the last one.
    fn end_interval(&mut self) -> usize {
        self.idle = if self.has_changed { 0 } else { self.idle + 1 };
        self.has_changed = false;
        match &mut self.state {
            State::Counter(_) | State::Gauge(_) => 0,
            State::Set(members) => {
                *members = HashSet::new();
                0
            }
            State::Timer(timer) => {
                (timer.seen, timer.room) = (0, 0);
                std::mem::take(&mut timer.values).len()
            }
        }
    }
}

impl State {
    /// Whether the totals are still finite with this value. An infinite total stays infinite, or becomes NaN.
    fn stays_finite(&self, value: Value<'_>, weight: f64) -> bool {
        match (self, value) {
            (Self::Counter(total), Value::Number(number)) => (total + number * weight).is_finite(),
            (Self::Gauge(now), Value::Change(change)) => (now + change).is_finite(),
            (Self::Timer(timer), Value::Number(number)) => {
                (timer.count + weight).is_finite() && (timer.sum + number * weight).is_finite()
            }
            _ => true,
        }
    }
}

impl Timer {
    /// `room_bytes` is the memory that was reserved for more values.
    fn add(&mut self, number: f64, weight: f64, room_bytes: usize, rng: &mut Rng) {
        self.count += weight;
        self.sum += number * weight;
        self.seen += 1;
        if room_bytes > 0 {
            self.room += room_bytes / size_of::<f64>();
            self.values.reserve_exact(self.room - self.values.len());
        }
        if self.values.len() < TIMER_VALUES_MAX {
            self.values.push(number);
            return;
        }
        // each of the values seen so far has the same chance to be kept (Vitter's algorithm R)
        let place = rng.below(self.seen) as usize;
        if let Some(value) = self.values.get_mut(place) {
            *value = number;
        }
    }
}

struct Out<'a, 'p> {
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
    builder: &'a mut LabelsBuilder,
    seed: u64,
    now_ms: i64,
}

/// Upper bound on the memory that writing a batch takes from the same account: the samples by partition, and the labels of
/// series that are new. A batch that left no room for this would be refused.
fn writing_bytes(batch: &Batch) -> u64 {
    let Batch { bytes, floats, .. } = batch;
    (2 * bytes.len() + WRITING_SAMPLE_BYTES * floats.values.len() + WRITING_BYTES) as u64
}

const WRITING_SAMPLE_BYTES: usize = 128;

/// Allocations grow in steps of this size, and there are two: for samples and for labels.
const WRITING_BYTES: usize = 2 * (16 << 10);

/// The size of a batch, to which it can return.
#[derive(Debug, Clone, Copy)]
struct Mark {
    bytes: usize,
    series: usize,
}

impl Out<'_, '_> {
    const fn mark(&self) -> Mark {
        Mark { bytes: self.batch.bytes.len(), series: self.batch.floats.series.len() }
    }

    /// Removes what was added since the mark. Each series has one sample.
    fn return_to(&mut self, mark: Mark) {
        let Batch { bytes, floats, .. } = &mut *self.batch;
        bytes.truncate(mark.bytes);
        floats.series.truncate(mark.series);
        floats.values.truncate(mark.series);
        floats.timestamps.truncate(mark.series);
    }

    /// Adds the samples of the interval that ends.
    fn add_series(&mut self, series: &mut Series) -> Result<(), Exhausted> {
        let labels = &series.labels;
        match &mut series.state {
            State::Counter(total) => self.add(labels, "", None, *total),
            State::Gauge(value) => self.add(labels, "", None, *value),
            State::Set(members) if series.has_changed => self.add(labels, "", None, members.len() as f64),
            State::Set(_) => Ok(()),
            State::Timer(timer) => {
                self.add(labels, "_count", None, timer.count)?;
                self.add(labels, "_sum", None, timer.sum)?;
                timer.values.sort_unstable_by(f64::total_cmp);
                for (name, quantile) in QUANTILES {
                    let Some(last) = timer.values.len().checked_sub(1) else { break };
                    let value = timer.values[(last as f64 * quantile).round() as usize];
                    self.add(labels, "", Some(name), value)?;
                }
                Ok(())
            }
        }
    }

    /// Adds a sample. Series whose labels become invalid by the suffix or the quantile are left out.
    fn add(
        &mut self,
        labels: &Labels,
        suffix: &str,
        quantile: Option<&str>,
        value: f64,
    ) -> Result<(), Exhausted> {
        let start = self.batch.bytes.len();
        if suffix.is_empty() && quantile.is_none() {
            self.reservation.extend(&mut self.batch.bytes, labels.as_bytes())?;
        } else {
            self.builder.clear();
            for (name, value) in labels.iter() {
                match name {
                    METRIC_NAME => self.builder.push(name, &format!("{value}{suffix}")),
                    _ => self.builder.push(name, value),
                }
            }
            quantile.into_iter().for_each(|quantile| self.builder.push("quantile", quantile));
            let Ok(labels) = self.builder.build_series() else { return Ok(()) };
            self.reservation.extend(&mut self.batch.bytes, labels.as_bytes())?;
        }
        let Batch { bytes, floats, .. } = &mut *self.batch;
        let key = SeriesKey::of(&bytes[start..], self.seed);
        let at = floats.values.len() as u32;
        let labels = start as u32..bytes.len() as u32;
        self.reservation.push(&mut floats.timestamps, self.now_ms)?;
        self.reservation.push(&mut floats.values, value)?;
        self.reservation.push(&mut floats.series, BatchSeries { key, labels, samples: at..at + 1 })
    }
}

#[cfg(test)]
mod tests;
