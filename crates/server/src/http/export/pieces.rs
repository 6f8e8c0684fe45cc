//! Text on its way to the reader: made on one thread, sent by another.

use super::format::Format;
use crate::http::bounds::CancelOnDrop;
use crate::http::error::ApiError;
use axum::body::HttpBody;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use hyper::body::Frame;
use model::{LabelsRef, Samples};
use protocol::{exposition, jsonl};
use std::collections::HashSet;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::{Receiver, Sender};

/// Text that is sent together.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// What is missing from the export, and why.
pub(super) const WARNING: HeaderName = HeaderName::from_static("x-floodmark-warning");

/// The reader is gone, or storage could not answer.
pub(super) enum Stop {
    Gone,
    Failed(ApiError),
}

/// What goes to the reader.
pub(super) enum Piece {
    Text(Bytes),
    Warning(HeaderValue),
}

/// Text on its way out.
pub(super) struct Pieces<'a> {
    format: Format,
    pieces: &'a Sender<Result<Piece, ApiError>>,
    piece: Vec<u8>,
    /// What the reader was warned of.
    warned: HashSet<String>,
    /// Something is on its way: nothing can be taken back.
    has_sent: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(format: Format, pieces: &'a Sender<Result<Piece, ApiError>>) -> Self {
        let piece = Vec::with_capacity(PIECE_BYTES);
        Self { format, pieces, piece, warned: HashSet::new(), has_sent: false }
    }

    /// Says what is missing, each thing once.
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
        let rows = self.format.rows();
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

    /// Takes back what was written; `false` where some of it is on its way.
    pub(super) fn take_back(&mut self) -> bool {
        if !self.has_sent {
            self.piece.clear();
        }
        !self.has_sent
    }

    fn send(&mut self) -> Result<(), Stop> {
        self.has_sent = true;
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.pieces.blocking_send(Ok(Piece::Text(piece.into()))).map_err(|_| Stop::Gone)
    }

    pub(super) fn end(&mut self) -> Result<(), Stop> {
        self.piece.extend_from_slice(self.format.end());
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

/// The answer's body.
pub(super) struct Stream {
    first: Option<Bytes>,
    written: Receiver<Result<Piece, ApiError>>,
    /// What turned out to be missing after the answer had begun.
    warnings: HeaderMap,
    _cancel: CancelOnDrop,
}

impl Stream {
    /// Begins with `first`. What is written is not wanted any more when the stream is dropped.
    pub(super) fn new(
        first: Option<Bytes>,
        written: Receiver<Result<Piece, ApiError>>,
        cancel: CancelOnDrop,
    ) -> Self {
        Self { first, written, warnings: HeaderMap::new(), _cancel: cancel }
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
                    tracing::warn!(%error, "an export broke off");
                    Some(Err(error))
                }
                None if self.warnings.is_empty() => None,
                None => Some(Ok(Frame::trailers(std::mem::take(&mut self.warnings)))),
            });
        }
    }
}
