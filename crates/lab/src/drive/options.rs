//! What to send where, as a person says it; and what follows from it.
//!
//! Raw options leave most things open. [`WriteOptions::resolve`] settles them once, checks every bound,
//! and gives a [`Plan`] and a [`Pace`], after which nothing is optional any more.

use crate::drive::stop::Stop;
use crate::generate::fleet::Fleet;
use crate::generate::plan::{Plan, SERIES_MAX};
use crate::generate::template::Version;
use crate::generate::values::ValueModel;
use crate::http::{Access, TIMEOUT_DEFAULT};
use crate::verify::VerifyOptions;
use anyhow::{Context, Result, bail, ensure};
use model::caps;
use std::time::Duration;

/// A run takes this long if nothing else is said.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(20);

/// Between two samples of a series, where neither rate nor rounds suggest another interval.
const INTERVAL_MS_DEFAULT: i64 = 15_000;

/// A closed loop goes through time faster than the clock does. It begins this far back, so that it ends
/// before now.
const HORIZON_MS: i64 = 3_600_000;

/// Samples a second that no target reaches for long: from it follows how many rounds a closed loop can
/// go through in its time, and so how far apart they may be.
const CLOSED_SAMPLES_PER_S_MAX: f64 = 8e6;

/// Samples may lie this far ahead of the clock: targets refuse what is much younger than they are.
pub const FUTURE_MS_MAX: i64 = 60_000;

const DURATION_MAX: Duration = Duration::from_secs(7 * 86_400);
const WRITERS_MAX: u32 = 10_000;
const CONNECTIONS_MAX: u32 = 10_000;
const ROUNDS_MAX: u32 = 100_000_000;
const LABEL_BYTES_MAX: usize = 8 << 10;

/// A run of the write lab.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Where to write, such as `http://127.0.0.1:9009/api/v1/write`.
    pub url: String,
    /// Sent with each request, for tenants and authentication.
    pub headers: Vec<(String, String)>,
    /// What may be reached.
    pub access: Access,
    /// Remote write 1.0 or 2.0.
    pub version: Version,
    /// Seed, number and lengths of labels.
    pub fleet: Fleet,
    /// Metrics of each target.
    pub metrics: u32,
    /// Targets of each writer.
    pub series_per_metric: u64,
    /// Independent senders, each with series of its own: they multiply the load.
    pub writers: u32,
    /// Number of the first writer; generators on several machines take different ones.
    pub first_writer: u32,
    /// Connections of each writer. A series' samples always go over the same one.
    pub connections: u32,
    /// Series in one request.
    pub batch: u32,
    /// How values go.
    pub values: ValueModel,
    /// In the series' own time: after so long every target is replaced by a new one.
    pub series_churn: Option<Duration>,
    /// Replace them one after the other instead of all at once.
    pub series_churn_staggered: bool,
    /// In the series' own time: after so long every metric has a new name.
    pub metric_churn: Option<Duration>,
    /// Between two samples of a series, in the series' own time.
    pub interval: Option<Duration>,
    /// Time of the first samples, in ms since 1970.
    pub start_ms: Option<i64>,
    /// Samples a second on a fixed schedule (open model); without it, as fast as answers come (closed).
    pub rate: Option<f64>,
    /// End after so long.
    pub duration: Option<Duration>,
    /// End after so many samples of each series.
    pub rounds: Option<u32>,
    /// What to do about refusals.
    pub retry: RetryPolicy,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// The target's process on this machine, whose CPU and memory are to be reported.
    pub pid: Option<u32>,
    /// Read everything back afterwards.
    pub verify: Option<VerifyOptions>,
    /// Ends the run early, with a report.
    pub stop: Stop,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            headers: Vec::new(),
            access: Access::default(),
            version: Version::V1,
            fleet: Fleet::default(),
            metrics: 500,
            series_per_metric: 50,
            writers: 4,
            first_writer: 0,
            connections: 1,
            batch: 2_000,
            values: ValueModel::Mix,
            series_churn: None,
            series_churn_staggered: false,
            metric_churn: None,
            interval: None,
            start_ms: None,
            rate: None,
            duration: None,
            rounds: None,
            retry: RetryPolicy::default(),
            timeout: TIMEOUT_DEFAULT,
            pid: None,
            verify: None,
            stop: Stop::default(),
        }
    }
}

