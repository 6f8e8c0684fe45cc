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
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Datagrams that have arrived together are one request of the recording, up to this size.
const TOGETHER_BYTES: usize = 64 << 10;

const PASSED_ON: &str = "passed on";
const NOT_PASSED_ON: &str = "not passed on";

#[derive(Debug, Clone)]
pub(super) struct DatagramProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: UdpSocket,
    queue: Queue,
    begun: Instant,
    counts: Mutex<(u64, BTreeMap<String, u64>)>,
}

impl DatagramProxy {
    pub(super) async fn new(backend: &Endpoint, queue: Queue) -> Result<Self> {
        let address = backend.address();
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await.context("cannot open a socket for the backend")?;
        socket.connect(address).await.with_context(|| format!("cannot send to {address}"))?;
        let (begun, counts) = (Instant::now(), Mutex::default());
        Ok(Self(Arc::new(Inner { backend: socket, queue, begun, counts })))
    }

    pub(super) fn counts(&self) -> (u64, BTreeMap<String, u64>) {
        self.0.counts.lock().expect("BUG: counting panicked").clone()
    }

    /// Passes datagrams on until `stop` is set.
    pub(super) async fn serve(self, listener: UdpSocket, stop: Stop) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while !stop.is_set() {
            tokio::select! {
                ready = listener.readable() => {
                    if ready.is_err() {
                        return;
                    }
                }
                () = stop.wait() => {}
            }
            self.pass(&listener, &mut buffer).await;
        }
    }

    /// Passes on what has arrived.
    async fn pass(&self, listener: &UdpSocket, buffer: &mut [u8]) {
        let arrival_us = self.0.begun.elapsed().as_micros() as i64;
        let (mut statsd, mut graphite) = (Vec::new(), Vec::new());
        // this socket sends nothing, so that an error says only that nothing more has arrived
        while let Ok(len) = listener.try_recv(buffer) {
            let datagram = &buffer[..len];
            if self.forward(datagram).await {
                let lines = if datagram.contains(&b'|') { &mut statsd } else { &mut graphite };
                lines.extend_from_slice(datagram);
                lines.push(b'\n');
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
