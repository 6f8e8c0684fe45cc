use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

/// Address of the client, or of the proxy in front of it. Each request carries it as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// Converts IPv4 addresses that are mapped to IPv6 back to IPv4.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Address to use for a peer that has already disconnected.
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
