//! Targets that speak TLS and verify client certificates.

use crate::faults::{scenario, write};
use crate::target::Target;
use lab::capture::recorder::{RecordOptions, Recorder};
use lab::drive::options::RunOptions;
use lab::drive::run::run;
use lab::http::{Access, TlsFiles};
use lab::scenario::Texts;
use lab::{Scenario, Silent, Stop};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

/// Directory with a certificate authority, and the certificates that it issued for a server and a client.
struct Authority(TempDir);

impl Authority {
    /// `None` if the machine has no `openssl`.
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            stdx::skipped::for_want_of("openssl");
            return None;
        }
        let this = Self(tempfile::tempdir().unwrap());
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        this.openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
        for (name, purpose) in [("server", "serverAuth"), ("client", "clientAuth")] {
            let extensions = format!("subjectAltName=IP:127.0.0.1\nextendedKeyUsage={purpose}\n");
            std::fs::write(this.path("extensions"), extensions).unwrap();
            this.openssl(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            let signed = "-CA ca.pem -CAkey ca.key -days 2 -extfile extensions";
            this.openssl(&format!("x509 -req -in {name}.csr -out {name}.pem -set_serial 7 {signed}"));
        }
        Some(this)
    }

    fn openssl(&self, arguments: &str) {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(self.0.path()).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_file(self.path("server.pem")).unwrap()],
                PrivateKeyDer::from_pem_file(self.path("server.key")).unwrap(),
            );
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }

    fn files(&self) -> TlsFiles {
        let path = |name| Some(self.path(name));
        TlsFiles { ca: path("ca.pem"), cert: path("client.pem"), key: path("client.key") }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_names_its_certificates_beside_its_file() {
    let Some(authority) = Authority::new() else { return };
    let target = Target::start_encrypted(authority.acceptor()).await;
    let text = format!(
        "duration = '500ms'\n[load]\nmetrics = 5\nwriters = 2\ninterval = '100ms'\n\
         [target]\nwrite = '{}'\ntls = {{ ca = 'ca.pem', cert = 'client.pem', key = 'client.key' }}\n\
         [verdict]\nfreshness_p99 = '10s'",
        target.write_url()
    );
    let scenario = Scenario::parse(&text).unwrap();
    let options = RunOptions { folder: authority.0.path().to_owned(), ..RunOptions::default() };
    let result = run(&scenario, &options, &Silent).await.unwrap();
    assert!(result.passed(), "{:?}", result.verdict);
    assert_eq!(result.verify.unwrap().read_back, target.samples() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_certificates_prevent_the_load() {
    let Some(authority) = Authority::new() else { return };
    let target = Target::start_encrypted(authority.acceptor()).await;
    let error = async |tls: TlsFiles| {
        let access = Access { hosts: Vec::new(), tls };
        let options = RunOptions { access, ..RunOptions::default() };
        format!("{:#}", run(&scenario(&target), &options, &Silent).await.unwrap_err())
    };
    let files = authority.files();
    let nobody = TlsFiles { ca: None, ..files.clone() };
    assert!(error(nobody).await.contains("certificate"), "the error does not name the certificate");
    let half = TlsFiles { key: None, ..files.clone() };
    assert!(error(half).await.contains("must be given together"));
    let missing = TlsFiles { ca: Some(Path::new("/nowhere.pem").into()), ..files.clone() };
    assert!(error(missing).await.contains("/nowhere.pem"));
    let empty = TlsFiles { ca: files.key.clone(), ..files };
    assert!(error(empty).await.contains("no certificate"));
    assert_eq!(target.samples(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_passes_on_to_an_encrypted_backend() {
    let Some(authority) = Authority::new() else { return };
    let target = Target::start_encrypted(authority.acceptor()).await;
    let stop = Stop::default();
    let file = authority.path("traffic.rec");
    let options = RecordOptions {
        access: Access { hosts: Vec::new(), tls: authority.files() },
        stop: stop.clone(),
        ..RecordOptions::new(([127, 0, 0, 1], 0).into(), target.read_url(), &file)
    };
    let recorder = Recorder::bind(options).await.unwrap();
    let url = format!("http://{}/api/v1/write", recorder.address().unwrap());
    let recording = tokio::spawn(async move { recorder.run(&Silent).await });
    let mut scenario = scenario(&target);
    scenario.target.write = Texts::One(url);
    scenario.verify.after = false;
    let written = write(&scenario).await.result.totals.samples_acknowledged;
    assert_eq!(written, target.samples() as u64);
    stop.now();
    let recorded = recording.await.unwrap().unwrap();
    assert_eq!(recorded.kept.samples, written);
}

/// Finds Prometheus, either in `$FLOODMARK_CACHE/bin` (where `scripts/test-servers.sh` installs it) or in `$PATH`.
fn prometheus() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let home = || PathBuf::from(variable("HOME")).join(".cache/floodmark");
    let cache = std::env::var_os("FLOODMARK_CACHE").map_or_else(home, PathBuf::from).join("bin");
    let path = variable("PATH");
    let mut folders = std::iter::once(cache).chain(std::env::split_paths(&path));
    let found =
        folders.find_map(|folder| Some(folder.join("prometheus")).filter(|program| program.is_file()));
    if found.is_none() {
        stdx::skipped::for_want_of("Prometheus (scripts/test-servers.sh)");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_knows_the_lab_by_its_certificate() {
    let (Some(authority), Some(program)) = (Authority::new(), prometheus()) else { return };
    std::fs::write(authority.path("prometheus.yml"), "global: {}\n").unwrap();
    let web = "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem, \
               client_auth_type: RequireAndVerifyClientCert}\n";
    std::fs::write(authority.path("web.yml"), web).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "duration = '1s'\n[load]\nmetrics = 5\nwriters = 2\ninterval = '100ms'\n\
         [verdict]\nfreshness_p99 = '10s'\nrestarts = 0\n\
         [target]\nwrite = 'https://127.0.0.1:{port}/api/v1/write'\n\
         ready = 'https://127.0.0.1:{port}/-/ready'\n\
         tls = {{ ca = 'ca.pem', cert = 'client.pem', key = 'client.key' }}\n\
         start = '{} --config.file={} --web.config.file={} --storage.tsdb.path={} \
         --web.listen-address=127.0.0.1:{port} --web.enable-remote-write-receiver --log.level=error'",
        program.display(),
        authority.path("prometheus.yml").display(),
        authority.path("web.yml").display(),
        authority.path("data").display(),
    );
    let scenario = Scenario::parse(&text).unwrap();
    let options = RunOptions { folder: authority.0.path().to_owned(), ..RunOptions::default() };
    let result = run(&scenario, &options, &Silent).await.unwrap();
    assert!(result.passed(), "{:?}", result.verdict);
    assert!(result.verify.unwrap().read_back > 0);
}
