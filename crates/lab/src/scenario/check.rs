//! Checks that the values of a scenario are possible and fit together.

mod protocol;

use super::error::KeyFault;
use super::shape::Kind;
use super::{FaultKind, Load, Model, Scales, Scenario, SeriesNaming, Texts, notation};
use crate::generate::fleet::{BOUND_LABEL, BUCKETS_MAX, Fleet, Histograms};
use crate::generate::naming::{Naming, TIMER_FIGURES};
use crate::generate::plan::SERIES_MAX;
use crate::verify::PAGE_MAX;
use model::caps;

const DURATION_S_MAX: f64 = 7.0 * 86_400.0;

const TENANTS_MAX: u32 = 10_000;
const WRITERS_MAX: u64 = 10_000;
const FAULTS_MAX: usize = 1_000;
const LABEL_BYTES_MAX: usize = 8 << 10;
const PREFIX_BYTES_MAX: usize = 200;

type Checked = Result<(), KeyFault>;

fn fault<T>(path: &'static str, message: impl Into<String>) -> Result<T, KeyFault> {
    Err(KeyFault { path, message: message.into() })
}

fn between(path: &'static str, n: f64, min: f64, max: f64) -> Checked {
    if n.is_finite() && n >= min && n <= max {
        return Ok(());
    }
    fault(path, format!("{n} is not between {min} and {max}"))
}

/// Checks that answers with slots of `step_ms` can be compared with samples that are `interval_ms` apart. A slot must hold
/// a whole number of rounds, or a round a whole number of slots: otherwise a slot could begin before the samples that a
/// query is about. A step that is given must be in whole seconds, as in storage schemas.
///
/// # Errors
/// The error says what is wrong with the step.
pub fn read_step(step_ms: u64, interval_ms: u64, is_given: bool) -> Result<(), String> {
    if is_given && (step_ms == 0 || !step_ms.is_multiple_of(1_000)) {
        return Err("steps are whole seconds".to_owned());
    }
    match step_ms.is_multiple_of(interval_ms) || interval_ms.is_multiple_of(step_ms) {
        true => Ok(()),
        false => Err(format!(
            "neither is the step of {step_ms} ms a multiple of the interval of {interval_ms} ms between two samples, nor \
             the interval of the step"
        )),
    }
}

impl Scenario {
    pub(super) fn check(&self) -> Checked {
        between("scale", self.scale, 1e-6, 1e4)?;
        between("compress", self.compress, 1e-3, 1e5)?;
        if self.value_seed == Some(0) {
            return fault("value_seed", "0 is not a seed of values");
        }
        between("duration", self.duration.s() / self.compress, 0.1, DURATION_S_MAX)?;
        self.load.check()?;
        self.check_times()?;
        self.check_replay()?;
        self.shape.check()?;
        self.check_moments()?;
        self.check_size()?;
        for mix in &self.reads {
            mix.check()?;
        }
        self.check_target()?;
        self.check_protocol()?;
        self.check_naming()?;
        self.check_faults()?;
        self.check_rules()?;
        between("verify.probes_per_s", self.verify.probes_per_s, 0.0, 1_000.0)?;
        between("verify.connections", self.verify.connections as f64, 1.0, 64.0)?;
        between("verify.tolerance", self.verify.tolerance, 0.0, 1e-3)?;
        between("verify.page", self.verify.page.0, 1.0, PAGE_MAX as f64)
    }

    /// Spikes, relabelling and outages must happen while the load runs.
    fn check_moments(&self) -> Checked {
        let has_moments = matches!(self.shape.kind, Kind::Spike | Kind::RelabelAll | Kind::Outage);
        match self.shape.at.iter().find(|at| has_moments && at.s() >= self.duration.s()) {
            Some(at) => fault(
                "shape.at",
                format!(
                    "{:?} is not before the end of the load ({:?}); compress shortens both",
                    at.0, self.duration.0
                ),
            ),
            None => Ok(()),
        }
    }

