//! Reads every acknowledged sample back and compares it bit by bit.
//!
//! ```text
//!   ledger ─▶ queries: some metrics of some targets × some rounds, small enough for most servers' limits
//!               │          if a server refuses one for its size, its parts are asked for, down to a single series;
//!               │          if its answer lacks samples, too, because the answer may be cut short
//!               └▶ {__name__=~"…|…"}[range] at their end ─▶ compare with the plan ─▶ lost, doubled, wrong, …
//! ```
//!
//! The plan generates the expected samples again, so the ledger does not contain them.

mod check;
pub mod ledger;
pub(crate) mod promql;
mod queries;
pub(crate) mod render;
mod targets;

use crate::http::{ANSWER_BYTES_MAX, Access, Client, Endpoint, TIMEOUT_DEFAULT, headers};
use crate::scenario::ReadApi;
use crate::show::progress::{Observer, Phase, Progress};
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result};
use check::Checker;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use promql::Unanswered;
use queries::{Queries, Query};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub use check::{Example, Fault};

#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The prefix to which `/api/v1/query` is appended, such as `http://127.0.0.1:9009`.
    pub read_url: String,
    pub headers: Vec<(String, String)>,
    pub access: Access,
    /// Missing samples may still appear for this long after the verification began, because some targets make
    /// acknowledged samples visible late.
    pub patience: Duration,
    /// At most [`PAGE_MAX`].
    pub page_samples: u64,
    /// Queries with larger answers are divided.
    pub answer_bytes_max: usize,
    pub connections: usize,
    pub timeout: Duration,
    pub examples_max: usize,
    /// A value that differs relatively by at most this much counts as rounded instead of wrong. With 0, values are
    /// compared bit by bit.
    pub tolerance: f64,
    pub read_api: ReadApi,
    /// Distance of two timestamps in answers, in ms. If several samples are in one such slot, only the last can be
    /// read. 1 if the target returns every sample with its own timestamp.
    pub step_ms: u64,
}

impl VerifyOptions {
    pub fn new(read_url: impl Into<String>) -> Self {
        Self {
            read_url: read_url.into(),
            headers: Vec::new(),
            access: Access::default(),
            patience: Duration::from_secs(10),
            page_samples: 100_000,
            answer_bytes_max: ANSWER_BYTES_MAX,
            connections: 2,
            timeout: TIMEOUT_DEFAULT,
            examples_max: 3,
            tolerance: 0.0,
            read_api: ReadApi::Promql,
            step_ms: 1,
        }
    }
}

/// Port at which Floodmark answers queries, Graphite's included.
const FLOODMARK_PORT: u16 = 9009;

/// Derives the URL for queries from the URL for writing, by the conventions of Prometheus, Cortex and VictoriaMetrics.
pub fn read_url_for(write_url: &str) -> String {
    let url = write_url.split('?').next().unwrap_or(write_url);
    if url.starts_with("tcp://") || url.starts_with("udp://") {
        return read_url_on_host_of(url);
    }
    for (write, read) in [
        ("/api/v1/write", ""),
        ("/opentelemetry/v1/metrics", ""),
        ("/api/v1/otlp/v1/metrics", ""),
        ("/otlp/v1/metrics", "/prometheus"),
        ("/v1/metrics", ""),
        ("/api/prom/push", "/api/prom"),
        ("/api/v1/push", "/prometheus"),
        ("/api/v1/import/prometheus", ""),
        ("/api/v1/import", ""),
        ("/api/v2/write", ""),
        ("/write", ""),
        // samples written to …/insert/0/prometheus are read from …/select/0/prometheus, on another host
        ("/", ""),
    ] {
        if let Some(base) = url.strip_suffix(write) {
            return format!("{base}{read}");
        }
    }
    url.to_owned()
}

/// URL for queries to Floodmark on the host of another address. Queries are encrypted if that address is `https`.
pub(crate) fn read_url_on_host_of(url: &str) -> String {
    let (scheme, address) = url.split_once("://").unwrap_or(("", url));
    let authority = address.split('/').next().unwrap_or(address);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let scheme = if scheme == "https" { scheme } else { "http" };
    format!("{scheme}://{host}:{FLOODMARK_PORT}")
}

