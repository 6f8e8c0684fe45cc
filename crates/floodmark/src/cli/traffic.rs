//! Flags of `floodmark lab record`, `replay`, `report` and `compare`.

use super::access::LabAccess;
use clap::Args;
use lab::observe::ObserveOptions;
use lab::record::RecordOptions;
use lab::recording::conceal::Conceal;
use lab::recording::request::Message;
use lab::replay::{ReplayOptions, Times};
use lab::scenario::size;
use lab::{RetryPolicy, Stop, parse};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `floodmark lab record`
#[derive(Debug, Args)]
pub(crate) struct LabRecord {
    /// The recording to make; a file that exists is never overwritten.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where everything is passed on to: what stands before the path of each request.
    #[arg(long, value_name = "URL")]
    backend: String,
    /// Where senders send to.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9201")]
    listen: SocketAddr,
    #[command(flatten)]
    access: LabAccess,
    /// Write hashes in place of label values and tenants; equal values stay equal.
    #[arg(long)]
    hash_values: bool,
    /// Write hashes in place of metric names.
    #[arg(long)]
    hash_metrics: bool,
    /// Write hashes in place of label names.
    #[arg(long)]
    hash_labels: bool,
    /// The key to hash with, at least 16 bytes: recordings with one key have the same hashes
    /// [default: made up and forgotten]
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,
    /// End after so long [default: at Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Record no more than so many bytes; the traffic goes on.
    #[arg(long, value_name = "BYTES", default_value = "10GiB", value_parser = size)]
    file_bytes: u64,
    /// Bytes of requests that may wait for the recording; what does not fit is passed on unrecorded.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = size)]
    queue_bytes: u64,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl LabRecord {
    /// As the lab wants it.
    pub(crate) fn options(&self, stop: Stop) -> RecordOptions {
        RecordOptions {
            access: self.access.access(),
            conceal: Conceal {
                values: self.hash_values,
                metrics: self.hash_metrics,
                labels: self.hash_labels,
            },
            key_file: self.hash_key.clone(),
            duration: self.duration,
            file_bytes_max: self.file_bytes,
            queue_bytes_max: self.queue_bytes,
            stop,
            ..RecordOptions::new(self.listen, &self.backend, &self.file)
        }
    }
}

/// `floodmark lab replay`
#[derive(Debug, Args)]
pub(crate) struct LabReplay {
    /// What `lab record` made.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write.
    #[arg(long, default_value = "http://127.0.0.1:9009/api/v1/write")]
    url: String,
    /// Sent with each request; may be repeated. X-Scope-OrgID goes before the recorded tenants.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = parse::header)]
    headers: Vec<(String, String)>,
    #[command(flatten)]
    access: LabAccess,
    /// Remote write 1.0 or 2.0 [default: as recorded]
    #[arg(long, value_name = "VERSION")]
    protocol: Option<lab::Version>,
    /// How many times as fast.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    speed: f64,
    /// How many times as many series; copies differ in the label floodmark_copy.
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
    /// Connections; a series belongs to one of them, so its samples stay in order.
    #[arg(long, value_name = "N", default_value_t = 4)]
    writers: usize,
    /// Times of samples: scaled (intervals shrink with the speed) or shifted (they stay, and end now).
    #[arg(long, value_name = "HOW", default_value = "scaled")]
    sample_times: Times,
    /// Samples in a request, about.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    batch: usize,
    /// End after so long.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    duration: Option<Duration>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse::duration)]
    timeout: Duration,
    /// Repeat a refused request (5xx, 429, no connection) for so long.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse::duration)]
    give_up_after: Duration,
    #[command(flatten)]
    observe: LabObserve,
    #[command(flatten)]
    pub(crate) output: LabOutput,
}

/// What of the target to watch.
#[derive(Debug, Args)]
pub(crate) struct LabObserve {
    /// The target's process on this machine: CPU, memory, open files, restarts.
    #[arg(long, help_heading = "Observation")]
    pid: Option<u32>,
    /// The target's control group, a directory under /sys/fs/cgroup [default: that of --pid]
    #[arg(long, value_name = "DIR", help_heading = "Observation")]
    cgroup: Option<PathBuf>,
    /// The target's own metrics, such as http://127.0.0.1:9009/metrics.
    #[arg(long, value_name = "URL", help_heading = "Observation")]
    metrics_url: Option<String>,
    /// Where the target keeps its data: which disk to watch.
    #[arg(long, value_name = "DIR", help_heading = "Observation")]
    target_data: Option<PathBuf>,
}

/// Where results go.
#[derive(Debug, Args)]
pub(crate) struct LabOutput {
    /// Write the report as one HTML file.
    #[arg(long, visible_alias = "report", value_name = "FILE", help_heading = "Result")]
    pub(crate) html: Option<PathBuf>,
    /// Keep the whole result, for `lab report` and `lab compare`.
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) out: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Result")]
    pub(crate) json: bool,
    /// No progress on stderr.
    #[arg(long, short, help_heading = "Result")]
    pub(crate) quiet: bool,
}

impl LabReplay {
    /// As the lab wants it.
    pub(crate) fn options(&self, stop: Stop) -> ReplayOptions {
        ReplayOptions {
            headers: self.headers.clone(),
            access: self.access.access(),
            message: self.protocol.map(|version| match version {
                lab::Version::V1 => Message::V1,
                lab::Version::V2 => Message::V2,
            }),
            speed: self.speed,
            copies: self.times,
            writers: self.writers,
            times: self.sample_times,
            batch: self.batch,
            duration: self.duration,
            timeout: self.timeout,
            retry: RetryPolicy { give_up_after: self.give_up_after, ..RetryPolicy::default() },
            observe: ObserveOptions {
                pid: self.observe.pid,
                cgroup: self.observe.cgroup.clone(),
                metrics_url: self.observe.metrics_url.clone(),
                headers: self.headers.clone(),
                access: self.access.access(),
                data_dir: self.observe.target_data.clone(),
            },
            stop,
            ..ReplayOptions::new(&self.file, &self.url)
        }
    }
}

/// `floodmark lab report`
#[derive(Debug, Args)]
pub(crate) struct LabReport {
    /// A result that was kept.
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `floodmark lab compare`
#[derive(Debug, Args)]
pub(crate) struct LabCompare {
    /// A result that was kept: the one that ratios are relative to.
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Another one.
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Write the comparison as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
