//! Flushes that were requested from outside the sealer.

use super::flushed::Flushed;
use super::sealer::Message;
use crate::refusal::Refusal;
use admission::retry::Wait;
use model::TenantId;
use tokio::sync::oneshot;

/// Seals everything that was accepted before the call, and waits until it is in tables.
pub(crate) async fn flush(node: &crate::Node) -> Result<Flushed, Refusal> {
    let (answer, flushed) = oneshot::channel();
    node.sealer().try_send(Message::Flush(answer)).map_err(|_| crowded())?;
    let flushed: Flushed = flushed.await.map_err(|_| Refusal::stopping())?;
    match flushed.blocked {
        0 => Ok(flushed),
        blocked => {
            let all = node.reads().lake.blocked.all();
            let first = all.first().map_or(String::new(), |(tenant, _)| format!(", first: {tenant}"));
            let message = format!(
                "tenants not sealed yet: {blocked}{first}; their tables cannot be written, or their samples span many \
                 days; the log names them, and sealing will be retried"
            );
            Err(Refusal::busy("tables", message).until(Wait::Round))
        }
    }
}

/// The flushes that wait are begun together, by a round after the present one.
fn crowded() -> Refusal {
    let message = "too many flushes wait already, or the server is shutting down";
    Refusal::busy("flushing", message).until(Wait::Round)
}

/// Seals the samples of a tenant that were acknowledged before the call, and waits until they have left the heads.
pub(crate) async fn flush_tenant(node: &crate::Node, tenant: &TenantId) -> Result<(), Refusal> {
    let (answer, flushed) = oneshot::channel();
    node.sealer().try_send(Message::FlushTenant(tenant.clone(), answer)).map_err(|_| crowded())?;
    let flushed: Flushed = flushed.await.map_err(|_| Refusal::stopping())?;
    check_tenant(tenant, &flushed)
}

pub(crate) fn check_tenant(tenant: &TenantId, flushed: &Flushed) -> Result<(), Refusal> {
    match flushed.blocked {
        0 => Ok(()),
        _ => {
            let message = format!(
                "tenant {tenant} is not sealed yet: its table cannot be written, or its samples span many days; the log says why, and \
                 sealing will be retried"
            );
            Err(Refusal::busy("tables", message).until(Wait::Round))
        }
    }
}
