//! Export of all samples of selected series, as a stream. Memory holds one series and a few pieces of text.
//!
//! ```text
//!   source ─one series─▶ text ─pieces of 64 KiB─▶ channel ─▶ connection
//!   (a blocking thread, which waits for the client)
//! ```
//!
//! A failure before the first piece has an HTTP status. A later failure aborts the connection.
//!
//! Files that an export reads are not swept. [`WARNING`] headers or trailers report data that is missing
//! because of damaged files.

mod format;
mod pieces;
mod seen;
mod stored;

use super::label_queries::Selectors;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::principal::ReadTenants;
use crate::http::queries::admission::{Payer, TRIES_MAX, wait_for_series_of_all};
use crate::http::queries::description::EXPORT_PATH;
use crate::http::queries::query_log::Ending;
use crate::http::queries::running_queries::{CancelOnDrop, RunningQuery};
use crate::listen::Peer;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use format::Format;
use model::{ErrorKind, LabelsRef, SeriesSamples, TenantSet, TimeRange};
use pieces::{PIECES_BYTES, Piece, Pieces, Stop, Stream, WARNING};
use query::{Allowance, Interrupt, Matcher, QueryError, Select, SourceError};
use seen::SeenSeries;
use std::sync::Arc;
use stored::Stored;
use tokio::sync::mpsc;

const PIECES_WAITING: usize = 4;

pub(crate) async fn export(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Response, ApiError> {
    let (format, range) = (Format::of(&params)?, params.range()?);
    let selectors = Selectors::of(&params, true)?;
    wait_for_series_of_all(&app, &tenants).await?;
    let payer = Payer::of(&app, &app.exporting, &tenants);
    let pass = payer.enter(&app.exporting, |peaks| &peaks.exports);
    let mut pass = pass.map_err(|full| payer.crowded(&app, "exports", &app.exporting, full))?;
    app.node.reads().headroom.check()?;
    let answers = payer.answers;
    let memory = Arc::new(answers.reserve(PIECES_BYTES).map_err(Refusal::from)?);
    let held = Arc::clone(&memory);
    let (pieces, mut written) = mpsc::channel(PIECES_WAITING);
    let query = app.running.begin(selectors.description(EXPORT_PATH, &tenants, range, peer));
    let (entry, ending) = (app.running.enter(&query), Ending::of(&app.query_log, &query));
    let cancel = CancelOnDrop(Arc::clone(&query));
    tokio::task::spawn_blocking(move || {
        pass.is_served = true;
        query.run(app.running.age(&query));
        let settings = app.node.settings();
        let share_bytes = settings.budget.export_share_bytes(settings.query_concurrency);
        let mut parsed = Allowance::new(share_bytes).until(Arc::clone(&query) as _);
        let done = selectors.parse(&mut parsed).map_err(Stop::Failed).and_then(|selectors| {
            // a sample takes 16 bytes of memory
            let samples_max = share_bytes.saturating_sub(parsed.spent_bytes()) / 16;
            let request =
                ExportRequest { app: &app, tenants, selectors: &selectors, range, samples_max, query };
            let mut out = Pieces::new(format, &pieces, answers, &*request.query);
            request.all_or_again(&mut out).and_then(|()| out.end())
        });
        match done {
            Ok(()) => ending.with(None),
            Err(Stop::Gone) => drop(ending),
            Err(Stop::Failed(error) | Stop::Expired(error)) => {
                ending.with(Some(&error));
                // fails if the client has disconnected; nobody waits for the error then
                let _ = pieces.blocking_send(Err(error));
            }
        }
        drop((pass, held, entry));
    });
    let (mut first, mut known) = (None, HeaderMap::new());
    while first.is_none() {
        match written.recv().await.transpose()? {
            Some(Piece::Text(text)) => first = Some(text),
            Some(Piece::Warning(warning)) => _ = known.append(WARNING, warning),
            None => break,
        }
    }
    let mut response = Response::new(Body::new(Stream::new(first, written, cancel, memory)));
    response.headers_mut().extend(known);
    response.headers_mut().insert(header::TRAILER, HeaderValue::from_name(WARNING));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

struct ExportRequest<'a> {
    app: &'a App,
    tenants: TenantSet,
    selectors: &'a [Vec<Matcher>],
    range: TimeRange,
    samples_max: u64,
    query: Arc<RunningQuery>,
}

impl ExportRequest<'_> {
    /// Writes all series. If samples are sealed while they are read, starts again and skips the series that
    /// were sent.
    fn all_or_again(&self, out: &mut Pieces<'_>) -> Result<(), Stop> {
        let mut seen = SeenSeries::new(self.app.node.reads().seed, out.account());
        let mut tries = 0;
        loop {
            tries += 1;
            let before = seen.len();
            let canceled = Arc::clone(&self.query) as Arc<dyn Interrupt>;
            let source = Stored::of(self.app.node.reads(), &self.tenants, self.samples_max, &canceled);
            match self.all(&source, out, &mut seen) {
                // series that were sent may lack samples of the file
                Err(Stop::Expired(_)) if source.has_lost_files() => return Err(lost_file()),
                Err(Stop::Expired(_)) if seen.is_whole() => {
                    tries = if seen.len() > before { 0 } else { tries };
                }
                Err(Stop::Expired(_)) if out.take_back() => {
                    seen = SeenSeries::new(self.app.node.reads().seed, out.account());
                }
                Err(Stop::Expired(error)) => return Err(Stop::Failed(error)),
                done => return done,
            }
            if tries >= TRIES_MAX {
                let message = "samples were sealed faster than the export could read them: export again";
                return Err(Stop::Failed(ApiError::unavailable(message)));
            }
        }
    }

    /// Writes the series that the selectors match. A series that matches several of them is written once.
    fn all(&self, source: &Stored<'_>, out: &mut Pieces<'_>, seen: &mut SeenSeries) -> Result<(), Stop> {
        let failed = |e| {
            let error = ApiError::from(QueryError::from(e));
            if source.is_expired() { Stop::Expired(error) } else { Stop::Failed(error) }
        };
        let mut samples = SeriesSamples::default();
        for (i, matchers) in self.selectors.iter().enumerate() {
            let mut set = source.series().select(&Select { matchers, range: self.range }).map_err(failed)?;
            out.warn(&source.left_out())?;
            while set.next(&mut samples).map_err(failed)? {
                if self.query.is_set() {
                    return Err(Stop::Failed(QueryError::Canceled.into()));
                }
                let labels = set.labels();
                let before = &self.selectors[..i];
                let is_new =
                    !samples.is_empty() && !before.iter().any(|matchers| matches_all(matchers, labels));
                if is_new && source.may_repeat_series() && !seen.is_whole() {
                    let message = "idle series left the memory during the export, which did not have enough memory to tell \
                        which series it had sent: export again, or fewer series";
                    return Err(Stop::Failed(ApiError::unavailable(message)));
                }
                if is_new && !seen.has(labels) {
                    let Some(samples) = samples.floats() else {
                        let message = "native histograms cannot be exported yet".into();
                        let error = SourceError { kind: ErrorKind::Unsupported, message };
                        return Err(Stop::Failed(QueryError::from(error).into()));
                    };
                    self.query.usage.read(samples.len() as u64);
                    out.series(labels, samples)?;
                    seen.add(labels);
                }
            }
            drop(set);
            if source.has_lost_files() {
                return Err(lost_file());
            }
            out.warn(&source.left_out())?;
        }
        Ok(())
    }
}

