//! Flags of `floodmark lab record`, `replay`, `report` and `compare`.

use super::access::LabAccess;
use super::result::{PrintArgs, ResultArgs, ViewArgs};
use super::scenario_text::{UNTIL_SENT, headers, path, seconds, table};
use super::values;
use clap::Args;
use lab::capture::file::conceal::Conceal;
use lab::capture::recorder::RecordOptions;
use lab::scenario::notation;
use lab::scenario::{SampleTimes, size};
use lab::{Protocol, Stop, Version};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stdx::address;
use toml::Value;

/// `floodmark lab record`
#[derive(Debug, Args)]
pub(crate) struct LabRecord {
    /// File to record to; an existing file is never overwritten
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// URL of the backend to which requests are passed on, without the path of the requests; or tcp://HOST:PORT, to
    /// record Graphite's lines; or udp://HOST:PORT, to record datagrams of statsd or
    /// Graphite
    #[arg(long, alias = "backend", value_name = "URL", help_heading = "Target")]
    target: String,
    /// Address for senders, such as 127.0.0.1:9201, localhost:9201, or :9201 for all addresses
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9201", value_parser = address::listen, help_heading = "Target")]
    listen: SocketAddr,
    #[command(flatten)]
    access: LabAccess,
    /// Write hashes instead of label values and tenants; equal values stay equal
    #[arg(long, help_heading = "Privacy")]
    hash_values: bool,
    /// Write hashes instead of metric names
    #[arg(long, help_heading = "Privacy")]
    hash_metrics: bool,
    /// Write hashes instead of label names
    #[arg(long, help_heading = "Privacy")]
    hash_labels: bool,
    /// File with the key of the hashes, at least 16 bytes: recordings with the same key have the same hashes
    /// [default: a random key, which is not stored]
    #[arg(long, value_name = "FILE", help_heading = "Privacy")]
    hash_key: Option<PathBuf>,
    /// Stop after this long [default: at Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Limits")]
    duration: Option<Duration>,
    /// Size of the recording beyond which traffic is passed on unrecorded
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = size, help_heading = "Limits")]
    file_bytes: u64,
    /// Memory for requests that wait to be recorded; requests that do not fit are passed on unrecorded
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, help_heading = "Limits")]
    queue_bytes: u64,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

impl LabRecord {
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
            ..RecordOptions::new(self.listen, &self.target, &self.file)
        }
    }
}

/// `floodmark lab replay`
#[derive(Debug, Args)]
pub(crate) struct LabReplay {
    /// The recording to replay
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// URL to write to; for Graphite tcp://HOST:PORT, for statsd udp://HOST:PORT
    /// [default: the usual address of the protocol on this machine, such as http://127.0.0.1:9009/api/v1/write]
    #[arg(long, alias = "url", value_name = "URL", help_heading = "Target")]
    target: Option<String>,
    /// Header of each request; may be repeated. X-Scope-OrgID takes precedence over the recorded tenants
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = notation::header, help_heading = "Target")]
    headers: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) access: LabAccess,
    /// Version of remote write, or another protocol [default: remote write as recorded, or 1.0; for tcp:// graphite]
    #[arg(long, value_name = "PROTOCOL", value_parser = values::protocol(), help_heading = "Target")]
    protocol: Option<Protocol>,
    /// Speed-up of the recording [above 0.001, up to 10000]
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "Pace")]
    speed: f64,
    /// Copies of each series, distinguished by the label floodmark_copy [1 to 10000]
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u32>(1..=10_000), help_heading = "Pace")]
    times: u32,
    /// Connections; each series belongs to one of them, so that its samples stay in order [1 to 1024]
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::whole::<usize>(1..=1_024), help_heading = "Pace")]
    writers: usize,
    /// How timestamps of samples are rewritten
    #[arg(long, value_name = "HOW", default_value = "scaled", value_parser = values::timestamps(), help_heading = "Pace")]
    sample_times: SampleTimes,
    /// Samples in a request, approximately [1 to 100000]
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::whole::<usize>(1..=100_000), help_heading = "Pace")]
    batch: usize,
    /// Stop after this long
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Pace")]
    duration: Option<Duration>,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = notation::duration, help_heading = "Pace")]
    timeout: Duration,
    /// How long to retry a failed request (5xx, 429, no connection)
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = notation::duration, help_heading = "Pace")]
    give_up_after: Duration,
    #[command(flatten)]
    observe: LabObserve,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// Sources of figures about the target.
