//! Percent-encodes characters of request targets that URLs must not have.
//!
//! curl sends a target such as `/render?target=alias(a.b,"c")` as it is, and so do scripts. Other servers of Graphite and Prometheus accept
//! this, but hyper refuses it before a handler sees it.

use super::super::forwarding::pass_on;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of requests whose request lines are escaped as they are read.
///
/// A body is never changed. If a client does not wait for its answer (pipelining), or sends a request line byte by byte, the line may
/// be passed on as it is.
#[derive(Debug)]
pub(super) struct RequestLines<S> {
    stream: S,
    /// True if the next byte belongs to a request line: at the beginning, and after the end of each request.
    is_line_next: Arc<AtomicBool>,
    /// True if the beginning of a request line was read, and its end was not.
    is_in_line: bool,
    /// Escaped bytes that did not fit into the reader's buffer: at most two for each escape.
    rest: Vec<u8>,
}

/// Limit on the escapes in one read. Beyond it, nothing is escaped. No query needs that many.
const ESCAPES_MAX: usize = 1000;

impl<S> RequestLines<S> {
    pub(super) const fn new(stream: S, is_line_next: Arc<AtomicBool>) -> Self {
        Self { stream, is_line_next, is_in_line: false, rest: Vec::new() }
    }

    /// Escapes what was read into a buffer after its first `before` bytes, up to the end of the line.
    fn escape(&mut self, into: &mut ReadBuf<'_>, before: usize) {
        let read = &into.filled()[before..];
        // with pipelining, these could be headers of which hyper has the request line
        if !self.is_in_line && !begins_request(read) {
            return;
        }
        let line = read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
        self.is_in_line = line == read.len();
        let Some(first) = read[..line].iter().position(|byte| must_be_escaped(*byte)) else { return };
        let (from, rest) = (&read[first..line], &read[line..]);
        let count = from.iter().filter(|byte| must_be_escaped(**byte)).count();
        if count > ESCAPES_MAX {
            return;
        }
        let mut escaped = Vec::with_capacity(from.len() + 2 * count + rest.len());
        for byte in from {
            if must_be_escaped(*byte) {
                escaped.extend_from_slice(format!("%{byte:02X}").as_bytes());
            } else {
                escaped.push(*byte);
            }
        }
        escaped.extend_from_slice(rest);
        into.set_filled(before + first);
        self.rest = put(into, &escaped);
    }
}

/// True if the bytes begin like `GET /`.
fn begins_request(bytes: &[u8]) -> bool {
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    method > 0 && bytes[method..].starts_with(b" /")
}

/// Puts bytes into a buffer, as many as fit, and returns the others.
fn put(into: &mut ReadBuf<'_>, bytes: &[u8]) -> Vec<u8> {
    let (fitting, others) = bytes.split_at(bytes.len().min(into.remaining()));
    into.put_slice(fitting);
    others.to_vec()
}

/// hyper accepts all other visible ASCII characters, except backticks in paths.
const fn must_be_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>')
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestLines<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            this.rest = put(into, &this.rest);
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        if this.is_line_next.swap(false, Ordering::Relaxed) || this.is_in_line {
            this.escape(into, before);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RequestLines<S> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// What a reader with a buffer of `room` bytes gets, if `sent` arrives in pieces of `piece` bytes.
    async fn read(sent: &[u8], piece: usize, room: usize) -> String {
        let mut lines = RequestLines::new(Pieces { sent, piece }, Arc::new(AtomicBool::new(true)));
        let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
        loop {
            match lines.read(&mut buffer).await.unwrap() {
                0 => return String::from_utf8(all).unwrap(),
                some => all.extend_from_slice(&buffer[..some]),
            }
        }
    }

    /// A stream from which at most `piece` bytes are read at a time.
    struct Pieces<'a> {
        sent: &'a [u8],
        piece: usize,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let length = self.piece.min(into.remaining()).min(self.sent.len());
            let (some, rest) = self.sent.split_at(length);
            into.put_slice(some);
            self.sent = rest;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn the_first_line_is_escaped_and_nothing_else() {
        let sent = b"GET /render?target=alias(a,\"<b>\") HTTP/1.1\r\nX: \"c\"\r\n\r\n";
        let expected = "GET /render?target=alias(a,%22%3Cb%3E%22) HTTP/1.1\r\nX: \"c\"\r\n\r\n";
        let many = format!("GET /?{} HTTP/1.1\r\n\r\n", "<".repeat(ESCAPES_MAX + 1));
        let rest_of_header = "\"c\": <d>\r\n\r\n";
        for other in [&many, rest_of_header] {
            assert_eq!(read(other.as_bytes(), usize::MAX, 1 << 20).await, other);
        }
        for piece in "GET /".len()..=sent.len() {
            for room in [5, 6, 7, 20, 1000] {
                assert_eq!(read(sent, piece, room).await, expected, "{piece} {room}");
            }
        }
    }
}
