//! Costs of freezing, reading, releasing and evicting.

use super::fleet;
use super::shapes::{self, Shape, Values};
use head::{Evicted, FrozenOrder, Idle, Partition};
use model::{Samples, SeriesKey, SeriesRef, TenantId};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct FreezeAndEvictRow {
    pub(crate) stage: &'static str,
    /// Duration of the stage in nanoseconds, divided by the number of series.
    pub(crate) ns: f64,
    /// 99th percentile of a turn's duration, in microseconds.
    pub turn_us_p99: f64,
    /// Memory of the head after the stage, divided by the number of series.
    pub(crate) bytes: f64,
}

/// Measures the stages of a head with `series` series of `scrapes` samples each.
pub(crate) fn freeze_and_evict(series: usize, scrapes: usize) -> Vec<FreezeAndEvictRow> {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(fleet::SEED);
    let mut rows = Vec::new();
    let mut stage = |stage, partition: &mut Partition, turn: &mut dyn FnMut(&mut Partition) -> bool| {
        let (mut turns_ns, mut last) = (Vec::new(), false);
        while !last {
            let began = Instant::now();
            last = turn(partition);
            turns_ns.push(began.elapsed().as_nanos() as f64);
        }
        turns_ns.sort_by(f64::total_cmp);
        let (ns, p99) = (turns_ns.iter().sum::<f64>(), turns_ns[(turns_ns.len() - 1) * 99 / 100]);
        let bytes = partition.memory_bytes() as f64 / series as f64;
        rows.push(FreezeAndEvictRow { stage, ns: ns / series as f64, turn_us_p99: p99 / 1e3, bytes });
    };
    let refs: Vec<_> = (0..series as u32).map(SeriesRef).collect();
    let mut scrape = 0;
    let mut columns = (0..).map(|scrape| -> Vec<f64> {
        refs.iter().map(|s| Values::new(Shape::Mix, s.0.into()).nth(scrape % 32)).collect()
    });
    let mut append = |partition: &mut Partition, count: usize| {
        let head = partition.tenant_mut(&tenant);
        for column in columns.by_ref().take(count) {
            for (refs, values) in refs.chunks(2000).zip(column.chunks(2000)) {
                head.append(refs, &vec![shapes::scrape_ms(scrape); refs.len()], values, 1);
            }
            scrape += 1;
        }
        true
    };
    stage("create", &mut partition, &mut |p| {
        let head = p.tenant_mut(&tenant);
        fleet::each_series(series, |_, labels| {
            head.create(SeriesKey::of(labels.as_bytes(), fleet::SEED), labels);
        });
        true
    });
    stage("fill (incl. computing values)", &mut partition, &mut |p| append(p, scrapes));
    stage("freeze", &mut partition, &mut |p| p.freeze(|_| true) > 0);
    stage("first scrape after the freeze", &mut partition, &mut |p| append(p, 1));
    stage("second scrape after the freeze", &mut partition, &mut |p| append(p, 1));
    let (mut order, mut ordered) = (FrozenOrder::new(), Vec::with_capacity(series));
    stage("sort", &mut partition, &mut |p| {
        order.turn(p.tenant(&tenant).expect("BUG: the tenant was filled"), &mut ordered)
    });
    assert_eq!(ordered.len(), series, "BUG: a frozen series is missing");
    let mut samples = Samples::<f64>::default();
    stage("read", &mut partition, &mut |p| {
        let head = p.tenant(&tenant).expect("BUG: the tenant was filled");
        for series in &ordered {
            samples.clear();
            head.read_frozen(*series, &mut samples);
        }
        true
    });
    stage("release", &mut partition, &mut |p| p.release_turn(|_| true));
    partition.freeze(|_| true);
    stage("release again", &mut partition, &mut |p| p.release_turn(|_| true));
    stage("evict", &mut partition, &mut |p| {
        matches!(p.evict_turn(Idle::before(2), |_, _| {}), Evicted::Done(_))
    });
    rows
}