    fn check_times(&self) -> Checked {
        let load = &self.load;
        if let Some(rate) = load.rate {
            between("load.rate", rate.0, 0.001, 1e9)?;
            if load.model == Model::Closed {
                return fault(
                    "load.rate",
                    "a closed loop has no rate: it sends as fast as the target answers",
                );
            }
        }
        if let Some(rounds) = load.rounds {
            between("load.rounds", rounds.into(), 1.0, 100e6)?;
        }
        if let Some(start) = &load.start
            && let Err(error) = notation::time(start, 0)
        {
            return fault("load.start", format!("{error:#}"));
        }
        let changes = [
            ("load.value_interval", load.value_interval),
            ("load.series_interval", load.series_interval),
            ("load.metric_interval", load.metric_interval),
        ];
        for (path, every) in changes {
            if every.is_some_and(|every| every.ms() < self.interval_ms()) {
                return fault(path, "the interval is shorter than the interval between two samples");
            }
        }
        Ok(())
    }

    fn check_replay(&self) -> Checked {
        let Some(replay) = &self.replay else { return Ok(()) };
        if replay.file.as_os_str().is_empty() {
            return fault("replay.file", "the file of the recording is not set");
        }
        between("replay.speed", replay.speed, 0.001, 10_000.0)?;
        between("replay.copies", f64::from(replay.copies), 1.0, 10_000.0)?;
        between("load.writers", f64::from(self.load.writers), 1.0, 1_024.0)?;
        between("load.batch", f64::from(self.load.batch), 1.0, 100_000.0)?;
        if self.shape.kind != Kind::Constant || self.load.history.is_some() || self.load.rounds.is_some() {
            return fault(
                "replay",
                "the recording determines the load: shape, history and rounds cannot be set",
            );
        }
        if replay.protocol.is_some() && self.target.protocol.version().is_none() {
            return fault(
                "replay.protocol",
                "this is for versions of remote write: set only target.protocol",
            );
        }
        if !self.target.protocol.can_replay() {
            let name = self.target.protocol.name();
            return fault("target.protocol", format!("a replay cannot be sent in the protocol {name}"));
        }
        if self.verdict.freshness_p99.is_some() {
            return fault("verdict.freshness_p99", "a replay does not probe its samples");
        }
        if self.verdict.owed.is_some() {
            return fault("verdict.owed", "a replay keeps no record of what is owed");
        }
        Ok(())
    }

    fn check_size(&self) -> Checked {
        let load = self.scaled();
        let peak = self.series() * self.course().factor_max();
        if peak > SERIES_MAX as f64 {
            return fault(
                "load",
                format!("{peak:.0} series at the peak are more than {SERIES_MAX}: reduce scale"),
            );
        }
        let connections = u64::from(load.tenants) * u64::from(load.writers) * u64::from(load.connections);
        let peak = connections as f64 * self.course().factor_max();
        if peak > WRITERS_MAX as f64 {
            return fault(
                "load.writers",
                format!("{peak:.0} connections at the peak are more than {WRITERS_MAX}"),
            );
        }
        Ok(())
    }