/// What Prometheus' sender does about a refusal: 5xx and broken connections are tried again, 429 too, all
/// other refusals are final. The same request is repeated until it is taken, for order must be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first pause; each further one is twice as long.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// `Retry-After` is obeyed up to here.
    pub retry_after_max: Duration,
    /// A request is given up after so long.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(30),
            backoff_max: Duration::from_secs(5),
            retry_after_max: Duration::from_secs(30),
            give_up_after: Duration::from_secs(60),
        }
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection sends as soon as it has its answer.
    Closed,
    /// By a schedule, whatever the answers do.
    Open {
        /// Of all writers.
        samples_per_s: f64,
    },
}

/// Options with nothing left open.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// What is sent.
    pub plan: Plan,
    /// When.
    pub pace: Pace,
    /// For how long at most.
    pub duration: Option<Duration>,
}

impl WriteOptions {
    /// Settles what was left open; `now_ms` is the current time.
    pub fn resolve(&self, now_ms: i64) -> Result<Resolved> {
        self.check_bounds()?;
        let duration = match (self.duration, self.rounds) {
            (None, None) => Some(DURATION_DEFAULT),
            (duration, _) => duration,
        };
        let series = u128::from(self.metrics) * u128::from(self.series_per_metric) * u128::from(self.writers);
        let series = u64::try_from(series).unwrap_or(u64::MAX);
        ensure!(series <= SERIES_MAX, "{series} series are more than {SERIES_MAX}");
        let interval_ms = self.interval_ms(series, duration)?;
        let rounds_max = self.rounds_max(series, interval_ms, duration)?;
        let first_tick = self.first_tick(series, interval_ms, rounds_max, duration, now_ms)?;
        let churn = |every: Option<Duration>, what| match every {
            Some(every) => churn_ticks(every, interval_ms).with_context(|| format!("{what} churn")).map(Some),
            None => Ok(None),
        };
        let plan = Plan {
            fleet: self.fleet.clone(),
            metrics: self.metrics,
            targets: self.series_per_metric,
            writers: self.writers,
            first_writer: self.first_writer,
            batch: self.batch,
            values: self.values,
            interval_ms: u32::try_from(interval_ms).context("an interval of over 49 days")?,
            first_tick,
            rounds_max,
            series_churn_ticks: churn(self.series_churn, "series")?,
            series_churn_staggered: self.series_churn_staggered,
            metric_churn_ticks: churn(self.metric_churn, "metric name")?,
            series_churn_spread: 0,
            value_ticks: 0,
            relabel_ticks: Vec::new(),
        };
        plan.check()?;
        let pace = self.rate.map_or(Pace::Closed, |samples_per_s| Pace::Open { samples_per_s });
        Ok(Resolved { plan, pace, duration })
    }

    fn check_bounds(&self) -> Result<()> {
        let Fleet { labels, metric_name_bytes, label_name_bytes, label_value_bytes, .. } = self.fleet;
        let between = |what: &str, n: u64, max: u64| -> Result<()> {
            ensure!((1..=max).contains(&n), "{what}: {n} is not between 1 and {max}");
            Ok(())
        };
        between("metrics", self.metrics.into(), SERIES_MAX)?;
        between("series per metric", self.series_per_metric, SERIES_MAX)?;
        between("writers", self.writers.into(), WRITERS_MAX.into())?;
        between("first writer", u64::from(self.first_writer) + 1, WRITERS_MAX.into())?;
        between("connections", self.connections.into(), CONNECTIONS_MAX.into())?;
        between(
            "all connections",
            u64::from(self.connections) * u64::from(self.writers),
            CONNECTIONS_MAX.into(),
        )?;
        between("batch", self.batch.into(), caps::REQUEST_SERIES_MAX as u64)?;
        between("rounds", self.rounds.unwrap_or(1).into(), ROUNDS_MAX.into())?;
        between("labels", labels as u64, caps::SERIES_LABELS_MAX as u64)?;
        ensure!(labels >= 2, "labels: a series needs two, its name and one that tells it from others");
        for bytes in [metric_name_bytes, label_name_bytes, label_value_bytes].into_iter().flatten() {
            ensure!(
                bytes <= LABEL_BYTES_MAX,
                "a label text of {bytes} bytes is longer than {LABEL_BYTES_MAX}"
            );
        }
        ensure!(
            label_name_bytes.unwrap_or(0) <= caps::LABEL_NAME_BYTES_MAX,
            "a label name is longer than {} bytes",
            caps::LABEL_NAME_BYTES_MAX
        );
        // in canonical form a label costs up to 10 bytes beside its text
        let series_bytes = self.fleet.label_text_bytes() + 10 * labels;
        ensure!(
            series_bytes <= caps::SERIES_LABEL_BYTES_MAX,
            "labels of {series_bytes} bytes are longer than {}",
            caps::SERIES_LABEL_BYTES_MAX
        );
        let body_bytes = series_bytes.saturating_mul(self.batch as usize);
        ensure!(
            body_bytes <= caps::BODY_BYTES_MAX,
            "requests of {body_bytes} bytes are longer than {}: take a smaller batch",
            caps::BODY_BYTES_MAX
        );
        if let Some(rate) = self.rate {
            ensure!(rate.is_finite() && (0.001..=1e9).contains(&rate), "rate: {rate} samples a second");
        }
        if let Some(duration) = self.duration {
            ensure!(
                !duration.is_zero() && duration <= DURATION_MAX,
                "duration: {duration:?} is not within {DURATION_MAX:?}"
            );
        }
        Ok(())
    }

