use super::super::ticket::Tickets;
use super::*;
use model::Labels;
use std::collections::BTreeMap;
use stdx::rng::Rng;

/// Points with their series, in the order in which they were sent.
type Points = Vec<(usize, i64, f64)>;

type Stored = BTreeMap<SeriesKey, Vec<(i64, f64)>>;

const FOUR: ChunkLimits = ChunkLimits { series: 4, bytes: u64::MAX };

const ALL: ChunkLimits = ChunkLimits { series: 100, bytes: u64::MAX };

struct Test {
    queue: Arc<NewSeriesQueue>,
    inflight: Account,
    tenant: TenantId,
    labels: Vec<Labels>,
}

impl Test {
    fn new(limit_bytes: u64) -> Self {
        let inflight = Account::new("inflight", limit_bytes);
        let queue = Arc::new(NewSeriesQueue {
            account: inflight.part(),
            tenants: Mutex::default(),
            ended: Notify::new(),
        });
        queue.account.share(u64::MAX, limit_bytes);
        let labels = (0..30).map(|i| Labels::from_pairs(&[("__name__", &format!("a.n{i}"))])).collect();
        Self { queue, inflight, tenant: TenantId::anonymous(), labels }
    }

    fn key(&self, series: usize) -> SeriesKey {
        SeriesKey::of(self.labels[series].as_bytes(), 1)
    }

    fn push(&self, points: &Points, ticket: &Ticket) -> Option<Dropped> {
        self.push_part(self.part(points), ticket)
    }

    fn part(&self, points: &Points) -> NewPart {
        let mut part = NewPart { series: vec![], timestamps: vec![], values: model::Values::Floats(vec![]) };
        for (series, at_ms, value) in points {
            let start = part.timestamps.len() as u32;
            part.timestamps.push(*at_ms);
            let model::Values::Floats(values) = &mut part.values else { unreachable!() };
            values.push(*value);
            let (key, labels) = (self.key(*series), self.labels[*series].clone());
            part.series.push(NewSeries { key, labels, samples: start..start + 1, exemplars: vec![] });
        }
        part
    }

    fn push_part(&self, part: NewPart, ticket: &Ticket) -> Option<Dropped> {
        self.push_at(part, Expected::New, ticket, Instant::now())
    }

    fn push_at(&self, part: NewPart, expected: Expected, ticket: &Ticket, now: Instant) -> Option<Dropped> {
        let new = NewSamples::of(part, self.inflight.reserve(0).unwrap());
        let dropped = self.queue.push(&self.tenant, 1, (&new, expected), ticket, now).1;
        self.check();
        dropped
    }

    /// What is reserved is what the entries and the chunk in creation take.
    fn check(&self) {
        let tenants = self.queue.tenants.lock();
        let Some(queue) = tenants.get(&self.tenant) else { return };
        let numbers = (0..self.labels.len()).filter_map(|series| queue.slots.find(self.key(series)));
        let sizes: Vec<Size> = numbers.map(|number| queue.slots.get(number).size()).collect();
        if sizes.len() == queue.slots.len() {
            assert_eq!(sizes.iter().map(|size| size.entry_bytes).sum::<u64>(), queue.entry_bytes);
            let copy_bytes = sizes.iter().map(|size| size.copy_bytes).sum::<u64>();
            let divided_bytes = copy_bytes - queue.copy_bytes;
            assert!(divided_bytes == 0 || divided_bytes < queue.chunk_bytes, "{divided_bytes}");
        }
        assert_eq!(queue.memory.bytes(), queue.entry_bytes + queue.ahead_bytes(queue.copy_bytes));
        assert!(queue.chunk_bytes <= COPY_BYTES_MAX);
    }

    /// The points of a series, and the places for them.
    fn places(&self, series: usize) -> (usize, usize) {
        let tenants = self.queue.tenants.lock();
        let slots = &tenants[&self.tenant].slots;
        slots.find(self.key(series)).map_or((0, 0), |number| {
            let entry = slots.get(number);
            (entry.points(), entry.capacity())
        })
    }

    fn take(&self, limits: ChunkLimits) -> Option<Chunk> {
        let known = self.queue.take_known(&self.tenant, limits);
        let chunk = known.or_else(|| self.queue.take(&self.tenant, limits))?;
        self.check();
        let Batch { bytes, floats, .. } = &chunk.batch;
        let points = (floats.timestamps.capacity() + floats.values.capacity()) * size_of::<i64>();
        let held = bytes.capacity() + floats.series.capacity() * size_of::<BatchSeries>() + points;
        // a vector with one element has room for some more, so a small chunk may hold slightly more than is reserved
        let reserved = self.queue.tenants.lock()[&self.tenant].chunk_bytes as usize + 256;
        assert!(held <= reserved, "{held} of {reserved}");
        Some(chunk)
    }
}

