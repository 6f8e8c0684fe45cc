//! Closes a connection whose client reads too slowly. Otherwise, an unread answer would hold memory forever.

use super::connections::Link;
use super::forwarding::pass_on;
use super::patience::Patience;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A stream that fails with [`io::ErrorKind::TimedOut`] if the peer reads too slowly.
#[derive(Debug)]
pub(super) struct StallTimeout<S> {
    stream: S,
    patience: Patience,
    waiting: Option<Pin<Box<Sleep>>>,
    link: Arc<Link>,
}

impl<S: AsyncWrite + Unpin> StallTimeout<S> {
    pub(super) const fn new(stream: S, patience: Patience, link: Arc<Link>) -> Self {
        Self { stream, patience, waiting: None, link }
    }

    pub(super) const fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the result of a write, or `TimedOut` if it has been blocked for too long. `moved` tells how
    /// many bytes were written.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        moved: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = &written {
            if self.waiting.take().is_some() {
                self.link.write_blocked(false);
            }
            self.patience.moved(result.as_ref().map_or(0, moved), Instant::now());
            return written;
        }
        let deadline = self.patience.waits(Instant::now());
        if self.waiting.is_none() {
            self.link.write_blocked(true);
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    pass_on! { poll_read(into: &mut ReadBuf<'_>) -> (); }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed, |()| 0)
    }

    pass_on! { poll_shutdown() -> (); }
}

#[cfg(test)]
mod tests {
    use super::super::connections::{Connections, Victims};
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn clients_that_do_not_read_time_out() {
        let (mine, mut theirs) = duplex(100);
        let place = Connections::new(1, 1).enter(Victims::AboveShare, Instant::now()).expect("there is room");
        let mut mine = StallTimeout::new(mine, Patience::new(Duration::ZERO, 1), place.share());
        mine.write_all(&[1; 100]).await.unwrap();
        assert_eq!(mine.write(&[1]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // the client resumes reading before the timeout, and so keeps its connection
        theirs.read_exact(&mut [0; 50]).await.unwrap();
        mine.write_all(&[1; 50]).await.unwrap();
    }
}
