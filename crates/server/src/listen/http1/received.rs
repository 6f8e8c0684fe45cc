//! Body of a request, which the connection lends to the service.
//!
//! hyper closes a connection whose request's body was not read to its end. If a service refuses a request before it reads the
//! body, the client is usually still sending: it then sees a connection that breaks instead of the answer, and repeats what
//! will always be refused. So the connection reads what the service has left.

use super::super::connections::Link;
use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// Limit on the bytes that are read and discarded so that a connection can be used again. Most requests of senders are
/// smaller. For a larger body, a new connection costs less than reading it.
const DISCARDED_BYTES_MAX: u64 = 1 << 20;

/// Limit on the time for this, because the answer waits until then. A client that is slower gets a new connection.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// The body as it arrives. Tells the connection's [`Link`] about each read.
struct Received {
    body: Incoming,
    link: Arc<Link>,
    /// True if the client may wait for a `100 Continue`, which hyper sends when the body is polled first.
    awaits_continue: bool,
    has_ended: bool,
    /// Set when the body has ended, because what follows is the next request line. `None` afterwards.
    is_line_next: Option<Arc<AtomicBool>>,
}

/// The body as the service reads it.
pub(super) struct Lent(Arc<Mutex<Received>>);

/// What the service leaves of the body.
pub(super) struct Remainder(Arc<Mutex<Received>>);

pub(super) fn lend(
    request: Request<Incoming>,
    link: Arc<Link>,
    is_line_next: Arc<AtomicBool>,
) -> (Request<Lent>, Remainder) {
    let awaits_continue = request.headers().contains_key(EXPECT);
    let (parts, body) = request.into_parts();
    let has_ended = body.is_end_stream();
    is_line_next.store(has_ended, Ordering::Relaxed);
    let is_line_next = (!has_ended).then_some(is_line_next);
    let received = Received { body, link, awaits_continue, has_ended, is_line_next };
    let received = Arc::new(Mutex::new(received));
    (Request::from_parts(parts, Lent(Arc::clone(&received))), Remainder(received))
}

impl Remainder {
    /// Reads and discards what the service has left, once the answer is ready. Returns false if the client may
    /// still be sending afterwards, so that the connection cannot be used again.
    pub(super) async fn discard(self) -> bool {
        let Some(received) = Arc::into_inner(self.0) else { return true }; // the service reads on
        let mut received = received.into_inner();
        if received.has_ended {
            return true;
        }
        // a body that was not asked for is not polled, because this would ask for it
        if received.awaits_continue || received.size_hint().lower() > DISCARDED_BYTES_MAX {
            return false;
        }
        received.link.end_of_body(); // the answer is ready, so the connection is not closed to make room for another
        let discarding = async {
            let mut left_bytes = DISCARDED_BYTES_MAX;
            while !received.has_ended {
                let Some(Ok(frame)) = received.frame().await else { return };
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let Some(rest) = left_bytes.checked_sub(bytes) else { return };
                left_bytes = rest;
            }
        };
        let _ = timeout(DISCARD_TIMEOUT, discarding).await;
        received.has_ended
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        this.awaits_continue = false;
        let frame = Pin::new(&mut this.body).poll_frame(context);
        match &frame {
            Poll::Pending => this.link.received(None),
            Poll::Ready(Some(Ok(frame))) => this.link.received(Some(frame.data_ref().map_or(0, Bytes::len))),
            Poll::Ready(_) => this.has_ended = true,
        }
        if this.has_ended || this.body.is_end_stream() {
            this.has_ended = true;
            if let Some(is_line_next) = this.is_line_next.take() {
                is_line_next.store(true, Ordering::Relaxed);
            }
            this.link.end_of_body();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.link.end_of_body();
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // until the answer is ready, nobody waits for the client any more
        self.0.lock().link.received(Some(0));
    }
}
