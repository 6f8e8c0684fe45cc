//! TLS handshakes.
//!
//! A handshake is bounded in time, and its connection has a place that it may lose to a newer one. Reading the client's first
//! message is waiting, and is done in the connection's task. The signature that follows takes up to some milliseconds, with an
//! RSA key of 4,096 bits, so it is made on a thread, by at most half of the processors at a time: senders whose connections
//! are open keep the rest.

use super::connections::Link;
use super::patience::Patience;
use super::peer::Peer;
use super::stall::StallTimeout;
use super::turned_away::TurnedAway;
use crate::audit::Audit;
use crate::machine::cores;
use crate::tls::{ClientNames, Tls};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stdx::telemetry::{Counter, Registry};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

/// Timeout of a handshake.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Limit on what a connection holds of records to be sent. The default of 64 KiB would double the memory of a connection.
const SENT_BYTES_MAX: usize = 16 << 10;

/// Limit on the certificates of a client, which its connection holds while it is open.
const CERTIFICATES_BYTES_MAX: usize = 16 << 10;

/// First byte of a TLS connection: a record of the type handshake.
const HANDSHAKE_RECORD: u8 = 22;

/// An encrypted connection.
type Encrypted = TlsStream<StallTimeout<TcpStream>>;

/// Accepts encrypted connections.
#[derive(Debug)]
pub(crate) struct Handshakes {
    tls: Arc<Tls>,
    /// Handshakes that compute at a time.
    computing: Arc<Semaphore>,
    audit: Arc<Audit>,
    ok: Counter,
    certificate: Counter,
    plaintext: Counter,
    timeout: Counter,
    failed: Counter,
}

/// Reasons why a handshake fails.
#[derive(Debug)]
enum Failure {
    /// The client does not speak TLS.
    Plaintext(TcpStream),
    /// The client has no certificate, or one that is not accepted.
    Certificate(String),
    Other(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        match of_tls {
            Some(rustls::Error::NoCertificatesPresented) => Self::Certificate("no client certificate".into()),
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Self::Certificate(format!("client certificate not accepted: {reason}"))
            }
            _ => Self::Other(error),
        }
    }
}

impl Handshakes {
    pub(crate) fn new(tls: Arc<Tls>, audit: Arc<Audit>, r: &Registry) -> Self {
        let counter = |result| {
            let help = "TLS handshakes, by how they ended.";
            r.counter_with("floodmark_tls_handshakes_total", help, &[("result", result)])
        };
        Self {
            tls,
            computing: Arc::new(Semaphore::new((cores() / 2).max(1))),
            audit,
            ok: counter("ok"),
            certificate: counter("certificate"),
            plaintext: counter("plaintext"),
            timeout: counter("timeout"),
            failed: counter("failed"),
        }
    }

    /// The encrypted connection, and the names of the client's certificate, if it has shown one. `None` if the handshake fails.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        peer: Peer,
        link: &Arc<Link>,
        patience: Patience,
        turned_away: &TurnedAway,
    ) -> Option<(Encrypted, Option<ClientNames>)> {
        match timeout(TIMEOUT, self.handshake(stream, link, patience)).await {
            Ok(Ok(accepted)) => {
                self.ok.inc();
                return Some(accepted);
            }
            Ok(Err(Failure::Plaintext(stream))) => {
                self.plaintext.inc();
                turned_away.not_encrypted(stream);
            }
            Ok(Err(Failure::Certificate(why))) => {
                self.certificate.inc();
                self.audit.refused_handshake(peer.0.ip(), &why);
            }
            Ok(Err(Failure::Other(error))) => {
                self.failed.inc();
                tracing::debug!(%error, peer = %peer.0, "TLS handshake failed");
            }
            Err(_) => self.timeout.inc(),
        }
        None
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        link: &Arc<Link>,
        patience: Patience,
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
        let current = self.tls.current();
        // only if the files became invalid between the check of the settings and the start
        let loaded = Option::as_ref(&current).ok_or_else(|| io::Error::other("no certificate"))?;
        let config = Arc::clone(&loaded.config);
        let permit = Arc::clone(&self.computing).acquire_owned().await.expect("BUG: it is never closed");
        let answer = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            hello.into_stream_with(config, |connection| connection.set_buffer_limit(Some(SENT_BYTES_MAX)))
        });
        let stream = answer.await.map_err(io::Error::other)?.await?;
        let names = names(&stream)?;
        Ok((stream, names))
    }
}

/// Names of the client's certificate, if it has shown one.
fn names(stream: &Encrypted) -> Result<Option<ClientNames>, Failure> {
    let Some(certificates) = stream.get_ref().1.peer_certificates() else { return Ok(None) };
    let bytes: usize = certificates.iter().map(|certificate| certificate.len()).sum();
    if bytes > CERTIFICATES_BYTES_MAX {
        let why = format!("certificates of {bytes} bytes, the limit is {CERTIFICATES_BYTES_MAX}");
        return Err(Failure::Certificate(why));
    }
    Ok(certificates.first().map(ClientNames::of))
}
