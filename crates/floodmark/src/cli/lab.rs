//! Flags of `floodmark lab`.

use super::access::LabAccess;
use super::result::{PrintArgs, ResultArgs};
use super::scenario::{FindLimitArgs, FindMinimumArgs, MergeArgs, RaceArgs, RunArgs};
use super::scenario_text::{UNTIL_SENT, headers, seconds, table};
use super::traffic::{LabCompare, LabRecord, LabReplay, LabReport};
use super::values;
use clap::{Args, Subcommand};
use lab::VerifyOptions;
use lab::http::Access;
use lab::scenario::notation;
use std::path::PathBuf;
use std::time::Duration;
use toml::Value;

/// Commands of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Send load to a remote-write target and report the result
    Write(Box<LabWrite>),
    /// Read back the acknowledged samples of an earlier `lab write --ledger FILE`
    Verify(LabVerify),
    /// List the built-in scenarios
    Scenarios(ScenariosArgs),
    /// Write a built-in scenario to a file, to be edited
    Init(InitArgs),
    /// Run a scenario and check the rules of its verdict
    Run(Box<RunArgs>),
    /// Find the largest load that passes
    FindLimit(Box<FindLimitArgs>),
    /// Find the smallest memory or number of cores that passes
    FindMinimum(Box<FindMinimumArgs>),
    /// Run a scenario against several targets, one after the other
    Race(Box<RaceArgs>),
    /// Merge the results of `lab run --part` of several machines
    Merge(MergeArgs),
    /// Record remote-write traffic by a proxy in front of a backend
    Record(LabRecord),
    /// Replay recorded traffic, faster or with more series
    Replay(Box<LabReplay>),
    /// Show a saved result, as text or as one HTML file
    Report(LabReport),
    /// Compare two results: ratios, verdicts, curves
    Compare(LabCompare),
}

