//! A scenario: the description of a run. `docs/reference/scenario.md` describes its keys.
//!
//! ```text
//!   text ─parse─▶ Scenario ─with overrides─▶ check ─▶ what drive::run carries out
//!            └▶ ScenarioError: line, column, what is wrong, what was meant
//! ```
//!
//! An unknown key is an error, because a misspelt limit would have no effect.

mod check;
mod error;
pub mod import;
pub mod notation;
mod preset_files;
mod reads;
mod replay;
mod rules;
pub(crate) mod schedule;
pub(crate) mod secrets;
pub mod shape;
mod target;
mod units;
mod variables;

pub use check::read_step;
pub use error::ScenarioError;
pub use preset_files::{PRESETS, preset};
pub use reads::ReadMix;
pub use replay::{ReplaySpec, SampleTimes};
pub use rules::Rules;
pub use shape::{Grow, Shape};
pub use target::{Auth, FaultKind, FaultSpec, ReadApi, TargetSpec, Texts};
pub use units::{Count, Size, Span, size};
pub use variables::Values;

use crate::generate::protocol::Protocol;
use crate::generate::values::ValueModel;
use crate::result::AccountFigure;
use serde::Deserialize;
use std::collections::BTreeMap;

pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Description of a run, which can be repeated on any machine at any time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    /// Seed of all random choices except those of values. A different seed gives different series.
    pub seed: u64,
    /// Seed of the values. By default, each run has another one, so that a sample of an earlier run with the same series
    /// and time is found to be wrong.
    pub value_seed: Option<u64>,
    pub duration: Span,
    /// Multiplies the size of the load. With 1, the load is as written.
    pub scale: f64,
    /// Says what `scale` multiplies, for example the number of writers.
    pub scales: Scales,
    /// Shortens a run: the duration and the times of its shape and faults are divided by this, but not the intervals
    /// between samples.
    pub compress: f64,
    pub target: TargetSpec,
    pub load: Load,
    pub replay: Option<ReplaySpec>,
    pub shape: Shape,
    pub reads: Vec<ReadMix>,
    pub fault: Vec<FaultSpec>,
    pub verdict: Rules,
    pub verify: VerifySpec,
    pub limits: RunLimits,
    pub account: Vec<AccountFigure>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scales {
    #[default]
    Series,
    Metrics,
    Writers,
    Tenants,
}

