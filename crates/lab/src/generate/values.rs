//! Computes the value of each sample from its series and tick, so that no values need to be stored.
//!
//! The models differ in how well a store can compress their values.

use serde::{Deserialize, Serialize};
use stdx::rng::mix;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueModel {
    /// Depends on the metric: half of them are counters, a quarter are gauges, and a quarter change at every 200th
    /// tick.
    #[default]
    Mix,
    Constant,
    /// Whole numbers that grow, and restart at zero after about a million ticks.
    Counter,
    /// A random walk, rounded to two or three decimals.
    Walk,
    /// Figures of a timer: the first is a counter, the others wander.
    Timer,
    /// Random numbers from 0 to less than 1, with 53 random bits, which hardly compress.
    Random,
}

impl std::str::FromStr for ValueModel {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "mix" => Self::Mix,
            "constant" => Self::Constant,
            "counter" => Self::Counter,
            "walk" => Self::Walk,
            "timer" => Self::Timer,
            "random" => Self::Random,
            _ => anyhow::bail!(
                "value model {text:?} must be one of mix, constant, counter, walk, timer, random"
            ),
        })
    }
}

/// Counters and gauges change in steps of about this size. Each series has one of these sizes.
const MAGNITUDES: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// Number of ticks after which a counter restarts. Until then it stays below 2^53, up to which doubles hold all
/// integers exactly.
const COUNTER_TICKS: u64 = 1 << 20;

const RARE_TICKS: u64 = 200;

/// Number of octaves of noise that a walk sums. With 9, it wanders within 2^8 ticks and keeps its level
/// over longer times.
const WALK_OCTAVES: u32 = 9;

impl ValueModel {
    /// Value at `tick` of the series whose random key is `key`.
    #[inline]
    pub fn at(self, key: u64, metric: u32, tick: u64) -> f64 {
        match self {
            Self::Mix => match metric % 4 {
                0 | 1 => counter(key, tick),
                2 => walk(key, tick),
                _ => level(key, (tick.wrapping_add(key >> 20)) / RARE_TICKS),
            },
            Self::Constant => level(key, 0),
            Self::Counter => counter(key, tick),
            Self::Walk => walk(key, tick),
            Self::Timer if metric == 0 => counter(key, tick),
            Self::Timer => walk(key, tick),
            Self::Random => unit(mix(key ^ mix(tick))),
        }
    }
}

fn magnitude(key: u64) -> f64 {
    MAGNITUDES[(key % MAGNITUDES.len() as u64) as usize]
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn level(key: u64, era: u64) -> f64 {
    (mix(key ^ mix(era)) % 4096) as f64
}

/// Value of a counter, which grows by 0 to 2 × magnitude per tick: a straight line, plus noise of at most the
/// magnitude.
#[inline]
fn counter(key: u64, tick: u64) -> f64 {
    let slope = magnitude(key);
    let age = tick.wrapping_add(key >> 24) % COUNTER_TICKS;
    let base = (key >> 8) % 50_000_000;
    let noise = mix(key ^ age.rotate_left(32)) % (slope as u64 + 1);
    base as f64 + age as f64 * slope + noise as f64
}

/// Cumulative count of a bucket at `tick`, if `share` of the histogram's observations fall into this bucket or a
/// lower one.
#[inline]
pub fn observed(key: u64, share: f64, tick: u64) -> f64 {
    (counter(key, tick) * share).floor()
}

/// Sum of all values that a histogram has observed, rounded to thousandths.
#[inline]
pub fn observed_sum(key: u64, tick: u64) -> f64 {
    let mean = (mix(key) % 2_000 + 1) as f64;
    (counter(key, tick) * mean).round() / 1_000.0
}

/// Adds up noise functions. Each changes half as often as the previous one, and has √2 times its amplitude.
#[inline]
fn walk(key: u64, tick: u64) -> f64 {
    let magnitude = magnitude(key);
    let mut height = 0.2 * magnitude;
    let mut value = 5.0 * magnitude;
    for octave in 0..WALK_OCTAVES {
        let at = |knot: u64| unit(mix(key ^ knot.rotate_left(24) ^ u64::from(octave) << 56)) - 0.5;
        let knot = tick >> octave;
        let part = (tick & ((1 << octave) - 1)) as f64 / f64::from(1u32 << octave);
        let (left, right) = (at(knot), at(knot.wrapping_add(1)));
        value += 2.0 * height * (left + (right - left) * part);
        height *= std::f64::consts::SQRT_2;
    }
    let scale = if key & (1 << 60) == 0 { 100.0 } else { 1_000.0 };
    (value.abs() * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 119_000_000;

    fn ticks() -> std::ops::Range<u64> {
        FIRST..FIRST + 2_000
    }

    #[test]
    fn counters_grow_in_whole_steps_and_are_exact() {
        for series in 0..200 {
            let key = mix(series);
            let mut resets = 0;
            for tick in ticks() {
                let (a, b) = (counter(key, tick), counter(key, tick + 1));
                assert!(a >= 0.0 && a.fract() == 0.0 && a < (1u64 << 53) as f64);
                resets += u32::from(b < a);
                assert!(b < a || b - a <= 2.0 * magnitude(key), "{a} {b}");
            }
            assert!(resets <= 1);
        }
    }

    #[test]
    fn walks_move_in_small_steps_of_few_decimals() {
        for series in 0..200 {
            let key = mix(series);
            for tick in ticks() {
                let (a, b) = (walk(key, tick), walk(key, tick + 1));
                assert!((a - b).abs() < 2.0 * magnitude(key), "{a} {b}");
                assert_eq!((a * 1000.0).round() / 1000.0, a);
            }
        }
    }

    #[test]
    fn histograms_grow_and_their_buckets_hold_no_more_than_all() {
        for series in 0..50 {
            let key = mix(series);
            for tick in ticks() {
                let at = |tick| [0.1, 0.5, 1.0].map(|share| observed(key, share, tick));
                let (now, then) = (at(tick), at(tick + 1));
                assert!(now.is_sorted() && now.iter().all(|n| n.fract() == 0.0), "{now:?}");
                let reset = then[2] < now[2];
                assert!(reset || (0..3).all(|bucket| now[bucket] <= then[bucket]), "{now:?} {then:?}");
                assert!(reset || observed_sum(key, tick) <= observed_sum(key, tick + 1));
            }
        }
    }

    #[test]
    fn constants_are_constant_and_settings_change_rarely() {
        let key = mix(3);
        assert!(ticks().all(|t| ValueModel::Constant.at(key, 0, t) == ValueModel::Constant.at(key, 0, 0)));
        let changes = ticks().filter(|t| ValueModel::Mix.at(key, 3, *t) != ValueModel::Mix.at(key, 3, t + 1));
        assert!((5..=15).contains(&changes.count()));
        let random = |t| ValueModel::Random.at(key, 0, t);
        assert!(ticks().all(|t| (0.0..1.0).contains(&random(t)) && random(t) != random(t + 1)));
    }
}
