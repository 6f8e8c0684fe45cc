//! The bytes of a connection, encrypted or not.

use crate::listen::stall::StallTimeout;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A TLS record has at most this many bytes of content.
const RECORD_BYTES: usize = 16 << 10;

/// Memory of an encrypted connection that a plain one does not need, in addition to that of TLS.
pub(super) const ENCRYPTED_BYTES: usize = RECORD_BYTES;

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<Decrypted>),
}

/// An encrypted connection, with what was decrypted and not taken yet.
#[derive(Debug)]
pub(super) struct Decrypted {
    stream: TlsStream<StallTimeout<TcpStream>>,
    bytes: Vec<u8>,
    /// How the stream has ended.
    end: Option<io::Result<()>>,
}

impl Stream {
    pub(super) fn encrypted(stream: TlsStream<StallTimeout<TcpStream>>) -> Self {
        let bytes = Vec::with_capacity(RECORD_BYTES);
        Self::Encrypted(Box::new(Decrypted { stream, bytes, end: None }))
    }

    /// Waits until [`Self::try_read`] returns bytes, the end or an error. Nothing is lost if the future is dropped.
    pub(super) async fn readable(&mut self) {
        match self {
            Self::Plain(stream) => _ = stream.readable().await, // reading returns the error
            Self::Encrypted(decrypted) => decrypted.fill().await,
        }
    }

    /// Appends bytes that have arrived, up to the capacity of `into`. 0 means that the sender has ended the stream.
    pub(super) fn try_read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_read_buf(into),
            Self::Encrypted(decrypted) => decrypted.take(into),
        }
    }

    /// Ends the connection in order, instead of resetting it as dropping it would.
    pub(super) async fn close(mut self) {
        #[expect(deprecated, reason = "without a time, dropping the socket does not block")]
        let _ = self.tcp().set_linger(None);
        if let Self::Encrypted(decrypted) = &mut self {
            let _ = decrypted.stream.shutdown().await; // the sender may be gone
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(decrypted) => decrypted.stream.get_ref().0.stream(),
        }
    }
}

impl Decrypted {
    async fn fill(&mut self) {
        if !self.bytes.is_empty() || self.end.is_some() {
            return;
        }
        match self.stream.read_buf(&mut self.bytes).await {
            Ok(0) => self.end = Some(Ok(())),
            Ok(_) => {}
            Err(error) => self.end = Some(Err(error)), // also if the sender did not announce its end
        }
    }

    fn take(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return match self.end.take() {
                None => Err(io::ErrorKind::WouldBlock.into()),
                Some(end) => end.map(|()| 0),
            };
        }
        let count = self.bytes.len().min(into.capacity() - into.len());
        into.extend(self.bytes.drain(..count));
        Ok(count)
    }
}
