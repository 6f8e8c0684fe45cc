//! Tokens that other services issue (JWT). Valid tokens are accepted, and invalid ones are refused on every
//! path.

use crate::authentication::{Wrong, expect_closed, line, sha256};
use crate::harness::{Options, Request, Server, Service, now_ms, wait_for};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) struct Signer {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Signer {
    pub(crate) fn new(id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self { pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap(), id }
    }

    pub(crate) fn public(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": encoded(x), "y": encoded(y) })
    }

    pub(crate) fn bearer(&self, claims: &Value) -> String {
        let signed = unsigned(&json!({ "alg": "ES256", "kid": self.id }), claims);
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("Bearer {signed}.{}", encoded(signature))
    }
}

pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
}

pub(crate) fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let signed = unsigned(header, claims);
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("Bearer {signed}.{}", encoded(signature))
}

pub(crate) fn claims(after_s: i64) -> Value {
    json!({
        "iss": "https://id.example", "aud": "floodmark", "sub": "alice", "exp": now_ms() / 1000 + after_s,
        "tenants": ["a"], "roles": ["read", "write"],
    })
}

pub(crate) fn with(name: &str, value: Value) -> Value {
    let mut claims = claims(3600);
    claims[name] = value;
    claims
}

fn file(keys: &str) -> String {
    let scraper = sha256("secret-scrape");
    format!(
        "[token.scraper]\nroles = [\"metrics\"]\nsha256 = \"{scraper}\"\n[jwt.id]\n{keys}\nissuer = \"https://id.example\"\naudience = \"floodmark\"\n\
         tenants = [\"a\"]\nroles = [\"read\", \"write\"]\ntenants_claim = \"tenants\"\nroles_claim = \"roles\"\n"
    )
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join("new"), text).unwrap();
    std::fs::rename(dir.join("new"), dir.join(name)).unwrap();
}

fn start(dir: &TempDir, keys: &str) -> Server {
    write(dir.path(), "auth.toml", &file(keys));
    let path = dir.path().join("auth.toml");
    let options = Options::default().arg("--auth-file").arg(path.to_str().unwrap());
    Server::start(options.arg("--trusted-proxies").arg("[]").allow("requests refused"))
}

fn ask(server: &Server, authorization: &str, tenant: &str) -> u16 {
    server.send(&line("m").tenant(tenant).header("Authorization", authorization)).status
}

#[test]
fn no_wrong_token_opens_any_path() {
    let dir = tempfile::tempdir().unwrap();
    let (signer, other) = (Signer::new("1"), Signer::new("1"));
    let secret = "a secret of at least 32 bytes, as it must be";
    let secret_key = json!({ "kty": "oct", "kid": "2", "k": encoded(secret) });
    write(dir.path(), "keys.json", &json!({ "keys": [signer.public(), secret_key] }).to_string());
    let server = start(&dir, "keys_file = \"keys.json\"");
    let good = signer.bearer(&claims(3600));
    assert_eq!(ask(&server, &good, "a"), 204);
    assert_eq!(
        ask(&server, &hs256(secret.as_bytes(), &json!({ "alg": "HS256", "kid": "2" }), &claims(60)), "a"),
        204
    );
    assert_eq!(ask(&server, &good, "b"), 403);
    let admin = server.send(&Request::get("/config").header("Authorization", &good));
    admin.expect(403, &["jwt id: alice does not have the role admin"]);

    let (header, _) = good.split_once('.').unwrap();
    let (rest, signature) = good.rsplit_once('.').unwrap();
    let deep = format!("{}{}", "[".repeat(2500), "]".repeat(2500));
    let point = signer.pair.public_key().as_ref();
    let wrong = [
        other.bearer(&claims(3600)),
        Signer::new("3").bearer(&claims(3600)),
        signer.bearer(&claims(-60)),
        signer.bearer(&with("exp", Value::Null)),
        signer.bearer(&with("nbf", json!(now_ms() / 1000 + 600))),
        signer.bearer(&with("aud", json!("elsewhere"))),
        signer.bearer(&with("iss", json!("https://elsewhere.example"))),
        format!("Bearer {}.", unsigned(&json!({ "alg": "none" }), &claims(3600))),
        format!("Bearer {}.{signature}", unsigned(&json!({ "alg": "none", "kid": "1" }), &claims(3600))),
        hs256(point, &json!({ "alg": "HS256", "kid": "1" }), &claims(3600)),
        hs256(point, &json!({ "alg": "HS256" }), &claims(3600)),
        hs256(&[0; 32], &json!({ "alg": "HS256", "kid": "2" }), &claims(3600)),
        format!("{rest}."),
        format!("{header}.!!!.{signature}"),
        format!("{header}.{}.{signature}", encoded(deep)),
        format!("{header}.{}.{signature}", encoded(with("tenants", json!(["b"])).to_string())),
        signer.bearer(&with("long", json!("x".repeat(8 << 10)))),
    ];
    let wrong: Vec<Wrong> = wrong.into_iter().map(|value| vec![("Authorization", value)]).collect();
    expect_closed(&server, &wrong);
    assert_eq!(ask(&server, &good, "a"), 204);
    let checked = server_metric(&server, "floodmark_auth_tokens_total{result=\"accepted\"}");
    assert!((2.0..=6.0).contains(&checked), "{checked} of these requests were not answered from the cache");

    // a token is revoked by removing the key that signed it from the file
    write(dir.path(), "keys.json", &json!({ "keys": [Signer::new("4").public()] }).to_string());
    wait_for("the key to be gone", || (ask(&server, &good, "a") == 401).then_some(()));
    assert_eq!(server.log_lines(secret), Vec::<String>::new());
}