/// Result of a verification. All counts are numbers of samples unless their name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifyReport {
    pub acknowledged: u64,
    /// True if all samples were sent as datagrams, so that none of them is owed.
    pub datagrams: bool,
    /// Acknowledged samples that queries returned, whatever their value.
    pub read_back: u64,
    /// Acknowledged samples that queries did not return.
    pub lost: u64,
    /// Samples that a query returned in addition to another sample with the same series and timestamp.
    pub doubled: u64,
    pub wrong: u64,
    /// Samples that queries returned with a slightly different value, within [`VerifyOptions::tolerance`].
    pub rounded: u64,
    /// Samples that queries returned although none was sent with that timestamp.
    pub unexpected: u64,
    /// Samples that queries returned although the target had not acknowledged them. This is no fault, because the
    /// acknowledgement may have been lost.
    pub unacknowledged: u64,
    pub late: u64,
    /// Acknowledged samples that cannot be read, because a later sample is in the same slot. They count as read back if
    /// the later sample is there.
    pub superseded: u64,
    /// Series with the same metric names that this run did not send. They usually come from other runs.
    pub foreign_series: u64,
    /// Samples that only queries for less have returned, because the answers to larger queries were cut short.
    pub cut_short: u64,
    /// Answers without some samples of which the target itself said that they may not be complete.
    pub incomplete: u64,
    /// What the target said of the first of these answers.
    pub said: Option<String>,
    pub queries: u64,
    pub wall_s: f64,
    pub examples: Vec<Example>,
}

impl VerifyReport {
    /// True if queries returned every acknowledged sample once with the right value, and no unexpected samples. A
    /// verification without any acknowledged sample proves nothing, and is good only for datagrams.
    pub fn is_good(&self) -> bool {
        self.faults() == 0 && self.read_back == self.acknowledged && (self.acknowledged > 0 || self.datagrams)
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Adds the report on other samples, for example those of another tenant or machine.
    pub fn join(&mut self, other: &Self, examples_max: usize) {
        let Self { acknowledged, read_back, lost, doubled, wrong, unexpected, unacknowledged, .. } = other;
        self.acknowledged += acknowledged;
        self.datagrams |= other.datagrams;
        self.read_back += read_back;
        self.lost += lost;
        self.doubled += doubled;
        self.wrong += wrong;
        self.unexpected += unexpected;
        self.unacknowledged += unacknowledged;
        self.rounded += other.rounded;
        self.late += other.late;
        self.superseded += other.superseded;
        self.foreign_series += other.foreign_series;
        self.cut_short += other.cut_short;
        self.incomplete += other.incomplete;
        self.said = self.said.take().or_else(|| other.said.clone());
        self.queries += other.queries;
        self.wall_s += other.wall_s;
        for example in &other.examples {
            if self.examples.iter().filter(|e| e.fault == example.fault).count() < examples_max {
                self.examples.push(example.clone());
            }
        }
    }

    fn faults(&self) -> u64 {
        self.lost + self.doubled + self.wrong + self.unexpected
    }
}

/// Reads back all acknowledged samples of `ledger`.
///
/// Fails only if the target cannot be queried.
pub async fn verify(
    options: &VerifyOptions,
    ledger: &Ledger,
    observer: &dyn Observer,
) -> Result<VerifyReport> {
    let endpoint = Endpoint::resolve(&options.read_url, &options.access).await?;
    let mut headers = headers(&options.headers)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(promql::QUERY_TYPE));
    let begin = Instant::now();
    let job = Arc::new(Job {
        options: options.clone(),
        ledger: ledger.clone(),
        queries: Queries::new(
            &ledger.plan,
            ledger.rounds(),
            options.page_samples.min(PAGE_MAX),
            options.step_ms,
        ),
        next: AtomicU64::new(0),
        splits: AtomicU32::new(0),
        in_vain: AtomicU32::new(0),
        in_vain_incomplete: AtomicU32::new(0),
        path: endpoint.path().trim_end_matches('/').to_owned() + api_path(options.read_api),
        patient_until: begin + options.patience,
        report: Mutex::default(),
    });
    let new_client = || {
        Client::new(endpoint.clone(), headers.clone(), options.timeout)
            .with_answers_of(options.answer_bytes_max)
    };
    job.check_step(&mut new_client())
        .await
        .with_context(|| format!("cannot read back from {}", options.read_url))?;
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections.max(1) {
        let client = new_client();
        let job = Arc::clone(&job);
        tasks.spawn(async move { job.work(client).await });
    }
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    // this reports even the shortest verification once
    observer.progress(&job.progress(begin));
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(result) => result
                    .context("a reader's task failed")?
                    .with_context(|| format!("cannot read back from {}", options.read_url))?,
                None => break,
            },
            _ = tick.tick() => observer.progress(&job.progress(begin)),
        }
    }
    let mut report = std::mem::take(&mut *job.lock());
    (report.acknowledged, report.datagrams) = (ledger.acknowledged_samples(), ledger.datagrams);
    report.wall_s = begin.elapsed().as_secs_f64();
    let checked = report.read_back + report.lost;
    assert_eq!(report.acknowledged, checked, "BUG: some acknowledged samples were never queried");
    Ok(report)
}

