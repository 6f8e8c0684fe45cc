//! All samples of some series, as a stream: whatever their number, the memory is that of one series and a few
//! pieces of text.
//!
//! ```text
//!   source ─one series─▶ text ─pieces of 64 KiB─▶ channel ─▶ connection
//!   (a thread for blocking work, which waits for the reader)
//! ```
//!
//! The answer begins with the first piece, so what fails before has a status. What fails later breaks the
//! connection off: a chunked answer without its end, and OpenMetrics without its `# EOF`.
//!
//! What is left out since a file is damaged is named in headers [`WARNING`], or in trailers where it turned out later.

use super::App;
use super::error::ApiError;
use super::meta::selectors;
use super::params::Params;
use super::read::{CancelOnDrop, TRIES_MAX, options};
use super::tenant::tenant_of;
use crate::node::Node;
use crate::source::Source;
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use model::{LabelsRef, Samples, SeriesKey, TenantId, TimeRange};
use protocol::exposition::{self, Dialect};
use protocol::jsonl;
use query::{Matcher, QueryError, Select, SeriesSource};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, ready};
use stdx::budget::{Account, Reservation};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Exports that run at once. Each holds a thread for as long as its reader reads.
pub(super) const EXPORTS_MAX: usize = 4;

/// Text that is sent together.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for the reader.
const PIECES_WAITING: usize = 4;

/// Samples on a line of JSON, unless the request says otherwise; and at most.
const LINE_SAMPLES: usize = 10_000;
const LINE_SAMPLES_MAX: usize = 1_000_000;

/// What is missing from the export, and why.
const WARNING: HeaderName = HeaderName::from_static("x-floodmark-warning");

/// The reader is gone, or storage could not answer.
enum Stop {
    Gone,
    Failed(ApiError),
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Lines { samples: usize },
    Text(Dialect),
}

impl Format {
    fn of(params: &Params) -> Result<Self, ApiError> {
        match params.get("format") {
            None | Some("jsonl") => {
                let samples = match params.get("max_rows_per_line").map(str::parse) {
                    None => LINE_SAMPLES,
                    Some(Ok(n)) => usize::clamp(n, 1, LINE_SAMPLES_MAX),
                    Some(Err(_)) => return Err(ApiError::bad_param("max_rows_per_line", "not a number")),
                };
                Ok(Self::Lines { samples })
            }
            Some("prometheus") => Ok(Self::Text(Dialect::Prometheus)),
            Some("openmetrics") => Ok(Self::Text(Dialect::OpenMetrics)),
            Some(other) => {
                let why = format!("{other:?} is none of jsonl, prometheus, openmetrics");
                Err(ApiError::bad_param("format", why))
            }
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Lines { .. } => "application/stream+json",
            Self::Text(Dialect::Prometheus) => "text/plain; version=0.0.4; charset=utf-8",
            Self::Text(Dialect::OpenMetrics) => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    const fn end(self) -> &'static [u8] {
        match self {
            Self::Lines { .. } => b"",
            Self::Text(dialect) => exposition::end(dialect),
        }
    }
}

pub(super) async fn export(
    State(app): State<App>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    let tenant = tenant_of(&headers)?;
    let (format, range) = (Format::of(&params)?, params.range()?);
    let selectors = selectors(&params, true)?;
    crate::pipeline::wait_for_replay(&app.node).await;
    if !app.node.is_ready() && !app.node.is_stopping() {
        let message = "the journal is being replayed";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message));
    }
    let Some(pass) = app.exporting.enter() else {
        let message = format!("too many exports: {} run already", app.exporting.limit());
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message));
    };
    let (pieces, mut written) = mpsc::channel(PIECES_WAITING);
    let cancel = CancelOnDrop::new();
    let cancelled = cancel.flag();
    tokio::task::spawn_blocking(move || {
        let ask = Ask { app: &app, tenant, selectors: &selectors, range, cancelled: &cancelled };
        let mut out = Pieces::new(format, &pieces);
        let done = ask.all_or_again(&mut out).and_then(|()| out.end());
        if let Err(Stop::Failed(error)) = done {
            // nobody may be there to hear it
            let _ = pieces.blocking_send(Err(error));
        }
        drop(pass);
    });
    let (mut first, mut known) = (None, HeaderMap::new());
    while first.is_none() {
        match written.recv().await.transpose()? {
            Some(Piece::Text(text)) => first = Some(text),
            Some(Piece::Warning(warning)) => _ = known.append(WARNING, warning),
            None => break,
        }
    }
    let body = Body::new(Stream { first, written, warnings: HeaderMap::new(), _cancel: cancel });
    let mut response = Response::new(body);
    response.headers_mut().extend(known);
    response.headers_mut().insert(header::TRAILER, HeaderValue::from_name(WARNING));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// What is wanted, and of whom.
