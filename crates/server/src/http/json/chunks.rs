use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use stdx::budget::Reservation;

/// A text being sent chunk by chunk. The reservation for a chunk is released after its last byte.
#[derive(Debug)]
pub(super) struct Chunks {
    left: std::vec::IntoIter<Vec<u8>>,
    left_bytes: u64,
    memory: Option<Reservation>,
}

struct Chunk {
    bytes: Vec<u8>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Option<Reservation>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Chunks {
    pub(super) fn new(mut chunks: Vec<Vec<u8>>, memory: Option<Reservation>) -> Self {
        chunks.retain(|chunk| !chunk.is_empty());
        let left_bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { left: chunks.into_iter(), left_bytes, memory }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.left.next() else { return Poll::Ready(None) };
        self.left_bytes -= bytes.len() as u64;
        let memory = self.memory.as_mut().map(|memory| memory.split(bytes.capacity() as u64));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Chunk { bytes, memory })))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