/// Size and behaviour of the generated load. It has `tenants × writers × metrics × series_per_metric` series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    pub tenants: u32,
    pub writers: u32,
    pub connections: u32,
    pub metrics: Count,
    /// Number of scrape targets of each writer. Each target has one series of every metric.
    pub series_per_metric: Count,
    /// Number of labels of each series, including the metric name.
    pub labels: usize,
    pub metric_name_bytes: Option<usize>,
    /// Names of labels beyond the tenth are padded to this length.
    pub label_name_bytes: Option<usize>,
    pub label_value_bytes: Option<usize>,
    /// Additional labels with a repeating set of values, for example `rack = 20` for 20 racks.
    pub cycles: BTreeMap<String, u64>,
    /// Share of the series that belong to classic histograms (`_bucket` with `le`, `_count`, `_sum`).
    pub histograms: f64,
    pub histogram_buckets: u32,
    pub values: ValueModel,
    /// Time between the samples of a series. By default, it is computed from `rate`. If there is no `rate` either, it
    /// is at most 15 s.
    pub interval: Option<Span>,
    /// Samples per second of all tenants together at base load. By default, it is computed from the number of series
    /// and the interval.
    pub rate: Option<Count>,
    /// The load ends when each series has this number of samples.
    pub rounds: Option<u32>,
    /// Timestamp of the first samples: `-1h`, or Unix seconds or milliseconds. By default, it is chosen so that the
    /// timestamps end at the current time.
    pub start: Option<String>,
    /// Number of the first writer. Generators that load the same target need different numbers to send different
    /// series.
    pub first_writer: u32,
    pub value_interval: Option<Span>,
    pub series_interval: Option<Span>,
    pub metric_interval: Option<Span>,
    /// Spreads the replacement of series over this share (0 to 1) of the interval in which they are replaced.
    pub jitter: f64,
    /// Each writer begins at a random time within this share of the interval. With 0, writers are evenly spread.
    pub start_jitter: f64,
    pub batch: u32,
    /// Names of the series: `labels`, or the paths of timers.
    pub naming: SeriesNaming,
    /// First part of the paths of timers.
    pub prefix: String,
    /// True to send all requests of a round at its beginning instead of evenly over the interval.
    pub burst: bool,
    /// For Graphite over TCP: a connection that has been open for this long is closed and opened again. By default, it
    /// stays open until the end of the load.
    pub reconnect: Option<Span>,
    pub model: Model,
    /// Before the load begins, samples for a period of this length are written as fast as possible.
    pub history: Option<Span>,
    /// Time between the samples of the history. By default, it is the same as during the load.
    pub history_interval: Option<Span>,
    pub backoff_min: Span,
    pub backoff_max: Span,
    pub retry_after_max: Span,
    pub give_up_after: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesNaming {
    #[default]
    Labels,
    /// A writer is a host, and its targets are timers with 15 metrics each.
    Timers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Requests are sent on a schedule, however fast the target answers. Latency counts from the scheduled start.
    #[default]
    Open,
    /// A connection sends its next request as soon as the previous one is answered.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifySpec {
    /// True to read every acknowledged sample back after the run.
    pub after: bool,
    /// Number of acknowledged samples per second that are queried during the run until they are visible, to measure
    /// freshness.
    pub probes_per_s: f64,
    /// A probed sample counts as invisible if queries have not returned it after this time.
    pub invisible_after: Span,
    /// Samples that are missing when the read-back begins may still appear for this long.
    pub patience: Span,
    pub page: Count,
    pub connections: usize,
    /// A value that differs relatively by at most this much counts as rounded instead of wrong.
    pub tolerance: f64,
    /// Step of the target's storage schema, for reading by `/render`. By default, it is the interval of the load.
    pub step: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLimits {
    /// The run ends when this number of samples is sent, including retries.
    pub samples: Count,
    /// The run ends when this number of bytes is sent.
    pub bytes: Size,
    /// Maximum memory for the generator: a run that needs more is refused. By default, it is half of the available
    /// memory.
    pub memory: Option<Size>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "unnamed".into(),
            about: String::new(),
            seed: 1,
            value_seed: None,
            duration: Span::seconds(60.0),
            scale: 1.0,
            scales: Scales::Series,
            compress: 1.0,
            target: TargetSpec::default(),
            load: Load::default(),
            replay: None,
            shape: Shape::default(),
            reads: Vec::new(),
            fault: Vec::new(),
            verdict: Rules::default(),
            verify: VerifySpec::default(),
            limits: RunLimits::default(),
            account: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self {
            tenants: 1,
            writers: 4,
            connections: 1,
            metrics: Count(500.0),
            series_per_metric: Count(10.0),
            labels: crate::generate::fleet::LABELS_DEFAULT,
            metric_name_bytes: None,
            label_name_bytes: None,
            label_value_bytes: None,
            cycles: BTreeMap::new(),
            histograms: 0.0,
            histogram_buckets: crate::generate::fleet::BUCKETS_DEFAULT,
            values: ValueModel::Mix,
            interval: None,
            rate: None,
            rounds: None,
            start: None,
            first_writer: 0,
            value_interval: None,
            series_interval: None,
            metric_interval: None,
            jitter: 0.0,
            start_jitter: 0.0,
            batch: 2_000,
            naming: SeriesNaming::Labels,
            prefix: "STRESS".into(),
            burst: false,
            reconnect: None,
            model: Model::Open,
            history: None,
            history_interval: None,
            backoff_min: Span::seconds(0.03),
            backoff_max: Span::seconds(5.0),
            retry_after_max: Span::seconds(30.0),
            give_up_after: Span::seconds(60.0),
        }
    }
}

