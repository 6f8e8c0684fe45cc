//! Passes datagrams to the backend, and records the lines of statsd, or of Graphite, that they have.
//!
//! ```text
//!   senders ──▶ proxy ──▶ backend       one by one, as they come; nothing comes back
//!                 └─ copies of those that had arrived together ─▶ queue
//! ```

use super::recognize::WriteRequest;
use super::writer_thread::Queue;
use crate::capture::file::parse::Kind;
use crate::drive::stop::Stop;
use crate::http::Endpoint;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Datagrams that have arrived together are one request of the recording, up to this size.
const TOGETHER_BYTES: usize = 64 << 10;

/// Pause after an error of the socket.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

const PASSED_ON: &str = "passed on";
const NOT_PASSED_ON: &str = "not passed on";

/// What the system has dropped, because the proxy did not read it in time. The backend, whose buffer may be larger, has not
/// received it either.
const DROPPED: &str = "dropped by the system";

#[derive(Debug, Clone)]
pub(super) struct DatagramProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: UdpSocket,
    queue: Queue,
    begun: Instant,
    counts: Mutex<(u64, BTreeMap<String, u64>)>,
    /// The port that senders use.
    port: OnceLock<u16>,
    dropped: AtomicU64,
}

impl DatagramProxy {
    pub(super) async fn new(backend: &Endpoint, queue: Queue) -> Result<Self> {
        let address = backend.address();
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await.context("cannot open a socket for the backend")?;
        socket.connect(address).await.with_context(|| format!("cannot send to {address}"))?;
        let (begun, counts) = (Instant::now(), Mutex::default());
        let (port, dropped) = (OnceLock::new(), AtomicU64::new(0));
        Ok(Self(Arc::new(Inner { backend: socket, queue, begun, counts, port, dropped })))
    }

    pub(super) fn counts(&self) -> (u64, BTreeMap<String, u64>) {
        let (all, mut by_outcome) = self.0.counts.lock().expect("BUG: counting panicked").clone();
        self.note_dropped();
        let dropped = self.0.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            by_outcome.insert(DROPPED.to_owned(), dropped);
        }
        (all, by_outcome)
    }

    /// Remembers what the system has dropped, as long as the socket is open.
    fn note_dropped(&self) {
        if let Some(port) = self.0.port.get() {
            let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
            let texts = tables.iter().filter_map(|path| std::fs::read_to_string(path).ok());
            self.0.dropped.fetch_max(texts.map(|table| drops(&table, *port)).sum(), Ordering::Relaxed);
        }
    }

    /// Passes datagrams on until `stop` is set.
    pub(super) async fn serve(self, listener: UdpSocket, stop: Stop) {
        if let Ok(address) = listener.local_addr() {
            self.0.port.get_or_init(|| address.port());
        }
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while !stop.is_set() {
            tokio::select! {
                ready = listener.readable() => {
                    if ready.is_err() {
                        // datagrams wait in the socket meanwhile
                        tokio::time::sleep(ERROR_PAUSE).await;
                    }
                }
                () = stop.wait() => {}
            }
            self.pass(&listener, &mut buffer).await;
        }
        self.note_dropped();
    }

    /// Passes on what has arrived.
    async fn pass(&self, listener: &UdpSocket, buffer: &mut [u8]) {
        let arrival_us = self.0.begun.elapsed().as_micros() as i64;
        let (mut statsd, mut graphite) = (Vec::new(), Vec::new());
        // this socket sends nothing, so that an error says only that nothing more has arrived
        while let Ok(len) = listener.try_recv(buffer) {
            let datagram = &buffer[..len];
            if self.forward(datagram).await {
                for line in datagram.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let lines = if is_statsd(line) { &mut statsd } else { &mut graphite };
                    lines.extend_from_slice(line);
                    lines.push(b'\n');
                }
            }
            if statsd.len() + graphite.len() >= TOGETHER_BYTES {
                break;
            }
        }
        for (kind, lines) in [(Kind::Statsd, statsd), (Kind::GraphiteLines, graphite)] {
            if !lines.is_empty() {
                let write = WriteRequest::plain(kind);
                self.0.queue.put_copy(arrival_us, write, lines);
            }
        }
    }

    /// True if the socket has taken the datagram.
    async fn forward(&self, datagram: &[u8]) -> bool {
        let backend = &self.0.backend;
        // the error of an earlier datagram, which nobody listened to, comes instead of the next one
        let sent = backend.send(datagram).await.is_ok() || backend.send(datagram).await.is_ok();
        let outcome = if sent { PASSED_ON } else { NOT_PASSED_ON };
        let mut counts = self.0.counts.lock().expect("BUG: counting panicked");
        counts.0 += 1;
        *counts.1.entry(outcome.to_owned()).or_default() += 1;
        sent
    }
}

/// True for a line of statsd: a `|` follows the first `:`. Names of Graphite may have either.
fn is_statsd(line: &[u8]) -> bool {
    let value = line.iter().position(|byte| *byte == b':').map(|colon| &line[colon..]);
    value.is_some_and(|value| value.contains(&b'|'))
}

/// The number of datagrams that the sockets with this port have dropped, from a table of the system's sockets.
fn drops(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let is_ours = fields.nth(1)?.ends_with(&port);
        fields.next_back().filter(|_| is_ours)?.parse::<u64>().ok()
    };
    table.lines().skip(1).filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_what_follows_the_name() {
        for (line, expected) in [
            ("requests:1|c", true),
            ("latency,code=200:12:17|ms|@0.1", true),
            ("_e{5,4}:title|text", true),
            ("disk.a|b.used 1 1795284000", false),
            ("a|b:c 1 1795284000", false),
            ("plain 1 1795284000", false),
            ("", false),
        ] {
            assert_eq!(is_statsd(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn reads_what_the_system_has_dropped() {
        let table = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  123: 0100007F:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 17
  124: 00000000:1FBE 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4712 2 0000000000000000 5
";
        assert_eq!((drops(table, 8125), drops(table, 8126), drops(table, 8127)), (17, 5, 0));
        assert_eq!(drops("", 1), 0);
    }
}