#[derive(Debug, Args)]
pub(crate) struct LabObserve {
    /// The target's process on this machine: watch its CPU time, memory and files
    #[arg(long, value_name = "PID", help_heading = "Observation")]
    pid: Option<u32>,
    /// The target's control group, a directory under /sys/fs/cgroup [default: the control group of --pid]
    #[arg(long, value_name = "DIR", help_heading = "Observation")]
    cgroup: Option<PathBuf>,
    /// The target's own metrics, such as http://127.0.0.1:9009/metrics
    #[arg(long, value_name = "URL", help_heading = "Observation")]
    metrics_url: Option<String>,
    /// The target's data directory; its disk is watched
    #[arg(long, value_name = "DIR", help_heading = "Observation")]
    target_data: Option<PathBuf>,
}

impl LabReplay {
    /// The protocol of a target, or the version of remote write if one is given.
    fn protocols(&self) -> (Option<Protocol>, Option<Version>) {
        let is_socket = self.target.as_ref().is_some_and(|target| target.starts_with("tcp://"));
        match self.protocol {
            Some(protocol) if protocol.version().is_none() => (Some(protocol), None),
            None if is_socket => (Some(Protocol::Graphite), None),
            protocol => (None, protocol.and_then(Protocol::version)),
        }
    }

    pub(crate) fn scenario(&self) -> String {
        let (other, version) = self.protocols();
        let address = match &self.target {
            Some(address) => address.as_str(),
            None => other.unwrap_or_default().usual_address(),
        };
        let target = [
            ("write", Some(address.into())),
            ("protocol", other.and_then(|protocol| Value::try_from(protocol).ok())),
            ("headers", headers(&self.headers)),
            ("timeout", Some(seconds(self.timeout))),
            ("pid", self.observe.pid.map(|pid| Value::Integer(pid.into()))),
            ("cgroup", self.observe.cgroup.as_deref().map(path)),
            ("metrics", self.observe.metrics_url.as_deref().map(Value::from)),
            ("data_dir", self.observe.target_data.as_deref().map(path)),
        ];
        let load = [
            ("writers", Some(Value::Integer(self.writers as i64))),
            ("batch", Some(Value::Integer(self.batch as i64))),
            ("give_up_after", Some(seconds(self.give_up_after))),
        ];
        let replay = [
            ("file", Some(path(&self.file))),
            ("speed", Some(Value::Float(self.speed))),
            ("copies", Some(Value::Integer(self.times.into()))),
            ("times", Value::try_from(self.sample_times).ok()),
            ("protocol", version.and_then(|version| Value::try_from(version).ok())),
        ];
        let scenario = [
            ("name", Some("replay".into())),
            ("duration", Some(seconds(self.duration.unwrap_or(UNTIL_SENT)))),
            ("target", Some(table(target).into())),
            ("load", Some(table(load).into())),
            ("replay", Some(table(replay).into())),
        ];
        table(scenario).to_string()
    }
}

/// `floodmark lab report`
#[derive(Debug, Args)]
pub(crate) struct LabReport {
    /// A result file, as written by --out
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    #[command(flatten)]
    pub(crate) views: ViewArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `floodmark lab compare`
#[derive(Debug, Args)]
pub(crate) struct LabCompare {
    /// A saved result, to which ratios are relative
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Another saved result
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Write the comparison as one HTML file that opens offline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