/// Distance of timestamps in the answers of an API, and the API itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    pub(crate) api: ReadApi,
    pub(crate) step_ms: u64,
}

impl Answers {
    pub(crate) fn parse(self, body: &[u8]) -> Result<Vec<promql::Series<'_>>> {
        match self.api {
            ReadApi::Promql => promql::parse(body),
            ReadApi::Render => render::parse(body, self.step_ms),
        }
    }

    /// Timestamp that answers give to a sample.
    pub(crate) fn stamp_ms(self, timestamp_ms: i64) -> i64 {
        queries::slot_ms(timestamp_ms, self.step_ms)
    }
}

pub(crate) fn api_path(api: ReadApi) -> &'static str {
    match api {
        ReadApi::Promql => "/api/v1/query",
        ReadApi::Render => "/render",
    }
}

struct Job {
    options: VerifyOptions,
    ledger: Ledger,
    queries: Queries,
    next: AtomicU64,
    /// How often queries must be split before the target answers, as far as is known. Later queries are split at once.
    splits: AtomicU32,
    /// How often queries whose answers lacked samples were split, and their parts lacked as many.
    in_vain: AtomicU32,
    /// The same for answers of which the target said that they may not be complete.
    in_vain_incomplete: AtomicU32,
    path: String,
    patient_until: Instant,
    report: Mutex<VerifyReport>,
}

const LATE_PAUSE: Duration = Duration::from_millis(200);

/// Later queries are split at once at most this often, so that a target that was short of memory for a while is not
/// asked for single series from then on.
const SPLITS_AT_ONCE_MAX: u32 = 6;

/// Queries whose answers lack samples are split in vain at most this often, so that it takes few queries to find out that
/// a target has lost a lot.
const IN_VAIN_MAX: u32 = 64;

/// The same for answers of which the target says that they may not be complete.
const IN_VAIN_INCOMPLETE_MAX: u32 = 10_000;

/// A query, and what its answer has shown if it was asked.
struct Open {
    query: Query,
    /// How often a query was split to get this one.
    splits: u32,
    found: Option<VerifyReport>,
}

/// If this many queries in a row were not answered in time, the target is gone. The last of them is for at most a 32nd
/// of the samples of the first.
const TOO_SLOW_MAX: u32 = 6;

/// Added to the error of the last of these queries.
const NO_TIME: &str = "the target answers no query in time, although the lab has asked for less and less";

/// Most samples that may be in one answer. In JSON, they take about 180 MB.
pub const PAGE_MAX: u64 = 5_000_000;