    fn check_target(&self) -> Checked {
        let target = &self.target;
        if target.write.all().is_empty() {
            return fault("target.write", "no address is set");
        }
        if let Some(label) = &target.tenant_label
            && (label.is_empty() || label.starts_with("__") || label == BOUND_LABEL)
        {
            return fault("target.tenant_label", format!("{label:?} is not a valid name of a tenant label"));
        }
        let write = target.write.all().iter().filter(|_| !target.protocol.has_no_answers());
        let urls = write.chain(&target.read).chain(&target.metrics).chain(&target.ready);
        for url in urls {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return fault("target", format!("{url:?} does not begin with http:// or https://"));
            }
        }
        self.check_placeholders()?;
        let headers = target.headers.0.iter().map(|(name, value)| format!("{name}: {value}"));
        for header in headers {
            if let Err(error) = notation::header(&header) {
                return fault("target.headers", format!("{error:#}"));
            }
        }
        if let Texts::Many(urls) = &target.write
            && urls.len() > WRITERS_MAX as usize
        {
            return fault("target.write", format!("more than {WRITERS_MAX} addresses"));
        }
        Ok(())
    }

    fn check_naming(&self) -> Checked {
        let load = &self.load;
        if load.naming == SeriesNaming::Labels {
            return Ok(());
        }
        if let Some(why) = self.target.protocol.no_timers() {
            return fault("load.naming", why);
        }
        let figures = TIMER_FIGURES.len();
        if load.metrics.whole() != figures as u64 || self.scales == Scales::Metrics {
            return fault("load.metrics", format!("a timer has {figures} metrics"));
        }
        if load.histograms > 0.0 || !load.cycles.is_empty() || self.target.tenant_label.is_some() {
            return fault(
                "load.naming",
                "timers have no labels: histograms, cycles and tenant_label cannot be set",
            );
        }
        if load.metric_name_bytes.is_some() {
            return fault("load.metric_name_bytes", "the names of a timer's metrics are given");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if load.prefix.is_empty()
            || load.prefix.len() > PREFIX_BYTES_MAX
            || !load.prefix.chars().all(is_plain)
        {
            return fault(
                "load.prefix",
                format!(
                    "a prefix has 1 to {PREFIX_BYTES_MAX} letters, digits, dots, hyphens and underscores"
                ),
            );
        }
        Ok(())
    }

    /// If other keys use a placeholder such as `{port}`, the start command must contain it, because that is how the
    /// target learns its value.
    fn check_placeholders(&self) -> Checked {
        let target = &self.target;
        let start = target.start.as_deref().unwrap_or_default();
        let urls = target.write.all().iter().chain(&target.read).chain(&target.metrics).chain(&target.ready);
        if urls.into_iter().any(|url| url.contains("{port}")) && !start.contains("{port}") {
            return fault(
                "target.start",
                "{port} is used in an address, but not in the command that starts the target",
            );
        }
        let data_dir = target.data_dir.as_ref().and_then(|dir| dir.to_str());
        if data_dir.is_some_and(|dir| dir.contains("{data}")) && !start.contains("{data}") {
            return fault(
                "target.start",
                "{data} is used in target.data_dir, but not in the command that starts the target",
            );
        }
        Ok(())
    }

    fn check_faults(&self) -> Checked {
        if self.fault.len() > FAULTS_MAX {
            return fault("fault", format!("there are more than {FAULTS_MAX} faults"));
        }
        for spec in &self.fault {
            if spec.at.s() >= self.duration.s() {
                return fault("fault.at", format!("{:?} is not before the end of the load", spec.at.0));
            }
            let process = self.target.start.is_some() || self.target.pid.is_some();
            match spec.kind {
                FaultKind::Kill if self.target.start.is_none() && spec.restart.is_none() => {
                    return fault(
                        "fault.restart",
                        "a killed target must be started again: set this command or target.start",
                    );
                }
                FaultKind::Kill | FaultKind::Pause if !process => {
                    return fault("fault.do", "the fault needs target.pid or target.start");
                }
                FaultKind::Cut if self.target.namespace.is_none() => {
                    return fault("fault.do", "the fault needs target.namespace");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_rules(&self) -> Checked {
        let rules = &self.verdict;
        let shares = [
            ("verdict.pass_rate", rules.pass_rate),
            ("verdict.error_budget", rules.error_budget),
            ("verdict.achieved", rules.achieved),
            ("verdict.owed", rules.owed),
            ("verdict.read_pass_rate", rules.read_pass_rate),
            ("verdict.disk_util", rules.disk_util),
        ];
        for (path, share) in shares {
            if let Some(share) = share {
                between(path, share, 0.0, 1.0)?;
            }
        }
        let reads = rules.read_pass_rate.is_some() || rules.read_p99.is_some();
        if reads && self.reads.is_empty() {
            return fault("verdict", "there is a rule for reads, but there are no reads");
        }
        if rules.owed.is_some_and(|share| share > 0.0) && self.target.is_datagrams() {
            return fault("verdict.owed", "datagrams are never owed: set this to 0");
        }
        if rules.freshness_p99.is_some() && self.verify.probes_per_s == 0.0 {
            return fault("verdict.freshness_p99", "the rule needs verify.probes_per_s above 0");
        }
        Ok(())
    }

    /// The load after it was multiplied by [`Scenario::scale`]. No count becomes smaller than 1.
    pub fn scaled(&self) -> Load {
        let mut load = self.load.clone();
        let whole = |n: f64| (n * self.scale).round().max(1.0);
        match self.scales {
            Scales::Series => load.series_per_metric.0 = whole(load.series_per_metric.0),
            Scales::Metrics => load.metrics.0 = whole(load.metrics.0),
            Scales::Writers => load.writers = whole(f64::from(load.writers)) as u32,
            Scales::Tenants => load.tenants = whole(f64::from(load.tenants)) as u32,
        }
        load
    }

    pub fn course(&self) -> super::shape::Course {
        self.shape.over(self.length_s(), self.compress)
    }
}

impl Load {
    fn check(&self) -> Checked {
        between("load.tenants", f64::from(self.tenants), 1.0, f64::from(TENANTS_MAX))?;
        between("load.writers", f64::from(self.writers), 1.0, WRITERS_MAX as f64)?;
        between("load.connections", f64::from(self.connections), 1.0, WRITERS_MAX as f64)?;
        between("load.metrics", self.metrics.0, 1.0, SERIES_MAX as f64)?;
        between("load.series_per_metric", self.series_per_metric.0, 1.0, SERIES_MAX as f64)?;
        between("load.labels", self.labels as f64, 2.0, caps::SERIES_LABELS_MAX as f64)?;
        between("load.batch", f64::from(self.batch), 1.0, caps::REQUEST_SERIES_MAX as f64)?;
        between("load.histograms", self.histograms, 0.0, 1.0)?;
        between("load.histogram_buckets", f64::from(self.histogram_buckets), 1.0, f64::from(BUCKETS_MAX))?;
        between("load.jitter", self.jitter, 0.0, 1.0)?;
        between("load.start_jitter", self.start_jitter, 0.0, 1.0)?;
        between("load.first_writer", f64::from(self.first_writer), 0.0, WRITERS_MAX as f64 - 1.0)?;
        if let Some(interval) = self.interval {
            between("load.interval", interval.s(), 0.001, 86_400.0)?;
        }
        let bytes = [
            ("load.metric_name_bytes", self.metric_name_bytes),
            (
                "load.label_name_bytes",
                self.label_name_bytes.map(|n| n * (LABEL_BYTES_MAX / caps::LABEL_NAME_BYTES_MAX)),
            ),
            ("load.label_value_bytes", self.label_value_bytes),
        ];
        for (path, bytes) in bytes {
            between(path, bytes.unwrap_or(1) as f64, 0.0, LABEL_BYTES_MAX as f64)?;
        }
        for (name, values) in &self.cycles {
            let bound = name == BOUND_LABEL && self.histograms > 0.0;
            if *values == 0 || name.is_empty() || name.starts_with("__") || bound {
                return fault("load.cycles", format!("{name:?} cannot have {values} values"));
            }
        }
        self.check_bytes()
    }

    /// Refuses labels that are too large for any target, or for a request.
    fn check_bytes(&self) -> Checked {
        // in canonical form, each label takes up to 10 bytes in addition to its name and value
        let series_bytes = self.fleet().label_text_bytes() + 10 * self.labels;
        if series_bytes > caps::SERIES_LABEL_BYTES_MAX {
            let max = caps::SERIES_LABEL_BYTES_MAX;
            return fault(
                "load.labels",
                format!("the labels of a series have {series_bytes} bytes, the limit is {max}"),
            );
        }
        let body_bytes = series_bytes.saturating_mul(self.batch as usize);
        if body_bytes > caps::BODY_BYTES_MAX {
            let max = caps::BODY_BYTES_MAX;
            return fault(
                "load.batch",
                format!("requests would have {body_bytes} bytes, the limit is {max}: use a smaller batch"),
            );
        }
        Ok(())
    }

    /// The fleet that determines names and labels of the series. Its seed and its label for the tenant are set later.
    pub(crate) fn fleet(&self) -> Fleet {
        Fleet {
            seed: 0,
            labels: self.labels,
            metric_name_bytes: self.metric_name_bytes,
            label_name_bytes: self.label_name_bytes,
            label_value_bytes: self.label_value_bytes,
            cycles: self.cycles.iter().map(|(name, values)| (name.clone(), *values)).collect(),
            fixed: Vec::new(),
            histograms: Histograms::of_share(
                self.histograms,
                self.histogram_buckets,
                self.metrics.whole() as u32,
            ),
            naming: match self.naming {
                SeriesNaming::Labels => Naming::Labels,
                SeriesNaming::Timers => {
                    Naming::Timers { prefix: self.prefix.clone(), per_host: self.series_per_metric.whole() }
                }
            },
        }
    }
}
