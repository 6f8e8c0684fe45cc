//! Loads a remote-write target.
//!
//! ```text
//!   options ─resolve─▶ plan ─▶ connections, each: for every round, for every slot it owns:
//!                                fill the template ─▶ wait for its time ─▶ send, repeat if refused
//!                                                                           └▶ tally, ledger
//!   at the end: ledgers of all slots ─▶ verify; tally, costs ─▶ report
//! ```
//!
//! A slot (a fixed group of series) always goes over the same connection, and a request that is refused
//! for the moment is repeated until it is taken, so that the samples of a series arrive in order.

use super::send::lead::Lead;
use super::send::sender::{Run, Sender, Times};
use super::tally::Tally;
use crate::drive::options::{Pace, Resolved, WriteOptions};
use crate::generate::plan::Plan;
use crate::generate::template::Version;
use crate::http::{Client, Endpoint, headers};
use crate::observe::procfs::{Process, memory_available_bytes};
use crate::result::report::WriteReport;
use crate::show::progress::{Observer, Phase, Progress};
use crate::verify::ledger::Ledger;
use crate::verify::{read_url_for, verify};
use anyhow::{Context, Result, ensure};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

/// Between two looks at the figures.
const TICK: Duration = Duration::from_millis(250);

/// In a closed loop no connection is further ahead of another than this, in the series' own time.
const LEAD_MS_MAX: u32 = 300_000;

/// Loads `options.url`, and reads everything back if `options.verify` says so.
///
/// Errors are for runs that did not take place (bad options, no memory, nobody there). A target that
/// refuses, breaks or loses is a result: it stands in the report.
pub async fn write(options: &WriteOptions, observer: &dyn Observer) -> Result<WriteReport> {
    let resolved = options.resolve(SystemClock.now_ms())?;
    check_memory(&resolved.plan)?;
    observer.note(&announcement(&resolved));
    let endpoint = Endpoint::resolve(&options.url, &options.access).await?;
    let run = Arc::new(new_run(options, &resolved, &endpoint));
    let senders = prepare(options, &run, &endpoint, observer).await?;

    let costs = Costs::begin(options.pid);
    let begun_ms = SystemClock.now_ms();
    let begin = Instant::now();
    let times = Times { begin, end: resolved.duration.map(|duration| begin + duration) };
    let mut tasks = JoinSet::new();
    for sender in senders {
        let run = Arc::clone(&run);
        tasks.spawn(async move { sender.run(&run, times).await });
    }
    let mut watch = Watch::new(&run, times, Phase::Writing);
    let done = join(&mut tasks, || watch.tell(observer)).await?;
    let wall = begin.elapsed();
    let costs = costs.end();

    let mut ledger = Ledger::new(run.plan.clone());
    let verify_options = options.verify.as_ref();
    ledger.read_url = Some(verify_options.map_or_else(|| read_url_for(&options.url), |v| v.read_url.clone()));
    for slot in done.into_iter().flat_map(|sender| sender.slots) {
        ledger.slots[slot.number] = slot.ledger;
    }
    let outcome = Outcome { options, run: &run, begun_ms, wall, costs, ledger };
    let mut report = crate::result::report::build(outcome);
    if let Some(verify_options) = verify_options {
        match verify(verify_options, &report.ledger, observer).await {
            Ok(verified) => report.verify = Some(verified),
            // what was measured is worth having all the same
            Err(why) => report.verify_error = Some(format!("{why:#}")),
        }
    }
    Ok(report)
}

/// What a report is made of.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    pub(crate) options: &'a WriteOptions,
    pub(crate) run: &'a Run,
    pub(crate) begun_ms: i64,
    pub(crate) wall: Duration,
    pub(crate) costs: Costs,
    pub(crate) ledger: Ledger,
}

/// CPU time and memory of both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    target: Option<Process>,
    /// Of the target and of this process, since the run began.
    pub(crate) target_cpu_s: Option<f64>,
    pub(crate) own_cpu_s: Option<f64>,
    pub(crate) target_rss_bytes: Option<u64>,
    pub(crate) target_rss_peak_bytes: Option<u64>,
}

impl Costs {
    fn begin(pid: Option<u32>) -> Self {
        let target = pid.map(Process::Id);
        Self {
            target,
            target_cpu_s: target.and_then(Process::cpu_seconds),
            own_cpu_s: Process::Own.cpu_seconds(),
            target_rss_bytes: None,
            target_rss_peak_bytes: None,
        }
    }

    fn end(self) -> Self {
        let since = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        let Self { target, .. } = self;
        Self {
            target,
            target_cpu_s: since(target.and_then(Process::cpu_seconds), self.target_cpu_s),
            own_cpu_s: since(Process::Own.cpu_seconds(), self.own_cpu_s),
            target_rss_bytes: target.and_then(Process::rss_bytes),
            target_rss_peak_bytes: target.and_then(Process::rss_peak_bytes),
        }
    }
}

pub(crate) fn new_run(options: &WriteOptions, resolved: &Resolved, endpoint: &Endpoint) -> Run {
    let Resolved { plan, pace, .. } = resolved;
    let connections = (options.writers * options.connections) as usize;
    let lead = (*pace == Pace::Closed && connections > 1)
        .then(|| Lead::new(connections, (LEAD_MS_MAX / plan.interval_ms).max(2)));
    Run {
        plan: plan.clone(),
        tenant: 0,
        duty: None,
        probes: None,
        pace: *pace,
        version: options.version,
        path: endpoint.path().to_owned(),
        retry: options.retry,
        stop: options.stop.clone(),
        lead,
        tally: Tally::new(),
        clock: SystemClock,
        caught_up: AtomicBool::new(false),
    }
}

