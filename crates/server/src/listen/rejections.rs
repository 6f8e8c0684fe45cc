//! Answers to connections that are not served: too many are open, or the client does not speak TLS.

use crate::refusal::Jitter;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Limit on the connections that are being refused with an answer. Further connections are closed without
/// one.
const ANSWERED_MAX: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(1);

/// The client of a refused connection is told to retry after this delay, or somewhat later.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct Rejections {
    answered: Arc<Semaphore>,
    jitter: Arc<Jitter>,
}

impl Default for Rejections {
    fn default() -> Self {
        Self { answered: Arc::new(Semaphore::new(ANSWERED_MAX)), jitter: Arc::default() }
    }
}

impl Rejections {
    /// Tells the client, with a 503, that there are too many connections. Closes without an answer if too
    /// many are being refused.
    pub(super) fn busy(&self, stream: TcpStream) {
        let retry_after = format!("retry-after: {}\r\n", self.jitter.spread(RETRY_AFTER));
        let text = "too many connections, none of them is idle (setting connections)";
        self.answer(stream, "503 Service Unavailable", &retry_after, text);
    }

    /// Tells a client that sent plain HTTP to a TLS listener, with a 400, to use https. Closes without an
    /// answer if too many are being refused.
    pub(super) fn not_encrypted(&self, stream: TcpStream) {
        self.answer(
            stream,
            "400 Bad Request",
            "",
            "connections to this address must be encrypted: use https://",
        );
    }

    fn answer(&self, stream: TcpStream, status: &str, headers: &str, text: &str) {
        let Ok(permit) = Arc::clone(&self.answered).try_acquire_owned() else { return };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{text}",
            text.len()
        );
        tokio::spawn(async move {
            let _ = timeout(TIMEOUT, send(stream, answer)).await;
            drop(permit);
        });
    }
}

/// Sends the answer, then reads until the client closes. If the connection were closed before everything was
/// read, it might be reset before the client has read the answer.
async fn send(mut stream: TcpStream, answer: String) -> std::io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
