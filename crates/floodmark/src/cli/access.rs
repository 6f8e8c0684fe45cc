//! Flags that say which targets `floodmark lab` may reach, and how.

use clap::Args;
use lab::http::{Access, TlsFiles};
use std::path::PathBuf;

/// Permitted targets, and TLS files.
#[derive(Debug, Args)]
pub(crate) struct LabAccess {
    /// Allow this host as a target, in addition to this machine; may be repeated
    #[arg(long = "allow-host", value_name = "HOST", help_heading = "Access")]
    allowed_hosts: Vec<String>,
    /// For https: certificates of the authorities to trust, as PEM [default: the authorities that this
    /// machine trusts]
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    ca: Option<PathBuf>,
    /// For https: client certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Access")]
    cert: Option<PathBuf>,
    /// For https: private key of --cert, as PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Access")]
    key: Option<PathBuf>,
}

impl LabAccess {
    pub(crate) fn access(&self) -> Access {
        let tls = TlsFiles { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() };
        Access { hosts: self.allowed_hosts.clone(), tls }
    }
}
