//! Realistic values, and timestamps of scrapes.

use model::Samples;
use stdx::rng::Rng;

pub(crate) const INTERVAL_MS: i64 = 15_000;
const START_MS: i64 = 1_795_284_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Counter,
    /// Random walk, rounded to two decimals.
    Gauge,
    Constant,
    /// Random walk with all digits of a double.
    Walk,
    /// Of every four series, two are counters, one is a gauge with decimals, and one has a value that rarely
    /// changes.
    Mix,
}

#[derive(Debug, Clone)]
pub(crate) struct Values {
    shape: Shape,
    value: f64,
    /// Maximum growth of a counter in an interval, or width of a gauge's step.
    step: f64,
    /// 10 to the power of the number of decimals.
    power: f64,
    rng: Rng,
}

impl Values {
    pub(crate) fn new(shape: Shape, series: u64) -> Self {
        let mut rng = Rng::new(series.wrapping_mul(0x5851_f42d));
        let magnitude = 10f64.powi(rng.below(5) as i32);
        let (shape, decimals) = match (shape, series % 4) {
            (Shape::Mix, 0 | 1) => (Shape::Counter, 0),
            (Shape::Mix, 2) => (Shape::Gauge, 2 + rng.below(2) as i32),
            (Shape::Mix, _) => (Shape::Mix, 0),
            (shape, _) => (shape, 2),
        };
        let (value, step) = match shape {
            Shape::Counter => (rng.below(50_000_000) as f64, 2.0 * magnitude),
            Shape::Gauge | Shape::Walk => (rng.unit() * 10.0 * magnitude, magnitude),
            Shape::Constant | Shape::Mix => (rng.below(4096) as f64, 0.0),
        };
        let mut values = Self { shape, value, step, power: 10f64.powi(decimals), rng };
        if shape == Shape::Gauge {
            values.value = values.round(value);
        }
        values
    }

    fn round(&self, value: f64) -> f64 {
        (value * self.power).round() / self.power
    }

    pub(crate) fn next(&mut self) -> f64 {
        let now = self.value;
        self.value = match self.shape {
            Shape::Counter => now + self.rng.below(self.step as u64 + 1) as f64,
            Shape::Walk => now + (self.rng.unit() - 0.5) * self.step,
            Shape::Gauge => {
                let moved = (now + (self.rng.unit() - 0.5) * self.step).abs();
                self.round(moved)
            }
            Shape::Constant => now,
            Shape::Mix if self.rng.below(200) == 0 => self.rng.below(4096) as f64,
            Shape::Mix => now,
        };
        now
    }
}

impl Values {
    /// The value of the scrape with the number `n`, counted from 0.
    pub(crate) fn nth(mut self, n: usize) -> f64 {
        (0..n).for_each(|_| {
            self.next();
        });
        self.next()
    }
}

/// `count` samples of one series, each up to `jitter_ms` off schedule.
pub(crate) fn samples(shape: Shape, series: u64, count: usize, jitter_ms: u64) -> Samples {
    let mut values = Values::new(shape, series);
    let mut rng = Rng::new(series);
    let offset = rng.below(INTERVAL_MS as u64) as i64;
    let mut out = Samples::default();
    for i in 0..count as i64 {
        let jitter = rng.below(2 * jitter_ms + 1) as i64 - jitter_ms as i64;
        out.push(START_MS + offset + i * INTERVAL_MS + jitter, values.next());
    }
    out
}

pub(crate) const fn scrape_ms(scrape: usize) -> i64 {
    START_MS + scrape as i64 * INTERVAL_MS
}
