//! Tells when the first bytes of a connection have arrived.

use super::super::forwarding::pass_on;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Length of `PRI * HTTP/2.0…`, with which each connection of HTTP/2 begins.
const PREFACE_BYTES: usize = 24;

/// A stream that completes a oneshot channel once as many bytes as the preface has were read.
#[derive(Debug)]
pub(super) struct Preface<S> {
    stream: S,
    read_bytes: usize,
    arrived: Option<oneshot::Sender<()>>,
}

impl<S> Preface<S> {
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<()>) {
        let (arrived, when) = oneshot::channel();
        (Self { stream, read_bytes: 0, arrived: Some(arrived) }, when)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Preface<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if self.arrived.is_some() {
            self.read_bytes += into.filled().len() - before;
            if self.read_bytes >= PREFACE_BYTES {
                let _ = self.arrived.take().map(|arrived| arrived.send(())); // nobody waits at the end of the connection
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Preface<S> {
    pass_on! {
        poll_write(bytes: &[u8]) -> usize;
        poll_write_vectored(bytes: &[IoSlice<'_>]) -> usize;
        poll_flush() -> ();
        poll_shutdown() -> ();
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