/// Adds the points of a chunk to those that are stored, by key.
fn store(chunk: &Chunk, stored: &mut Stored) {
    let floats = &chunk.batch.floats;
    for series in &floats.series {
        let samples = series.samples.start as usize..series.samples.end as usize;
        let points = floats.timestamps[samples.clone()].iter().copied();
        stored.entry(series.key).or_default().extend(points.zip(floats.values[samples].iter().copied()));
    }
}

/// Points arrive while others are queued or in creation. Points of series that exist and do not wait are stored at once.
#[test]
fn points_of_a_series_are_stored_in_the_order_of_their_arrival() {
    let mut rng = Rng::announced();
    for _ in 0..200 {
        let (test, tickets) = (Test::new(1 << 20), Tickets::new());
        let (mut stored, mut sent) = (Stored::new(), Stored::new());
        let mut in_creation = None;
        for number in 0..rng.below(200) as i64 {
            let mut queued = Points::new();
            for _ in 0..rng.below(4) {
                let (series, point) = (rng.below(30) as usize, (number / 50, number as f64));
                let key = test.key(series);
                sent.entry(key).or_default().push(point);
                match stored.get_mut(&key) {
                    Some(stored) if !test.queue.waits(&test.tenant, key) => stored.push(point),
                    _ => queued.push((series, point.0, point.1)),
                }
            }
            assert!(test.push(&queued, tickets.ticket()).is_none());
            if rng.chance(0.3) {
                in_creation.take().iter().for_each(|chunk| store(chunk, &mut stored));
                let series = 1 + rng.below(5) as usize;
                in_creation = test.take(ChunkLimits { series, bytes: 1 + rng.below(2000) });
            }
        }
        loop {
            in_creation.take().iter().for_each(|chunk| store(chunk, &mut stored));
            in_creation = test.take(FOUR);
            if in_creation.is_none() {
                break;
            }
        }
        assert_eq!(stored, sent);
        assert!(test.queue.forget(&test.tenant) && test.queue.is_empty());
        assert_eq!(test.inflight.used_bytes(), 0);
    }
}

/// If each chunk moved all points that are left, this would move terabytes.
#[test]
fn points_of_one_series_are_taken_in_constant_time() {
    const COUNT: usize = 1 << 19;
    let (test, tickets) = (Test::new(1 << 30), Tickets::new());
    let points: Points = (0..COUNT).map(|i| (0, i as i64, i as f64)).collect();
    assert!(test.push(&points, tickets.ticket()).is_none());
    let one = ChunkLimits { series: 1, bytes: 1 };
    let take = || test.take(one);
    for number in 0..COUNT {
        let chunk = take().unwrap();
        assert_eq!(chunk.batch.floats.timestamps, [number as i64]);
        let (len, capacity) = test.places(0);
        assert!(capacity <= 2 * len, "{capacity} places for {len} points");
        assert_eq!(len, COUNT - 1 - number);
    }
    assert!(take().is_none());
    assert!(test.queue.forget(&test.tenant) && test.inflight.used_bytes() == 0);
}

/// If the points had no room to grow after a take, all of them would be moved by the next push, and again by the next take.
#[test]
fn points_are_pushed_and_taken_by_turns_in_constant_time() {
    const COUNT: usize = 1 << 15;
    let (test, tickets) = (Test::new(1 << 30), Tickets::new());
    let points: Points = (0..COUNT).map(|i| (0, i as i64, i as f64)).collect();
    assert!(test.push(&points, tickets.ticket()).is_none());
    let one = ChunkLimits { series: 1, bytes: 1 };
    let (mut capacity, mut moved) = (0, 0);
    // one is pushed and two are taken, so that one is left at the end
    for turn in 0..COUNT - 1 {
        for step in 0..3 {
            if step == 0 {
                assert!(test.push(&vec![(0, 0, 0.0)], tickets.ticket()).is_none());
            } else {
                assert!(test.take(one).is_some(), "{turn}");
            }
            let (len, now) = test.places(0);
            moved += if now == capacity { 0 } else { len };
            capacity = now;
        }
    }
    assert!(moved < 8 * COUNT, "{moved} for {COUNT} points");
}

#[test]
fn a_chunk_ends_within_the_points_of_a_series_if_they_are_many() {
    let (test, tickets) = (Test::new(1 << 20), Tickets::new());
    let points: Points = (0..1000).map(|i| (i % 2, i as i64, i as f64)).collect();
    assert!(test.push(&points, tickets.ticket()).is_none());
    let (mut stored, mut chunks) = (Stored::new(), 0);
    let limits = ChunkLimits { series: 10, bytes: 100 * POINT_BYTES as u64 };
    while let Some(chunk) = test.take(limits) {
        assert!(chunk.points() <= 100);
        store(&chunk, &mut stored);
        chunks += 1;
    }
    let times = |series| stored[&test.key(series)].iter().map(|(at_ms, _)| *at_ms);
    assert!(times(0).eq((0..1000).step_by(2)) && times(1).eq((1..1000).step_by(2)));
    assert!(chunks >= 10 && test.queue.forget(&test.tenant));
    assert_eq!(test.inflight.used_bytes(), 0);
}

