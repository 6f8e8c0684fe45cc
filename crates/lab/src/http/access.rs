//! Says to which hosts the lab may connect, and with which TLS credentials.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Hosts to which the lab may connect, in addition to this machine.
    pub hosts: Vec<String>,
    pub tls: TlsFiles,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificates of trusted authorities. By default, those of the operating system.
    pub ca: Option<PathBuf>,
    /// Certificate chain that the client presents, for mutual TLS.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Access {
    pub fn loopback() -> Self {
        Self::default()
    }

    pub fn to(hosts: &[String]) -> Self {
        Self { hosts: hosts.to_vec(), tls: TlsFiles::default() }
    }

    pub(super) fn allows(&self, host: &str) -> bool {
        self.hosts.iter().any(|named| named == host)
    }
}

impl TlsFiles {
    pub fn within(&self, folder: &Path) -> Self {
        let within = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
        Self { ca: within(&self.ca), cert: within(&self.cert), key: within(&self.key) }
    }

    /// Reads the files. If one of them is invalid, the error names it.
    pub fn config(&self) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot choose versions of TLS")?
            .with_root_certificates(self.roots()?);
        let mut config = match (&self.cert, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .with_context(|| format!("cannot use cert {} with key {}", cert.display(), key.display()))?,
            _ => anyhow::bail!("a client certificate and its key must be given together"),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// `protocol` is the name of the application's protocol, as in ALPN.
    pub(super) fn connector(&self, protocol: &[u8]) -> Result<TlsConnector> {
        let mut config = self.config()?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let Some(ca) = &self.ca else {
            // unreadable certificates are skipped, because the operating system may have some
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        for certificate in certificates(ca)? {
            roots
                .add(certificate)
                .with_context(|| format!("cannot trust a certificate in {}", ca.display()))?;
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let context = || format!("cannot read certificates from {}", path.display());
    let found = CertificateDer::pem_file_iter(path).with_context(context)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().with_context(context)?;
    ensure!(!found.is_empty(), "{}: there is no certificate in PEM format", path.display());
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path)
        .with_context(|| format!("cannot read a private key from {}", path.display()))
}
