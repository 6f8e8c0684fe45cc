//! A remote-write target within the test process. It stores samples, answers range queries, and misbehaves on request.
//!
//! It shares no code with the lab, so that a bug of the lab cannot hide here.

use crate::proto;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use regex::Regex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    Keep,
    /// Acknowledge the samples without storing them.
    Lose,
    Double,
    Corrupt,
    /// Store the samples, and store them again with other timestamps.
    Invent,
    /// Refuse with this status and a `Retry-After` of an hour.
    Refuse(u16),
    /// Store the samples, but break the connection instead of answering.
    StoreThenDisconnect,
    /// Break the connection without storing.
    Disconnect,
    /// Store the samples, but return them only when a query is repeated.
    Hide,
    /// Store and never answer.
    Stall,
    /// Store, and report one sample fewer as written.
    UnderreportWritten,
}

type Series = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct State {
    samples: HashMap<Series, Vec<(i64, f64)>>,
    requests: u64,
    latest: HashMap<Series, i64>,
    out_of_order: u64,
    headers: Option<hyper::HeaderMap>,
    hidden: Vec<(Series, i64, f64)>,
    asked: HashSet<String>,
    /// A query that would return more samples is refused.
    answer_max: Option<usize>,
    /// An answer has at most this number of series. If the text is not empty, it belongs to such answers.
    cut_after: Option<(usize, &'static str)>,
    /// A query that would return more samples gets no answer.
    stall_after: Option<usize>,
}

/// Chooses the reaction to a request by its number, counted from 0.
type Script = dyn Fn(u64) -> Reaction + Send + Sync;

/// A target that listens on a port. It ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct Target {
    state: Arc<Mutex<State>>,
    script: Arc<Script>,
    scheme: &'static str,
    address: std::net::SocketAddr,
}

impl Target {
    pub(crate) async fn start(script: impl Fn(u64) -> Reaction + Send + Sync + 'static) -> Self {
        Self::listen(script, None).await
    }

    pub(crate) async fn start_encrypted(acceptor: TlsAcceptor) -> Self {
        Self::listen(|_| Reaction::Keep, Some(acceptor)).await
    }

    async fn listen(
        script: impl Fn(u64) -> Reaction + Send + Sync + 'static,
        acceptor: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let target = Self { state: Arc::default(), script: Arc::new(script), scheme, address };
        let this = target.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (this, acceptor) = (this.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => this.serve(stream).await,
                        Some(acceptor) => {
                            // a client without a valid certificate is disconnected
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            this.serve(stream).await;
                        }
                    }
                });
            }
        });
        target
    }

    pub(crate) fn write_url(&self) -> String {
        format!("{}/api/v1/write", self.read_url())
    }

    pub(crate) fn read_url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) fn answer_at_most(&self, samples: usize) {
        self.state.lock().unwrap().answer_max = Some(samples);
    }

    pub(crate) fn stall_after(&self, samples: usize) {
        self.state.lock().unwrap().stall_after = Some(samples);
    }

    pub(crate) fn cut_answers_after(&self, series: usize, saying: &'static str) {
        self.state.lock().unwrap().cut_after = Some((series, saying));
    }

    pub(crate) fn series(&self) -> usize {
        self.state.lock().unwrap().samples.len()
    }

    pub(crate) fn has_bucket(&self, bound: &str) -> bool {
        let state = self.state.lock().unwrap();
        let mut all = state.samples.keys();
        all.any(|labels| {
            labels["__name__"].ends_with("_bucket") && labels.get("le").is_some_and(|le| le == bound)
        })
    }

    pub(crate) fn samples(&self) -> usize {
        self.state.lock().unwrap().samples.values().map(Vec::len).sum()
    }

    /// Number of received samples that were older than a sample that the same series already had.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.state.lock().unwrap().out_of_order
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        Some(state.headers.as_ref()?.get(name)?.to_str().unwrap().to_owned())
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| self.clone().answer(request));
        // an error of the service breaks the connection, as some reactions want
        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| "body")?.to_bytes();
        if head.uri.path() == "/api/v1/query" {
            let form = std::str::from_utf8(&body).map_err(|_| "form")?;
            let (answer, samples) = self.query(head.uri.query().unwrap_or(form));
            if self.state.lock().unwrap().answer_max.is_some_and(|max| samples > max) {
                let refusal = Response::builder().status(422).body("too many samples".into());
                return Ok(refusal.unwrap());
            }
            let stalls = self.state.lock().unwrap().stall_after.is_some_and(|max| samples > max);
            if stalls {
                std::future::pending::<()>().await;
            }
            return Ok(Response::new(answer.into()));
        }
        let version2 = head.headers["content-type"].to_str().unwrap().contains("write.v2");
        let rows = if version2 { decode2(&body) } else { decode1(&body) };
        let written = rows.len();
        let reaction = self.take(rows, head.headers);
        let written = written - usize::from(reaction == Reaction::UnderreportWritten);
        match reaction {
            Reaction::Refuse(status) => {
                let refusal = Response::builder().status(status).header("retry-after", "3600");
                return Ok(refusal.body("come back".into()).unwrap());
            }
            Reaction::Disconnect | Reaction::StoreThenDisconnect => return Err("no answer"),
            Reaction::Stall => std::future::pending().await,
            _ => {}
        }
        let answer = Response::builder()
            .status(204)
            .header("x-prometheus-remote-write-samples-written", written)
            .body(Full::default());
        Ok(answer.unwrap())
    }

    fn take(&self, rows: Vec<(Series, i64, f64)>, headers: hyper::HeaderMap) -> Reaction {
        let mut state = self.state.lock().unwrap();
        state.headers = Some(headers);
        let reaction = (self.script)(state.requests);
        state.requests += 1;
        match reaction {
            Reaction::Refuse(_) | Reaction::Disconnect => {}
            Reaction::Hide => state.hidden.extend(rows),
            _ => state.keep(rows, reaction),
        }
        reaction
    }

    /// Answers `query=name{label="…"}[…ms]&time=…`. Like Prometheus 2, it includes both ends of the range. It also
    /// returns the number of samples.
    fn query(&self, parameters: &str) -> (String, usize) {
        let parameter = |name: &str| {
            let found = parameters.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
            unpercent(found.unwrap())
        };
        let (query, time) = (parameter("query"), parameter("time"));
        let (selector, range) = query.rsplit_once('[').unwrap();
        let range_ms: i64 = range.strip_suffix("ms]").unwrap().parse().unwrap();
        let end_ms = (time.parse::<f64>().unwrap() * 1000.0).round() as i64;
        let matchers = matchers(selector);
        let mut state = self.state.lock().unwrap();
        if !state.asked.insert(parameters.to_owned()) {
            let hidden = std::mem::take(&mut state.hidden);
            state.keep(hidden, Reaction::Keep);
        }
        let result = state
            .samples
            .iter()
            .filter(|(labels, _)| matchers.iter().all(|(label, values)| values.is_match(&labels[*label])));
        let result = result.map(|(labels, samples)| {
            let inside = samples.iter().filter(|(t, _)| (end_ms - range_ms..=end_ms).contains(t));
            let values: Vec<_> = inside.map(|(t, v)| (*t as f64 / 1000.0, v.to_string())).collect();
            serde_json::json!({ "metric": labels, "values": values })
        });
        let mut result: Vec<_> = result.collect();
        let mut said = "";
        if let Some((most, saying)) = state.cut_after.filter(|(most, _)| result.len() > *most) {
            result.truncate(most);
            said = saying;
        }
        let samples = result.iter().map(|series| series["values"].as_array().unwrap().len()).sum();
        let data = serde_json::json!({ "resultType": "matrix", "result": result });
        let mut answer = serde_json::json!({ "status": "success", "data": data });
        match said {
            "" => {}
            "isPartial" => answer["isPartial"] = true.into(),
            said => answer["warnings"] = serde_json::json!([said]),
        }
        (answer.to_string(), samples)
    }
}

