//! Passes connections with Graphite's lines or pickled points to the backend, without changing them.
//!
//! ```text
//!   sender ══▶ proxy ══▶ backend       bytes as they come, in both directions
//!                └─ copy of the whole lines, or frames, that the backend's socket has taken ─▶ queue
//! ```
//!
//! Each side's end is passed on to the other. So a sender still learns from the end of its connection that the backend
//! has read everything.

use super::recognize::WriteRequest;
use super::writer_thread::Queue;
use crate::capture::file::LINE_BYTES_MAX;
use crate::capture::file::parse::Kind;
use crate::capture::file::parse::pickle::FRAME_BYTES_MAX;
use crate::drive::stop::Stop;
use crate::http::Endpoint;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Maximum number of open connections from senders. Further connections wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const CHUNK_BYTES: usize = 64 << 10;

/// Outcomes that the report counts: of connections to the backend, and of chunks of lines.
pub(super) const NO_CONNECTION: &str = "no connection";
const PASSED_ON: &str = "passed on";

#[derive(Debug, Clone)]
pub(super) struct LineProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: SocketAddr,
    queue: Queue,
    begun: Instant,
    counts: Mutex<(u64, BTreeMap<String, u64>)>,
}

impl LineProxy {
    pub(super) fn new(backend: &Endpoint, queue: Queue) -> Self {
        let backend = backend.address();
        Self(Arc::new(Inner { backend, queue, begun: Instant::now(), counts: Mutex::default() }))
    }

    pub(super) fn counts(&self) -> (u64, BTreeMap<String, u64>) {
        self.0.counts.lock().expect("BUG: counting panicked").clone()
    }

    /// Accepts connections until `stop` is set, then waits up to `grace` for those that are open.
    pub(super) async fn serve(self, listener: TcpListener, stop: Stop, grace: Duration) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut open = JoinSet::new();
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place.expect("BUG: the semaphore of connections was closed"),
                () = stop.wait() => break,
            };
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(_) => {
                        // a retry at once would fail again: no file descriptor is left, or the sender has gone
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
                () = stop.wait() => break,
            };
            while open.try_join_next().is_some() {}
            let this = self.clone();
            open.spawn(async move {
                this.pass(stream).await;
                drop(place);
            });
        }
        drop(listener);
        let all = async { while open.join_next().await.is_some() {} };
        tokio::time::timeout(grace, all).await.ok();
    }

    async fn pass(&self, sender: TcpStream) {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.0.backend));
        let Ok(Ok(backend)) = connecting.await else {
            // a sender whose connection is reset sends its points again later
            sender.set_zero_linger().ok();
            return self.count(NO_CONNECTION);
        };
        sender.set_nodelay(true).ok();
        backend.set_nodelay(true).ok();
        let (from_sender, to_sender) = sender.into_split();
        let (from_backend, to_backend) = backend.into_split();
        let backward = tokio::spawn(copy(from_backend, to_sender));
        let abort = backward.abort_handle();
        if self.forward(from_sender, to_backend).await.is_err() {
            abort.abort();
        }
        backward.await.ok();
    }

    /// Passes bytes on until the sender's end, or until the backend takes no more.
    async fn forward(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
        let mut messages = Messages::Unknown;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let len = from.read(&mut chunk).await?;
            if len == 0 {
                break;
            }
            let arrival_us = self.0.begun.elapsed().as_micros() as i64;
            to.write_all(&chunk[..len]).await?;
            self.count(PASSED_ON);
            self.record(messages.kind(&chunk[..len]), messages.take(&chunk[..len]), arrival_us);
        }
        // carbon also accepts a last line without an end
        if let Messages::Lines(lines) = &mut messages {
            let arrival_us = self.0.begun.elapsed().as_micros() as i64;
            self.record(Kind::GraphiteLines, (lines.rest(), Ok(())), arrival_us);
        }
        to.shutdown().await
    }

    fn record(&self, kind: Kind, (whole, rest): (Vec<u8>, Result<(), TooLong>), arrival_us: i64) {
        let queue = &self.0.queue;
        if rest.is_err() {
            queue.lost("a line is too long");
        }
        if !whole.is_empty() {
            queue.put_copy(arrival_us, WriteRequest::plain(kind), whole);
        }
    }

    fn count(&self, outcome: &str) {
        let mut counts = self.0.counts.lock().expect("BUG: counting panicked");
        counts.0 += 1;
        match counts.1.get_mut(outcome) {
            Some(count) => *count += 1,
            None => {
                counts.1.insert(outcome.to_owned(), 1);
            }
        }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    tokio::io::copy(&mut from, &mut to).await.ok();
    to.shutdown().await.ok();
}

#[derive(Debug, PartialEq)]
struct TooLong;

/// What a connection sends. Its first byte decides, because a line never begins with a zero, and the length of a frame
/// always does.
#[derive(Debug)]
enum Messages {
    Unknown,
    Lines(Lines),
    Frames(Frames),
}

