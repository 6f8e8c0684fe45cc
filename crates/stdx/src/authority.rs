use crate::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate authority with its files in one folder. Its own certificate is `ca.pem`. Each
/// certificate that it signs is `NAME.pem`, and the key is `NAME.key`.
#[derive(Debug)]
pub struct Authority(PathBuf);

/// Arguments of `openssl` for an elliptic-curve key, which is created quickly.
const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Authority {
    /// Creates an authority. If `openssl` is not installed, reports that the test is skipped and
    /// returns `None`.
    pub fn new(folder: &Path) -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            skipped::for_want_of("openssl");
            return None;
        }
        let this = Self(folder.to_owned());
        let subject = ["-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority"];
        this.openssl(&[&["req", "-x509"][..], &NEW_KEY, &subject].concat());
        Some(this)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn server(&self, name: &str) {
        self.request(name, "/CN=server", "DNS:localhost,IP:127.0.0.1", "serverAuth", &NEW_KEY);
        self.sign(name);
    }

    /// Like [`Self::server`], but with a 4096-bit RSA key, so that handshakes take long.
    pub fn server_with_rsa(&self, name: &str) {
        let new_key = ["-newkey", "rsa:4096", "-nodes"];
        self.request(name, "/CN=server", "DNS:localhost,IP:127.0.0.1", "serverAuth", &new_key);
        self.sign(name);
    }

    /// Signs a certificate for a client, with alternative names such as `DNS:a.example,URI:b:c`, or none.
    pub fn client(&self, name: &str, subject: &str, alternative_names: &str) {
        self.request(name, subject, alternative_names, "clientAuth", &NEW_KEY);
        self.sign(name);
    }

    pub fn expired_client(&self, name: &str, subject: &str) {
        self.request(name, subject, "", "clientAuth", &NEW_KEY);
        let settings = "[ca]\ndefault_ca=x\n[x]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n\
                        default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n";
        std::fs::write(self.path("ca.cnf"), settings).expect("write a file");
        std::fs::write(self.path("index"), "").expect("write a file");
        let [request, signed, extensions] =
            ["csr", "pem", "ext"].map(|extension| format!("{name}.{extension}"));
        let times = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"];
        let authority = ["ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key"];
        let files = ["-in", &request, "-out", &signed, "-extfile", &extensions, "-notext"];
        self.openssl(&[&authority[..], &files, &times].concat());
    }

    fn request(&self, name: &str, subject: &str, alternative_names: &str, purpose: &str, new_key: &[&str]) {
        let [key, request, extensions] = ["key", "csr", "ext"].map(|extension| format!("{name}.{extension}"));
        let mut text = format!("extendedKeyUsage={purpose}\n");
        if !alternative_names.is_empty() {
            text += &format!("subjectAltName={alternative_names}\n");
        }
        std::fs::write(self.path(&extensions), text).expect("write a file");
        let subject = ["-keyout", &key, "-out", &request, "-subj", subject];
        self.openssl(&[&["req", "-new"][..], new_key, &subject].concat());
    }

    fn sign(&self, name: &str) {
        let [request, signed, extensions] =
            ["csr", "pem", "ext"].map(|extension| format!("{name}.{extension}"));
        let authority = ["-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "7", "-days", "2"];
        let files = ["x509", "-req", "-in", &request, "-out", &signed, "-extfile", &extensions];
        self.openssl(&[&files[..], &authority].concat());
    }

    fn openssl(&self, arguments: &[&str]) {
        let done =
            Command::new("openssl").args(arguments).current_dir(&self.0).output().expect("run openssl");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
