//! The PEM files with the server's certificate, its key, and the authorities for clients. Errors never quote
//! their content.

use super::der::{Validity, validity};
use crate::watched::{self, Source};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::calendar::Date;
use stdx::clock::{Clock, SystemClock};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

const BYTES_MAX: u64 = 1 << 20;

const DAY_S: i64 = 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// File with the server's certificate, followed by intermediate certificates.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// How certificates of clients are verified. `None` if clients are not asked for one.
    pub(crate) clients: Option<Clients>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clients {
    /// File with the certificates of the authorities that may sign clients' certificates.
    pub(crate) ca: PathBuf,
    pub(crate) auth: ClientAuth,
}

/// Whether each client must show a certificate. A certificate that is shown must be valid in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    Required,
    Optional,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Texts {
    cert: String,
    key: String,
    clients_ca: Option<String>,
    /// True if every user of this machine may read the key's file.
    is_key_public: bool,
}

#[derive(Debug)]
pub(crate) struct Loaded {
    /// One for each [`Alpn`].
    configs: [Arc<ServerConfig>; 2],
    pub(crate) expires_s: i64,
}

/// The version of HTTP that client and server agree on in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alpn {
    Http1,
    Http2,
}

impl Alpn {
    const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    const fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

impl Loaded {
    pub(crate) const fn config(&self, alpn: Alpn) -> &Arc<ServerConfig> {
        &self.configs[alpn as usize]
    }
}

impl TlsFiles {
    /// Checks that the files are valid and belong together. Returns warnings if other users can read the key, or the
    /// certificate is not valid at this time.
    pub(crate) fn check(&self) -> Result<Vec<String>, String> {
        let texts = self.read()?;
        self.parse(&texts)?;
        Ok(self.warnings(&texts))
    }

    fn config(&self, texts: &Texts) -> Result<Loaded, String> {
        let chain = certificates(&self.cert, &texts.cert)?;
        let key = PrivateKeyDer::from_pem_slice(texts.key.as_bytes()).map_err(|_| {
            let path = self.key.display();
            format!("{path}: no private key in PEM form; an encrypted key cannot be used")
        })?;
        let validity = chain.first().and_then(|first| validity(first));
        let expires_s = validity.map_or(0, |validity| validity.expires_s);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(self.verifier(texts)?)
            .with_single_cert(chain, key)
            .map_err(|error| self.pair_error(&error))?;
        // Sessions are not resumed: they would take memory, and clients could continue them after the
        // authorities have changed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let of = |alpn: Alpn| {
            let mut config = config.clone();
            config.alpn_protocols = vec![alpn.name().to_vec()];
            Arc::new(config)
        };
        Ok(Loaded { configs: Alpn::ALL.map(of), expires_s })
    }

    fn pair_error(&self, error: &rustls::Error) -> String {
        let (cert, key) = (self.cert.display(), self.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("the key {key} does not belong to the certificate {cert}")
            }
            error => format!("the certificate {cert} with the key {key} cannot be used: {error}"),
        }
    }

    fn verifier(&self, texts: &Texts) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let (Some(clients), Some(text)) = (&self.clients, &texts.clients_ca) else {
            return Ok(Arc::new(NoClientAuth));
        };
        let path = clients.ca.display();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&clients.ca, text)? {
            roots.add(certificate).map_err(|error| format!("{path}: {error}"))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match clients.auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        let verifier = builder.build().map_err(|error| format!("{path}: {error}"))?;
        Ok(verifier)
    }
}

impl Source for TlsFiles {
    const NAME: &'static str = "tls";
    type Raw = Texts;
    type Content = Option<Loaded>;

    fn read(&self) -> Result<Texts, String> {
        Ok(Texts {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
            clients_ca: self.clients.as_ref().map(|clients| read(&clients.ca)).transpose()?,
            is_key_public: is_public(&self.key),
        })
    }

    fn parse(&self, texts: &Texts) -> Result<Option<Loaded>, String> {
        self.config(texts).map(Some)
    }

    fn warnings(&self, texts: &Texts) -> Vec<String> {
        let of_key = texts.is_key_public.then(|| {
            let path = self.key.display();
            format!(
                "tls_key: every user of this machine can read {path}; remove that permission (chmod o-rwx)"
            )
        });
        let chain = certificates(&self.cert, &texts.cert).unwrap_or_default();
        let validity = chain.first().and_then(|first| validity(first));
        let invalid = validity.and_then(|validity| invalidity(validity, SystemClock.now_ms() / 1000));
        let of_certificate = invalid.map(|invalid| {
            let path = self.cert.display();
            format!("tls_cert: the certificate {path} {invalid}, so clients that verify it do not connect")
        });
        of_key.into_iter().chain(of_certificate).collect()
    }
}