impl Messages {
    /// Decides by the first chunk of a connection, which is not empty.
    fn kind(&mut self, chunk: &[u8]) -> Kind {
        if let Self::Unknown = self {
            *self = match chunk[0] {
                0 => Self::Frames(Frames::default()),
                _ => Self::Lines(Lines::default()),
            };
        }
        if let Self::Frames(_) = self { Kind::GraphitePickle } else { Kind::GraphiteLines }
    }

    /// The whole messages that end in `chunk`, and an error if another one is too long.
    fn take(&mut self, chunk: &[u8]) -> (Vec<u8>, Result<(), TooLong>) {
        match self {
            Self::Unknown => (Vec::new(), Ok(())),
            Self::Lines(lines) => match lines.take(chunk) {
                Ok(whole) => (whole, Ok(())),
                Err(too_long) => (Vec::new(), Err(too_long)),
            },
            Self::Frames(frames) => frames.take(chunk),
        }
    }
}

/// Puts the frames together that a chunk has cut. A frame is length-prefixed with four bytes.
#[derive(Debug, Default)]
struct Frames {
    /// The beginning of a frame.
    open: Vec<u8>,
    /// Number of bytes that are left of a frame that is too long.
    skipping: usize,
}

impl Frames {
    fn take(&mut self, mut chunk: &[u8]) -> (Vec<u8>, Result<(), TooLong>) {
        let (mut whole, mut result) = (Vec::new(), Ok(()));
        loop {
            let skipped = self.skipping.min(chunk.len());
            self.skipping -= skipped;
            chunk = &chunk[skipped..];
            let missing = match self.open.first_chunk::<4>() {
                None => 4 - self.open.len(),
                Some(length) => {
                    let length = u32::from_be_bytes(*length) as usize;
                    if length > FRAME_BYTES_MAX {
                        (result, self.skipping) = (Err(TooLong), length);
                        self.open.clear();
                        continue;
                    }
                    4 + length - self.open.len()
                }
            };
            let (taken, rest) = chunk.split_at(missing.min(chunk.len()));
            self.open.extend_from_slice(taken);
            chunk = rest;
            if taken.len() < missing {
                return (whole, result);
            }
            if self.open.len() > 4 || self.open == [0; 4] {
                whole.append(&mut self.open);
            }
        }
    }
}

/// Puts the lines together that a chunk has cut.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of a line.
    open: Vec<u8>,
    /// True within a line that is too long.
    skipping: bool,
}

impl Lines {
    /// Returns the whole lines that end in `chunk`.
    fn take(&mut self, mut chunk: &[u8]) -> Result<Vec<u8>, TooLong> {
        if self.skipping {
            let Some(end) = chunk.iter().position(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
            self.skipping = false;
            chunk = &chunk[end + 1..];
        }
        let whole = chunk.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = Vec::new();
        if whole > 0 {
            lines = std::mem::take(&mut self.open);
            lines.extend_from_slice(&chunk[..whole]);
        }
        self.open.extend_from_slice(&chunk[whole..]);
        if self.open.len() > LINE_BYTES_MAX {
            self.open = Vec::new();
            self.skipping = true;
            return Err(TooLong);
        }
        Ok(lines)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_put_together() {
        let frame = |len: usize| [&(len as u32).to_be_bytes()[..], &vec![7; len]].concat();
        let long = frame(FRAME_BYTES_MAX + 3);
        let all =
            [frame(5), frame(0), frame(300), long.clone(), frame(FRAME_BYTES_MAX), frame(1), vec![0, 0]]
                .concat();
        for size in [1, 3, 1_000, 70_000, all.len()] {
            let (mut messages, mut whole, mut too_long) = (Messages::Unknown, Vec::new(), 0);
            for chunk in all.chunks(size) {
                assert_eq!(messages.kind(chunk), Kind::GraphitePickle);
                let (frames, result) = messages.take(chunk);
                whole.extend(frames);
                too_long += u32::from(result.is_err());
            }
            let kept = [frame(5), frame(0), frame(300), frame(FRAME_BYTES_MAX), frame(1)].concat();
            assert!(whole == kept && too_long == 1, "chunks of {size} bytes");
        }
        assert_eq!(Messages::Unknown.kind(b"a 1 1"), Kind::GraphiteLines);
    }

    #[test]
    fn lines_are_put_together() {
        let mut lines = Lines::default();
        let mut take = |chunk: &[u8]| lines.take(chunk).map(|lines| String::from_utf8(lines).unwrap());
        assert_eq!(take(b"a 1 1\nb 2"), Ok("a 1 1\n".into()));
        assert_eq!(take(b" "), Ok(String::new()));
        assert_eq!(take(b"2\nc 3 3\n"), Ok("b 2 2\nc 3 3\n".into()));
        assert_eq!(take(&vec![b'x'; LINE_BYTES_MAX + 1]), Err(TooLong));
        assert_eq!(take(b"xx"), Ok(String::new()));
        assert_eq!(take(b"x\nd 4 4\ne"), Ok("d 4 4\n".into()));
        assert_eq!(lines.rest(), b"e");
    }
}
