//! Checks that a scenario asks of a protocol only what it can do.

use super::{Checked, DURATION_S_MAX, between, fault, read_step};
use crate::generate::driver::{Transport, csv};
use crate::generate::protocol::Protocol;
use crate::scenario::{Model, ReadApi, Scenario};

impl Scenario {
    pub(super) fn check_protocol(&self) -> Checked {
        let (target, load) = (&self.target, &self.load);
        let transport = target.protocol.transport();
        if target.commit_interval.is_some() && !target.protocol.has_no_answers() {
            return fault(
                "target.commit_interval",
                "applies only to the protocols graphite, graphite-pickle and statsd",
            );
        }
        if load.reconnect.is_some() && !matches!(transport, Transport::Lines | Transport::Stream) {
            return fault("load.reconnect", "applies only to the protocols graphite and graphite-pickle");
        }
        for address in target.write.all() {
            let (scheme, rest) = address.split_once("://").unwrap_or_default();
            let why = match transport {
                Transport::Grpc if rest.trim_end_matches('/').contains('/') => {
                    format!("{address:?} has a path, but gRPC has one of its own")
                }
                Transport::Stream if scheme == "udp" => "pickled points are sent over TCP only".to_owned(),
                Transport::Lines | Transport::Stream if !matches!(scheme, "tcp" | "udp") => {
                    format!("{address:?} does not begin with tcp:// or udp://")
                }
                Transport::Flushed if scheme != "udp" => format!("{address:?} does not begin with udp://"),
                _ => continue,
            };
            return fault("target.write", why);
        }
        let resolution_ms = u64::from(target.protocol.resolution_ms());
        let intervals = [("load.interval", load.interval), ("load.history_interval", load.history_interval)];
        for (path, interval) in intervals {
            if interval.is_some_and(|interval| !interval.ms().is_multiple_of(resolution_ms)) {
                return fault(path, "Graphite's timestamps are whole seconds");
            }
        }
        if target.protocol == Protocol::Csv {
            self.check_table()?;
        }
        if target.protocol.is_flushed() && self.replay.is_none() {
            self.check_flushed()?;
        }
        if let Some(interval) = target.commit_interval {
            between("target.commit_interval", interval.s(), 0.0, 60.0)?;
        }
        if let Some(age) = load.reconnect {
            between("load.reconnect", age.s(), 0.01, DURATION_S_MAX)?;
        }
        self.check_step()
    }

    /// Refuses tables that are too wide. A request has a column for each of its metrics.
    fn check_table(&self) -> Checked {
        let load = &self.load;
        let metrics = load.metrics.whole().min(load.batch.into());
        let (columns, map_bytes) = csv::size(&load.fleet(), metrics as usize);
        if columns > csv::COLUMNS_MAX || map_bytes > csv::MAP_BYTES_MAX {
            return fault(
                "load.metrics",
                format!(
                    "tables would have {columns} columns, and {map_bytes} bytes of their names in the URL; the limits are {} \
                     and {}: use fewer metrics, or a smaller batch",
                    csv::COLUMNS_MAX,
                    csv::MAP_BYTES_MAX
                ),
            );
        }
        Ok(())
    }

    /// Refuses what makes no sense if the target stores values at times of its own.
    fn check_flushed(&self) -> Checked {
        let load = &self.load;
        let replaced = !self.course().relabels().is_empty();
        for (path, is_set, why) in [
            (
                "load.rate",
                load.model == Model::Closed,
                "statsd needs a rate (--rate), because no answer slows a sender of datagrams",
            ),
            ("load.history", load.history.is_some(), "statsd has no timestamps, so history cannot be sent"),
            ("load.series_interval", load.series_interval.is_some(), "gauges of statsd cannot be replaced"),
            ("load.metric_interval", load.metric_interval.is_some(), "gauges of statsd cannot be renamed"),
            ("shape.kind", replaced, "gauges of statsd cannot be replaced"),
            (
                "target.read_api",
                self.read_api() == ReadApi::Render,
                "statsd can only be read back with promql",
            ),
            (
                "verdict.freshness_p99",
                self.verdict.freshness_p99.is_some(),
                "statsd has no timestamps, so freshness cannot be measured",
            ),
        ] {
            if is_set {
                return fault(path, why);
            }
        }
        Ok(())
    }

    fn check_step(&self) -> Checked {
        if self.read_api() != ReadApi::Render {
            return match self.verify.step {
                Some(_) => fault("verify.step", "only /render has steps (target.read_api)"),
                None => Ok(()),
            };
        }
        if let Some(step) = self.verify.step {
            between("verify.step", step.s(), 1.0, 86_400.0)?;
        }
        let history = self.load.history.and(self.load.history_interval);
        let history = history.map(|interval| ("load.history_interval", interval.ms()));
        for (key, interval_ms) in std::iter::once(("load.interval", self.interval_ms())).chain(history) {
            if let Err(why) = read_step(self.read_step_ms(), interval_ms, self.verify.step.is_some()) {
                return fault("verify.step", format!("{why} ({key})"));
            }
        }
        Ok(())
    }
}
