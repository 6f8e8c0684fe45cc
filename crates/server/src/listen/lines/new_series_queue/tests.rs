use super::super::ticket::Tickets;
use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

/// Points with their series, in the order in which they were sent.
type Points = Vec<(usize, i64, f64)>;

type Stored = BTreeMap<SeriesKey, Vec<(i64, f64)>>;

const FOUR: Most = Most { series: 4, bytes: u64::MAX };

const ALL: Most = Most { series: 100, bytes: u64::MAX };

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
        let mut part = NewPart { series: vec![], timestamps: vec![], values: model::Values::Floats(vec![]) };
        for (series, at_ms, value) in points {
            let start = part.timestamps.len() as u32;
            part.timestamps.push(*at_ms);
            let model::Values::Floats(values) = &mut part.values else { unreachable!() };
            values.push(*value);
            let (key, labels) = (self.key(*series), self.labels[*series].clone());
            part.series.push(NewSeries { key, labels, samples: start..start + 1, exemplars: vec![] });
        }
        let new = NewSamples::of(part, self.inflight.reserve(0).unwrap());
        self.queue.push(&self.tenant, 1, &new, ticket, Instant::now()).1
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
                let most = Most { series: 1 + rng.below(5) as usize, bytes: 1 + rng.below(2000) };
                let known = test.queue.take_known(&test.tenant, most);
                in_creation = known.or_else(|| test.queue.take(&test.tenant, most));
            }
        }
        loop {
            in_creation.take().iter().for_each(|chunk| store(chunk, &mut stored));
            let known = test.queue.take_known(&test.tenant, FOUR);
            in_creation = known.or_else(|| test.queue.take(&test.tenant, FOUR));
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
    let one = Most { series: 1, bytes: 1 };
    let take = || test.queue.take_known(&test.tenant, one).or_else(|| test.queue.take(&test.tenant, one));
    for number in 0..COUNT {
        let chunk = take().unwrap();
        assert_eq!(chunk.batch.floats.timestamps, [number as i64]);
        let mut tenants = test.queue.tenants.lock();
        let entry = &tenants.get_mut(&test.tenant).unwrap().series[&test.key(0)];
        let (len, capacity) = (entry.points.len(), entry.points.capacity());
        drop(tenants);
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
    let one = Most { series: 1, bytes: 1 };
    let (mut capacity, mut moved) = (0, 0);
    // one is pushed and two are taken, so that one is left at the end
    for turn in 0..COUNT - 1 {
        for step in 0..3 {
            if step == 0 {
                assert!(test.push(&vec![(0, 0, 0.0)], tickets.ticket()).is_none());
            } else {
                let known = test.queue.take_known(&test.tenant, one);
                assert!(known.or_else(|| test.queue.take(&test.tenant, one)).is_some(), "{turn}");
            }
            let mut tenants = test.queue.tenants.lock();
            let points = &tenants.get_mut(&test.tenant).unwrap().series[&test.key(0)].points;
            moved += if points.capacity() == capacity { 0 } else { points.len() };
            capacity = points.capacity();
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
    let most = Most { series: 10, bytes: 100 * POINT_BYTES as u64 };
    while let Some(chunk) =
        test.queue.take_known(&test.tenant, most).or_else(|| test.queue.take(&test.tenant, most))
    {
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
    drop(chunk);
    assert!(test.queue.take(&test.tenant, ALL).is_none() && test.queue.forget(&test.tenant));
    assert_eq!(test.inflight.used_bytes(), 0);
}
