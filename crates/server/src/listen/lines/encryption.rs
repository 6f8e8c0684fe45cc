//! Lines over TLS: the handshake, and the tenant that the client's certificate names.

use super::connection::Shared;
use super::stream::Stream;
use crate::audit::Audit;
use crate::auth::{Access, Auth, Credential, Original, Presented};
use crate::listen::connections::Link;
use crate::listen::handshake::Pending;
use crate::listen::patience::Patience;
use crate::listen::{Handshakes, Peer, STALL_TIMEOUT};
use crate::refusal::Refusal;
use crate::tls::{Alpn, ClientNames};
use axum::http::{HeaderMap, Method};
use model::Principal;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Name of the protocol in the audit log, in place of a path.
const NAME: &str = "graphite_tls";

#[derive(Debug, Clone)]
pub(super) struct Encryption {
    handshakes: Handshakes,
    auth: Arc<Auth>,
    audit: Arc<Audit>,
    patience: Patience,
}

impl Encryption {
    pub(super) fn new(
        handshakes: Handshakes,
        auth: Arc<Auth>,
        audit: Arc<Audit>,
        transfer_rate: u64,
    ) -> Self {
        let patience = Patience::new(STALL_TIMEOUT, transfer_rate);
        Self { handshakes, auth, audit, patience }
    }

    /// `None` if too many handshakes are in progress.
    pub(super) fn admit(&self, peer: Peer) -> Option<Pending> {
        self.handshakes.admit(peer)
    }

    /// Performs the handshake. Returns the decrypted stream, with `shared` for the sender's tenant. `None` if the handshake
    /// fails or the sender may not write.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        peer: Peer,
        pending: Pending,
        link: &Arc<Link>,
        shared: Shared,
    ) -> Option<(Stream, Shared)> {
        let connection = (link, self.patience);
        let (stream, names) =
            self.handshakes.accept(stream, peer, pending, connection, None, Alpn::Http1).await?;
        let stream = Stream::encrypted(stream);
        if !self.auth.is_required() {
            return Some((stream, shared));
        }
        match self.principal(peer, names.as_ref()).await {
            Ok(principal) => Some((stream, Shared { principal, has_many_tenants: false, ..shared })),
            Err(refusal) => {
                self.audit.refused(peer.0.ip(), NAME, &refusal);
                None
            }
        }
    }

    /// Returns the tenant of the sender's certificate. `trusted_proxies` does not apply, because lines cannot name a tenant.
    async fn principal(&self, peer: Peer, names: Option<&ClientNames>) -> Result<Principal, Refusal> {
        let Some(names) = names else { return Err(crate::auth::unauthenticated("no client certificate")) };
        let headers = HeaderMap::new();
        let original = Original { method: &Method::POST, path: NAME, headers: &headers };
        let credential = Some(Credential::Certificate(names));
        let presented = Presented { original, address: peer.0.ip(), credential, tenants: None };
        let caller = self.auth.identify(Access::Write, presented).await?;
        caller.principal.ok_or_else(|| Refusal::forbidden("the certificate names no tenant"))
    }
}
