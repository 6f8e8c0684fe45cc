//! Flags of `floodmark lab`.

use super::access::LabAccess;
use super::scenario::{FindLimitArgs, FindMinimumArgs, MergeArgs, RaceArgs, RunArgs};
use super::traffic::{LabCompare, LabRecord, LabReplay, LabReport};
use anyhow::Context;
use clap::{Args, Subcommand};
use lab::fleet::{BUCKETS_DEFAULT, Histograms};
use lab::http::Access;
use lab::{VerifyOptions, WriteOptions, parse, verify::read_url_for};
use std::path::PathBuf;
use std::time::Duration;

/// Loads this server or any other, and checks what became of every sample.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Load a remote-write target and report what it took.
    Write(Box<LabWrite>),
    /// Read back what an earlier `lab write --ledger FILE` was promised.
    Verify(LabVerify),
    /// Carry out a scenario and judge it by its own rules.
    Run(Box<RunArgs>),
    /// Find the largest load that passes.
    FindLimit(Box<FindLimitArgs>),
    /// Find the smallest memory or number of cores that passes.
    FindMinimum(Box<FindMinimumArgs>),
    /// The same scenario against several targets, in turn.
    Race(Box<RaceArgs>),
    /// Put the results of `lab run --part` together.
    Merge(MergeArgs),
    /// Stand in front of a backend, pass everything through, and keep the remote-write traffic in a file.
    Record(LabRecord),
    /// Play recorded traffic against any target, faster and more than it was.
    Replay(Box<LabReplay>),
    /// Show a result that was kept, as text and as one HTML file.
    Report(LabReport),
    /// Put two results side by side: ratios, verdicts, curves.
    Compare(LabCompare),
}

/// `floodmark lab write`
#[derive(Debug, Args)]
pub(crate) struct LabWrite {
    /// Where to write.
    #[arg(long, default_value = "http://127.0.0.1:9009/api/v1/write")]
    pub(crate) url: String,
    /// Sent with each request, reads included; may be repeated: tenant, bearer or basic authorization.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = parse::header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Remote write 1.0 or 2.0.
    #[arg(long, value_name = "VERSION", default_value = "1.0")]
    pub(crate) protocol: lab::Version,
    #[command(flatten)]
    pub(crate) access: LabAccess,

    /// Metrics of each scrape target.
    #[arg(long, value_name = "N", default_value = "500", value_parser = parse::whole, help_heading = "Shape")]
    pub(crate) metrics: u64,
    /// Scrape targets of each writer: series of each metric.
    #[arg(long, value_name = "N", default_value = "50", value_parser = parse::whole, help_heading = "Shape")]
    pub(crate) series: u64,
    /// Independent senders, each with series of its own: they multiply the load.
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Shape")]
    pub(crate) writers: u32,
    /// Number of the first writer, where several machines load one target.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Shape")]
    pub(crate) first_writer: u32,
    /// Labels of a series, its name included.
    #[arg(long, value_name = "N", default_value_t = lab::fleet::LABELS_DEFAULT, help_heading = "Shape")]
    pub(crate) labels: usize,
    /// Fill metric names up to this length.
    #[arg(long, value_name = "BYTES", help_heading = "Shape")]
    pub(crate) metric_name_bytes: Option<usize>,
    /// Fill the names of labels beyond the tenth up to this length.
    #[arg(long, value_name = "BYTES", help_heading = "Shape")]
    pub(crate) label_name_bytes: Option<usize>,
    /// Fill label values up to this length.
    #[arg(long, value_name = "BYTES", help_heading = "Shape")]
    pub(crate) label_value_bytes: Option<usize>,
    /// Share of the series that are parts of classic histograms: _bucket with le, _count, _sum.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Shape")]
    pub(crate) histograms: f64,
    /// How values go, except those of histograms: mix, constant, counter, walk, random.
    #[arg(long, value_name = "MODEL", default_value = "mix", help_heading = "Shape")]
    pub(crate) values: lab::ValueModel,
    /// Replace all series after so long, in their own time.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, help_heading = "Shape")]
    pub(crate) series_churn: Option<Duration>,
    /// Replace them one after the other instead of all at once.
    #[arg(long, requires = "series_churn", help_heading = "Shape")]
    pub(crate) staggered: bool,
    /// Rename all metrics after so long, in the series' own time.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, help_heading = "Shape")]
    pub(crate) metric_churn: Option<Duration>,
    /// Another seed makes other series; equal seeds go on with the same ones.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Shape")]
    pub(crate) seed: u64,

