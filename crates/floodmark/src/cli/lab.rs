//! Flags of `floodmark lab`.

use super::access::LabAccess;
use super::result::{PrintArgs, ResultArgs};
use super::scenario::{FindLimitArgs, FindMinimumArgs, MergeArgs, RaceArgs, RunArgs};
use super::scenario_text::{UNTIL_SENT, headers, seconds, table};
use super::stresser::{LabStresser, OwedArgs};
use super::traffic::{LabCompare, LabRecord, LabReplay, LabReport};
use super::values;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lab::http::Access;
use lab::scenario::{ReadApi, notation, read_step};
use lab::verify::{PAGE_MAX, STORED_MIN};
use lab::{Ledger, Protocol, VerifyOptions};
use std::path::PathBuf;
use std::time::Duration;
use toml::{Table, Value};

/// Commands of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Send load to a target, and report the result
    Write(Box<LabWrite>),
    /// Send timers to a Graphite target, as the metrics libraries of applications do
    Stresser(Box<LabStresser>),
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
    /// Record write traffic by a proxy in front of a backend: over HTTP, gRPC, Graphite or statsd
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
    /// URL to write to; for Graphite tcp://HOST:PORT or udp://HOST:PORT, for statsd udp://HOST:PORT
    /// [default: the usual address of the protocol on this machine, such as http://127.0.0.1:9009/api/v1/write]
    #[arg(long, alias = "url", value_name = "URL", help_heading = "Target")]
    pub(crate) target: Option<String>,
    /// Header of each request, reads included, for tenant and authorization; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = notation::header, help_heading = "Target")]
    pub(crate) headers: Vec<(String, String)>,
    /// Version of remote write, or another protocol
    #[arg(long, value_name = "PROTOCOL", default_value = "1.0", value_parser = values::protocol(), help_heading = "Target")]
    pub(crate) protocol: Protocol,
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
    /// Seed of series: equal seeds give equal series
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Shape")]
    pub(crate) seed: u64,
    /// Seed of values [1 to 9007199254740991] [default: random, so that samples of an earlier run are not mistaken for those of this run]
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>(1..=(1 << 53) - 1), help_heading = "Shape")]
    pub(crate) value_seed: Option<u64>,

    /// Samples per second (200k, 1.5M) on a fixed schedule; latency counts from the scheduled start
    /// [default: none; each connection sends as soon as it gets an answer; statsd needs a rate]
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
    /// With --rate: send all requests of an interval at once, a second after its beginning, instead of evenly spread
    #[arg(long, requires = "rate", help_heading = "Pace")]
    pub(crate) burst: bool,
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
    #[command(flatten)]
    pub(crate) owed: OwedArgs,
    /// Save the ledger of acknowledged samples, for `lab verify`
    #[arg(long, value_name = "FILE", help_heading = "Verification")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// How samples are read back.
#[derive(Debug, Args)]
pub(crate) struct LabRead {
    /// URL to read from, without /api/v1/query or /render [default: derived from the URL written to]
    #[arg(long, value_name = "URL", help_heading = "Verification")]
    pub(crate) read_url: Option<String>,
    /// API to read from [default: promql; for Graphite render]
    #[arg(long, value_name = "API", value_parser = values::read_api(), help_heading = "Verification")]
    pub(crate) read_api: Option<ReadApi>,
    /// With render: step of the target's storage schema [default: the time between two samples]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Verification")]
    pub(crate) step: Option<Duration>,
    /// How long acknowledged samples may take to become visible
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = notation::duration, help_heading = "Verification")]
    pub(crate) patience: Duration,
    /// Samples in one answer, approximately [1 to 5000000]
    #[arg(long, value_name = "N", default_value = "100k", value_parser = values::whole::<u64>(1..=PAGE_MAX), help_heading = "Verification")]
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
    /// For statsd: minimum share of owed values that are not stale, of those that the target should have stored [0 to 1]
    #[arg(long, value_name = "SHARE", default_value_t = STORED_MIN, value_parser = values::number(0.0..=1.0), help_heading = "Verification")]
    pub(crate) owed: f64,
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
        let address = self.target.as_deref().unwrap_or(self.protocol.usual_address());
        let target = [
            ("write", Some(address.into())),
            ("headers", headers(&self.headers)),
            // only --header names the tenant
            ("tenant_header", Some("".into())),
            ("protocol", Value::try_from(self.protocol).ok()),
            ("timeout", Some(seconds(self.timeout))),
            ("pid", self.pid.map(|pid| Value::Integer(pid.into()))),
            ("commit_interval", self.owed.commit_interval()),
        ];
        let mut target = table(target);
        target.extend(self.read.target_keys());
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
            ("burst", self.burst.then_some(Value::Boolean(true))),
            ("reconnect", self.owed.reconnect()),
            ("model", self.rate.is_none().then(|| "closed".into())),
            ("rate", self.rate.map(Value::Float)),
            ("interval", self.interval.map(seconds)),
            ("rounds", self.rounds.map(|rounds| Value::Integer(rounds.into()))),
            ("start", self.start.as_deref().map(Value::from)),
            ("give_up_after", Some(seconds(self.give_up_after))),
        ];
        let mut verify = self.read.keys();
        verify.insert("after".into(), Value::Boolean(self.verify));
        verify.insert("probes_per_s".into(), Value::Integer(0));
        let scenario = [
            ("name", Some("write".into())),
            ("seed", Some(Value::Integer(self.seed as i64))),
            ("value_seed", self.value_seed.map(|seed| Value::Integer(seed as i64))),
            ("duration", Some(seconds(duration))),
            ("target", Some(target.into())),
            ("load", Some(table(load).into())),
            ("verify", Some(verify.into())),
        ];
        table(scenario).to_string()
    }
}

impl LabRead {
    /// Keys of the table `verify` of a scenario.
    pub(super) fn keys(&self) -> Table {
        table([
            ("patience", Some(seconds(self.patience))),
            ("page", Some(Value::Integer(self.page as i64))),
            ("step", self.step.map(seconds)),
        ])
    }

    /// Keys of the table `target` of a scenario.
    pub(super) fn target_keys(&self) -> Table {
        table([
            ("read", self.read_url.as_deref().map(Value::from)),
            ("read_api", self.read_api.and_then(|api| Value::try_from(api).ok())),
        ])
    }

    pub(crate) fn options(
        &self,
        ledger: &Ledger,
        headers: &[(String, String)],
        access: Access,
    ) -> anyhow::Result<VerifyOptions> {
        let url = self.read_url.clone().or_else(|| ledger.read_url.clone());
        let url = url.context("the ledger has no URL to read from; set --read-url")?;
        let read_api = self.read_api.unwrap_or(ledger.read_api);
        let usual_ms = match ledger.read_api {
            ReadApi::Promql => u64::from(ledger.plan.interval_ms),
            ReadApi::Render => ledger.step_ms,
        };
        let step_ms = match read_api {
            ReadApi::Promql => 1,
            ReadApi::Render => self.step.map_or(usual_ms, |step| step.as_millis() as u64),
        };
        if read_api == ReadApi::Render {
            read_step(step_ms, ledger.plan.interval_ms.into(), self.step.is_some())
                .map_err(anyhow::Error::msg)
                .context("--step")?;
        } else if self.step.is_some() {
            bail!("--step: only render has steps (--read-api)");
        }
        Ok(VerifyOptions {
            read_api,
            step_ms,
            headers: headers.to_vec(),
            access,
            patience: self.patience,
            page_samples: self.page,
            ..VerifyOptions::new(url)
        })
    }
}