struct Ask<'a> {
    app: &'a App,
    tenant: TenantId,
    selectors: &'a [Vec<Matcher>],
    range: TimeRange,
    cancelled: &'a AtomicBool,
}

impl Ask<'_> {
    /// Begins again where what it reads has moved on into tables, and leaves out what it gave before.
    fn all_or_again(&self, out: &mut Pieces<'_>) -> Result<(), Stop> {
        let samples_max = options(self.app, self.cancelled, None).samples_max;
        let mut given = Given::new(&self.app.node);
        let mut tries = 0;
        loop {
            tries += 1;
            let before = given.keys.len();
            let source = Source::new(&self.app.node, self.tenant.clone(), samples_max, self.cancelled);
            match self.all(&source, out, &mut given) {
                Err(Stop::Failed(_)) if source.is_outlived() && given.is_whole => {
                    tries = if given.keys.len() > before { 0 } else { tries };
                }
                Err(Stop::Failed(_)) if source.is_outlived() && !out.has_sent => {
                    out.piece.clear();
                    given = Given::new(&self.app.node);
                }
                done => return done,
            }
            if tries >= TRIES_MAX {
                let message = "what it reads moves on faster than it can be read";
                return Err(Stop::Failed(ApiError::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    message,
                )));
            }
        }
    }

    /// Writes the series of all selectors, each once.
    fn all(&self, source: &Source<'_>, out: &mut Pieces<'_>, given: &mut Given) -> Result<(), Stop> {
        let failed = |e| Stop::Failed(ApiError::from(QueryError::from(e)));
        let mut samples = Samples::default();
        for (i, matchers) in self.selectors.iter().enumerate() {
            let mut set = source.select(&Select { matchers, range: self.range }).map_err(failed)?;
            out.warn(&source.left_out())?;
            while set.next(&mut samples).map_err(failed)? {
                let labels = set.labels();
                let before = &self.selectors[..i];
                let is_new =
                    !samples.is_empty() && !before.iter().any(|matchers| matches_all(matchers, labels));
                if is_new && !given.has(labels) {
                    out.series(labels, &samples)?;
                    given.add(labels);
                }
            }
            drop(set);
            out.warn(&source.left_out())?;
        }
        Ok(())
    }
}

/// Series that were given: what moves from memory into tables in the middle of an export must not be given again.
struct Given {
    keys: HashSet<SeriesKey>,
    seed: u64,
    account: Account,
    /// Memory for them.
    bought: Vec<Reservation>,
    /// False where there was no room for all of them: then what has been sent cannot be gone on from.
    is_whole: bool,
}

/// Series for which memory is bought together, and what one takes at the most: a set doubles when it is full.
const GIVEN_SERIES: usize = 1 << 14;
const GIVEN_BYTES: u64 = 48;

impl Given {
    fn new(node: &Node) -> Self {
        let (seed, account) = (node.shared().seed, node.shared().answers.clone());
        Self { keys: HashSet::new(), seed, account, bought: Vec::new(), is_whole: true }
    }

    fn has(&self, labels: LabelsRef<'_>) -> bool {
        self.keys.contains(&SeriesKey::of(labels.as_bytes(), self.seed))
    }

    fn add(&mut self, labels: LabelsRef<'_>) {
        if self.is_whole && self.keys.len() == self.bought.len() * GIVEN_SERIES {
            match self.account.reserve(GIVEN_SERIES as u64 * GIVEN_BYTES) {
                Ok(bought) => self.bought.push(bought),
                Err(_) => {
                    self.is_whole = false;
                    self.keys = HashSet::new();
                    self.bought.clear();
                }
            }
        }
        if self.is_whole {
            self.keys.insert(SeriesKey::of(labels.as_bytes(), self.seed));
        }
    }
}

fn matches_all(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}

/// What goes to the reader.
enum Piece {
    Text(Bytes),
    Warning(HeaderValue),
}

