//! Bodies of answers.

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Body of an answer. `held`, which says that the request is in progress, is dropped once hyper has taken all of it.
#[derive(Debug)]
pub(super) struct Answer<H> {
    body: Body,
    _held: H,
}

impl<H> Answer<H> {
    pub(super) const fn new(body: Body, held: H) -> Self {
        Self { body, _held: held }
    }
}

impl<H: Unpin> HttpBody for Answer<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
