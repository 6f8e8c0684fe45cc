//! Flags of `floodmark lab stresser`.

use super::access::LabAccess;
use super::lab::LabRead;
use super::result::ResultArgs;
use super::scenario_text::{seconds, table};
use super::values;
use clap::Args;
use lab::scenario::notation;
use std::time::Duration;
use toml::Value;

/// Figures of a timer.
const TIMER_METRICS: i64 = 15;

/// Timers in one request. A burst of 100 timers is a body of about 80 KiB.
const BATCH_TIMERS: i64 = 100;

/// `floodmark lab stresser`
#[derive(Debug, Args)]
pub(crate) struct LabStresser {
    /// Host of the target
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Target")]
    host: String,
    /// Port of the target [default: 2003, or 2004 with --pickle]
    #[arg(long, value_name = "PORT", help_heading = "Target")]
    port: Option<u16>,
    /// Send pickled points instead of lines
    #[arg(long, help_heading = "Target")]
    pickle: bool,
    /// Header of each query, for tenant and authorization; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = notation::header, help_heading = "Target")]
    headers: Vec<(String, String)>,
    /// The target's process on this machine: report its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Target")]
    pid: Option<u32>,
    #[command(flatten)]
    pub(crate) access: LabAccess,

    /// Hosts that report timers, each through a connection of its own [1 to 10000]
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u32>(1..=10_000), help_heading = "Shape")]
    hosts: u32,
    /// Timers of each host, with 15 metrics each [1 to 33000000]
    #[arg(long, value_name = "N", default_value = "128", value_parser = values::whole::<u64>(1..=33_000_000), help_heading = "Shape")]
    timers: u64,
    /// Time between two reports, in whole seconds
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = notation::duration, help_heading = "Shape")]
    interval: Duration,
    /// Spread each report over the interval, instead of sending all of it at once
    #[arg(long, help_heading = "Shape")]
    spread: bool,
    /// First part of the names
    #[arg(long, value_name = "PATH", default_value = "STRESS", help_heading = "Shape")]
    prefix: String,
    /// Seed of the times within an interval
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Shape")]
    seed: u64,
    /// Seed of values [1 to 9007199254740991] [default: random, so that points of an earlier run are not mistaken for those of this run]
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>(1..=(1 << 53) - 1), help_heading = "Shape")]
    value_seed: Option<u64>,
    /// Stop after this long, at most 7d
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = notation::duration, help_heading = "Shape")]
    duration: Duration,
    /// Print the lines of one report, and send nothing
    #[arg(long, help_heading = "Shape")]
    pub(crate) debug: bool,

    /// Read back every point that must be durable, and compare it bit by bit
    #[arg(long, help_heading = "Verification")]
    verify: bool,
    #[command(flatten)]
    read: LabRead,
    #[command(flatten)]
    owed: OwedArgs,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// When a Graphite target owes the points that it was sent.
#[derive(Debug, Args)]
pub(crate) struct OwedArgs {
    /// For Graphite: the target's promise how soon points are durable; points of a connection that breaks are owed if
    /// they are older [default: none; they are not owed]. For statsd: how soon a value that queries return is durable
    /// after its time [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Verification")]
    commit_interval: Option<Duration>,
    /// For Graphite: close each connection after this long, and wait until the target closes it too [default: never]
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Verification")]
    reconnect: Option<Duration>,
}

impl OwedArgs {
    pub(crate) fn commit_interval(&self) -> Option<Value> {
        self.commit_interval.map(seconds)
    }

    pub(crate) fn reconnect(&self) -> Option<Value> {
        self.reconnect.map(seconds)
    }
}

impl LabStresser {
    pub(crate) fn scenario(&self) -> String {
        let (protocol, port) = if self.pickle { ("graphite-pickle", 2004) } else { ("graphite", 2003) };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let address = format!("tcp://{host}:{}", self.port.unwrap_or(port));
        let target = [
            ("write", Some(address.into())),
            ("headers", super::scenario_text::headers(&self.headers)),
            ("tenant_header", Some("".into())),
            ("protocol", Some(protocol.into())),
            ("pid", self.pid.map(|pid| Value::Integer(pid.into()))),
            ("commit_interval", self.owed.commit_interval()),
        ];
        let load = [
            ("naming", Some("timers".into())),
            ("prefix", Some(self.prefix.as_str().into())),
            ("metrics", Some(Value::Integer(TIMER_METRICS))),
            ("series_per_metric", Some(Value::Integer(self.timers as i64))),
            ("writers", Some(Value::Integer(self.hosts.into()))),
            ("batch", Some(Value::Integer(BATCH_TIMERS * TIMER_METRICS))),
            ("values", Some("timer".into())),
            ("interval", Some(seconds(self.interval))),
            ("burst", Some(Value::Boolean(!self.spread))),
            ("reconnect", self.owed.reconnect()),
        ];
        let mut verify = self.read.keys();
        verify.insert("after".into(), Value::Boolean(self.verify));
        verify.insert("probes_per_s".into(), Value::Integer(0));
        let mut target = table(target);
        target.extend(self.read.target_keys());
        let scenario = [
            ("name", Some("stresser".into())),
            ("seed", Some(Value::Integer(self.seed as i64))),
            ("value_seed", self.value_seed.map(|seed| Value::Integer(seed as i64))),
            ("duration", Some(seconds(self.duration))),
            ("target", Some(target.into())),
            ("load", Some(table(load).into())),
            ("verify", Some(verify.into())),
        ];
        table(scenario).to_string()
    }
}