/// Makes all requests and opens all connections, before any clock starts.
pub(crate) async fn prepare(
    options: &WriteOptions,
    run: &Arc<Run>,
    endpoint: &Endpoint,
    observer: &dyn Observer,
) -> Result<Vec<Sender>> {
    let headers = request_headers(options.version, &options.headers)?;
    let per_writer = options.connections as usize;
    let writer_slots = run.plan.writer_slots();
    let mut tasks = JoinSet::new();
    for number in 0..options.writers as usize * per_writer {
        let (writer, lane) = (number / per_writer, number % per_writer);
        let client = Client::new(endpoint.clone(), headers.clone(), options.timeout);
        let slots = (lane..writer_slots).step_by(per_writer).map(|slot| writer * writer_slots + slot);
        let sender = Sender::new(run, number, client, slots);
        let run = Arc::clone(run);
        tasks.spawn(async move { sender.prepare(&run).await });
    }
    let now = Times { begin: Instant::now(), end: None };
    let mut watch = Watch::new(run, now, Phase::Preparing);
    let prepared = join(&mut tasks, || watch.tell(observer)).await?;
    let senders: Result<Vec<Sender>, _> = prepared.into_iter().collect();
    let mut senders = senders.with_context(|| format!("cannot reach {}", options.url))?;
    senders.sort_by_key(|sender| sender.number);
    Ok(senders)
}

pub(crate) fn request_headers(version: Version, pairs: &[(String, String)]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
    map.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    map.insert("x-prometheus-remote-write-version", HeaderValue::from_static(version.header()));
    let agent = concat!("floodmark-lab/", env!("CARGO_PKG_VERSION"));
    map.insert(USER_AGENT, HeaderValue::from_static(agent));
    let own = headers(pairs)?;
    for name in own.keys() {
        map.remove(name);
    }
    map.extend(own);
    Ok(map)
}

/// Waits for all tasks and looks at the figures meanwhile.
pub(crate) async fn join<T: 'static>(tasks: &mut JoinSet<T>, mut tell: impl FnMut()) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    let mut tick = tokio::time::interval(TICK);
    // even the shortest phase is told about
    tell();
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(result) => results.push(result.context("a connection's task failed")?),
                None => return Ok(results),
            },
            _ = tick.tick() => tell(),
        }
    }
}

/// Turns the counts into progress, with rates of the last second.
pub(crate) struct Watch<'a> {
    run: &'a Run,
    times: Times,
    phase: Phase,
    last: (Instant, u64),
    rate: f64,
    p99_s: Option<f64>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(run: &'a Run, times: Times, phase: Phase) -> Self {
        Self { run, times, phase, last: (times.begin, 0), rate: 0.0, p99_s: None }
    }

    pub(crate) fn tell(&mut self, observer: &dyn Observer) {
        let Times { begin, end } = self.times;
        let mut counts = self.run.tally.lock();
        let samples = counts.samples_acknowledged;
        let (then, before) = self.last;
        if then.elapsed() >= Duration::from_secs(1) {
            self.rate = (samples - before) as f64 / then.elapsed().as_secs_f64();
            self.p99_s =
                (!counts.recent.is_empty()).then(|| counts.recent.value_at_quantile(0.99) as f64 / 1e6);
            counts.recent.reset();
            self.last = (Instant::now(), samples);
        }
        let plan = &self.run.plan;
        let part = match (self.phase, end) {
            (Phase::Preparing, _) => counts.series_made as f64 / plan.series() as f64,
            (_, Some(end)) => begin.elapsed().as_secs_f64() / (end - begin).as_secs_f64(),
            (_, None) => counts.requests as f64 / (plan.slots_count() as f64 * f64::from(plan.rounds_max)),
        };
        let progress = Progress {
            phase: self.phase,
            part,
            elapsed: begin.elapsed(),
            samples,
            samples_per_s: self.rate,
            p99_s: self.p99_s,
            refused: counts.refused_total(),
            broken: counts.failures_total(),
        };
        drop(counts);
        observer.progress(&progress);
    }
}

/// One line that says what is about to happen.
fn announcement(resolved: &Resolved) -> String {
    let Resolved { plan, pace, .. } = resolved;
    let pace = match pace {
        Pace::Closed => "as fast as they are answered".to_owned(),
        Pace::Open { samples_per_s } => format!("{samples_per_s} samples a second"),
    };
    format!(
        "{} series of {} labels, a sample every {} ms of their own time from {} on (ms since 1970), {pace}; \
         requests take about {} MiB",
        plan.series(),
        plan.fleet.labels,
        plan.interval_ms,
        plan.round_ms(0),
        memory_estimate_bytes(plan).div_ceil(1 << 20)
    )
}

/// Memory that the requests of a plan take, in bytes: measured, some 35 bytes for each series and once the
/// labels for each target in each request, rounded up.
pub fn memory_estimate_bytes(plan: &Plan) -> u64 {
    let series_bytes = 48;
    let targets = plan.targets * u64::from(plan.writers) + plan.slots_count() as u64;
    plan.series() * series_bytes + targets * (plan.fleet.label_text_bytes() as u64 + 64)
}

fn check_memory(plan: &Plan) -> Result<()> {
    let needed = memory_estimate_bytes(plan);
    let Some(available) = memory_available_bytes() else { return Ok(()) };
    ensure!(
        needed <= available / 2,
        "the requests of {} series would take about {} MiB, and that is more than half of the {} MiB of \
         memory left \
         on this machine: take fewer series",
        plan.series(),
        needed >> 20,
        available >> 20
    );
    Ok(())
}