impl Default for VerifySpec {
    fn default() -> Self {
        Self {
            after: true,
            probes_per_s: 5.0,
            invisible_after: Span::seconds(30.0),
            patience: Span::seconds(10.0),
            page: Count(100_000.0),
            connections: 2,
            tolerance: 0.0,
            step: None,
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { samples: Count(100e9), bytes: Size(10 << 40), memory: None }
    }
}

impl Scenario {
    /// Parses a scenario and checks everything that can be checked without a target.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ScenarioError::plain(format!(
                "the scenario has {} bytes, the limit is {TEXT_BYTES_MAX}",
                text.len()
            )));
        }
        let scenario: Self = toml::from_str(text).map_err(|error| ScenarioError::of_toml(text, &error))?;
        scenario.check().map_err(|fault| ScenarioError::at_key(text, &fault))?;
        Ok(scenario)
    }

    /// Parses a scenario after applying changes such as `load.tenants=20` or `target.read=http://…`.
    ///
    /// Items of a list are addressed by their number, as in `reads.0.users=40`. A value that is not valid TOML is
    /// taken as a string.
    pub fn parse_with(text: &str, overrides: &[String]) -> Result<Self, ScenarioError> {
        // errors in the file itself are reported before errors in the overrides, because they have a line number
        let scenario = Self::parse(text)?;
        if overrides.is_empty() {
            return Ok(scenario);
        }
        let table: toml::Table =
            toml::from_str(text).map_err(|error| ScenarioError::of_toml(text, &error))?;
        let mut root = toml::Value::Table(table);
        for change in overrides {
            set(&mut root, change).map_err(ScenarioError::plain)?;
        }
        let changed = toml::to_string(&root).map_err(|error| ScenarioError::plain(error.to_string()))?;
        Self::parse(&changed).map_err(|error| error.after(&overrides.join(", ")))
    }

    pub fn protocol(&self) -> Protocol {
        self.target.protocol
    }

    /// Name of the header that contains the tenant's name, if there is one.
    pub(crate) fn tenant_header(&self) -> Option<&str> {
        let header = match &self.target.tenant_header {
            Some(header) => header,
            None if self.has_one_tenant() => "",
            None => target::TENANT_HEADER,
        };
        (!header.is_empty()).then_some(header)
    }

    /// True if nothing that is sent names a tenant, so that queries need not either.
    fn has_one_tenant(&self) -> bool {
        self.protocol().has_no_answers() && self.load.tenants == 1
    }

    pub fn read_api(&self) -> ReadApi {
        self.target.read_api.unwrap_or(self.protocol().read_api())
    }

    /// Distance of two timestamps in answers, in ms. Several samples may be in one such slot.
    pub(crate) fn read_step_ms(&self) -> u64 {
        match self.read_api() {
            ReadApi::Promql => 1,
            ReadApi::Render => self.verify.step.map_or_else(|| self.interval_ms(), Span::ms).max(1),
        }
    }
}

fn set(root: &mut toml::Value, change: &str) -> Result<(), String> {
    let (path, value) =
        change.split_once('=').ok_or_else(|| format!("{change:?} is not a change of the form scale=0.1"))?;
    let value = value.trim();
    let parsed: Option<toml::Table> = toml::from_str(&format!("v = {value}")).ok();
    let value = parsed
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let keys: Vec<&str> = path.split('.').map(str::trim).collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(format!("{change:?} does not name a key"));
    }
    put(root, &keys, value).map_err(|why| format!("{change:?}: {why}"))
}

fn put(at: &mut toml::Value, keys: &[&str], value: toml::Value) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        *at = value;
        return Ok(());
    };
    let inner = match at {
        toml::Value::Table(table) => {
            table.entry(*key).or_insert_with(|| toml::Value::Table(toml::Table::new()))
        }
        toml::Value::Array(items) => {
            let len = items.len();
            let item = key.parse().ok().and_then(|number: usize| items.get_mut(number));
            item.ok_or_else(|| format!("cannot set {key:?}: the list has {len} items, numbered from 0"))?
        }
        _ => return Err(format!("cannot set {key:?}: the key above it is a single value and has no keys")),
    };
    put(inner, rest, value)
}

#[cfg(test)]
mod tests;
