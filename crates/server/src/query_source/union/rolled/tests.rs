use super::*;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::tests::node_with;
use crate::upkeep::compact;
use model::{TenantId, sample};
use protocol::encode::V1Encoder;
use protocol::remote_write::Version;
use query::{Answer, Interrupt, Options, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stdx::clock::{Clock, SystemClock};
use stdx::rng::Rng;
use tables::DAY_MS;

const MINUTE: i64 = 60_000;

/// Functions that rollups can answer. The flag is true if the result is exact even for values that are not integers.
const FUNCTIONS: [(&str, bool); 13] = [
    ("count_over_time", true),
    ("present_over_time", true),
    ("min_over_time", true),
    ("max_over_time", true),
    ("first_over_time", true),
    ("last_over_time", true),
    ("ts_of_first_over_time", true),
    ("ts_of_last_over_time", true),
    ("delta", true),
    ("sum_over_time", false),
    ("avg_over_time", false),
    ("rate", false),
    ("increase", false),
];

async fn write(node: &Node, all: &[(Labels, Samples)]) {
    let mut encoder = V1Encoder::new();
    for (labels, samples) in all {
        encoder.series(labels.as_ref(), &samples.timestamps, &samples.values);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let outcome = crate::write_path::tests::write(node, TenantId::anonymous(), Version::V1, body, memory)
        .await
        .unwrap();
    assert_eq!((outcome.samples, outcome.refused_series), (all.iter().map(|(_, s)| s.len() as u64).sum(), 0));
}

/// Generates counters and gauges. They have gaps, resets, stale markers, and samples at the borders of buckets and
/// days.
fn series(rng: &mut Rng, from: i64, to: i64) -> Vec<(Labels, Samples)> {
    let mut all = Vec::new();
    for n in 0..8 {
        let kind = if n % 2 == 0 { "integer" } else { "fraction" };
        let number = n.to_string();
        let labels = Labels::from_pairs(&[("__name__", kind), ("n", &number)]);
        let (mut samples, mut time, mut value) = (Samples::default(), from, 0.0);
        while time <= to {
            let step = if kind == "integer" { rng.below(50) as f64 } else { rng.below(1000) as f64 / 7.0 };
            value = if n < 4 { value + step } else { step - 20.0 };
            if rng.chance(0.02) {
                value = 0.0;
            }
            let marker = f64::from_bits(sample::STALE_NAN_BITS);
            samples.push(time, if rng.chance(0.03) { marker } else { value });
            time += match n % 4 {
                // samples on bucket borders
                0 | 1 => 5 * MINUTE / [1, 2, 5][rng.below(3) as usize],
                _ => 1 + rng.below(11 * MINUTE as u64) as i64,
            };
            time -= if n % 4 < 2 { time % MINUTE } else { 0 };
            if rng.chance(0.003) {
                time += rng.below(DAY_MS as u64) as i64;
            }
        }
        all.push((labels, samples));
    }
    all
}

struct Question {
    function: (&'static str, bool),
    range_ms: i64,
    offset_ms: i64,
    start_ms: i64,
    step_ms: i64,
    steps: i64,
}

impl Question {
    fn random(rng: &mut Rng, from: i64) -> Self {
        let width = [MINUTE, 5 * MINUTE, 60 * MINUTE][rng.below(3) as usize];
        let start_ms = from + rng.below((4 * DAY_MS) as u64) as i64;
        Self {
            function: FUNCTIONS[rng.below(13) as usize],
            range_ms: width * (1 + rng.below(5) as i64),
            offset_ms: if rng.chance(0.3) { width * rng.below(30) as i64 } else { 0 },
            start_ms: start_ms - start_ms % width,
            step_ms: width * (1 + rng.below(3) as i64),
            steps: rng.below(80) as i64,
        }
    }

    fn answer(&self, node: &Node, detail: Detail) -> Answer {
        let Self { function: (name, _), range_ms, offset_ms, .. } = self;
        let text = format!("{name}({{n!=\"\"}}[{range_ms}ms] offset {offset_ms}ms)");
        let expr = query::parse(&text).unwrap();
        let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
        let source = Source::new(node.reads(), TenantId::anonymous(), 10_000_000, Arc::clone(&canceled));
        let source = source.answering_from(detail);
        let end_ms = self.start_ms + self.step_ms * self.steps;
        let options = Options { delayed_name_removal: true, ..Options::new(&*canceled) };
        query::range(&expr, self.start_ms, end_ms, self.step_ms, &source, &options).unwrap()
    }

    #[track_caller]
    fn check(&self, node: &Node, detail: Detail) -> usize {
        let (raw, rolled) = (self.answer(node, Detail::Samples), self.answer(node, detail));
        let (Value::Matrix(raw_rows), Value::Matrix(rolled_rows)) = (&raw.value, &rolled.value) else {
            panic!("a range query did not return a matrix")
        };
        let (name, exact) = self.function;
        let what = format!(
            "{name} [{}] offset {} from {} step {} x {}",
            self.range_ms, self.offset_ms, self.start_ms, self.step_ms, self.steps
        );
        assert_eq!(raw_rows.len(), rolled_rows.len(), "{what}");
        for ((labels, a), (others, b)) in raw_rows.iter().zip(rolled_rows) {
            assert_eq!((labels, &a.timestamps), (others, &b.timestamps), "{what}");
            let integer = labels.get("n").is_some_and(|n| n.parse::<u32>().unwrap().is_multiple_of(2));
            for (i, (x, y)) in a.values.iter().zip(&b.values).enumerate() {
                let close = !exact && !integer && (x - y).abs() <= 1e-12 * x.abs().max(1.0);
                let at = a.timestamps[i];
                assert!(x.to_bits() == y.to_bits() || close, "{what}, {labels}: {x} and {y} at {at}");
            }
        }
        rolled.infos.iter().filter(|info| info.contains("are answered from the rollup")).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rollups_answer_as_samples_do() {
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let node =
        node_with(dir.path(), |settings| settings.tenants.general.rollups = Resolution::ALL.to_vec()).await;
    let now = SystemClock.now_ms();
    let from = now - now % DAY_MS - 3 * DAY_MS;
    let mut later = series(&mut rng, from, now);
    let split = now - 10 * MINUTE;
    let earlier: Vec<_> = later
        .iter_mut()
        .map(|(labels, samples)| {
            let at = samples.timestamps.partition_point(|t| *t < split);
            let timestamps = samples.timestamps.drain(..at).collect();
            (labels.clone(), Samples { timestamps, values: samples.values.drain(..at).collect() })
        })
        .collect();
    write(&node, &earlier).await;
    flush(&node).await.unwrap();
    let compacted = compact(&node).await.unwrap();
    assert_eq!((compacted.rollups, compacted.failures), (6, 0), "three days, two resolutions");
    write(&node, &later).await;
    let asked = node.clone();
    let task = tokio::task::spawn_blocking(move || {
        let mut answered = [0; 3];
        for _ in 0..400 {
            let question = Question::random(&mut rng, from - DAY_MS / 2);
            let details =
                [Detail::Auto, Detail::Rollup(Resolution::FiveMinutes), Detail::Rollup(Resolution::Hour)];
            for (detail, answered) in details.into_iter().zip(&mut answered) {
                *answered += question.check(&asked, detail);
            }
        }
        eprintln!("answered from rollups: {answered:?} of 400");
        assert!(answered.into_iter().all(|n| n > 30), "{answered:?}");
        rng
    });
    let mut rng = task.await.unwrap();
    // a late sample that is in no table, on a day that already has a rollup
    let labels = Labels::from_pairs(&[("__name__", "late"), ("n", "100")]);
    let late = Samples { timestamps: vec![from + 30 * 60 * MINUTE], values: vec![1.0] };
    write(&node, &[(labels, late)]).await;
    let asked = node.clone();
    let task = tokio::task::spawn_blocking(move || {
        let of_late = Question {
            function: ("sum_over_time", false),
            range_ms: 60 * MINUTE,
            offset_ms: 0,
            start_ms: from + 30 * 60 * MINUTE,
            step_ms: 60 * MINUTE,
            steps: 3,
        };
        of_late.check(&asked, Detail::Auto);
        let Value::Matrix(rows) = of_late.answer(&asked, Detail::Auto).value else {
            panic!("a range query did not return a matrix")
        };
        let of_late: Vec<_> = rows
            .iter()
            .filter(|(labels, _)| labels.get("n") == Some("100"))
            .map(|(_, row)| &row.values)
            .collect();
        assert_eq!(of_late, [&[1.0]]);
        (0..50).for_each(|_| _ = Question::random(&mut rng, from).check(&asked, Detail::Auto));
    });
    task.await.unwrap();
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// Some series cannot have the label that rollups add, so the rollup leaves them out. Answers must contain them
/// nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn series_that_rollups_leave_out_are_answered_from_samples() {
    let dir = tempfile::tempdir().unwrap();
    let node =
        node_with(dir.path(), |settings| settings.tenants.general.rollups = vec![Resolution::Hour]).await;
    let now = SystemClock.now_ms();
    let day = now - now % DAY_MS - DAY_MS;
    let samples = || {
        let timestamps: Vec<_> = (0..24).map(|hour| day + hour * 60 * MINUTE + MINUTE).collect();
        Samples { values: vec![1.0; timestamps.len()], timestamps }
    };
    let names: Vec<String> = (0..126).map(|n| format!("l{n:03}")).collect();
    let mut full = vec![("__name__", "full"), ("n", "2")];
    full.extend(names.iter().map(|name| (name.as_str(), "x")));
    let all = [
        vec![("__name__", "plain"), ("n", "2")],
        full,
        vec![("$rollup", "sum"), ("__name__", "posing"), ("n", "2")],
    ];
    write(&node, &all.map(|pairs| (Labels::from_pairs(&pairs), samples()))).await;
    flush(&node).await.unwrap();
    assert_eq!(compact(&node).await.unwrap().rollups, 1);
    let there = node.clone();
    let check = move || {
        let ask = |matcher: &str, detail: Detail| {
            let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
            let source = Source::new(there.reads(), TenantId::anonymous(), 10_000_000, Arc::clone(&canceled));
            let source = source.answering_from(detail);
            let expr = query::parse(&format!("sum_over_time({{{matcher}}}[2h])")).unwrap();
            let (start, step) = (day + 2 * 60 * MINUTE, 60 * MINUTE);
            let answer =
                query::range(&expr, start, start + 20 * step, step, &source, &Options::new(&*canceled))
                    .unwrap();
            let is_rolled = answer.infos.iter().any(|info| info.contains("are answered from the rollup"));
            let Value::Matrix(rows) = answer.value else { panic!("a range query did not return a matrix") };
            (rows.len(), is_rolled)
        };
        for detail in [Detail::Auto, Detail::Rollup(Resolution::Hour)] {
            assert_eq!(
                ask("__name__=\"plain\"", detail),
                (1, true),
                "other series of the day are in the rollup"
            );
            assert_eq!(ask("__name__=\"full\"", detail), (1, false));
            assert_eq!(ask("__name__=~\"posing|plain\"", detail), (2, false));
            assert_eq!(ask("n=\"2\"", detail), (3, false));
        }
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[test]
fn longest_run_of_complete_days() {
    let check =
        |filled: &[i32], complete: &[i32], covers: (i32, i32), expected: Option<(Option<i32>, i32)>| {
            let days = filled.iter().map(|day| Date(*day)).collect();
            let complete = complete.iter().map(|day| Date(*day)).collect();
            let covers = TimeRange::new(Date(covers.0).start_ms(), Date(covers.1).end_ms());
            let expected = expected.map(|(from, to)| {
                TimeRange::new(from.map_or(i64::MIN, |day| Date(day).start_ms()), Date(to).end_ms())
            });
            assert_eq!(longest_run(&days, complete, covers), expected);
        };
    check(&[], &[], (1, 9), None);
    check(&[3, 4, 5], &[3, 4], (1, 9), Some((None, 4)));
    check(&[2, 3, 4, 5], &[3, 4], (1, 9), Some((Some(3), 4)));
    check(&[2, 3, 7, 8], &[3, 7], (1, 9), Some((Some(3), 7)));
    check(&[2, 3, 5, 6, 7, 8], &[3, 7, 8], (1, 9), Some((Some(7), 8)));
    check(&[2, 3, 5, 6, 7, 8], &[3, 7, 8], (2, 4), Some((Some(3), 3)));
    check(&[3, 4], &[3], (4, 9), None);
    // the samples of these days have expired, so the days exist only in the rollup
    check(&[], &[3, 4], (3, 4), Some((None, 4)));
}