/// Added to the error if the target refuses a query that cannot be split again.
const NO_ROOM: &str =
    "the target refuses even the smallest query that the lab can ask, of one name and one interval";

impl Job {
    /// Fails if the slots of `/render` are not as far apart as expected. The answers to short queries cannot show that.
    async fn check_step(&self, client: &mut Client) -> Result<()> {
        if self.options.read_api == ReadApi::Render {
            let form = render::step_query(&self.ledger.plan, self.ledger.rounds());
            let body = match promql::ask(client, &self.path, &form).await {
                Ok(body) => body,
                Err(Unanswered::Failed(why) | Unanswered::TooMuch { why, .. }) => return Err(why),
            };
            render::parse(&body, self.options.step_ms)?;
        }
        Ok(())
    }

    async fn work(&self, mut client: Client) -> Result<()> {
        let mut checker = Checker::new();
        let mut too_slow = 0;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(query) = self.queries.get(&self.ledger.plan, number) else { return Ok(()) };
            if query.metrics.is_empty() {
                continue;
            }
            let mut open = vec![Open { query, splits: 0, found: None }];
            while let Some(Open { query, splits, found }) = open.pop() {
                let parts = |splits| {
                    let parts = query.split(&self.ledger.plan);
                    parts.into_iter().rev().map(move |query| Open { query, splits: splits + 1, found: None })
                };
                if found.is_none() && splits < self.splits.load(Ordering::Relaxed) {
                    let before = open.len();
                    open.extend(parts(splits));
                    if open.len() > before {
                        continue;
                    }
                }
                let found = match found {
                    Some(found) => found,
                    None => match self.settle(&mut client, &mut checker, &query).await {
                        Ok(found) => {
                            too_slow = 0;
                            found
                        }
                        Err(Unanswered::Failed(why)) => return Err(why),
                        Err(Unanswered::TooMuch { why, is_slow }) => {
                            too_slow = if is_slow { too_slow + 1 } else { 0 };
                            if too_slow == TOO_SLOW_MAX {
                                return Err(why.context(NO_TIME));
                            }
                            let before = open.len();
                            open.extend(parts(splits));
                            if open.len() == before {
                                return Err(why.context(NO_ROOM));
                            }
                            self.split_at_once(splits + 1);
                            continue;
                        }
                    },
                };
                let parts: Vec<Open> =
                    if self.may_be_cut_short(&found) { parts(splits).collect() } else { Vec::new() };
                if parts.is_empty() {
                    self.lock().join(&found, self.options.examples_max);
                    continue;
                }
                open.extend(self.ask_for_parts(&mut client, &mut checker, &found, parts).await?);
            }
        }
    }

    /// Later queries are split at least this often before they are asked.
    fn split_at_once(&self, splits: u32) {
        self.splits.fetch_max(splits.min(SPLITS_AT_ONCE_MAX), Ordering::Relaxed);
    }

    /// True if queries for less may return samples that this answer lacks. Some servers cut an answer short without
    /// saying so.
    fn may_be_cut_short(&self, found: &VerifyReport) -> bool {
        let (in_vain, most) = self.in_vain(found);
        found.lost > 0 && in_vain.load(Ordering::Relaxed) < most
    }

    fn in_vain(&self, found: &VerifyReport) -> (&AtomicU32, u32) {
        match found.incomplete {
            0 => (&self.in_vain, IN_VAIN_MAX),
            _ => (&self.in_vain_incomplete, IN_VAIN_INCOMPLETE_MAX),
        }
    }

    /// Asks for the parts of a query whose answer lacked samples. A part that the target refuses is left open.
    async fn ask_for_parts(
        &self,
        client: &mut Client,
        checker: &mut Checker,
        whole: &VerifyReport,
        mut parts: Vec<Open>,
    ) -> Result<Vec<Open>> {
        let mut lost = 0;
        for part in &mut parts {
            match self.ask(client, checker, &part.query).await {
                Ok(found) => {
                    lost += found.lost;
                    part.found = Some(found);
                }
                Err(Unanswered::TooMuch { .. }) => {}
                Err(Unanswered::Failed(why)) => return Err(why),
            }
        }
        let is_asked = parts.iter().all(|part| part.found.is_some());
        if is_asked && lost >= whole.lost {
            self.in_vain(whole).0.fetch_add(1, Ordering::Relaxed);
        }
        if is_asked && lost < whole.lost {
            self.split_at_once(parts[0].splits);
        }
        let mut report = self.lock();
        if is_asked {
            report.cut_short += whole.lost.saturating_sub(lost);
        }
        report.incomplete += whole.incomplete;
        report.said = report.said.take().or_else(|| whole.said.clone());
        drop(report);
        Ok(parts)
    }

    /// Repeats a query until it returns all its samples or the time for late samples is over.
    async fn settle(
        &self,
        client: &mut Client,
        checker: &mut Checker,
        query: &Query,
    ) -> Result<VerifyReport, Unanswered> {
        let mut found = self.ask(client, checker, query).await?;
        let lost_at_first = found.lost;
        while found.lost > 0 && Instant::now() < self.patient_until {
            tokio::time::sleep(LATE_PAUSE).await;
            found = self.ask(client, checker, query).await?;
        }
        self.lock().late += lost_at_first.saturating_sub(found.lost);
        Ok(found)
    }

    async fn ask(
        &self,
        client: &mut Client,
        checker: &mut Checker,
        query: &Query,
    ) -> Result<VerifyReport, Unanswered> {
        self.lock().queries += 1;
        let plan = &self.ledger.plan;
        let form = match self.options.read_api {
            ReadApi::Promql => promql::query(plan, query),
            ReadApi::Render => render::query(plan, query),
        };
        let body = promql::ask(client, &self.path, &form).await?;
        let answers = Answers { api: self.options.read_api, step_ms: self.options.step_ms };
        let about = || format!("the answer to {form:.160}");
        let series = answers.parse(&body).with_context(about).map_err(Unanswered::Failed)?;
        let mut found = checker.check(&self.ledger, query, &series, &self.options);
        if found.lost > 0 && self.options.read_api == ReadApi::Promql {
            found.said = promql::doubt(&body);
            found.incomplete = u64::from(found.said.is_some());
        }
        Ok(found)
    }

    fn progress(&self, begin: Instant) -> Progress {
        let report = self.lock();
        let elapsed = begin.elapsed();
        Progress {
            phase: Phase::Verifying,
            part: self.next.load(Ordering::Relaxed) as f64 / self.queries.len().max(1) as f64,
            elapsed,
            samples: report.read_back,
            samples_per_s: report.read_back as f64 / elapsed.as_secs_f64().max(1e-3),
            p99_s: None,
            refused: report.faults(),
            broken: 0,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VerifyReport> {
        self.report.lock().expect("BUG: a reader panicked while counting")
    }
}

#[cfg(test)]
mod tests {
    use super::read_url_for;

    #[test]
    fn read_urls_follow_from_write_urls() {
        let check = |write, read| assert_eq!(read_url_for(write), read);
        check("http://127.0.0.1:9009/api/v1/write", "http://127.0.0.1:9009");
        check("http://127.0.0.1:8428/api/v1/write?x=y", "http://127.0.0.1:8428");
        check("http://127.0.0.1:9009/api/v1/push", "http://127.0.0.1:9009/prometheus");
        check("http://127.0.0.1:9009/api/prom/push", "http://127.0.0.1:9009/api/prom");
        check("http://127.0.0.1:9009/", "http://127.0.0.1:9009");
        check("http://127.0.0.1:9009/write?db=x", "http://127.0.0.1:9009");
        check("http://127.0.0.1:9009/api/v1/import/prometheus", "http://127.0.0.1:9009");
        check("http://127.0.0.1:9009/api/v1/import", "http://127.0.0.1:9009");
        check("tcp://127.0.0.1:2003", "http://127.0.0.1:9009");
        check("udp://[::1]:2003", "http://[::1]:9009");
    }
}