#[test]
fn the_newest_points_are_dropped_when_there_is_no_room() {
    let (test, tickets) = (Test::new(4000), Tickets::new());
    let points: Points = (0..30).map(|i| (i, 1, 1.0)).collect();
    let dropped = test.push(&points, tickets.ticket()).expect("there is no room for all points");
    let queued = test.queue.of(&test.tenant);
    assert_eq!(dropped.points + queued.points, 30);
    assert!(queued.points > 3, "{queued:?}");
    assert_eq!(dropped.series, describe_labels(test.labels[queued.points as usize].as_bytes()));
    let chunk = test.queue.take(&test.tenant, ALL).unwrap();
    assert_eq!(chunk.points(), queued.points);
    assert_eq!(test.queue.points(), [(test.tenant.clone(), queued.points)], "with those in creation");
    drop(chunk);
    assert_eq!(test.queue.points(), []);
    assert!(test.queue.take(&test.tenant, ALL).is_none() && test.queue.forget(&test.tenant));
    assert_eq!(test.inflight.used_bytes(), 0);
}

/// Points of a tenant whose series are created slowly may wait for hours.
#[test]
fn a_tenant_that_is_alone_leaves_room_to_others() {
    let (mut test, tickets) = (Test::new(40_000), Tickets::new());
    let mut queued_of = |name: &str| {
        test.tenant = TenantId::parse(name).unwrap();
        let mut rounds = (0..).map(|at_ms| (0..30).map(|i| (i, at_ms, 1.0)).collect::<Points>());
        while test.push(&rounds.next().unwrap(), tickets.ticket()).is_none() {}
        test.queue.of(&test.tenant).points
    };
    let (first, second, third) = (queued_of("a"), queued_of("b"), queued_of("c"));
    assert!(first > 10 * second && second > 10 && third > 0, "{first}, {second}, {third}");
}

/// While the points in creation cannot be stored, the backlog must not look empty.
#[test]
fn the_backlog_includes_known_series_and_the_chunk_in_creation() {
    let (test, tickets) = (Test::new(1 << 20), Tickets::new());
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let push = |series, expected, seconds| {
        let part = test.part(&vec![(series, 0, 1.0)]);
        assert!(test.push_at(part, expected, tickets.ticket(), at(seconds)).is_none());
    };
    let check = |points, series, seconds| {
        let queued = test.queue.of(&test.tenant);
        assert_eq!((queued.points, queued.series, queued.seconds(at(10))), (points, series, seconds));
        assert_eq!(test.queue.all(), queued);
    };
    push(0, Expected::Known, 0);
    push(1, Expected::New, 1);
    check(2, 2, 10.0);
    let chunk = test.queue.take_known(&test.tenant, ALL).unwrap();
    check(2, 2, 10.0);
    push(0, Expected::Known, 3);
    check(3, 2, 10.0);
    drop(chunk);
    check(2, 2, 9.0);
    let chunk = test.queue.take(&test.tenant, ALL).unwrap();
    check(2, 2, 9.0);
    drop(chunk);
    check(1, 1, 7.0);
    drop(test.queue.take_known(&test.tenant, ALL).unwrap());
    check(0, 0, 0.0);
    assert!(test.queue.forget(&test.tenant) && test.inflight.used_bytes() == 0);
}

/// Senders that start bring as many series at once, each with a point.
#[test]
fn many_new_series_take_little_memory() {
    const COUNT: u64 = 200_000;
    let (test, tickets) = (Test::new(1 << 30), Tickets::new());
    let name =
        |i: u64| format!("stresser.dc1.rack{:02}.host{:04}.timer{:02}.m15_rate", i % 40, i / 200, i % 200);
    for first in (0..COUNT).step_by(1000) {
        let mut part =
            NewPart { series: vec![], timestamps: vec![], values: model::Values::Floats(vec![1.0; 1000]) };
        for (i, sample) in (first..first + 1000).zip(0..) {
            let labels = Labels::from_pairs(&[("__name__", &name(i))]);
            part.timestamps.push(1000);
            let key = SeriesKey::of(labels.as_bytes(), 1);
            part.series.push(NewSeries { key, labels, samples: sample..sample + 1, exemplars: vec![] });
        }
        assert!(test.push_part(part, tickets.ticket()).is_none());
    }
    assert_eq!(test.queue.of(&test.tenant).series, COUNT);
    let each_bytes = test.inflight.used_bytes() / COUNT;
    assert!(each_bytes <= 230, "{each_bytes} bytes for each");
    let mut left = COUNT;
    while let Some(chunk) = test.take(ChunkLimits { series: CHUNK_SERIES_MAX, bytes: u64::MAX }) {
        left -= chunk.points();
    }
    assert!(left == 0 && test.queue.forget(&test.tenant));
    assert_eq!(test.inflight.used_bytes(), 0);
}
