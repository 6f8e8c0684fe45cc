//! Proxy in front of a backend. It passes all requests through and records those that write samples, or it passes
//! connections with Graphite's lines or pickled points, or datagrams of statsd, through and records them. `recognize` says which
//! requests are recorded.
//!
//! ```text
//!   sender ──▶ proxy ──────────────────────▶ backend
//!                │ ◀─────── its answer ─────────┘
//!                └─ copy of the body, if the request was settled ─▶ queue ─▶ writer ─▶ file
//!                                                         (bounded in bytes)  (a thread)
//! ```
//!
//! Recording never delays or changes the traffic. If the queue or the disk is full, or a body cannot be parsed, the
//! request counts as missing from the recording.
//!
//! Only settled requests are recorded: accepted, or refused for good. Senders retry all others. Over HTTP, 2xx is accepted,
//! and 4xx except 429 is refused for good; over gRPC, the code of the call decides (`calls`). Lines and datagrams have no
//! answers: those that the backend's socket has taken are recorded.

mod calls;
mod datagrams;
mod lines;
mod proxy;
mod recognize;
mod tee;
mod writer_thread;

pub use writer_thread::Contents;

use crate::capture::file::conceal::{Conceal, Concealer};
use crate::drive::stop::Stop;
use crate::grpc::Code;
use crate::http::{Access, Endpoint};
use crate::show::progress::{Observer, Phase, Progress};
use anyhow::{Context, Result, ensure};
use datagrams::DatagramProxy;
use lines::LineProxy;
use proxy::Proxy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket};
use writer_thread::{RecordingFile, WriterThread};

const TICK: Duration = Duration::from_millis(250);

/// When the recording ends, requests in progress get this time to finish.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct RecordOptions {
    pub listen: SocketAddr,
    /// URL of the backend, to which the path of each incoming request is appended; or `tcp://HOST:PORT` for Graphite's
    /// lines or pickled points; or `udp://HOST:PORT` for datagrams of statsd or Graphite.
    pub backend: String,
    pub access: Access,
    pub file: PathBuf,
    pub conceal: Conceal,
    /// File that holds the key for concealing. Without it, the key is random and never stored.
    pub key_file: Option<PathBuf>,
    pub duration: Option<Duration>,
    /// When the file reaches this size, traffic passes without being recorded.
    pub file_bytes_max: u64,
    /// Maximum total size of the bodies that wait in memory to be recorded.
    pub queue_bytes_max: u64,
    pub stop: Stop,
}

impl RecordOptions {
    /// 10 GiB hold days of a small site's traffic, or hours of a large site's.
    pub const FILE_BYTES_MAX_DEFAULT: u64 = 10 << 30;
    /// 64 MiB hold some hundred large requests.
    pub const QUEUE_BYTES_MAX_DEFAULT: u64 = 64 << 20;