/// Text on its way out.
struct Pieces<'a> {
    format: Format,
    pieces: &'a Sender<Result<Piece, ApiError>>,
    piece: Vec<u8>,
    /// What the reader was warned of.
    warned: HashSet<String>,
    /// Something is on its way: nothing can be taken back.
    has_sent: bool,
}

impl<'a> Pieces<'a> {
    fn new(format: Format, pieces: &'a Sender<Result<Piece, ApiError>>) -> Self {
        let piece = Vec::with_capacity(PIECE_BYTES);
        Self { format, pieces, piece, warned: HashSet::new(), has_sent: false }
    }

    /// Says what is missing, each thing once.
    fn warn(&mut self, warnings: &[String]) -> Result<(), Stop> {
        for warning in warnings {
            if self.warned.insert(warning.clone()) {
                let text: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
                self.pieces.blocking_send(Ok(Piece::Warning(value))).map_err(|_| Stop::Gone)?;
            }
        }
        Ok(())
    }

    fn series(&mut self, labels: LabelsRef<'_>, samples: &Samples) -> Result<(), Stop> {
        let rows = match self.format {
            Format::Lines { samples } => samples,
            Format::Text(_) => LINE_SAMPLES / 10,
        };
        for (times, values) in samples.timestamps.chunks(rows).zip(samples.values.chunks(rows)) {
            match self.format {
                Format::Lines { .. } => jsonl::put_line(&mut self.piece, labels, times, values),
                Format::Text(dialect) => {
                    exposition::put_samples(&mut self.piece, dialect, labels, times, values);
                }
            }
            if self.piece.len() >= PIECE_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Stop> {
        self.has_sent = true;
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.pieces.blocking_send(Ok(Piece::Text(piece.into()))).map_err(|_| Stop::Gone)
    }

    fn end(&mut self) -> Result<(), Stop> {
        self.piece.extend_from_slice(self.format.end());
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

/// The answer's body.
struct Stream {
    first: Option<Bytes>,
    written: Receiver<Result<Piece, ApiError>>,
    /// What turned out to be missing after the answer had begun.
    warnings: HeaderMap,
    _cancel: CancelOnDrop,
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = ApiError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            return Poll::Ready(match ready!(self.written.poll_recv(context)) {
                Some(Ok(Piece::Text(text))) => Some(Ok(Frame::data(text))),
                Some(Ok(Piece::Warning(warning))) => {
                    self.warnings.append(WARNING, warning);
                    continue;
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "an export broke off");
                    Some(Err(error))
                }
                None if self.warnings.is_empty() => None,
                None => Some(Ok(Frame::trailers(std::mem::take(&mut self.warnings)))),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::tests::{node_with, write_of};
    use stdx::clock::{Clock, SystemClock};

    #[tokio::test(flavor = "multi_thread")]
    async fn an_export_goes_on_when_what_it_reads_moves_on() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let base_ms = SystemClock.now_ms() - 60_000;
        for round in 0..400 {
            write_of(&node, &TenantId::anonymous(), base_ms + round).await;
        }
        let (pieces, mut written) = mpsc::channel(1);
        let app = App::new(node.clone());
        let exporter = tokio::task::spawn_blocking(move || {
            let cancelled = AtomicBool::new(false);
            let (tenant, selectors) = (TenantId::anonymous(), [Vec::new()]);
            let ask = Ask {
                app: &app,
                tenant,
                selectors: &selectors,
                range: TimeRange::ALL,
                cancelled: &cancelled,
            };
            let format = Format::Lines { samples: LINE_SAMPLES };
            let mut out = Pieces {
                format,
                pieces: &pieces,
                piece: Vec::new(),
                warned: HashSet::new(),
                has_sent: false,
            };
            ask.all_or_again(&mut out).and_then(|()| out.end()).is_ok()
        });
        let mut text = Vec::new();
        while let Some(Ok(piece)) = written.recv().await {
            let Piece::Text(piece) = piece else { panic!("nothing is left out") };
            text.extend_from_slice(&piece);
            // a release that did not wait any longer
            let pins = &node.shared().lake.pins;
            pins.outlive(pins.end_generation());
        }
        assert!(exporter.await.unwrap());
        assert!(text.len() > 4 * PIECE_BYTES, "{} bytes: too little to be interrupted", text.len());
        let mut lines: Vec<_> = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 50, "each series once, and whole");
        assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 50);
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
