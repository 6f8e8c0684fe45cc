//! A body that is copied while it is passed on.

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use stdx::budget::Reservation;

#[derive(Debug)]
pub(super) struct Copy {
    pub(super) pieces: Vec<Bytes>,
    /// Reserves as many bytes as `pieces` hold. `None` if the body did not fit in memory; `pieces` is then empty.
    pub(super) memory: Option<Reservation>,
    pub(super) whole: bool,
}

#[derive(Debug)]
pub(super) struct Tee {
    body: Incoming,
    copy: Arc<Mutex<Copy>>,
}

impl Tee {
    /// Passes `body` on and copies it as long as `memory` can grow. Without a reservation, nothing is copied.
    pub(super) fn new(body: Incoming, memory: Option<Reservation>) -> (Self, Arc<Mutex<Copy>>) {
        let whole = body.is_end_stream();
        let copy = Arc::new(Mutex::new(Copy { pieces: Vec::new(), memory, whole }));
        (Self { body, copy: Arc::clone(&copy) }, copy)
    }
}

impl Copy {
    fn take(&mut self, piece: &Bytes) {
        let Some(memory) = &mut self.memory else { return };
        if memory.resize(memory.bytes() + piece.len() as u64).is_ok() {
            self.pieces.push(piece.clone());
        } else {
            self.memory = None;
            self.pieces = Vec::new();
        }
    }
}

impl Body for Tee {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let mut copy = self.copy.lock().expect("BUG: copying a body panicked");
        if let Some(Ok(frame)) = &frame
            && let Some(piece) = frame.data_ref()
        {
            copy.take(piece);
        }
        // if the length is known, the reader does not poll again after the last frame, so the end is noticed here
        copy.whole |= frame.is_none() || self.body.is_end_stream();
        drop(copy);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
