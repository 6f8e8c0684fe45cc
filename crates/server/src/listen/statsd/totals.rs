//! What the lines of statsd add up to.

use model::labels::METRIC_NAME;
use model::{Batch, BatchSeries, Labels, LabelsBuilder, SeriesKey};
use protocol::statsd::{Kind, Line, Value};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use stdx::budget::{Account, Exhausted, IncrementalReservation, Reservation};
use stdx::rng::Rng;

/// Intervals without a value after which a series is forgotten. A counter then begins at zero again.
const IDLE_MAX: u32 = 60;

/// Limit on the series, which bounds the work at the end of an interval.
const SERIES_MAX: usize = 100_000;

/// Values of a timer of which the quantiles are computed. Of more, a random sample is kept.
const TIMER_VALUES_MAX: usize = 1024;

/// Limit on the members of a set.
const SET_MEMBERS_MAX: usize = 64 << 10;

const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];

/// This part of the account is for totals.
const ACCOUNT_PART: u64 = 4;

/// Memory that a series takes besides its labels: its entry in a table that is at least 7/16 full, and its place in the order.
const ENTRY_BYTES: usize = 4 * (size_of::<SeriesKey>() + size_of::<Series>());

/// Memory of a member of a set, in a table that is at least 7/16 full.
const MEMBER_BYTES: usize = 24;

/// Why a value does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    Malformed,
    /// The labels are invalid.
    Invalid,
    Memory,
    SetSize,
}

#[derive(Debug)]
pub(super) struct Totals {
    /// By a hash of the text of the name, the tags and the kind.
    places: HashMap<SeriesKey, usize>,
    series: Vec<Series>,
    account: Account,
    memory: Reservation,
    used_bytes: u64,
    seed: u64,
    rng: Rng,
    builder: LabelsBuilder,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Series {
    key: SeriesKey,
    labels: Labels,
    state: State,
    has_changed: bool,
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
            places: HashMap::new(),
            series: Vec::new(),
            memory: account.reserve(0).expect("BUG: cannot reserve 0 bytes"),
            account,
            used_bytes: 0,
            seed,
            rng: Rng::new(seed),
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

    /// Finds the series of a line, or makes it.
    fn place(&mut self, line: &Line<'_>) -> Result<usize, Dropped> {
        self.text.clear();
        self.text.push(line.kind as u8);
        self.text.extend_from_slice(line.name);
        self.text.push(b'\n');
        self.text.extend_from_slice(line.tags);
        let key = SeriesKey::of(&self.text, self.seed);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let labels = line.labels(&mut self.builder).map_err(|_| Dropped::Invalid)?;
        if self.series.len() >= SERIES_MAX {
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
            key,
            labels,
            state,
            has_changed: false,
            idle: 0,
            bytes,
            interval_bytes: 0,
        });
        self.places.insert(key, place);
        Ok(place)
    }

    fn add_value(&mut self, place: usize, value: Value<'_>, weight: f64) -> Result<(), Dropped> {
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
        let used = self.used_bytes + bytes;
        if used > self.account.limit_bytes() / ACCOUNT_PART {
            return Err(Dropped::Memory);
        }
        if used > self.memory.bytes() {
            self.memory.resize(used).map_err(|_| Dropped::Memory)?;
        }
        self.used_bytes = used;
        Ok(())
    }

    /// Makes a batch of the series in a range, with the time of the interval's end, and begins a new interval for them.
    /// Returns the start of the next range, if there are more series.
    pub(super) fn batch(
        &mut self,
        range: Range<usize>,
        now_ms: i64,
        mut memory: Reservation,
    ) -> Result<(Batch, Reservation, Option<usize>), Exhausted> {
        let mut batch = Batch::default();
        let end = range.end.min(self.series.len());
        let mut reservation = IncrementalReservation::new(&mut memory);
        let mut out = Out {
            batch: &mut batch,
            reservation: &mut reservation,
            builder: &mut self.builder,
            seed: self.seed,
            now_ms,
        };
        for series in &mut self.series[range.start.min(end)..end] {
            let labels = &series.labels;
            match &mut series.state {
                State::Counter(total) => out.add(labels, "", None, *total)?,
                State::Gauge(value) => out.add(labels, "", None, *value)?,
                State::Set(members) if series.has_changed => {
                    out.add(labels, "", None, members.len() as f64)?;
                    *members = HashSet::new();
                }
                State::Set(_) => {}
                State::Timer(timer) => {
                    out.add(labels, "_count", None, timer.count)?;
                    out.add(labels, "_sum", None, timer.sum)?;
                    timer.values.sort_unstable_by(f64::total_cmp);
                    for (name, quantile) in QUANTILES {
                        let Some(last) = timer.values.len().checked_sub(1) else { break };
                        let value = timer.values[(last as f64 * quantile).round() as usize];
                        out.add(labels, "", Some(name), value)?;
                    }
                    (timer.seen, timer.values, timer.room) = (0, Vec::new(), 0);
                }
            }
            series.idle = if series.has_changed { 0 } else { series.idle + 1 };
            series.has_changed = false;
            self.used_bytes -= std::mem::take(&mut series.interval_bytes);
        }
        Ok((batch, memory, (end < self.series.len()).then_some(end)))
    }

    /// Forgets series that have had no values for long.
    pub(super) fn forget_idle(&mut self) {
        let mut place = 0;
        while let Some(series) = self.series.get(place) {
            if series.idle < IDLE_MAX {
                place += 1;
                continue;
            }
            self.used_bytes -= series.bytes + series.interval_bytes;
            self.places.remove(&series.key);
            self.series.swap_remove(place);
            if let Some(moved) = self.series.get(place) {
                self.places.insert(moved.key, place);
            }
        }
        let used_bytes = self.used_bytes;
        self.memory.resize(used_bytes).expect("BUG: a reservation cannot shrink");
    }