impl State {
    fn keep(&mut self, rows: Vec<(Series, i64, f64)>, reaction: Reaction) {
        for (labels, timestamp, value) in rows {
            let latest = self.latest.entry(labels.clone()).or_insert(i64::MIN);
            self.out_of_order += u64::from(timestamp < *latest);
            *latest = (*latest).max(timestamp);
            if reaction == Reaction::Lose {
                continue;
            }
            let samples = self.samples.entry(labels).or_default();
            let known = samples.iter().any(|(t, _)| *t == timestamp);
            match reaction {
                Reaction::Corrupt => samples.push((timestamp, f64::from_bits(value.to_bits() ^ 1))),
                Reaction::Double => samples.extend([(timestamp, value), (timestamp, value)]),
                Reaction::Invent => samples.extend([(timestamp, value), (timestamp + 1, value)]),
                // the sample is already stored, because the request was retried
                _ if known => {}
                _ => samples.push((timestamp, value)),
            }
        }
    }
}

/// Returns the values that a selector such as `name{label="…"}` or `{__name__=~"…|…",label="…"}` permits for each
/// label.
fn matchers(selector: &str) -> Vec<(&str, Regex)> {
    let whole = |pattern: &str| Regex::new(&format!("^(?:{pattern})$")).unwrap();
    let (name, rest) = selector.split_once('{').unwrap_or((selector, "}"));
    let inside = rest.strip_suffix('}').unwrap();
    let named = (!name.is_empty()).then(|| ("__name__", whole(name)));
    let others = inside.split(',').filter(|matcher| !matcher.is_empty()).map(|matcher| {
        let (label, values) = matcher.split_once('=').unwrap();
        match values.strip_prefix('~') {
            Some(pattern) => (label, whole(pattern.trim_matches('"'))),
            None => (label, whole(&regex::escape(values.trim_matches('"')))),
        }
    });
    named.into_iter().chain(others).collect()
}

pub(crate) fn unpercent(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || (bytes.next().unwrap() as char).to_digit(16).unwrap() as u8;
        out.push(if byte == b'%' { digit() << 4 | digit() } else { byte });
    }
    String::from_utf8(out).unwrap()
}

fn decode1(body: &[u8]) -> Vec<(Series, i64, f64)> {
    let request: proto::v1::WriteRequest = proto::unpack(body);
    let rows = request.timeseries.into_iter().flat_map(|series| {
        let labels: Series = series.labels.into_iter().map(|l| (l.name, l.value)).collect();
        series.samples.into_iter().map(move |s| (labels.clone(), s.timestamp, s.value))
    });
    rows.collect()
}

fn decode2(body: &[u8]) -> Vec<(Series, i64, f64)> {
    let request: proto::v2::Request = proto::unpack(body);
    let text = |r: u32| request.symbols[r as usize].clone();
    let rows = request.timeseries.iter().flat_map(|series| {
        let labels: Series =
            series.labels_refs.chunks(2).map(|pair| (text(pair[0]), text(pair[1]))).collect();
        series.samples.iter().map(move |s| (labels.clone(), s.timestamp, s.value))
    });
    rows.collect()
}
