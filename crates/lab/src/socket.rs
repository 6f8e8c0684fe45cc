//! Client of a connection that gets no answers, as in Graphite's protocols.
//!
//! ```text
//!   send ─▶ the socket took the bytes              nothing says whether the target has read them
//!   close ─▶ our FIN ─▶ … ─▶ the target's FIN      the target has read everything
//! ```
//!
//! A task reads from the connection, so that its end is noticed when it happens, and not with the next request.

use crate::http::{Endpoint, Failure};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of a datagram. With its headers, it then fits into an Ethernet frame.
const DATAGRAM_BYTES: usize = 1_432;

/// When the run last killed the target. A process may take a while to die after that, and its connections with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Killed(Arc<Mutex<Option<Instant>>>);

impl Killed {
    pub(crate) fn now(&self) {
        *self.lock() = Some(Instant::now());
    }

    fn since(&self, opened: Instant) -> Option<Instant> {
        self.lock().filter(|killed| *killed >= opened)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("BUG: a task panicked while it noted the time")
    }
}

/// Sends bytes over TCP, or lines over UDP.
#[derive(Debug)]
pub(crate) struct Socket {
    address: SocketAddr,
    datagrams: bool,
    timeout: Duration,
    killed: Killed,
    open: Option<Open>,
    /// When the first connection broke whose end was noticed since the last [`Self::take_broken`].
    broken: Option<Instant>,
}

#[derive(Debug)]
enum Open {
    Stream(Stream),
    Datagrams(UdpSocket),
}

#[derive(Debug)]
struct Stream {
    opened: Instant,
    write: OwnedWriteHalf,
    end: Arc<Mutex<Option<End>>>,
    reader: JoinHandle<()>,
}