/// Why a certificate is not valid at `now_s`. An invalid one is used nevertheless: some clients do not verify it, and this
/// machine's clock may be wrong.
fn invalidity(Validity { from_s, expires_s }: Validity, now_s: i64) -> Option<String> {
    let date = |time_s: i64| Date::of_days(time_s.div_euclid(DAY_S));
    if now_s > expires_s {
        return Some(format!("expired on {}", date(expires_s)));
    }
    (now_s < from_s).then(|| format!("is not valid before {}", date(from_s)))
}

fn read(path: &Path) -> Result<String, String> {
    watched::read(path, BYTES_MAX).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn is_public(path: &Path) -> bool {
    const OTHERS_READ: u32 = 0o004;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OTHERS_READ != 0)
}

fn certificates(path: &Path, text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|_| format!("{}: not valid PEM", path.display()))?;
    match found.is_empty() {
        true => Err(format!("{}: no certificate in PEM form", path.display())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::authority::Authority;

    fn files(authority: &Authority, auth: ClientAuth) -> TlsFiles {
        let clients = Clients { ca: authority.path("ca.pem"), auth };
        TlsFiles {
            cert: authority.path("server.pem"),
            key: authority.path("server.key"),
            clients: Some(clients),
        }
    }

    #[test]
    fn files_that_do_not_fit_are_named_and_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let Some(authority) = Authority::new(dir.path()) else { return };
        authority.server("server");
        authority.server("other");
        let files = files(&authority, ClientAuth::Required);
        assert_eq!(files.check(), Ok(Vec::new()));
        let read = |name: &str| std::fs::read_to_string(authority.path(name)).unwrap();
        let [certificate, key, other] = ["server.pem", "server.key", "other.key"].map(read);
        let secret = key.lines().nth(1).unwrap();
        let check = |name: &str, text: &str, expected: &[&str]| {
            let usual = read(name);
            std::fs::write(authority.path(name), text).unwrap();
            let error = files.check().unwrap_err();
            std::fs::write(authority.path(name), usual).unwrap();
            assert!(expected.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains(secret), "{error}");
        };
        check("server.pem", "", &["server.pem: no certificate"]);
        check("server.pem", &key, &["server.pem: no certificate"]);
        check("server.pem", &certificate[..certificate.len() / 2], &["server.pem: "]);
        check("server.key", "", &["server.key: no private key"]);
        check("server.key", &key.replace("-----BEGIN", "----BEGIN"), &["server.key: no private key"]);
        check(
            "server.key",
            &key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
            &["server.key: no private"],
        );
        check("server.key", &format!("-----BEGIN {secret}"), &["server.key: no private key"]);
        check("server.key", &other, &["server.key does not belong to", "server.pem"]);
        check("ca.pem", "", &["ca.pem: no certificate"]);
        let broken = certificate.lines().take(2).chain(["-----END CERTIFICATE-----"]);
        check("ca.pem", &broken.collect::<Vec<_>>().join("\n"), &["ca.pem: "]);
        check("ca.pem", &"x".repeat(BYTES_MAX as usize + 1), &["ca.pem: ", "limit is 1024 KiB"]);
        std::fs::remove_file(authority.path("server.key")).unwrap();
        assert!(files.check().unwrap_err().contains("server.key"));
    }

    #[test]
    fn a_key_that_everyone_can_read_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let Some(authority) = Authority::new(dir.path()) else { return };
        authority.server("server");
        let files = files(&authority, ClientAuth::Optional);
        let check = |mode, is_warned| {
            let permissions = PermissionsExt::from_mode(mode);
            std::fs::set_permissions(authority.path("server.key"), permissions).unwrap();
            let warnings = files.check().unwrap();
            let is_named = warnings.iter().any(|text| text.contains("server.key"));
            assert_eq!(is_named, is_warned, "{mode:o}");
        };
        check(0o600, false);
        check(0o640, false);
        check(0o644, true);
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_warned_of() {
        let validity = Validity { from_s: 10 * DAY_S, expires_s: 20 * DAY_S };
        for (now_s, expected) in [
            (10 * DAY_S - 1, Some("is not valid before 1970-01-11")),
            (10 * DAY_S, None),
            (20 * DAY_S, None),
            (20 * DAY_S + 1, Some("expired on 1970-01-21")),
        ] {
            assert_eq!(invalidity(validity, now_s).as_deref(), expected, "{now_s}");
        }
        let dir = tempfile::tempdir().unwrap();
        let Some(authority) = Authority::new(dir.path()) else { return };
        authority.expired_client("server", "/CN=server");
        let warnings = files(&authority, ClientAuth::Optional).check().unwrap();
        assert!(
            warnings.iter().any(|text| text.contains("server.pem expired on 2020-02-01")),
            "{warnings:?}"
        );
    }
}
