//! Requests to the whole application of graphite-web: Floodmark returns the same points.

use super::data::Data;
use super::oracle::{Oracle, Range};
use super::ours::Floodmark;
use stdx::rng::Rng;

const REQUESTS: usize = 150;

const TARGETS: &[&str] = &[
    "app.*.cpu.user",
    "mix.*.x",
    "consolidateBy(app.*.cpu.*,'max')",
    "consolidateBy(gap.*,'avg_zero')",
    "consolidateBy(mix.fine.x,'first')",
    "cumulative(net.*.bytes)",
    "setXFilesFactor(gap.*,0.5)",
    "summarize(mix.*.x,'7min','avg')",
    "timeShift(full.*.load,'90s')",
    "constantLine(5)",
    "seriesByTag('name=disk.used')",
];

#[test]
fn points_are_consolidated_as_by_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut rng = Rng::announced();
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    let floodmark = Floodmark::new(&data);
    let mut failed = 0;
    for _ in 0..REQUESTS {
        let until_s = data.now_s - rng.below(7200) as i64;
        let from_s = until_s - 60 - rng.below(4 * 3600) as i64;
        let range = Range { now_s: data.now_s, from_s, until_s, time_zone: "UTC" };
        let targets: Vec<_> =
            (0..=rng.below(2)).map(|_| TARGETS[rng.below(TARGETS.len() as u64) as usize]).collect();
        let points_max = 1 + if rng.chance(0.3) { rng.below(5) } else { rng.below(300) };
        let ours = floodmark.points(&targets, range, points_max);
        let Some(theirs) = oracle.points(&targets, range, points_max) else {
            failed += 1;
            continue;
        };
        let is_close = |a: f64, b: f64| {
            a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) || a.is_nan() && b.is_nan()
        };
        let is_same = theirs.len() == ours.len()
            && theirs.iter().zip(&ours).all(|((name, theirs), (our_name, ours))| {
                let mut points = theirs.iter().zip(ours);
                name == our_name
                    && theirs.len() == ours.len()
                    && points.all(|((time_s, a), (our_time_s, b))| time_s == our_time_s && is_close(*a, *b))
            });
        assert!(
            is_same,
            "{targets:?} {range:?} with {points_max} points\ngraphite-web: {theirs:?}\nfloodmark: {ours:?}"
        );
    }
    assert!(failed < REQUESTS / 10, "graphite-web failed at {failed} of {REQUESTS} requests");
}