fn lost_file() -> Stop {
    Stop::Failed(ApiError::unavailable("a file of the table was deleted while it was read: export again"))
}

fn matches_all(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::format::LINE_SAMPLES;
    use super::pieces::PIECE_BYTES;
    use super::*;
    use crate::http::queries::description::Description;
    use crate::seal::tests::{node_with, write_of};
    use model::{Labels, Samples, TenantId};
    use protocol::exposition::Dialect;
    use protocol::{exposition, jsonl};
    use std::sync::atomic::{AtomicBool, Ordering};
    use stdx::budget::Account;
    use stdx::clock::{Clock, SystemClock};

    /// A long line is sent in several pieces. What a piece needs beyond its usual capacity is reserved.
    #[test]
    fn long_lines_go_out_in_small_pieces() {
        let account = Account::new("answers", 10_000);
        let labels = Labels::from_pairs(&[("__name__", "m")]);
        let control = "\u{1}".repeat(16_000);
        let long = Labels::from_pairs(&[("__name__", "m"), ("a", &control), ("b", &control)]);
        let never = AtomicBool::new(false);
        let mut samples = Samples::default();
        (0..30_000).for_each(|i| samples.push(i, f64::from(i as i32) / 7.0));
        for format in [Format::Lines { samples: 1_000_000 }, Format::Text(Dialect::Prometheus)] {
            let (pieces, mut written) = mpsc::channel(1000);
            let mut out = Pieces::new(format, &pieces, account.clone(), &never);
            assert!(out.series(labels.as_ref(), &samples).is_ok() && out.end().is_ok());
            let mut text = Vec::new();
            while let Ok(Ok(Piece::Text(piece))) = written.try_recv() {
                assert!(piece.len() <= 2 * PIECE_BYTES, "{} bytes in one piece", piece.len());
                text.extend_from_slice(&piece);
            }
            let mut whole = Vec::new();
            match format {
                Format::Lines { .. } => {
                    jsonl::put_line(&mut whole, labels.as_ref(), &samples.timestamps, &samples.values);
                }
                Format::Text(dialect) => {
                    let (times, values) = (&samples.timestamps, &samples.values);
                    exposition::put_samples(&mut whole, dialect, labels.as_ref(), times, values);
                }
            }
            assert!(text == whole, "the pieces differ from the whole text");
            assert_eq!(account.used_bytes(), 0);
        }
        let (pieces, _written) = mpsc::channel(1000);
        let mut out = Pieces::new(Format::Lines { samples: 1000 }, &pieces, account.clone(), &never);
        assert!(
            matches!(out.series(long.as_ref(), &samples), Err(Stop::Failed(_))),
            "the account is too small"
        );
    }

    /// A client may take hours to read a series.
    #[test]
    fn an_export_that_is_canceled_ends_within_a_series() {
        let (pieces, written) = mpsc::channel(1);
        let canceled = AtomicBool::new(false);
        let (labels, samples) = (
            Labels::from_pairs(&[("__name__", "m")]),
            Samples { timestamps: (0..100_000).collect(), values: vec![1.0; 100_000] },
        );
        let (format, account) = (Format::Text(Dialect::Prometheus), Account::new("answers", 10_000));
        std::thread::scope(|threads| {
            // is dropped if an assertion fails, so that the thread ends
            let (canceled, mut written) = (&canceled, written);
            let series = threads.spawn(move || {
                let mut out = Pieces::new(format, &pieces, account, canceled);
                match out.series(labels.as_ref(), &samples) {
                    Err(Stop::Failed(error)) => error.reason(),
                    _ => "no failure",
                }
            });
            assert!(matches!(written.blocking_recv(), Some(Ok(Piece::Text(_)))));
            canceled.store(true, Ordering::Relaxed);
            let mut more = 0;
            while written.blocking_recv().is_some() {
                more += 1;
            }
            assert!(more <= 2, "{more} pieces after the cancellation");
            assert_eq!(series.join().unwrap(), "canceled");
        });
    }

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
            let query = app.running.begin(Description::for_test());
            let (tenants, selectors) = (TenantId::anonymous().into(), [Vec::new()]);
            let request = ExportRequest {
                app: &app,
                tenants,
                selectors: &selectors,
                range: TimeRange::ALL,
                samples_max: 1_000_000,
                query,
            };
            let account = app.node.reads().answers.clone();
            let mut out =
                Pieces::new(Format::Lines { samples: LINE_SAMPLES }, &pieces, account, &*request.query);
            request.all_or_again(&mut out).and_then(|()| out.end()).is_ok()
        });
        let mut text = Vec::new();
        while let Some(Ok(piece)) = written.recv().await {
            let Piece::Text(piece) = piece else { panic!("an unexpected warning") };
            text.extend_from_slice(&piece);
            // pretend that readers took too long, so that their files may be deleted
            let pins = &node.reads().lake.pins;
            pins.expire(pins.end_generation());
        }
        assert!(exporter.await.unwrap());
        assert!(text.len() > 4 * PIECE_BYTES, "{} bytes: too little to be interrupted", text.len());
        let mut lines: Vec<_> = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 50, "each series is complete and sent once");
        assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 50);
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    /// Writes so many series that a file does not fit into one read window.
    async fn write_much(node: &crate::Node) {
        let (mut rng, base_ms) = (stdx::rng::Rng::new(5), SystemClock.now_ms() - 3_600_000);
        for i in 0..40 {
            let labels = Labels::from_pairs(&[("__name__", &format!("m{i:02}"))]);
            let times: Vec<_> = (0..10_000).map(|n| base_ms + n * 100).collect();
            let values: Vec<_> = times.iter().map(|_| rng.unit()).collect();
            let mut encoder = protocol::encode::V1Encoder::new();
            encoder.series(labels.as_ref(), &times, &values);
            let body = encoder.finish().to_vec();
            let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
            let (tenant, version) = (TenantId::anonymous(), protocol::remote_write::Version::V1);
            crate::write_path::tests::write(node, tenant, version, body, memory).await.unwrap();
        }
    }

    /// Deletes all data files, as another process with a short grace period would.
    fn delete_files(dir: &std::path::Path) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => delete_files(&entry.path()),
                false if entry.path().extension().is_some_and(|e| e == "parquet") => {
                    std::fs::remove_file(entry.path()).unwrap();
                }
                false => {}
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_export_whose_files_are_deleted_meanwhile_is_broken_off() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        write_much(&node).await;
        crate::seal::flush::flush(&node).await.unwrap();
        let (pieces, mut written) = mpsc::channel(1);
        let app = App::new(node.clone());
        let exporter = tokio::task::spawn_blocking(move || {
            let (query, selectors) = (app.running.begin(Description::for_test()), [Vec::new()]);
            let (tenants, range) = (TenantId::anonymous().into(), TimeRange::ALL);
            let (selectors, samples_max) = (&selectors, 1_000_000);
            let request = ExportRequest { app: &app, tenants, selectors, range, samples_max, query };
            let account = app.node.reads().answers.clone();
            let mut out =
                Pieces::new(Format::Lines { samples: LINE_SAMPLES }, &pieces, account, &*request.query);
            let done = request.all_or_again(&mut out).and_then(|()| out.end());
            matches!(done, Err(Stop::Failed(_)))
        });
        assert!(matches!(written.recv().await, Some(Ok(Piece::Text(_)))));
        delete_files(&dir.path().join("tables"));
        while written.recv().await.is_some() {}
        assert!(exporter.await.unwrap(), "an incomplete export must fail");
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
