//! Address from which a connection comes.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

/// Address of the client, or of its proxy. Each request carries it as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// The peer of a connection. IPv4 addresses mapped to IPv6 become IPv4 again.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Stands for a peer that is already gone.
    pub(crate) const fn unknown() -> Self {
        Self(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self::unknown()))
    }
}
