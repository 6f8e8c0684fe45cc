//! Splits the text of an export into pieces. One thread encodes them, another sends them.

use super::PIECES_WAITING;
use super::format::Format;
use crate::http::error::ApiError;
use crate::http::queries::running_queries::CancelOnDrop;
use crate::refusal::Refusal;
use axum::body::HttpBody;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use hyper::body::Frame;
use model::{LabelsRef, Samples};
use protocol::{exposition, jsonl};
use query::{Interrupt, QueryError};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use stdx::budget::{Account, Reservation};
use tokio::sync::mpsc::{Receiver, Sender};

pub(super) const PIECE_BYTES: usize = 64 << 10;

/// While a long line is written, the piece is checked for being full after each group of this many numbers.
const NUMBERS: usize = 512;

/// Upper bound on the length of a sample's value and timestamp as text.
const NUMBERS_BYTES: usize = 64;

/// Capacity of a piece: it is full at [`PIECE_BYTES`], but may grow until the next check.
const PIECE_CAPACITY: usize = PIECE_BYTES + NUMBERS * NUMBERS_BYTES;

/// Limit on the pieces of one export that exist at once: waiting in the channel, being filled, handed over or
/// being sent.
const PIECES_HELD: usize = PIECES_WAITING + 4;

pub(super) const PIECES_BYTES: u64 = (PIECES_HELD * PIECE_CAPACITY) as u64;

/// Header or trailer that says which data is missing from the export, and why.
pub(super) const WARNING: HeaderName = HeaderName::from_static("x-floodmark-warning");

pub(super) enum Stop {
    /// The client has disconnected.
    Gone,
    Failed(ApiError),
    /// What was read may be incomplete: samples left the head meanwhile. Reading can begin again.
    Expired(ApiError),
}

pub(super) enum Piece {
    Text(Bytes),
    Warning(HeaderValue),
}

pub(super) struct Pieces<'a> {
    format: Format,
    pieces: &'a Sender<Result<Piece, ApiError>>,
    piece: Vec<u8>,
    warned: HashSet<String>,
    /// True once a piece was sent. The client has seen it, so the text can no longer be discarded.
    has_sent: bool,
    account: Account,
    canceled: &'a dyn Interrupt,
}

/// A piece that grew beyond [`PIECE_CAPACITY`], with a reservation for its additional memory.
struct Oversized {
    text: Vec<u8>,
    _memory: Reservation,
}

impl AsRef<[u8]> for Oversized {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl<'a> Pieces<'a> {
    pub(super) fn new(
        format: Format,
        pieces: &'a Sender<Result<Piece, ApiError>>,
        account: Account,
        canceled: &'a dyn Interrupt,
    ) -> Self {
        let piece = Vec::with_capacity(PIECE_CAPACITY);
        Self { format, pieces, piece, warned: HashSet::new(), has_sent: false, account, canceled }
    }

    /// The account for the memory of the export.
    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    /// Sends the warnings about missing data that were not sent before.
    pub(super) fn warn(&mut self, warnings: &[String]) -> Result<(), Stop> {
        for warning in warnings {
            if self.warned.insert(warning.clone()) {
                let text: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
                self.pieces.blocking_send(Ok(Piece::Warning(value))).map_err(|_| Stop::Gone)?;
            }
        }
        Ok(())
    }

    pub(super) fn series(&mut self, labels: LabelsRef<'_>, samples: &Samples) -> Result<(), Stop> {
        match self.format {
            Format::Lines { samples: on_a_line } => {
                let lines = samples.timestamps.chunks(on_a_line).zip(samples.values.chunks(on_a_line));
                lines.into_iter().try_for_each(|(times, values)| self.line(labels, times, values))
            }
            Format::Text(dialect) => {
                // in this format, each sample repeats the labels
                let rows = (PIECE_BYTES / (labels.as_bytes().len() + NUMBERS_BYTES)).max(1);
                for (times, values) in samples.timestamps.chunks(rows).zip(samples.values.chunks(rows)) {
                    exposition::put_samples(&mut self.piece, dialect, labels, times, values);
                    self.send_if_full()?;
                }
                Ok(())
            }
        }
    }

    /// Writes the samples as a line of JSON. Each piece is sent as soon as it is full, so a long line need not
    /// fit into memory.
    fn line(&mut self, labels: LabelsRef<'_>, times: &[i64], values: &[f64]) -> Result<(), Stop> {
        jsonl::begin_line(&mut self.piece, labels);
        for (i, values) in values.chunks(NUMBERS).enumerate() {
            jsonl::put_values(&mut self.piece, i * NUMBERS, values);
            self.send_if_full()?;
        }
        jsonl::begin_timestamps(&mut self.piece);
        for (i, times) in times.chunks(NUMBERS).enumerate() {
            jsonl::put_timestamps(&mut self.piece, i * NUMBERS, times);
            self.send_if_full()?;
        }
        jsonl::end_line(&mut self.piece);
        self.send_if_full()
    }

    fn send_if_full(&mut self) -> Result<(), Stop> {
        if self.piece.len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    /// Discards all text written so far. If some of it was sent, nothing is discarded, and the result is
    /// false.
    pub(super) fn take_back(&mut self) -> bool {
        if !self.has_sent {
            self.piece.clear();
        }
        !self.has_sent
    }

    fn send(&mut self) -> Result<(), Stop> {
        if self.canceled.is_set() {
            return Err(Stop::Failed(QueryError::Canceled.into()));
        }
        self.has_sent = true;
        let text = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_CAPACITY));
        let text = match text.capacity().saturating_sub(PIECE_CAPACITY) {
            0 => text.into(),
            more => {
                let memory = self.account.reserve(more as u64);
                let memory = memory.map_err(|full| Stop::Failed(Refusal::from(full).into()))?;
                Bytes::from_owner(Oversized { text, _memory: memory })
            }
        };
        self.pieces.blocking_send(Ok(Piece::Text(text))).map_err(|_| Stop::Gone)
    }

    pub(super) fn end(&mut self) -> Result<(), Stop> {
        self.piece.extend_from_slice(self.format.end());
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

pub(super) struct Stream {
    first: Option<Bytes>,
    written: Receiver<Result<Piece, ApiError>>,
    /// Warnings that were found after the headers had been sent. They are sent as trailers.
    warnings: HeaderMap,
    _cancel: CancelOnDrop,
    _memory: Arc<Reservation>,
}

impl Stream {
    /// Creates a stream that begins with `first`. Dropping the stream cancels the export.
    pub(super) fn new(
        first: Option<Bytes>,
        written: Receiver<Result<Piece, ApiError>>,
        cancel: CancelOnDrop,
        memory: Arc<Reservation>,
    ) -> Self {
        Self { first, written, warnings: HeaderMap::new(), _cancel: cancel, _memory: memory }
    }
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
                    tracing::warn!(%error, "export aborted");
                    Some(Err(error))
                }
                None if self.warnings.is_empty() => None,
                None => Some(Ok(Frame::trailers(std::mem::take(&mut self.warnings)))),
            });
        }
    }
}
