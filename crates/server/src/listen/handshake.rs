//! TLS handshakes.
//!
//! ```text
//!   admit (bounds) ─▶ ClientHello ─▶ wait for a processor ─▶ sign, on a thread ─▶ the client's Finished ─▶ connection
//!   └──────────────── in the connection's task ─────────────┘                     └─ in the connection's task ─────┘
//! ```
//!
//! [`pending`] limits the number of handshakes in progress.
//!
//! A signature takes up to several milliseconds (RSA, 4,096 bits), so at most half of the processors compute
//! signatures. Networks take turns. Write requests in progress come before the next signature
//! ([`Traffic::wait_after`]).

mod pending;

pub(crate) use pending::{Pending, PendingHandshakes};

use super::connections::Link;
use super::patience::Patience;
use super::peer::Peer;
use super::rejections::Rejections;
use super::stall::StallTimeout;
use crate::audit::Audit;
use crate::limits::fair_permits::FairPermits;
use crate::limits::pacer::{Traffic, processor_time};
use crate::machine::cores;
use crate::tls::{Alpn, ClientNames, Tls, certificate_fault};
use pending::{Entry, Network};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{self, ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Limit on the encrypted bytes of a connection that wait to be sent. The library's default is 64 KiB.
const SENT_BYTES_MAX: usize = 16 << 10;

/// A client with larger certificates is refused, because they stay in memory with the connection.
const CERTIFICATES_BYTES_MAX: usize = 16 << 10;

/// Each TLS connection begins with this byte: the type of a record that contains handshake messages.
const HANDSHAKE_RECORD: u8 = 22;

type Encrypted = TlsStream<StallTimeout<TcpStream>>;

/// The handshakes of one or several listeners.
#[derive(Debug, Clone)]
pub(crate) struct Handshakes {
    pending: PendingHandshakes,
    common: Arc<Common>,
}

/// What the handshakes of all listeners share.
#[derive(Debug)]
struct Common {
    tls: Arc<Tls>,
    /// A handshake needs one of these permits while it computes its signature. There are half as many as
    /// processors.
    processors: FairPermits<Network>,
    traffic: Arc<Traffic>,
    clock: Arc<dyn Clock>,
    audit: Arc<Audit>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Metrics {
    ok: Counter,
    certificate: Counter,
    plaintext: Counter,
    timeout: Counter,
    failed: Counter,
    refused: Counter,
    displaced: Counter,
}

impl Metrics {
    fn new(r: &Registry) -> Self {
        let counter = |result| {
            let help = "TLS handshakes by result.";
            r.counter_with("floodmark_tls_handshakes_total", help, &[("result", result)])
        };
        Self {
            ok: counter("ok"),
            certificate: counter("certificate"),
            plaintext: counter("plaintext"),
            timeout: counter("timeout"),
            failed: counter("failed"),
            refused: counter("refused"),
            displaced: counter("displaced"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) tls: Arc<Tls>,
    pub(crate) pending: PendingHandshakes,
    /// Write requests in progress, which have precedence over handshakes.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) audit: Arc<Audit>,
}

#[derive(Debug)]
enum Failure {
    Plaintext(TcpStream),
    /// The client must show a certificate but showed none, or it showed one that is not accepted.
    Certificate(String),
    Other(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        match of_tls {
            Some(rustls::Error::NoCertificatesPresented) => Self::Certificate("no client certificate".into()),
            Some(rustls::Error::InvalidCertificate(reason)) => {
                let why = certificate_fault(reason);
                Self::Certificate(format!("client certificate not accepted: {why}"))
            }
            _ => Self::Other(error),
        }
    }
}

impl Handshakes {
    pub(crate) fn new(context: Context, r: &Registry) -> Self {
        let Context { tls, pending, traffic, clock, audit } = context;
        let processors = FairPermits::new((cores() / 2).max(1));
        let common = Common { tls, processors, traffic, clock, audit, metrics: Metrics::new(r) };
        Self { pending, common: Arc::new(common) }
    }

    /// The handshakes of a listener that has bounds of its own.
    pub(crate) fn bounded_by(&self, pending: PendingHandshakes) -> Self {
        Self { pending, common: Arc::clone(&self.common) }
    }

    /// Admits a handshake with `peer`. `None` if too many are in progress; the caller then closes the
    /// connection.
    pub(super) fn admit(&self, peer: Peer) -> Option<Pending> {
        match self.pending.enter(peer.0.ip(), Instant::now()) {
            Entry::Admitted(pending) => Some(pending),
            Entry::Refused => {
                self.common.metrics.refused.inc();
                None
            }
        }
    }

    /// Performs the handshake. Returns the encrypted connection, and the names in the client's certificate if it
    /// showed one. `None` if the handshake fails. `rejections` answer a client of HTTP that does not encrypt; other protocols
    /// have no such answer.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        peer: Peer,
        pending: Pending,
        connection: (&Arc<Link>, Patience),
        rejections: Option<&Rejections>,
        alpn: Alpn,
    ) -> Option<(Encrypted, Option<ClientNames>)> {
        let finished = tokio::select! {
            finished = timeout(TIMEOUT, self.handshake(stream, &pending, connection, alpn)) => finished,
            () = pending.displaced() => {
                self.common.metrics.displaced.inc();
                return None;
            }
        };
        match finished {
            Ok(Ok(accepted)) => {
                self.common.metrics.ok.inc();
                return Some(accepted);
            }
            Ok(Err(Failure::Plaintext(stream))) => {
                self.common.metrics.plaintext.inc();
                if let Some(rejections) = rejections {
                    rejections.not_encrypted(stream);
                }
            }
            Ok(Err(Failure::Certificate(why))) => {
                self.common.metrics.certificate.inc();
                self.common.audit.refused_handshake(peer.0.ip(), &why);
            }
            Ok(Err(Failure::Other(error))) => {
                self.common.metrics.failed.inc();
                tracing::debug!(%error, peer = %peer.0, "TLS handshake failed");
            }
            Err(_) => self.common.metrics.timeout.inc(),
        }
        None
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        pending: &Pending,
        (link, patience): (&Arc<Link>, Patience),
        alpn: Alpn,
    ) -> Result<(Encrypted, Option<ClientNames>), Failure> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(Failure::Other(io::ErrorKind::UnexpectedEof.into()));
        }
        if first != [HANDSHAKE_RECORD] {
            return Err(Failure::Plaintext(stream));
        }
        let stream = StallTimeout::new(stream, patience, Arc::clone(link));
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        pending.has_client_hello();
        let current = self.common.tls.current();
        // there is a certificate unless the files became invalid while the server was starting
        let loaded = Option::as_ref(&current)
            .ok_or_else(|| io::Error::other("the server has no valid certificate"))?;
        let config = Arc::clone(loaded.config(alpn));
        let answer = self.answer(hello, config, pending.network()).await?;
        pending.has_answer();
        let stream = answer.await?;
        let names = names(&stream)?;
        Ok((stream, names))
    }

    /// Waits until it is the turn of `network`, then computes the server's answer, which includes a
    /// signature.
    async fn answer(
        &self,
        hello: StartHandshake<StallTimeout<TcpStream>>,
        config: Arc<ServerConfig>,
        network: Network,
    ) -> io::Result<Accept<StallTimeout<TcpStream>>> {
        let permit = self.common.processors.acquire(&network).await;
        let (traffic, clock) = (Arc::clone(&self.common.traffic), Arc::clone(&self.common.clock));
        let (send, answer) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let before = processor_time();
            let limit = |connection: &mut ServerConnection| connection.set_buffer_limit(Some(SENT_BYTES_MAX));
            let _ = send.send(hello.into_stream_with(config, limit)); // the connection may have been displaced
            traffic.wait_after(processor_time().saturating_sub(before), &*clock);
            drop(permit);
        });
        answer.await.map_err(io::Error::other)
    }
}

fn names(stream: &Encrypted) -> Result<Option<ClientNames>, Failure> {
    let Some(certificates) = stream.get_ref().1.peer_certificates() else { return Ok(None) };
    let bytes: usize = certificates.iter().map(|certificate| certificate.len()).sum();
    if bytes > CERTIFICATES_BYTES_MAX {
        let why = format!("client certificates have {bytes} bytes, the limit is {CERTIFICATES_BYTES_MAX}");
        return Err(Failure::Certificate(why));
    }
    Ok(certificates.first().map(ClientNames::of))
}
