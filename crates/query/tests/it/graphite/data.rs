//! Random series, with what makes functions differ: gaps, constants, negative values, counters with resets,
//! steps of several lengths.

use stdx::rng::Rng;

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;

/// Length of all series, except those with a step below a minute. It is longer than the longest range plus a week,
/// which is the longest time that functions look back.
const HISTORY_S: i64 = 9 * DAY_S;
const FINE_HISTORY_S: i64 = DAY_S;

/// A series as it is stored: one value for each step.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) step_s: i64,
    /// Slots that are retained.
    pub(super) points: i64,
    pub(super) start_s: i64,
    /// NaN means that the value is missing.
    pub(super) values: Vec<f64>,
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) when_s: i64,
    pub(super) tags: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) struct Data {
    pub(super) now_s: i64,
    pub(super) series: Vec<Stored>,
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A daily wave with noise.
    Wave,
    /// Small integers, so that values are often equal.
    Integers,
    /// Rises, and sometimes starts again at zero.
    Counter,
    Constant(f64),
    /// One value every five steps, and gaps between.
    Periodic,
    /// Fractions between 0 and 1.
    Fractions,
    Empty,
}

impl Data {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let now_s = 1_700_000_000 + rng.below(10 * DAY_S as u64) as i64;
        let mut series = Vec::new();
        let mut add = |name: &str, step_s: i64, shape: Shape, gaps: f64| {
            series.push(Stored::random(rng, now_s, name, step_s, shape, gaps));
        };
        for host in ["web1", "web2", "db1", "db10"] {
            add(&format!("app.{host}.cpu.user"), MINUTE_S, Shape::Wave, 0.1);
            add(&format!("app.{host}.cpu.system"), MINUTE_S, Shape::Integers, 0.3);
        }
        for host in ["a", "b", "c"] {
            add(&format!("net.{host}.bytes"), MINUTE_S, Shape::Counter, 0.05);
            add(&format!("full.{host}.load"), MINUTE_S, Shape::Wave, 0.0);
            add(&format!("full.{host}.count"), MINUTE_S, Shape::Integers, 0.0);
        }
        add("mix.fine.x", 10, Shape::Wave, 0.2);
        add("mix.half.x", 30, Shape::Integers, 0.0);
        add("mix.coarse.x", 5 * MINUTE_S, Shape::Wave, 0.1);
        add("gap.empty", MINUTE_S, Shape::Empty, 0.0);
        add("gap.most", MINUTE_S, Shape::Wave, 0.9);
        add("gap.periodic", MINUTE_S, Shape::Periodic, 0.0);
        add("const.zero", MINUTE_S, Shape::Constant(0.0), 0.0);
        add("const.negative", MINUTE_S, Shape::Constant(-2.5), 0.2);
        add("ratio.one", MINUTE_S, Shape::Fractions, 0.1);
        add("ratio.two", MINUTE_S, Shape::Fractions, 0.0);
        for (host, dc) in [("a", "west"), ("b", "west"), ("c", "east")] {
            add(&format!("disk.used;dc={dc};host={host}"), MINUTE_S, Shape::Wave, 0.1);
        }
        let tags = ["deploy", "web", "db"];
        let event = |_| Event {
            when_s: now_s - rng.below(4 * HOUR_S as u64) as i64,
            tags: tags.into_iter().filter(|_| rng.chance(0.6)).collect(),
        };
        let events = (0..60).map(event).collect();
        Self { now_s, series, events }
    }
}

impl Stored {
    fn random(rng: &mut Rng, now_s: i64, name: &str, step_s: i64, shape: Shape, gaps: f64) -> Self {
        let history_s = if step_s < MINUTE_S { FINE_HISTORY_S } else { HISTORY_S };
        let points = history_s / step_s;
        // the newest slot has a value, as if it had just been written
        let start_s = now_s - now_s % step_s - (points - 1) * step_s;
        let level = rng.unit() * 100.0;
        let mut counter = 0.0;
        let values = (0..points).map(|i| {
            if rng.chance(gaps) {
                return f64::NAN;
            }
            let day = ((i * step_s) as f64 / DAY_S as f64).fract();
            match shape {
                Shape::Wave => level + 30.0 * (day * std::f64::consts::TAU).sin() + rng.unit() * 10.0 - 60.0,
                Shape::Integers => rng.below(7) as f64 - 1.0,
                Shape::Counter => {
                    counter = if rng.chance(0.02) { 0.0 } else { counter + (rng.below(1000) as f64) };
                    counter
                }
                Shape::Constant(value) => value,
                Shape::Periodic => {
                    if i % 5 == 2 {
                        rng.below(50) as f64
                    } else {
                        f64::NAN
                    }
                }
                Shape::Fractions => rng.unit(),
                Shape::Empty => f64::NAN,
            }
        });
        Self { name: name.into(), step_s, points, start_s, values: values.collect() }
    }
}
