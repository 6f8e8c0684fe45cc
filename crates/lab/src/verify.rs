//! Reads every acknowledged sample back and compares it bit by bit.
//!
//! ```text
//!   ledger ─▶ queries: some metrics of some targets × some rounds, small enough for most servers' limits
//!               │          if a server refuses one for its size, its parts are asked for, down to a single series;
//!               │          if its answer lacks samples, too, because the answer may be cut short
//!               └▶ {__name__=~"…|…"}[range] at their end ─▶ compare with the plan ─▶ lost, doubled, wrong, …
//! ```
//!
//! The plan generates the expected samples again, so the ledger does not contain them. `flushed` is the ledger of targets that
//! store values at times of their own.

mod check;
pub(crate) mod flushed;
mod job;
pub mod ledger;
pub(crate) mod promql;
mod queries;
pub(crate) mod render;
mod report;
mod targets;

use crate::generate::protocol::Protocol;
use crate::http::{ANSWER_BYTES_MAX, Access, Client, Endpoint, Failure, TIMEOUT_DEFAULT, headers};
use crate::scenario::ReadApi;
use crate::show::progress::Observer;
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use job::Job;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub use check::{Example, Fault};
pub use flushed::Flushed;
pub use report::{STORED_MIN, VerifyReport};

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
    let usual = Protocol::all().filter_map(Protocol::usual_path).map(|path| (path, ""));
    let known = PATHS.into_iter().chain(usual).filter(|(write, _)| url.ends_with(write));
    match known.max_by_key(|(write, _)| write.len()) {
        Some((write, read)) => format!("{}{read}", &url[..url.len() - write.len()]),
        None => url.to_owned(),
    }
}

/// Paths to write to, besides the usual ones of the protocols, and where to read from.
const PATHS: [(&str, &str); 7] = [
    ("/opentelemetry/v1/metrics", ""),
    ("/api/v1/otlp/v1/metrics", ""),
    ("/otlp/v1/metrics", "/prometheus"),
    ("/api/prom/push", "/api/prom"),
    ("/api/v1/push", "/prometheus"),
    ("/api/v2/write", ""),
    // samples written to …/insert/0/prometheus are read from …/select/0/prometheus, on another host
    ("/", ""),
];

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

/// Most samples that may be in one answer. In JSON, they take about 180 MB.
pub const PAGE_MAX: u64 = 5_000_000;

/// Reads back all acknowledged samples of `ledger`.
///
/// Fails only if the target cannot be queried.
pub async fn verify(
    options: &VerifyOptions,
    ledger: &Ledger,
    observer: &dyn Observer,
) -> Result<VerifyReport> {
    if let Some(flushed) = &ledger.flushed {
        return flushed::verify(options, ledger, flushed, observer).await;
    }
    let endpoint = Endpoint::resolve(&options.read_url, &options.access).await?;
    let mut headers = headers(&options.headers)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(promql::QUERY_TYPE));
    let begin = Instant::now();
    let path = endpoint.path().trim_end_matches('/').to_owned() + api_path(options.read_api);
    let job = Arc::new(Job::new(options, ledger, path, begin + options.patience));
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
    let mut report = job.take_report();
    (report.acknowledged, report.datagrams) = (ledger.acknowledged_samples(), ledger.datagrams);
    report.wall_s = begin.elapsed().as_secs_f64();
    let checked = report.read_back + report.lost;
    assert_eq!(report.acknowledged, checked, "BUG: some acknowledged samples were never queried");
    Ok(report)
}

/// Asks for a series that does not exist. Fails if there is no answer by HTTP, or if the target refuses such queries whatever they ask
/// for. Other errors, and slow answers, may be temporary. `prefix` is the path before that of the API.
pub(crate) async fn try_query(client: &mut Client, prefix: &str, api: ReadApi) -> Result<(), String> {
    let form = match api {
        ReadApi::Promql => "query=floodmark_lab%5B1ms%5D&time=0".to_owned(),
        ReadApi::Render => render::form("floodmark_lab", 0, 60_000),
    };
    client.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(promql::QUERY_TYPE));
    let path = prefix.to_owned() + api_path(api);
    let answer = match client.send(Method::POST, &path, form.into()).await {
        Ok(answer) => answer,
        Err(failure @ (Failure::Connect(_) | Failure::Broken(_))) => return Err(failure.to_string()),
        Err(Failure::Timeout(_) | Failure::TooLarge(_)) => return Ok(()),
    };
    let is_refused = match answer.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => true,
        StatusCode::NOT_FOUND => api == ReadApi::Promql, // of /render, it may mean that the series does not exist
        _ => false,
    };
    match is_refused {
        true => Err(format!("POST {path}: {} {}", answer.status, answer.text())),
        false => Ok(()),
    }
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
        check("http://127.0.0.1:9009/api/v1/import/csv", "http://127.0.0.1:9009");
        check("http://127.0.0.1:9009/x/v1/metrics", "http://127.0.0.1:9009/x");
        check("http://127.0.0.1:9009/otlp/v1/metrics", "http://127.0.0.1:9009/prometheus");
        check("http://127.0.0.1:9090/api/v1/otlp/v1/metrics", "http://127.0.0.1:9090");
        check("tcp://127.0.0.1:2003", "http://127.0.0.1:9009");
        check("udp://[::1]:2003", "http://[::1]:9009");
    }
}