    /// Samples a second on a fixed schedule, latency counted from the intended start (200k, 1.5M);
    /// without it each connection sends as soon as it has its answer.
    #[arg(long, value_name = "SAMPLES/S", value_parser = parse::count, help_heading = "Pace")]
    pub(crate) rate: Option<f64>,
    /// End after so long [default: 20s, unless --rounds is given]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, help_heading = "Pace")]
    pub(crate) duration: Option<Duration>,
    /// End after so many samples of each series.
    #[arg(long, value_name = "N", help_heading = "Pace")]
    pub(crate) rounds: Option<u32>,
    /// Between two samples of a series [default: in step with --rate; else at most 15s, so that the run's
    /// samples fit into the last hour]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, help_heading = "Pace")]
    pub(crate) interval: Option<Duration>,
    /// Time of the first samples: -1h, or Unix seconds or milliseconds [default: so that the last lie now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Pace")]
    pub(crate) start: Option<String>,
    /// Series in one request.
    #[arg(long, value_name = "N", default_value_t = 2000, help_heading = "Pace")]
    pub(crate) batch: u32,
    /// Connections of each writer.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Pace")]
    pub(crate) connections: u32,
    /// How long to wait for an answer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse::duration, help_heading = "Pace")]
    pub(crate) timeout: Duration,
    /// Repeat a refused request (5xx, 429, no connection) for so long.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse::duration, help_heading = "Pace")]
    pub(crate) give_up_after: Duration,

    /// The target's process on this machine: report its CPU time and memory.
    #[arg(long, help_heading = "Result")]
    pub(crate) pid: Option<u32>,
    /// Read every acknowledged sample back and compare it bit by bit.
    #[arg(long, help_heading = "Result")]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) read: LabRead,
    /// Keep the record of what was acknowledged, for `lab verify`.
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) ledger: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long, help_heading = "Result")]
    pub(crate) json: bool,
    /// No progress on stderr.
    #[arg(long, short, help_heading = "Result")]
    pub(crate) quiet: bool,
}

/// How to read samples back.
#[derive(Debug, Args)]
pub(crate) struct LabRead {
    /// What stands before /api/v1/query [default: follows from where it was written]
    #[arg(long, value_name = "URL", help_heading = "Result")]
    pub(crate) read_url: Option<String>,
    /// Wait so long for acknowledged samples to turn up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Result")]
    pub(crate) patience: Duration,
    /// Samples in one answer, about.
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse::whole, help_heading = "Result")]
    pub(crate) page: u64,
}

/// `floodmark lab verify`
#[derive(Debug, Args)]
pub(crate) struct LabVerify {
    /// What `lab write --ledger` kept.
    #[arg(value_name = "LEDGER")]
    pub(crate) ledger: PathBuf,
    /// Sent with each request; may be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = parse::header)]
    pub(crate) headers: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) access: LabAccess,
    #[command(flatten)]
    pub(crate) read: LabRead,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl LabWrite {
    /// As the lab wants it; `now_ms` is the current time.
    pub(crate) fn options(&self, now_ms: i64) -> anyhow::Result<WriteOptions> {
        let verify = self.verify.then(|| {
            let url = self.read.read_url.clone().unwrap_or_else(|| read_url_for(&self.url));
            self.read.options(url, &self.headers, self.access.access())
        });
        let metrics = u32::try_from(self.metrics).context("--metrics")?;
        let share = self.histograms;
        anyhow::ensure!((0.0..=1.0).contains(&share), "--histograms: {share} is not between 0 and 1");
        Ok(WriteOptions {
            url: self.url.clone(),
            headers: self.headers.clone(),
            access: self.access.access(),
            version: self.protocol,
            fleet: lab::fleet::Fleet {
                seed: self.seed,
                labels: self.labels,
                metric_name_bytes: self.metric_name_bytes,
                label_name_bytes: self.label_name_bytes,
                label_value_bytes: self.label_value_bytes,
                cycles: Vec::new(),
                fixed: Vec::new(),
                histograms: Histograms::of_share(share, BUCKETS_DEFAULT, metrics),
            },
            metrics,
            series_per_metric: self.series,
            writers: self.writers,
            first_writer: self.first_writer,
            connections: self.connections,
            batch: self.batch,
            values: self.values,
            series_churn: self.series_churn,
            series_churn_staggered: self.staggered,
            metric_churn: self.metric_churn,
            interval: self.interval,
            start_ms: self.start.as_deref().map(|s| parse::time(s, now_ms)).transpose().context("--start")?,
            rate: self.rate,
            duration: self.duration,
            rounds: self.rounds,
            retry: lab::RetryPolicy { give_up_after: self.give_up_after, ..Default::default() },
            timeout: self.timeout,
            pid: self.pid,
            verify,
            stop: lab::Stop::default(),
        })
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