    #[cfg(test)]
    pub(super) fn series_count(&self) -> usize {
        self.series.len()
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

impl Out<'_, '_> {
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
mod tests {
    use super::*;
    use protocol::labels::describe_labels;
    use std::collections::BTreeMap;

    fn totals(bytes: u64) -> (Account, Totals) {
        let account = Account::new("unwritten", bytes);
        let totals = Totals::new(account.clone(), 7);
        (account, totals)
    }

    /// Ends an interval, and returns its samples.
    fn flush(account: &Account, totals: &mut Totals) -> BTreeMap<String, f64> {
        let (mut found, mut from) = (BTreeMap::new(), Some(0));
        while let Some(first) = from {
            let memory = account.reserve(0).unwrap();
            let (batch, _memory, next) = totals.batch(first..first + 2, 5, memory).unwrap();
            for series in &batch.floats.series {
                let at = series.samples.start as usize;
                assert_eq!(batch.floats.timestamps[at], 5);
                let twice = found.insert(describe_labels(batch.label_bytes(series)), batch.floats.values[at]);
                assert_eq!(twice, None);
            }
            from = next;
        }
        totals.forget_idle();
        found
    }

    fn add(totals: &mut Totals, lines: &[&str]) {
        lines.iter().for_each(|line| totals.add(line.as_bytes()).unwrap());
    }

    fn expected(samples: &[(&str, f64)]) -> BTreeMap<String, f64> {
        samples.iter().map(|(series, value)| ((*series).to_owned(), *value)).collect()
    }

    #[test]
    fn lines_add_up() {
        let (account, mut totals) = totals(1 << 20);
        add(
            &mut totals,
            &["hits:1|c", "hits:2|c|@0.5", "hits:1|c|#code:200", "size:7|g", "size:+3|g", "size:-1|g"],
        );
        add(&mut totals, &["users:a|s", "users:b|s", "users:a|s", "t:3|ms", "t:1:2|ms", "t:4|h|@0.1"]);
        assert_eq!(
            flush(&account, &mut totals),
            expected(&[
                ("hits{}", 5.0),
                (r#"hits{code="200"}"#, 1.0),
                ("size{}", 9.0),
                ("users{}", 2.0),
                ("t_count{}", 13.0),
                ("t_sum{}", 46.0),
                (r#"t{quantile="0.5"}"#, 3.0),
                (r#"t{quantile="0.9"}"#, 4.0),
                (r#"t{quantile="0.99"}"#, 4.0),
            ])
        );
        // counters and gauges go on; sets and quantiles are those of an interval
        add(&mut totals, &["hits:1|c", "users:c|s"]);
        assert_eq!(
            flush(&account, &mut totals),
            expected(&[
                ("hits{}", 6.0),
                (r#"hits{code="200"}"#, 1.0),
                ("size{}", 9.0),
                ("users{}", 1.0),
                ("t_count{}", 13.0),
                ("t_sum{}", 46.0),
            ])
        );
        for _ in 0..IDLE_MAX {
            add(&mut totals, &["hits:1|c"]);
            flush(&account, &mut totals);
        }
        assert_eq!(totals.series_count(), 1, "idle series are forgotten");
        add(&mut totals, &["size:+1|g", "hits:1|c"]);
        let found = flush(&account, &mut totals);
        assert_eq!((found["size{}"], found["hits{}"]), (1.0, 67.0));
        drop(totals);
        assert_eq!(account.used_bytes(), 0);
    }

    #[test]
    fn quantiles_of_many_values_are_those_of_a_sample() {
        let (account, mut totals) = totals(1 << 20);
        for i in 0..100_000 {
            totals.add(format!("t:{}|ms", i % 1000).as_bytes()).unwrap();
        }
        let found = flush(&account, &mut totals);
        assert_eq!((found["t_count{}"], found["t_sum{}"]), (100_000.0, 49_950_000.0));
        for (name, quantile) in QUANTILES {
            let value = found[&format!("t{{quantile={name:?}}}")];
            assert!((value / 1000.0 - quantile).abs() < 0.08, "{name}: {value}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let (account, mut totals) = totals(400_000);
        let mut dropped = 0;
        for i in 0..2000 {
            dropped += u32::from(totals.add(format!("a{i}:1|c").as_bytes()) == Err(Dropped::Memory));
            assert!(account.used_bytes() <= 100_000);
        }
        assert!((1..1900).contains(&dropped), "{dropped}");
        assert_eq!(totals.add(b"a0:1|c"), Ok(()), "known series go on");
        assert_eq!(totals.add(b"more:1|c"), Err(Dropped::Memory));
        let (account, mut sets) = self::totals(64 << 20);
        for i in 0..SET_MEMBERS_MAX {
            sets.add(format!("s:{i}|s").as_bytes()).unwrap();
        }
        assert_eq!(sets.add(b"s:more|s"), Err(Dropped::SetSize));
        assert_eq!(sets.add(b"s:7|s"), Ok(()));
        assert_eq!(flush(&account, &mut sets)["s{}"], SET_MEMBERS_MAX as f64);
        assert!(account.used_bytes() < 10_000);
        assert_eq!(sets.add(b"x\xff:1|c"), Err(Dropped::Invalid));
        assert_eq!(sets.add(b"x"), Err(Dropped::Malformed));
    }
}
