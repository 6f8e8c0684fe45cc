//! The requests in progress of a connection.
//!
//! They share the state of the connection's [`Link`]: it is answering while any of them is being answered. Otherwise, it is
//! receiving while any body arrives, so a client that sends bodies too slowly may have to make room for others.

use super::super::answer::Answer;
use super::super::connections::{Busy, Link};
use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(super) struct Streams {
    link: Arc<Link>,
    /// It is locked before the state of `link`, never the other way round.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    receiving: usize,
    answering: usize,
    /// Keeps the connection busy while there is a request.
    busy: Option<Busy>,
    /// When each answer that is not sent yet was ready, by the number of its request.
    unread: Vec<(u64, Instant)>,
}

/// A request in progress, until its body and its answer are dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Arc<Streams>,
    number: u64,
}

impl Streams {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, open: Mutex::default() }
    }

    pub(super) fn begin(self: &Arc<Self>) -> Arc<OpenStream> {
        let mut open = self.open.lock();
        if open.busy.is_none() {
            open.busy = Some(self.link.begin(true));
        }
        open.receiving += 1;
        open.next += 1;
        let number = open.next;
        drop(open);
        Arc::new(OpenStream { streams: Arc::clone(self), number })
    }

    pub(super) fn are_none(&self) -> bool {
        self.open.lock().busy.is_none()
    }

    /// Waits until an answer has not been read for at least `patience`, and at most twice as long.
    pub(super) async fn unread(&self, patience: Duration) {
        loop {
            let now = Instant::now();
            let oldest = self.open.lock().unread.iter().map(|(_, since)| *since).min();
            let until = oldest.unwrap_or(now) + patience;
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl OpenStream {
    fn end_of_body(&self) {
        let mut open = self.streams.open.lock();
        open.receiving -= 1;
        open.answering += 1;
        self.streams.link.end_of_body();
    }

    /// The body of the answer. Its request is in progress until hyper has taken all of it, for which the client must have a
    /// window.
    pub(super) fn answer(self: Arc<Self>, body: Body) -> Answer<Arc<Self>> {
        self.streams.open.lock().unread.push((self.number, Instant::now()));
        Answer::new(body, self)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        open.answering -= 1; // its body was dropped before
        if let Some(at) = open.unread.iter().position(|(number, _)| *number == self.number) {
            open.unread.swap_remove(at);
            self.streams.link.answered();
        }
        if open.receiving + open.answering == 0 {
            open.busy = None;
        } else if open.answering == 0 {
            self.streams.link.receives_again();
        }
    }
}

/// Body of a request. Tells the connection's [`Link`] about each read.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    /// `None` after the end of the body.
    stream: Option<Arc<OpenStream>>,
}

impl Received {
    pub(super) const fn new(body: Incoming, stream: Arc<OpenStream>) -> Self {
        Self { body, stream: Some(stream) }
    }

    fn end(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.end_of_body();
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Some(stream) = &self.stream {
            let link = &stream.streams.link;
            match &frame {
                Poll::Pending => link.received(None),
                Poll::Ready(Some(Ok(frame))) => link.received(Some(frame.data_ref().map_or(0, Bytes::len))),
                Poll::Ready(_) => {}
            }
        }
        if self.body.is_end_stream() {
            self.end();
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
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::connections::{Connection, Connections, Full, NEWEST, Victims};
    use super::*;

    #[test]
    fn an_answer_protects_a_connection_whose_other_requests_go_on() {
        let connections = Connections::new(1, 1);
        let place = connections.enter(Victims::AboveShare, Instant::now()).unwrap();
        Connection::new(place.share()).serves(None);
        let streams = Arc::new(Streams::new(place.share()));
        let (answered, waiting) = (streams.begin(), streams.begin());
        place.share().received(None);
        answered.end_of_body();
        drop(answered.answer(Body::empty()));
        let entered = connections.enter(Victims::AboveShare, Instant::now() + NEWEST);
        waiting.end_of_body(); // also if the connection was not protected
        assert_eq!(entered.unwrap_err(), Full::Busy);
    }
}