/// `floodmark lab write`
#[derive(Debug, Args)]
pub(crate) struct LabWrite {
    /// URL to write to
    #[arg(
        long,
        alias = "url",
        value_name = "URL",
        default_value = "http://127.0.0.1:9009/api/v1/write",
        help_heading = "Target"
    )]
    pub(crate) target: String,
    /// Header of each request, reads included, for tenant and authorization; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = notation::header, help_heading = "Target")]
    pub(crate) headers: Vec<(String, String)>,
    /// Version of remote write
    #[arg(long, value_name = "VERSION", default_value = "1.0", value_parser = values::version(), help_heading = "Target")]
    pub(crate) protocol: lab::Version,
    /// The target's process on this machine: report its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Target")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) access: LabAccess,

    /// Metrics of each scrape target
    #[arg(long, value_name = "N", default_value = "500", value_parser = notation::whole, help_heading = "Shape")]
    pub(crate) metrics: u64,
    /// Scrape targets of each writer; each target has one series of every metric
    #[arg(long, value_name = "N", default_value = "50", value_parser = notation::whole, help_heading = "Shape")]
    pub(crate) series: u64,
    /// Independent senders, each with its own series; they multiply the load [1 to 10000]
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::whole::<u32>(1..=10_000), help_heading = "Shape")]
    pub(crate) writers: u32,
    /// Number of the first writer, if several machines load the same target [0 to 9999]
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::whole::<u32>(0..=9_999), help_heading = "Shape")]
    pub(crate) first_writer: u32,
    /// Labels of a series, including its name [2 to 128]
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::whole::<usize>(2..=128), help_heading = "Shape")]
    pub(crate) labels: usize,
    /// Pad metric names to this length [0 to 8192]
    #[arg(long, value_name = "BYTES", value_parser = values::whole::<usize>(0..=8_192), help_heading = "Shape")]
    pub(crate) metric_name_bytes: Option<usize>,
    /// Pad the names of labels beyond the tenth to this length [0 to 1024]
    #[arg(long, value_name = "BYTES", value_parser = values::whole::<usize>(0..=1_024), help_heading = "Shape")]
    pub(crate) label_name_bytes: Option<usize>,
    /// Pad label values to this length [0 to 8192]
    #[arg(long, value_name = "BYTES", value_parser = values::whole::<usize>(0..=8_192), help_heading = "Shape")]
    pub(crate) label_value_bytes: Option<usize>,
    /// Share of the series that belong to classic histograms (_bucket with le, _count, _sum) [0 to 1]
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = values::number(0.0..=1.0), help_heading = "Shape")]
    pub(crate) histograms: f64,
    /// How values change over time, except values of histograms
    #[arg(long, value_name = "MODEL", default_value = "mix", value_parser = values::model(), help_heading = "Shape")]
    pub(crate) values: lab::ValueModel,
    /// Replace all series at this interval, measured by the timestamps of samples
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Shape")]
    pub(crate) series_churn: Option<Duration>,
    /// With --series-churn: replace the series one after the other instead of all at once
    #[arg(long, requires = "series_churn", help_heading = "Shape")]
    pub(crate) staggered: bool,
    /// Rename all metrics at this interval, measured by the timestamps of samples
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Shape")]
    pub(crate) metric_churn: Option<Duration>,
    /// Seed of series and values: equal seeds give equal series and values
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Shape")]
    pub(crate) seed: u64,

    /// Samples per second (200k, 1.5M) on a fixed schedule; latency counts from the scheduled start
    /// [default: none; each connection sends as soon as it gets an answer]
    #[arg(long, value_name = "SAMPLES/S", value_parser = values::number(0.001..=1e9), help_heading = "Pace")]
    pub(crate) rate: Option<f64>,
    /// Stop after this long, at most 7d [default: 20s, unless --rounds is given]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Pace")]
    pub(crate) duration: Option<Duration>,
    /// Stop after this number of samples of each series [1 to 100000000]
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>(1..=100_000_000), help_heading = "Pace")]
    pub(crate) rounds: Option<u32>,
    /// Time between two samples of a series [default: derived from --rate; otherwise at most 15s, so that all
    /// samples fit into the last hour]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Pace")]
    pub(crate) interval: Option<Duration>,
    /// Time of the first samples: -1h, or Unix seconds or milliseconds [default: chosen so that the last
    /// samples are current]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Pace")]
    pub(crate) start: Option<String>,
    /// Series in one request [1 to 250000]
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::whole::<u32>(1..=250_000), help_heading = "Pace")]
    pub(crate) batch: u32,
    /// Connections of each writer [1 to 10000]
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u32>(1..=10_000), help_heading = "Pace")]
    pub(crate) connections: u32,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = notation::duration, help_heading = "Pace")]
    pub(crate) timeout: Duration,
    /// How long to retry a failed request (5xx, 429, no connection)
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = notation::duration, help_heading = "Pace")]
    pub(crate) give_up_after: Duration,

    /// Read every acknowledged sample back and compare it bit by bit
    #[arg(long, help_heading = "Verification")]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) read: LabRead,
    /// Save the ledger of acknowledged samples, for `lab verify`
    #[arg(long, value_name = "FILE", help_heading = "Verification")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// How samples are read back.
#[derive(Debug, Args)]
pub(crate) struct LabRead {
    /// URL to read from, without /api/v1/query [default: derived from the URL written to]
    #[arg(long, value_name = "URL", help_heading = "Verification")]
    pub(crate) read_url: Option<String>,
    /// How long acknowledged samples may take to become visible
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = notation::duration, help_heading = "Verification")]
    pub(crate) patience: Duration,
    /// Samples in one answer, approximately
    #[arg(long, value_name = "N", default_value = "100k", value_parser = notation::whole, help_heading = "Verification")]
    pub(crate) page: u64,
}

