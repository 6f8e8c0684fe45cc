use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminListen {
    Same,
    Nowhere,
    At(SocketAddr),
}

impl AdminListen {
    /// Value of the setting that means [`Self::Same`].
    pub(super) const SAME: &'static str = "http";

    pub const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Same | Self::Nowhere => None,
        }
    }

    pub(super) fn is_reachable(self, http: SocketAddr) -> bool {
        match self {
            Self::Same => is_reachable(http),
            Self::Nowhere => false,
            Self::At(address) => is_reachable(address),
        }
    }
}

/// True if other machines can reach the address: it is not a loopback address.
pub(crate) fn is_reachable(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
