//! Keeps a connection open at its end until the client has stopped sending.
//!
//! If a connection is closed while bytes of the client are unread, the kernel resets it, and the client may lose the answer. So the server first
//! says that it will send nothing more, and then reads on for a while.

use super::super::forwarding::pass_on;
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Limit on the time for the client to read the answer and to close the connection.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit on the bytes read in this time: twice the largest body of a write request, so that a client with a body that
/// is too large gets its answer, too.
const LINGER_BYTES_MAX: usize = 2 * BODY_COMPRESSED_BYTES_MAX;

/// Bytes read at a time. They are on the stack.
const STEP_BYTES: usize = 8 << 10;

/// A stream whose shutdown waits for the client if `is_unread` was set.
#[derive(Debug)]
pub(super) struct Lingering<S> {
    stream: S,
    /// Set if the client may still be sending a body that is not read.
    is_unread: Arc<AtomicBool>,
    /// Set once the stream was shut down.
    until: Option<Pin<Box<Sleep>>>,
    left_bytes: usize,
}

impl<S> Lingering<S> {
    pub(super) const fn new(stream: S, is_unread: Arc<AtomicBool>) -> Self {
        Self { stream, is_unread, until: None, left_bytes: LINGER_BYTES_MAX }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Reads and discards bytes until the client has closed the connection, or one of the limits is reached.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; STEP_BYTES];
        while self.left_bytes > 0 {
            let mut into = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut into));
            if read.is_err() || into.filled().is_empty() {
                break;
            }
            self.left_bytes = self.left_bytes.saturating_sub(into.filled().len());
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    pass_on! { poll_read(into: &mut ReadBuf<'_>) -> (); }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    pass_on! {
        poll_write(bytes: &[u8]) -> usize;
        poll_write_vectored(bytes: &[IoSlice<'_>]) -> usize;
        poll_flush() -> ();
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.is_unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(LINGER_TIMEOUT)));
        if until.as_mut().poll(context).is_pending() {
            ready!(self.poll_discard(context));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    #[tokio::test]
    async fn a_shutdown_reads_what_the_client_still_sends() {
        let (mine, mut theirs) = duplex(100);
        let mut mine = Lingering::new(mine, Arc::new(AtomicBool::new(true)));
        let client = async move { theirs.write_all(&[1; 1000]).await };
        let (shut, sent) = tokio::join!(mine.shutdown(), client);
        shut.and(sent).unwrap();
        assert_eq!(mine.left_bytes, LINGER_BYTES_MAX - 1000);
    }
}
