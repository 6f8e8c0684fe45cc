//! Where `floodmark lab` may go.

use clap::Args;
use lab::http::{Access, TlsFiles};
use std::path::PathBuf;

/// What may be reached, and how.
#[derive(Debug, Args)]
pub(crate) struct LabAccess {
    /// Load or ask another machine too; names its host, may be repeated.
    #[arg(long = "allow-host", value_name = "HOST", help_heading = "Access")]
    hosts: Vec<String>,
    /// For https: who may vouch for the target, in PEM form [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    ca: Option<PathBuf>,
    /// For https: this side's certificate, where the target asks for one.
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Access")]
    cert: Option<PathBuf>,
    /// For https: the private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Access")]
    key: Option<PathBuf>,
}

impl LabAccess {
    /// As the lab wants it.
    pub(crate) fn access(&self) -> Access {
        let tls = TlsFiles { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() };
        Access { hosts: self.hosts.clone(), tls }
    }
}