    fn interval_ms(&self, series: u64, duration: Option<Duration>) -> Result<i64> {
        if let Some(interval) = self.interval {
            let ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
            ensure!(ms >= 1, "an interval of less than a millisecond");
            return Ok(ms);
        }
        if let Some(rate) = self.rate {
            // in step with the clock, rather a little behind than ahead
            return Ok(((series as f64 * 1000.0 / rate) as i64).max(1));
        }
        let rounds = match (self.rounds, duration) {
            (Some(rounds), _) => f64::from(rounds),
            (None, Some(duration)) => duration.as_secs_f64() * CLOSED_SAMPLES_PER_S_MAX / series as f64,
            (None, None) => bail!("BUG: neither rounds nor duration"),
        };
        let fits = (HORIZON_MS as f64 / rounds.max(1.0)) as i64;
        Ok(match fits {
            INTERVAL_MS_DEFAULT.. => INTERVAL_MS_DEFAULT,
            1_000.. => fits / 1_000 * 1_000,
            _ => fits.max(1),
        })
    }

    fn rounds_max(&self, series: u64, interval_ms: i64, duration: Option<Duration>) -> Result<u32> {
        let rounds = match (self.rounds, self.rate, duration) {
            (Some(rounds), _, _) => f64::from(rounds),
            (None, Some(rate), Some(duration)) => (rate * duration.as_secs_f64() / series as f64).ceil(),
            (None, None, Some(_)) => (HORIZON_MS / interval_ms) as f64,
            (None, _, None) => bail!("BUG: neither rounds nor duration"),
        };
        ensure!(rounds <= f64::from(ROUNDS_MAX), "{rounds} rounds are more than {ROUNDS_MAX}");
        Ok((rounds as u32).max(1))
    }

    /// Places the rounds so that the last one ends when the run does: at once in a closed loop, after its
    /// duration in an open one.
    fn first_tick(
        &self,
        series: u64,
        interval_ms: i64,
        rounds_max: u32,
        duration: Option<Duration>,
        now_ms: i64,
    ) -> Result<u64> {
        let span_ms = i64::from(rounds_max).saturating_mul(interval_ms);
        let takes_s = self.rate.map_or(0.0, |rate| f64::from(rounds_max) * series as f64 / rate);
        let takes_s = duration.map_or(takes_s, |d| takes_s.min(d.as_secs_f64()));
        let ends_ms = now_ms.saturating_add((takes_s * 1000.0) as i64);
        let first_ms = match self.start_ms {
            Some(start_ms) => start_ms.saturating_add(interval_ms - 1),
            // where one round spans more than the whole run, its samples still must not lie ahead
            None => ends_ms.saturating_sub(span_ms).min(now_ms.saturating_sub(interval_ms)),
        };
        let tick = first_ms.div_euclid(interval_ms);
        let end_ms = (tick * interval_ms).saturating_add(span_ms);
        if self.rate.is_some() || self.rounds.is_some() {
            ensure!(
                end_ms <= ends_ms.saturating_add(FUTURE_MS_MAX),
                "the last samples would lie {} s in the future: start earlier, or take a shorter interval \
                 or fewer rounds",
                (end_ms - ends_ms) / 1000
            );
        }
        u64::try_from(tick).context("samples before 1970")
    }
}

fn churn_ticks(every: Duration, interval_ms: i64) -> Result<u64> {
    let ticks = every.as_millis() as u64 / interval_ms as u64;
    ensure!(ticks >= 1, "{every:?} is less than the interval of {interval_ms} ms between two samples");
    Ok(ticks)
}

#[cfg(test)]
mod tests;
