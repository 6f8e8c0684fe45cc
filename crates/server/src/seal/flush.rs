//! Flushes on request.

use super::flushed::Flushed;
use super::sealer::Message;
use crate::refusal::Refusal;
use tokio::sync::oneshot;

/// Seals everything accepted before the call, and waits until it is in tables.
pub(crate) async fn flush(node: &crate::Node) -> Result<Flushed, Refusal> {
    let (answer, flushed) = oneshot::channel();
    node.sealer().try_send(Message::Flush(answer)).map_err(|_| {
        Refusal::busy("flushing", "too many flushes wait already, or the server is shutting down")
    })?;
    let flushed: Flushed = flushed.await.map_err(|_| Refusal::stopping())?;
    match flushed.blocked {
        0 => Ok(flushed),
        blocked => {
            let all = node.reads().lake.blocked.all();
            let first = all.first().map_or(String::new(), |(tenant, _)| format!(", {tenant} first"));
            let message = format!(
                "{blocked} tenants are not sealed yet{first}: their tables cannot be written, or their samples span many \
                 days; the log names them, and sealing is retried"
            );
            Err(Refusal::busy("tables", message))
        }
    }
}