/// `floodmark lab verify`
#[derive(Debug, Args)]
pub(crate) struct LabVerify {
    /// Ledger saved by `lab write --ledger`
    #[arg(value_name = "LEDGER")]
    pub(crate) ledger: PathBuf,
    /// Header of each request; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = notation::header)]
    pub(crate) headers: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) access: LabAccess,
    #[command(flatten)]
    pub(crate) read: LabRead,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// `floodmark lab init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The preset to copy; `lab scenarios` lists them
    #[arg(value_name = "PRESET", default_value = "first", value_parser = values::preset())]
    pub(crate) preset: String,
    /// The file to write, which must not exist yet [default: PRESET.toml]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `floodmark lab scenarios`
#[derive(Debug, Args)]
pub(crate) struct ScenariosArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DURATION_DEFAULT: Duration = Duration::from_secs(20);

impl LabWrite {
    pub(crate) fn scenario(&self) -> String {
        let bytes = |n: usize| Value::Integer(n as i64);
        let duration = match (self.duration, self.rounds) {
            (Some(duration), _) => duration,
            (None, Some(_)) => UNTIL_SENT,
            (None, None) => DURATION_DEFAULT,
        };
        let target = [
            ("write", Some(self.target.as_str().into())),
            ("read", self.read.read_url.as_deref().map(Value::from)),
            ("headers", headers(&self.headers)),
            // only --header names the tenant
            ("tenant_header", Some("".into())),
            ("protocol", Value::try_from(self.protocol).ok()),
            ("timeout", Some(seconds(self.timeout))),
            ("pid", self.pid.map(|pid| Value::Integer(pid.into()))),
        ];
        let load = [
            ("metrics", Some(Value::Integer(self.metrics as i64))),
            ("series_per_metric", Some(Value::Integer(self.series as i64))),
            ("writers", Some(Value::Integer(self.writers.into()))),
            ("first_writer", Some(Value::Integer(self.first_writer.into()))),
            ("connections", Some(Value::Integer(self.connections.into()))),
            ("batch", Some(Value::Integer(self.batch.into()))),
            ("labels", Some(bytes(self.labels))),
            ("metric_name_bytes", self.metric_name_bytes.map(bytes)),
            ("label_name_bytes", self.label_name_bytes.map(bytes)),
            ("label_value_bytes", self.label_value_bytes.map(bytes)),
            ("histograms", Some(Value::Float(self.histograms))),
            ("values", Value::try_from(self.values).ok()),
            ("series_interval", self.series_churn.map(seconds)),
            ("jitter", self.staggered.then_some(Value::Float(1.0))),
            ("metric_interval", self.metric_churn.map(seconds)),
            ("model", self.rate.is_none().then(|| "closed".into())),
            ("rate", self.rate.map(Value::Float)),
            ("interval", self.interval.map(seconds)),
            ("rounds", self.rounds.map(|rounds| Value::Integer(rounds.into()))),
            ("start", self.start.as_deref().map(Value::from)),
            ("give_up_after", Some(seconds(self.give_up_after))),
        ];
        let verify = [
            ("after", Some(Value::Boolean(self.verify))),
            ("probes_per_s", Some(Value::Integer(0))),
            ("patience", Some(seconds(self.read.patience))),
            ("page", Some(Value::Integer(self.read.page as i64))),
        ];
        let scenario = [
            ("name", Some("write".into())),
            ("seed", Some(Value::Integer(self.seed as i64))),
            ("duration", Some(seconds(duration))),
            ("target", Some(table(target).into())),
            ("load", Some(table(load).into())),
            ("verify", Some(table(verify).into())),
        ];
        table(scenario).to_string()
    }
}

impl LabRead {
    pub(crate) fn options(&self, url: String, headers: &[(String, String)], access: Access) -> VerifyOptions {
        VerifyOptions {
            headers: headers.to_vec(),
            access,
            patience: self.patience,
            page_samples: self.page,
            ..VerifyOptions::new(url)
        }
    }
}
