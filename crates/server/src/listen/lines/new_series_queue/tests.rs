use super::super::ticket::Tickets;
use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

/// Points with their series, in the order in which they were sent.
type Points = Vec<(usize, i64, f64)>;

type Stored = BTreeMap<SeriesKey, Vec<(i64, f64)>>;

struct Test {
    queue: Arc<NewSeriesQueue>,
    inflight: Account,
    tenant: TenantId,
    labels: Vec<Labels>,
}

impl Test {
    fn new(limit_bytes: u64) -> Self {
        let inflight = Account::new("inflight", limit_bytes);
        let queue = Arc::new(NewSeriesQueue { account: inflight.part(), tenants: Mutex::default() });
        queue.account.share(u64::MAX, limit_bytes);
        let labels = (0..30).map(|i| Labels::from_pairs(&[("__name__", &format!("a.n{i}"))])).collect();
        Self { queue, inflight, tenant: TenantId::anonymous(), labels }
    }

    fn key(&self, series: usize) -> SeriesKey {
        SeriesKey::of(self.labels[series].as_bytes(), 1)
    }

    fn push(&self, points: &Points, ticket: &Ticket, is_again: bool) -> Option<Dropped> {
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
        self.queue.push(&self.tenant, 1, new, ticket, Instant::now(), is_again).1
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
            assert!(test.push(&queued, tickets.ticket(), false).is_none());
            if rng.chance(0.3) {
                in_creation.take().iter().for_each(|chunk| store(chunk, &mut stored));
                let most = 1 + rng.below(5) as usize;
                let known = test.queue.take_known(&test.tenant, most);
                in_creation = known.or_else(|| test.queue.take(&test.tenant, most));
            }
        }
        loop {
            in_creation.take().iter().for_each(|chunk| store(chunk, &mut stored));
            let known = test.queue.take_known(&test.tenant, 4);
            in_creation = known.or_else(|| test.queue.take(&test.tenant, 4));
            if in_creation.is_none() {
                break;
            }
        }
        assert_eq!(stored, sent);
        assert!(test.queue.is_empty());
        assert_eq!(test.inflight.used_bytes(), 0);
    }
}

#[test]
fn points_that_wait_already_are_not_queued_again() {
    let (test, tickets) = (Test::new(1 << 20), Tickets::new());
    let points = vec![(0, 1, 1.0), (0, 1, 2.0), (1, 5, f64::NAN)];
    for is_again in [false, true, true] {
        assert!(test.push(&points, tickets.ticket(), is_again).is_none());
        let queued = test.queue.of(&test.tenant);
        assert_eq!((queued.points, queued.series), (3, 2));
    }
    assert!(test.push(&vec![(0, 1, 3.0)], tickets.ticket(), true).is_none());
    let (mut stored, chunk) = (Stored::new(), test.queue.take(&test.tenant, 9).unwrap());
    store(&chunk, &mut stored);
    assert_eq!(stored[&test.key(0)], [(1, 1.0), (1, 2.0), (1, 3.0)]);
}

#[test]
fn the_newest_points_are_dropped_when_there_is_no_room() {
    let (test, tickets) = (Test::new(4000), Tickets::new());
    let points: Points = (0..30).map(|i| (i, 1, 1.0)).collect();
    let dropped = test.push(&points, tickets.ticket(), false).expect("there is no room for all points");
    let queued = test.queue.of(&test.tenant);
    assert_eq!(dropped.points + queued.points, 30);
    assert!(queued.points > 3, "{queued:?}");
    assert_eq!(dropped.series, describe_labels(test.labels[queued.points as usize].as_bytes()));
    let chunk = test.queue.take(&test.tenant, 100).unwrap();
    assert_eq!(chunk.points(), queued.points);
    drop(chunk);
    assert!(test.queue.take(&test.tenant, 100).is_none() && test.queue.is_empty());
    assert_eq!(test.inflight.used_bytes(), 0);
}
