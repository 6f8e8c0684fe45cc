//! Estimate of the memory and CPU that a run needs on this machine.

use crate::drive::tenants::Tenant;
use crate::drive::watch;
use crate::generate::plan::Plan;
use crate::observe::procfs::memory_available_bytes;
use crate::scenario::{Scenario, Span};
use anyhow::{Result, ensure};
use std::fmt;
use stdx::units::short;

/// Number of samples that one core can generate and send in a second. It is half of the measured rate, because small
/// requests cost more.
///
/// A complete run of `cortex-110k` generated 32 million samples in 3.4 seconds of CPU time, which is 9.4 million per
/// second. `cargo bench -p lab` measures the parts: 17 to 50 ns for a sample, 350 to 550 ns for a new series.
const SAMPLES_PER_CORE_S: f64 = 4e6;

/// Memory of a connection for its buffers and the body of the request in progress.
const CONNECTION_BYTES: u64 = 512 << 10;

/// Memory for the program, its runtime and its histograms, independent of the load.
const BASE_BYTES: u64 = 48 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub tenants: usize,
    pub series: u64,
    /// Maximum sample rate during the run. `None` in a closed loop, whose rate depends on the target.
    pub samples_per_s: Option<f64>,
    /// New series per second that replace older series (churn).
    pub new_series_per_s: f64,
    pub memory_bytes: u64,
    pub cores: f64,
    pub duration_s: f64,
}

impl Estimate {
    pub(crate) fn of(scenario: &Scenario, tenants: &[Tenant]) -> Self {
        let series: u64 = tenants.iter().map(|tenant| tenant.plan.series()).sum();
        let samples_per_s: Option<f64> =
            tenants.iter().map(|t| Some(t.plan.series() as f64 * t.rounds_per_s?)).sum();
        let connections: u64 =
            tenants.iter().map(|t| u64::from(t.plan.writers) * u64::from(scenario.load.connections)).sum();
        let has_lines = scenario.protocol().version().is_none();
        let requests: u64 = tenants.iter().map(|tenant| memory_estimate_bytes(&tenant.plan, has_lines)).sum();
        let watch = match scenario.protocol().is_flushed() {
            true => {
                let plans = tenants.iter().map(|tenant| &tenant.plan);
                watch::memory_estimate_bytes(plans, scenario.length_s())
            }
            false => 0,
        };
        // every series has one sample per interval, so this is also the number of series
        let per_interval = samples_per_s.unwrap_or(0.0) * scenario.interval_ms() as f64 / 1000.0;
        let churn = |every: Option<Span>| every.map_or(0.0, |every| per_interval / every.s());
        Self {
            tenants: tenants.len(),
            series,
            samples_per_s,
            new_series_per_s: churn(scenario.load.series_interval).max(churn(scenario.load.metric_interval)),
            memory_bytes: BASE_BYTES + requests + connections * CONNECTION_BYTES + watch,
            cores: samples_per_s.unwrap_or(0.0) / SAMPLES_PER_CORE_S,
            duration_s: scenario.length_s(),
        }
    }

    /// Fails if this machine cannot generate the load, because the run would then measure the generator.
    pub(crate) fn check(&self, limit: Option<u64>) -> Result<()> {
        let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        ensure!(
            self.cores <= cores,
            "{} samples a second need about {:.1} cores to send, but this machine has {cores}: use a smaller \
             scale, or several machines with --part",
            short(self.samples_per_s.unwrap_or(0.0)),
            self.cores
        );
        let Some(limit) = limit.or_else(|| memory_available_bytes().map(|bytes| bytes / 2)) else {
            return Ok(());
        };
        ensure!(
            self.memory_bytes <= limit,
            "the generator would take about {} MiB for {} series, the limit is {} MiB (limits.memory, or \
             half of the free memory): use a smaller scale, or several machines with --part",
            self.memory_bytes >> 20,
            short(self.series as f64),
            limit >> 20
        );
        Ok(())
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenants, series, samples_per_s, new_series_per_s, memory_bytes, cores, duration_s } = self;
        let rate = match samples_per_s {
            Some(per_s) => {
                format!("{} samples/s, {} new series/s", short(*per_s), short(*new_series_per_s))
            }
            None => "as fast as requests are answered".to_owned(),
        };
        write!(
            f,
            "{tenants} tenants, {} series, {rate}, for at most {duration_s:.0} s; the generator will take about {} MiB \
             and {cores:.2} cores",
            short(*series as f64),
            memory_bytes.div_ceil(1 << 20)
        )
    }
}

/// Memory of a series in a prepared request of remote write. A measurement found 35 bytes, in addition to the labels of
/// the targets in each request.
const SERIES_BYTES: u64 = 48;

/// Memory of the name of a metric in a prepared request for Graphite.
const NAME_BYTES: u64 = 32;

/// Estimated memory of the prepared requests of a plan.
fn memory_estimate_bytes(plan: &Plan, is_graphite: bool) -> u64 {
    let names = plan.slots_count() as u64 * u64::from(plan.metrics.min(plan.batch));
    let series_bytes = if is_graphite { names * NAME_BYTES } else { plan.series() * SERIES_BYTES };
    let targets = plan.targets * u64::from(plan.writers) + plan.slots_count() as u64;
    series_bytes + targets * (plan.fleet.label_text_bytes() as u64 + 64)
}
