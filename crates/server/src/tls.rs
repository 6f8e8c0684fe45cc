//! TLS: the server's certificate, and the verification of clients' certificates.
//!
//! ```text
//!   tls_cert, tls_key, tls_client_ca ─ files ─▶ ServerConfig ─▶ listen (handshakes)
//!   verified client certificate ─ client_names ─▶ auth (credentials)
//! ```
//!
//! The files are read again when they change. Open connections are not affected.

mod certificate_fault;
mod client_names;
mod der;
mod files;

pub(crate) use certificate_fault::certificate_fault;
pub(crate) use client_names::{ClientNames, NAME_BYTES_MAX, normal};
pub(crate) use files::{Alpn, ClientAuth, Clients, TlsFiles};

use crate::watched::Watched;
use std::sync::Arc;
use stdx::telemetry::Registry;

/// The certificate files. They are read again when they change; handshakes use the current configuration.
pub(crate) type Tls = Watched<TlsFiles>;

/// Reads the files, and registers a metric that tells when the certificate expires.
pub(crate) fn of(files: Option<TlsFiles>, r: &Registry) -> Arc<Tls> {
    let tls = Arc::new(Tls::new(files, None, r));
    tls.reload();
    let watched = Arc::downgrade(&tls);
    let help = "Unix time at which the server's certificate expires; 0 without TLS.";
    r.gauge_fn("floodmark_tls_certificate_expiry_seconds", help, &[], move || {
        let current = watched.upgrade().map(|tls| tls.current());
        current.as_deref().and_then(Option::as_ref).map_or(0.0, |loaded| loaded.expires_s as f64)
    });
    tls
}
