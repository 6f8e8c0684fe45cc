//! Passes calls of gRPC to the backend, over a connection of HTTP/2 for each sender. The status of a call is
//! usually in the trailers, which come after the body, so it is known only when the body has been passed on.

use super::proxy::{NO_ANSWER, Proxy};
use super::recognize::WriteRequest;
use super::tee::{Copy, Tee};
use crate::drive::send::answered::{Answered, Said};
use crate::grpc::{self, Connection};
use crate::http::{Endpoint, causes};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// The connection to the backend that all calls of a sender share.
#[derive(Debug)]
pub(super) struct Backend {
    endpoint: Endpoint,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Arc<Open>>,
    /// When the backend could not be reached the last time, and why.
    failed: Option<(Instant, String)>,
}

/// An open connection, which lasts as long as its calls.
#[derive(Debug)]
pub(super) struct Open {
    connection: Connection<Tee>,
    /// True if a sender has given up waiting for an answer. If the backend's host has vanished, nothing else tells: pings
    /// would, but many servers of gRPC end connections that ping often.
    is_doubtful: AtomicBool,
}

impl Open {
    fn is_usable(&self) -> bool {
        !self.connection.sender.is_closed() && !self.is_doubtful.load(Ordering::Relaxed)
    }
}

/// Marks the connection as doubtful when it is dropped, which happens if the sender gives up before there is an answer. After
/// an answer, it is forgotten instead.
struct Waiting<'a>(&'a Open);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.is_doubtful.store(true, Ordering::Relaxed);
    }
}

impl Backend {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: tokio::sync::Mutex::default() }
    }

    /// Sends a call. The connection must be kept until the answer has been read.
    pub(super) async fn send(
        &self,
        request: Request<Tee>,
    ) -> Result<(Response<Incoming>, Arc<Open>), String> {
        let open = self.open().await?;
        let waiting = Waiting(&open);
        let answer = open.connection.sender.clone().send_request(request).await;
        std::mem::forget(waiting);
        answer.map(|answer| (answer, Arc::clone(&open))).map_err(|why| causes(&why))
    }

    async fn open(&self) -> Result<Arc<Open>, String> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = state.open.as_ref().filter(|open| open.is_usable()) {
            return Ok(Arc::clone(open));
        }
        // calls that have waited for an attempt share its failure
        if let Some((_, why)) = state.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(why.clone());
        }
        match grpc::open(&self.endpoint).await {
            Ok(connection) => {
                let open = Arc::new(Open { connection, is_doubtful: AtomicBool::new(false) });
                state.open = Some(Arc::clone(&open));
                Ok(open)
            }
            Err(failure) => {
                let why = failure.to_string();
                *state = State { open: None, failed: Some((Instant::now(), why.clone())) };
                Err(why)
            }
        }
    }
}

/// A call whose status is not known yet.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) proxy: Proxy,
    pub(super) arrival_us: i64,
    /// The request, if it writes samples, and the copy of its body.
    pub(super) write: Option<WriteRequest>,
    pub(super) copy: Arc<Mutex<Copy>>,
    pub(super) http: StatusCode,
    is_settled: bool,
}

impl Call {
    pub(super) fn new(
        proxy: Proxy,
        arrival_us: i64,
        write: Option<WriteRequest>,
        copy: Arc<Mutex<Copy>>,
        http: StatusCode,
    ) -> Self {
        Self { proxy, arrival_us, write, copy, http, is_settled: false }
    }

    /// Keeps the request if its sender will not send it again. `status` are the headers or trailers that have the status.
    pub(super) fn settle(&mut self, status: &HeaderMap) {
        // a status in the headers is final, whatever the trailers say
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let answer = grpc::answer_of(self.http, status, Bytes::new());
        self.proxy.count(answer.code.name());
        let is_final = !matches!(Answered::Grpc(answer).says(0), Said::Again(_));
        if let Some(write) = self.write.take().filter(|_| is_final) {
            let copy = &mut *self.copy.lock().expect("BUG: copying a body panicked");
            self.proxy.keep(self.arrival_us, write, copy);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_settled {
            self.proxy.count(NO_ANSWER);
        }
    }
}

/// The answer to a call, as it is passed on.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Incoming,
    pub(super) call: Call,
    /// Keeps the connection open.
    pub(super) _open: Arc<Open>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.call.settle(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
