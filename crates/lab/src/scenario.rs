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

pub use error::ScenarioError;
pub use preset_files::{PRESETS, preset};
pub use reads::ReadMix;
pub use replay::{ReplaySpec, SampleTimes};
pub use rules::Rules;
pub use shape::{Grow, Shape};
pub use target::{Auth, FaultKind, FaultSpec, TargetSpec, Texts};
pub use units::{Count, Size, Span, size};
pub use variables::Values;

use crate::generate::template::Version;
use crate::generate::values::ValueModel;
use crate::result::AccountFigure;
use serde::Deserialize;
use std::collections::BTreeMap;

pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Description of a run, independent of machine and time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    /// A different seed gives different series.
    pub seed: u64,
    pub duration: Span,
    /// Factor for the size of the load. 1 is the load as written.
    pub scale: f64,
    /// Dimension that `scale` multiplies.
    pub scales: Scales,
    /// Divides the duration and all times of the shape and the faults, but not the intervals of series.
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

/// Dimension that [`Scenario::scale`] multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scales {
    #[default]
    Series,
    Metrics,
    Writers,
    Tenants,
}

/// Generated load: tenants × writers × metrics × series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    pub tenants: u32,
    pub writers: u32,
    pub connections: u32,
    pub metrics: Count,
    /// Number of scrape targets of each writer.
    pub series_per_metric: Count,
    /// Includes the name.
    pub labels: usize,
    pub metric_name_bytes: Option<usize>,
    /// Names of labels beyond the tenth are padded to this length.
    pub label_name_bytes: Option<usize>,
    pub label_value_bytes: Option<usize>,
    /// Labels whose values repeat across the targets: name to number of values.
    pub cycles: BTreeMap<String, u64>,
    /// Share of series in classic histograms (`_bucket` with `le`, `_count`, `_sum`).
    pub histograms: f64,
    pub histogram_buckets: u32,
    pub values: ValueModel,
    /// Sampling interval. By default, it follows from `rate`, or is at most 15 s.
    pub interval: Option<Span>,
    /// Samples per second of the base load, of all tenants. By default, it follows from series and interval.
    pub rate: Option<Count>,
    /// Number of samples of each series after which the load ends.
    pub rounds: Option<u32>,
    /// Time of the first samples: `-1h`, or Unix seconds or milliseconds. By default, chosen so that the last samples
    /// are current.
    pub start: Option<String>,
    /// Generators of one target need different numbers.
    pub first_writer: u32,
    pub value_interval: Option<Span>,
    pub series_interval: Option<Span>,
    pub metric_interval: Option<Span>,
    /// Spreads the replacement of series over this share of the interval, from 0 to 1.
    pub jitter: f64,
    /// Each writer begins at a random time within this share of the interval. With 0, writers are evenly spread.
    pub start_jitter: f64,
    pub batch: u32,
    pub model: Model,
    /// History written before the load, as fast as possible.
    pub history: Option<Span>,
    /// By default, the interval of the load.
    pub history_interval: Option<Span>,
    pub backoff_min: Span,
    pub backoff_max: Span,
    pub retry_after_max: Span,
    pub give_up_after: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Requests follow a schedule, regardless of answers. Latency counts from the scheduled start.
    #[default]
    Open,
    /// Each connection sends its next request when the previous request is answered.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifySpec {
    /// True to read back every acknowledged sample after the run.
    pub after: bool,
    /// Acknowledged samples per second that are queried during the run until they are visible.
    pub probes_per_s: f64,
    /// Time after which an acknowledged sample counts as invisible.
    pub invisible_after: Span,
    /// Time from the start of the read-back in which late samples may appear.
    pub patience: Span,
    pub page: Count,
    pub connections: usize,
    /// Maximum relative difference of a rounded value. Above, the value is wrong.
    pub tolerance: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLimits {
    /// Sent samples after which the run ends, including retries.
    pub samples: Count,
    /// Sent bytes after which the run ends.
    pub bytes: Size,
    /// Maximum memory of the generator. By default, half of the available memory.
    pub memory: Option<Size>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "unnamed".into(),
            about: String::new(),
            seed: 1,
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
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { samples: Count(100e9), bytes: Size(10 << 40), memory: None }
    }
}

impl Scenario {
    /// Parses a scenario, and checks everything that needs no target.
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

    /// Parses a scenario and applies overrides such as `load.tenants=20` and `target.read=http://…`.
    ///
    /// The number of a list's item is its key, as in `reads.0.users=40`. A value that is not valid TOML is a text.
    pub fn parse_with(text: &str, overrides: &[String]) -> Result<Self, ScenarioError> {
        // errors in the file itself are reported first, with lines
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

    pub fn version(&self) -> Version {
        self.target.protocol
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
