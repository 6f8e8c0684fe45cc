//! Passes calls of gRPC to the backend, over a connection of HTTP/2 of their own. The status of a call comes behind the answer,
//! so that it is known only when the answer has been passed on.

use super::proxy::{NO_ANSWER, Proxy};
use super::recognize::WriteRequest;
use super::tee::{Copy, Tee};
use crate::drive::send::answered::{Answered, Said};
use crate::grpc::{self, Connection};
use crate::http::{Endpoint, Failure, causes};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

/// The connection to the backend, which all calls share.
#[derive(Debug)]
pub(super) struct Backend {
    endpoint: Endpoint,
    open: tokio::sync::Mutex<Option<Connection<Tee>>>,
}

impl Backend {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, open: tokio::sync::Mutex::default() }
    }

    pub(super) async fn send(&self, request: Request<Tee>) -> Result<Response<Incoming>, String> {
        let mut sender = {
            let mut open = self.open.lock().await;
            if open.as_ref().is_none_or(|connection| connection.sender.is_closed()) {
                let opened = grpc::open(&self.endpoint).await;
                *open = Some(opened.map_err(|failure: Failure| failure.to_string())?);
            }
            open.as_ref().expect("BUG: the connection was opened").sender.clone()
        };
        sender.send_request(request).await.map_err(|why| causes(&why))
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
        self.is_settled = true;
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