    pub fn new(listen: SocketAddr, backend: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        Self {
            listen,
            backend: backend.into(),
            access: Access::default(),
            file: file.into(),
            conceal: Conceal::default(),
            key_file: None,
            duration: None,
            file_bytes_max: Self::FILE_BYTES_MAX_DEFAULT,
            queue_bytes_max: Self::QUEUE_BYTES_MAX_DEFAULT,
            stop: Stop::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RecordReport {
    pub file: PathBuf,
    pub backend: String,
    pub wall_s: f64,
    pub requests: u64,
    /// Number of answers by status. Requests that the backend did not answer count as `no answer`, and their senders
    /// got a 502.
    pub statuses: BTreeMap<String, u64>,
    pub kept: Contents,
    pub missing: BTreeMap<&'static str, u64>,
}

impl RecordReport {
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    pub fn to_text(&self, table: bool) -> String {
        let Contents { requests, samples, series, bytes, .. } = self.kept;
        let per_sample = if samples > 0 { bytes as f64 / samples as f64 } else { 0.0 };
        let statuses: Vec<String> = self.statuses.iter().map(|(s, n)| format!("{n} × {s}")).collect();
        let mut rows = vec![
            ("recording", self.file.display().to_string()),
            ("backend", self.backend.clone()),
            (
                "passed on",
                format!("{} requests in {:.1} s: {}", self.requests, self.wall_s, statuses.join(", ")),
            ),
            ("recorded", format!("{requests} requests, {samples} samples, {series} series")),
            ("size", format!("{:.1} MiB, {per_sample:.1} bytes a sample", bytes as f64 / f64::from(1 << 20))),
        ];
        rows.extend(self.missing.iter().map(|(why, n)| ("missing", format!("requests: {n} ({why})"))));
        rows.extend(self.kept.trouble.iter().map(|why| ("trouble", why.clone())));
        for (count, what) in [
            (self.kept.series_refused, "series left out, because their labels are invalid"),
            (self.kept.histograms_refused, "native histograms left out, because they are too long"),
            (
                self.kept.lines_refused,
                "lines, fields or points left out, because they are not valid numbers with a time",
            ),
        ] {
            if count > 0 {
                rows.push(("note", format!("{what}: {count}")));
            }
        }
        crate::show::text::render(&rows, table)
    }
}

#[derive(Debug, Clone)]
enum Passing {
    Requests(Proxy),
    Lines(LineProxy),
    Datagrams(DatagramProxy),
}

/// What receives.
#[derive(Debug)]
enum Listener {
    Connections(TcpListener),
    Datagrams(UdpSocket),
}

impl Passing {
    fn counts(&self) -> (u64, BTreeMap<String, u64>) {
        match self {
            Self::Requests(proxy) => proxy.counts(),
            Self::Lines(proxy) => proxy.counts(),
            Self::Datagrams(proxy) => proxy.counts(),
        }
    }

    async fn serve(self, listener: Listener, stop: Stop, grace: Duration) {
        match (self, listener) {
            (Self::Requests(proxy), Listener::Connections(listener)) => {
                proxy.serve(listener, stop, grace).await;
            }
            (Self::Lines(proxy), Listener::Connections(listener)) => {
                proxy.serve(listener, stop, grace).await;
            }
            (Self::Datagrams(proxy), Listener::Datagrams(listener)) => proxy.serve(listener, stop).await,
            _ => unreachable!("BUG: the proxy does not receive what the listener does"),
        }
    }
}

/// What is recorded for a backend, and the scheme of the address that senders use.
fn recorded(backend: &str) -> (&'static str, &'static str) {
    match backend.split_once("://") {
        Some(("tcp", _)) => ("lines", "tcp"),
        Some(("udp", _)) => ("datagrams", "udp"),
        _ => ("requests", "http"),
    }
}

#[derive(Debug)]
pub struct Recorder {
    options: RecordOptions,
    listener: Listener,
    proxy: Passing,
    writer: WriterThread,
}

pub async fn record(options: RecordOptions, observer: &dyn Observer) -> Result<RecordReport> {
    let recorder = Recorder::bind(options).await?;
    let (what, scheme) = recorded(&recorder.options.backend);
    observer.note(&format!(
        "recording {what} that are sent to {scheme}://{} for {}",
        recorder.address()?,
        recorder.options.backend
    ));
    recorder.run(observer).await
}

impl Recorder {
    /// Creates the file and listens on the port. Fails if the options can never work.
    pub async fn bind(options: RecordOptions) -> Result<Self> {
        // an existing recording is never overwritten
        let file = File::options().read(true).write(true).create_new(true).open(&options.file);
        let file = file.with_context(|| format!("cannot create {}", options.file.display()))?;
        let bound = Self::bind_to(options.clone(), file).await;
        if bound.is_err() {
            std::fs::remove_file(&options.file).ok(); // the new, empty file
        }
        bound
    }

    async fn bind_to<F: RecordingFile>(options: RecordOptions, file: F) -> Result<Self> {
        let concealer = match &options.key_file {
            Some(path) => Concealer::from_file(options.conceal, path)?,
            None => Concealer::fresh(options.conceal)?,
        };
        ensure!(
            options.queue_bytes_max > 0,
            "the queue has a size of 0 bytes: it must have room for requests (--queue-bytes)"
        );
        // resolved once here, so that recording does not start if the backend's host is not allowed
        let (_, scheme) = recorded(&options.backend);
        let backend = match scheme {
            "http" => Endpoint::resolve_http2(&options.backend, &options.access).await?,
            _ => Endpoint::resolve_socket(&options.backend, &options.access).await?,
        };
        let listener = match scheme {
            "udp" => UdpSocket::bind(options.listen).await.map(Listener::Datagrams),
            _ => TcpListener::bind(options.listen).await.map(Listener::Connections),
        };
        let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
        let writer = WriterThread::start(file, concealer, options.file_bytes_max, options.queue_bytes_max)?;
        let queue = writer.queue();
        let proxy = match scheme {
            "http" => Passing::Requests(Proxy::new(&options.backend, backend, &options.access, queue)?),
            "udp" => Passing::Datagrams(DatagramProxy::new(&backend, queue).await?),
            _ => Passing::Lines(LineProxy::new(&backend, queue)),
        };
        Ok(Self { options, listener, proxy, writer })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        let address = match &self.listener {
            Listener::Connections(listener) => listener.local_addr(),
            Listener::Datagrams(listener) => listener.local_addr(),
        };
        address.context("cannot determine the address listened on")
    }

    pub async fn run(self, observer: &dyn Observer) -> Result<RecordReport> {
        let Self { options, listener, proxy, writer } = self;
        let begun = Instant::now();
        let serving = tokio::spawn(proxy.clone().serve(listener, options.stop.clone(), GRACE));
        while !options.stop.is_set() {
            if options.duration.is_some_and(|duration| begun.elapsed() >= duration) {
                options.stop.now();
            }
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = options.stop.wait() => {}
            }
            observer.progress(&progress(&options, &writer.contents(), proxy.counts(), begun));
        }
        serving.await.context("the proxy failed")?;
        let wall_s = begun.elapsed().as_secs_f64();
        let (requests, statuses) = proxy.counts();
        drop(proxy);
        let (contents, missing) = tokio::task::spawn_blocking(move || writer.end()).await?;
        Ok(RecordReport {
            file: options.file,
            backend: options.backend,
            wall_s,
            requests,
            statuses,
            kept: contents,
            missing,
        })
    }
}

fn progress(
    options: &RecordOptions,
    contents: &Contents,
    (_, statuses): (u64, BTreeMap<String, u64>),
    begun: Instant,
) -> Progress {
    let elapsed = begun.elapsed();
    let count = |what: fn(&str) -> bool| statuses.iter().filter(|(s, _)| what(s)).map(|(_, n)| n).sum();
    Progress {
        phase: Phase::Recording,
        part: options.duration.map_or(0.0, |d| elapsed.as_secs_f64() / d.as_secs_f64()),
        elapsed,
        samples: contents.samples,
        // this is the mean since the start, because a sender may send only every few seconds
        samples_per_s: contents.samples as f64 / elapsed.as_secs_f64().max(1e-3),
        p99_s: None,
        refused: count(|s| s.starts_with(['3', '4', '5']) || Code::is_refusal(s)),
        broken: count(|s| [proxy::NO_ANSWER, lines::NO_CONNECTION].contains(&s)),
    }
}

#[cfg(test)]
mod tests;