fn server_metric(server: &Server, series: &str) -> f64 {
    let text = server.send(&Request::get("/metrics").header("Authorization", "Bearer secret-scrape")).text();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {series} in {text}"))
}

/// The issuer's RSA keys are in PEM form. `openssl` creates them, and signs the tokens.
#[test]
fn rsa_keys_verify_and_are_no_secrets() {
    if Command::new("openssl").arg("version").output().is_err() {
        stdx::skipped::for_want_of("openssl");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str, input: &str| {
        let mut child = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{arguments}");
        done.stdout
    };
    openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key", "");
    openssl("pkey -in key -pubout -out public.pem", "");
    let server = start(&dir, "keys_file = \"public.pem\"");
    let sign = |claims: &Value| {
        let signed = unsigned(&json!({ "alg": "RS256" }), claims);
        format!("Bearer {signed}.{}", encoded(openssl("dgst -sha256 -sign key", &signed)))
    };
    assert_eq!(ask(&server, &sign(&claims(3600)), "a"), 204);
    assert_eq!(ask(&server, &sign(&claims(-60)), "a"), 401);
    let pem = std::fs::read(dir.path().join("public.pem")).unwrap();
    for secret in [&pem[..], pem.trim_ascii_end(), &openssl("pkey -in key -pubout -outform DER", "")] {
        assert_eq!(ask(&server, &hs256(secret, &json!({ "alg": "HS256" }), &claims(3600)), "a"), 401);
    }
}

/// A token with an unknown key makes the server fetch the keys again. If that fails, the previous keys stay
/// valid.
#[test]
fn keys_are_fetched_and_stay_when_their_address_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Signer::new("1"), Signer::new("2"));
    let keys = |signers: &[&Signer]| {
        json!({ "keys": signers.iter().map(|signer| signer.public()).collect::<Vec<_>>() }).to_string()
    };
    let service = Service::of(&keys(&[&first]));
    write(dir.path(), "auth.toml", &file(&format!("keys_url = \"{}\"", service.url())));
    let path = dir.path().join("auth.toml");
    let options =
        Options::default().arg("--auth-file").arg(path.to_str().unwrap()).arg("--trusted-proxies").arg("[]");
    let server = Server::start(options.allow("requests refused").allow("cannot fetch the keys of tokens"));
    let [one, two] = [&first, &second].map(|signer| signer.bearer(&claims(3600)));
    assert_eq!(ask(&server, &one, "a"), 204);
    assert_eq!(ask(&server, &two, "a"), 401);
    service.publish(&keys(&[&first, &second]));
    wait_for("the second key", || (ask(&server, &two, "a") == 204).then_some(()));
    assert!(service.asked() < 10, "{} requests for keys", service.asked());
    service.publish("not keys");
    let third = Signer::new("3").bearer(&claims(3600));
    wait_for("a fetch that fails", || (ask(&server, &third, "a") == 503).then_some(()));
    assert_eq!(ask(&server, &first.bearer(&claims(60)), "a"), 204, "the last keys are no longer valid");
    assert!(server_metric(&server, "floodmark_auth_key_fetches_total{result=\"failed\"}") >= 1.0);
    service.publish(&keys(&[&second]));
    wait_for("the first key to be gone", || {
        let _ = ask(&server, &third, "a");
        (ask(&server, &one, "a") == 401).then_some(())
    });
}