/// When and how the target ended a connection.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Instant,
    /// True for a FIN, false for a reset.
    orderly: bool,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The target closed the connection after it had read everything.
    Closed,
    /// The connection broke at this time, or somewhat later.
    Broken(Instant),
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Socket {
    pub(crate) fn new(endpoint: &Endpoint, timeout: Duration, killed: Killed) -> Self {
        let (address, datagrams) = (endpoint.address(), endpoint.is_datagrams());
        Self { address, datagrams, timeout, killed, open: None, broken: None }
    }

    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        self.notice_end();
        if self.open.is_some() {
            return Ok(());
        }
        let opening = tokio::time::timeout(CONNECT_TIMEOUT, open(self.address, self.datagrams));
        match opening.await {
            Ok(Ok(opened)) => self.open = Some(opened),
            Ok(Err(why)) => return Err(Failure::Connect(why.to_string())),
            Err(_) => return Err(Failure::Connect(format!("no connection within {CONNECT_TIMEOUT:?}"))),
        }
        Ok(())
    }

    /// Sends `body`. After success, the socket has taken all of it.
    pub(crate) async fn send(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.connect().await?;
        let Some(open) = &mut self.open else { return Err(Failure::Connect("no connection".into())) };
        let sent = match open {
            Open::Datagrams(socket) => return send_lines(socket, body).await,
            Open::Stream(stream) => tokio::time::timeout(self.timeout, stream.write.write_all(body)).await,
        };
        let failure = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => Failure::Broken(why.to_string()),
            Err(_) => Failure::Timeout(self.timeout),
        };
        self.notice_end();
        if let Some(Open::Stream(stream)) = self.open.take() {
            self.note_broken(self.killed.since(stream.opened).unwrap_or_else(Instant::now));
        }
        Err(failure)
    }

    /// Until when the target is known to have been alive, as far as the open connection shows. `None` for UDP, and
    /// without a connection.
    pub(crate) fn alive_until(&self) -> Option<Instant> {
        match &self.open {
            Some(Open::Stream(stream)) => {
                let ended = stream.end().map(|end| end.at);
                let killed = self.killed.since(stream.opened);
                Some([ended, killed].into_iter().flatten().min().unwrap_or_else(Instant::now))
            }
            _ => None,
        }
    }

    /// When a connection broke since the last call. This is never the connection that took the last request: its end
    /// is noticed by the next request, or by [`Self::close`].
    pub(crate) fn take_broken(&mut self) -> Option<Instant> {
        self.broken.take()
    }

    /// True if the connection has been open for at least `age`.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        matches!(&self.open, Some(Open::Stream(stream)) if stream.opened.elapsed() >= age)
    }

    /// Closes the connection, and waits until the target closes it too. `None` if none is open.
    pub(crate) async fn close(&mut self) -> Option<Ending> {
        self.notice_end();
        let Some(Open::Stream(mut stream)) = self.open.take() else {
            return self.broken.take().map(Ending::Broken);
        };
        let shut = stream.write.shutdown().await;
        let waited = tokio::time::timeout(self.timeout, &mut stream.reader).await;
        let killed = self.killed.since(stream.opened);
        match stream.end() {
            Some(end) if end.orderly && shut.is_ok() && killed.is_none() => Some(Ending::Closed),
            end => {
                let ended = end.filter(|_| waited.is_ok()).map(|end| end.at);
                Some(Ending::Broken(killed.or(ended).unwrap_or_else(Instant::now)))
            }
        }
    }

    /// Drops a connection that the target has ended.
    fn notice_end(&mut self) {
        if let Some(Open::Stream(stream)) = &self.open
            && let Some(end) = stream.end()
        {
            let at = self.killed.since(stream.opened).unwrap_or(end.at);
            self.note_broken(at);
            self.open = None;
        }
    }

    fn note_broken(&mut self, at: Instant) {
        self.broken = Some(self.broken.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Stream {
    fn end(&self) -> Option<End> {
        *self.end.lock().expect("BUG: the reader of a connection panicked")
    }
}

async fn open(address: SocketAddr, datagrams: bool) -> std::io::Result<Open> {
    if datagrams {
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        return Ok(Open::Datagrams(socket));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let opened = Instant::now();
    let (read, write) = stream.into_split();
    let end = Arc::new(Mutex::new(None));
    let reader = tokio::spawn(read_until_end(read, Arc::clone(&end)));
    Ok(Open::Stream(Stream { opened, write, end, reader }))
}

async fn read_until_end(mut read: OwnedReadHalf, end: Arc<Mutex<Option<End>>>) {
    let mut ignored = [0; 512];
    let orderly = loop {
        match read.read(&mut ignored).await {
            Ok(0) => break true,
            Ok(_) => {}
            Err(_) => break false,
        }
    };
    *end.lock().expect("BUG: the sender of a connection panicked") =
        Some(End { at: Instant::now(), orderly });
}

/// Sends lines in as few datagrams as possible. A line that is too long for a datagram gets one of its own.
async fn send_lines(socket: &UdpSocket, body: &[u8]) -> Result<(), Failure> {
    for datagram in datagrams(body) {
        // a refused datagram is reported by the next call, and nobody knows which one it was
        socket.send(datagram).await.map_err(|why| Failure::Broken(why.to_string()))?;
    }
    Ok(())
}

fn datagrams(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let within = &body[..body.len().min(DATAGRAM_BYTES)];
        let whole = within.iter().rposition(|byte| *byte == b'\n');
        let end = whole.or_else(|| body.iter().position(|byte| *byte == b'\n'));
        let (datagram, rest) = body.split_at(end.map_or(body.len(), |end| end + 1));
        body = rest;
        Some(datagram)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Access;
    use tokio::net::TcpListener;

    #[test]
    fn datagrams_hold_whole_lines() {
        let line = |bytes: usize| [vec![b'x'; bytes - 1], vec![b'\n']].concat();
        let body = [line(1_000), line(400), line(33), line(2_000), line(1)].concat();
        let lengths: Vec<usize> = datagrams(&body).map(<[u8]>::len).collect();
        assert_eq!(lengths, [1_400, 33, 2_000, 1]);
        assert_eq!(datagrams(b"a\nb").map(<[u8]>::len).collect::<Vec<_>>(), [2, 1]);
    }

    async fn pair() -> (Socket, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let endpoint = Endpoint::resolve_socket(&url, &Access::default()).await.unwrap();
        (Socket::new(&endpoint, Duration::from_secs(20), Killed::default()), listener)
    }

    #[tokio::test]
    async fn a_connection_is_closed_after_everything_was_read() {
        let (mut socket, listener) = pair().await;
        assert_eq!(socket.close().await, None);
        socket.send(b"a 1 2\n").await.unwrap();
        let (mut target, _) = listener.accept().await.unwrap();
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            target.read_to_end(&mut all).await.unwrap();
            all
        });
        assert_eq!(socket.close().await, Some(Ending::Closed));
        assert_eq!(reading.await.unwrap(), b"a 1 2\n");
    }

    #[tokio::test]
    async fn an_end_is_noticed_when_it_happens() {
        let (mut socket, listener) = pair().await;
        let before = Instant::now();
        socket.send(b"a 1 2\n").await.unwrap();
        drop(listener.accept().await.unwrap());
        while socket.alive_until().is_some() && socket.broken.is_none() {
            tokio::task::yield_now().await;
            socket.notice_end();
        }
        let broken = socket.take_broken().unwrap();
        assert!(broken >= before);
        assert_eq!((socket.take_broken(), socket.close().await), (None, None));
    }

    /// A process may take a while to die, and its connections with it.
    #[tokio::test]
    async fn after_a_kill_nothing_is_known() {
        let (mut socket, listener) = pair().await;
        socket.send(b"a 1 2\n").await.unwrap();
        let (_target, _) = listener.accept().await.unwrap();
        socket.killed.now();
        let killed = socket.alive_until().unwrap();
        assert_eq!(socket.alive_until(), Some(killed));
        drop(_target);
        assert_eq!(socket.close().await, Some(Ending::Broken(killed)));
    }
}
