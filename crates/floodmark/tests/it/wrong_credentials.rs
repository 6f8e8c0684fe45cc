//! Wrong credentials of every kind. None may be accepted, and no credential may be written anywhere.

use crate::authentication::{line, sha256};
use crate::harness::tls::Client;
use crate::harness::{Reply, Request, Server, now_ms, wait_for};
use crate::tls::{authority, options, refused, text};
use crate::tokens::{Signer, claims, encoded, hs256, unsigned, with};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use stdx::authority::Authority;

const READER: &str = "reader-token-7c1e";
const WRITER: &str = "writer-token-90ab";
const OPERATOR: &str = "operator-token-55d2";
const PASSWORD: &str = "password-of-prometheus-3f";

struct Case {
    why: &'static str,
    headers: Vec<(&'static str, String)>,
    status: u16,
    paths: &'static [&'static str],
    query: String,
}

const WRITE: &str = "/api/v1/graphite";
const READ: &str = "/api/v1/labels";
const METRICS: &str = "/metrics";
const ADMIN: &str = "/config";
const ALL: [&str; 4] = [WRITE, READ, METRICS, ADMIN];

fn case(why: &'static str, status: u16, headers: Vec<(&'static str, String)>) -> Case {
    Case { why, headers, status, paths: &ALL, query: String::new() }
}

/// A case in which the request has a single `Authorization` header and names tenant `a`.
fn authorization(why: &'static str, status: u16, value: impl Into<String>) -> Case {
    case(why, status, vec![("Authorization", value.into()), ("X-Scope-OrgID", "a".into())])
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

struct Setup {
    server: Server,
    authority: Authority,
    signer: Signer,
    rsa_pem: Vec<u8>,
    rsa_der: Vec<u8>,
    auth_file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Setup {
    fn start() -> Option<Self> {
        let (authority, dir) = authority()?;
        authority.client("other", "/CN=other.example", "");
        let openssl = |arguments: &str| {
            let done = Command::new("openssl").args(arguments.split(' ')).current_dir(dir.path()).output();
            assert!(done.unwrap().status.success(), "{arguments}");
        };
        openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key");
        openssl("pkey -in rsa.key -pubout -out rsa.pem");
        openssl("pkey -in rsa.key -pubout -outform DER -out rsa.der");
        let signer = Signer::new("1");
        let keys = json!({ "keys": [signer.public()] }).to_string();
        std::fs::write(dir.path().join("keys.json"), keys).unwrap();
        let auth_file = dir.path().join("auth.toml");
        std::fs::write(&auth_file, credentials(true)).unwrap();
        let options = options(&authority).client(Client::new(&[&authority], None));
        let options = options.arg("--auth-file").arg(text(&auth_file));
        let options = options.arg("--trusted-proxies").arg("192.0.2.0/24");
        let options = options.arg("--tls-client-ca").arg(text(&authority.path("ca.pem")));
        let options = options.arg("--tls-client-auth").arg("optional");
        let server = Server::start(options.allow("requests refused").allow("handshakes refused"));
        let [rsa_pem, rsa_der] =
            ["rsa.pem", "rsa.der"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
        Some(Self { server, authority, signer, rsa_pem, rsa_der, auth_file, _dir: dir })
    }

    fn send(&self, path: &str, headers: &[(&'static str, String)]) -> Reply {
        let request = if path.starts_with(WRITE) { line("m").path(path) } else { Request::get(path) };
        let with = |request: Request, (name, value): &(&'static str, String)| request.and_header(name, value);
        self.server.send(&headers.iter().fold(request, with))
    }

    fn wrong_tokens(&self) -> Vec<Case> {
        let Self { signer, .. } = self;
        let good = signer.bearer(&claims(3600));
        let (start, signature) = good.rsplit_once('.').unwrap();
        let point = encoded(signer.public()["x"].as_str().unwrap());
        let now_s = now_ms() / 1000;
        let mut cases = vec![
            authorization("malformed token", 401, "Bearer a.b.c"),
            authorization("token without a signature", 401, format!("{start}.")),
            authorization("signature of other claims", 401, {
                let changed =
                    unsigned(&json!({ "alg": "ES256", "kid": "1" }), &with("sub", json!("mallory")));
                format!("Bearer {changed}.{signature}")
            }),
            authorization("expired", 401, signer.bearer(&claims(-60))),
            authorization("without an expiry", 401, signer.bearer(&with("exp", Value::Null))),
            authorization("nbf in the future", 401, signer.bearer(&with("nbf", json!(now_s + 600)))),
            authorization("signed by another key", 401, Signer::new("1").bearer(&claims(3600))),
            authorization("signed by an unknown key", 401, Signer::new("9").bearer(&claims(3600))),
            authorization("for another audience", 401, signer.bearer(&with("aud", json!("elsewhere")))),
            authorization(
                "of another issuer",
                401,
                signer.bearer(&with("iss", json!("https://evil.example"))),
            ),
            Case {
                paths: &[WRITE, READ],
                ..authorization("for another tenant", 403, signer.bearer(&with("tenants", json!(["c"]))))
            },
            Case {
                paths: &[WRITE, METRICS, ADMIN],
                ..authorization("with another role", 403, signer.bearer(&with("roles", json!(["read"]))))
            },
            Case {
                paths: &[METRICS, ADMIN],
                ..authorization(
                    "with more roles than its issuer has",
                    403,
                    signer.bearer(&with("roles", json!(["admin"]))),
                )
            },
        ];
        for algorithm in ["none", "None", "NONE", "nOnE", "", "HS512", "PS256", "hs256"] {
            for kid in [json!("1"), Value::Null] {
                let header = unsigned(&json!({ "alg": algorithm, "kid": kid }), &claims(3600));
                for signature in ["", signature] {
                    let token = format!("Bearer {header}.{signature}");
                    cases.push(authorization("another algorithm", 401, token));
                }
            }
        }
        let pem = self.rsa_pem.trim_ascii_end();
        for secret in [&self.rsa_pem[..], pem, &self.rsa_der, point.as_bytes(), &[0; 32], b""] {
            for kid in [json!("1"), Value::Null] {
                let token = hs256(secret, &json!({ "alg": "HS256", "kid": kid }), &claims(3600));
                cases.push(authorization("HS256 with a public key as the secret", 401, token));
            }
        }
        cases
    }

    /// Further cases, in which headers are missing or wrong in other ways.
    fn wrong_headers(&self) -> Vec<Case> {
        let tenant = || ("X-Scope-OrgID", "a".to_owned());
        let mut cases = vec![
            case("missing", 401, vec![tenant()]),
            case(
                "a tenant from an untrusted address",
                401,
                vec![tenant(), ("X-Forwarded-For", "192.0.2.1".into())],
            ),
            case("another header", 401, vec![tenant(), ("Proxy-Authorization", bearer(WRITER))]),
            authorization("empty", 401, ""),
            authorization("a scheme alone", 401, "Bearer"),
            authorization("no scheme", 401, WRITER),
            authorization("an unknown scheme", 401, format!("Digest {WRITER}")),
            authorization("not base64", 401, format!("Basic {PASSWORD}")),
            authorization("the beginning of a token", 401, bearer(&WRITER[..WRITER.len() - 1])),
            authorization("a token in upper case", 401, bearer(&WRITER.to_uppercase())),
            authorization("the digest in place of the token", 401, bearer(&sha256(WRITER))),
            authorization("a wrong password", 401, basic("prometheus", &format!("{PASSWORD}x"))),
            authorization("the password of another user", 401, basic("nobody", PASSWORD)),
            authorization("a password as a token", 401, bearer(PASSWORD)),
            authorization("a token as a password", 401, basic("prometheus", WRITER)),
            authorization("more than 8 KiB", 401, bearer(&format!("{WRITER}{}", "x".repeat(9 << 10)))),
            Case { paths: &[WRITE], ..authorization("another role", 403, bearer(READER)) },
            Case { paths: &[READ, METRICS, ADMIN], ..authorization("another role", 403, bearer(WRITER)) },
            Case { paths: &[WRITE, READ], ..authorization("an operator", 403, bearer(OPERATOR)) },
        ];
        let elsewhere =
            |token: &str| vec![("Authorization", bearer(token)), ("X-Scope-OrgID", "c".to_owned())];
        cases.push(Case { paths: &[WRITE], ..case("another tenant", 403, elsewhere(WRITER)) });
        cases.push(Case { paths: &[READ], ..case("another tenant", 403, elsewhere(READER)) });
        for pair in [[WRITER, WRITER], [WRITER, "wrong-token-1"], ["wrong-token-1", WRITER]] {
            let headers = pair.map(|token| ("Authorization", bearer(token)));
            cases.push(case("several headers", 401, [&headers[..], &[tenant()]].concat()));
        }
        for name in ["token", "access_token", "authorization", "password"] {
            let query = format!("?{name}={OPERATOR}");
            cases.push(Case { query, ..case("a token in the query", 401, vec![tenant()]) });
        }
        cases
    }
}

/// Returns the credentials file, with or without the credentials that the test revokes.
fn credentials(with_revoked: bool) -> String {
    let entry = |name: &str, secret: &str, rest: &str| {
        format!("[{name}]\nsha256 = \"{}\"\nroles = [{rest}\n", sha256(secret))
    };
    let issuer = |name: &str, file: &str| {
        format!(
            "[jwt.{name}]\nkeys_file = \"{file}\"\nissuer = \"https://id.example\"\naudience = \"floodmark\"\n\
             tenants = [\"a\"]\nroles = [\"read\", \"write\"]\ntenants_claim = \"tenants\"\nroles_claim = \"roles\"\n"
        )
    };
    let kept = [
        entry("token.reader", READER, "\"read\"]\ntenants = [\"a\"]"),
        entry("token.operator", OPERATOR, "\"admin\"]"),
        "[certificate.known]\nname = \"known.example\"\nroles = [\"admin\"]\n".to_owned(),
        issuer("rsa", "rsa.pem"),
    ];
    let revoked = [
        entry("token.writer", WRITER, "\"write\"]\ntenants = [\"a\"]"),
        entry("user.prometheus", PASSWORD, "\"write\"]\ntenants = [\"a\"]"),
        issuer("id", "keys.json"),
    ];
    kept.concat() + &if with_revoked { revoked.concat() } else { String::new() }
}

fn expect_refusal(reply: &Reply, status: u16, path: &str, why: &str) {
    assert_eq!(reply.status, status, "{why}, {path}: {}", reply.text());
    assert_eq!(
        reply.header("www-authenticate").is_some(),
        status == 401,
        "{why}, {path}: {:?}",
        reply.headers
    );
    if path.starts_with(WRITE) {
        assert!(
            reply.header("content-type").unwrap().starts_with("text/plain"),
            "{why}: {:?}",
            reply.headers
        );
        assert!(!reply.text().is_empty());
    } else {
        let json = reply.json();
        assert_eq!(
            (&json["status"], &json["errorType"]),
            (&json!("error"), &json!("bad_data")),
            "{why}, {path}"
        );
        assert!(json["error"].as_str().is_some_and(|error| !error.is_empty()), "{why}, {path}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the texts by which a credential would be recognized if it was written anywhere.
fn secrets_of(value: &str) -> Vec<String> {
    let (_, secret) = value.split_once(' ').unwrap_or(("", value));
    let parts = secret.split('.').chain([secret]).filter(|part| part.len() >= 12);
    let mut secrets: Vec<_> = parts.map(|part| part[..part.len().min(64)].to_owned()).collect();
    if let Some((_, password)) = BASE64_STANDARD
        .decode(secret)
        .ok()
        .as_deref()
        .and_then(|text| std::str::from_utf8(text).ok()?.split_once(':'))
    {
        secrets.push(password.to_owned());
    }
    secrets
}

fn expect_long_header_is_refused(setup: &Setup) {
    let request =
        line("m").tenant("a").header("Authorization", &bearer(&WRITER.repeat((1 << 20) / WRITER.len())));
    let mut connection = Client::new(&[&setup.authority], None).open(setup.server.address).unwrap();
    let reply = connection.send_until_refused(&request).expect("an answer before the connection is closed");
    assert_eq!(reply.status, 431, "{}", reply.text());
}

#[test]
fn no_wrong_credential_is_accepted_and_no_secret_is_written() {
    let Some(setup) = Setup::start() else { return };
    let good = [
        (WRITE, bearer(WRITER)),
        (WRITE, basic("prometheus", PASSWORD)),
        (WRITE, setup.signer.bearer(&claims(3600))),
        (READ, bearer(READER)),
        (METRICS, bearer(OPERATOR)),
        (ADMIN, bearer(OPERATOR)),
    ];
    let of_good = |value: &str| vec![("Authorization", value.to_owned()), ("X-Scope-OrgID", "a".to_owned())];
    let expect_good = |(path, value): &(&str, String)| {
        let reply = setup.send(path, &of_good(value));
        assert!([200, 204].contains(&reply.status), "{path}: {}", reply.text());
        reply
    };
    let mut written: Vec<_> = good.iter().map(expect_good).collect();
    let mut cases = setup.wrong_tokens();
    cases.extend(setup.wrong_headers());
    let mut secrets: Vec<_> =
        [READER, WRITER, OPERATOR, PASSWORD].map(|secret| [secret.to_owned(), sha256(secret)]).concat();
    secrets.extend(good.iter().flat_map(|(_, value)| secrets_of(value)));
    for case in &cases {
        for path in case.paths {
            let reply = setup.send(&format!("{path}{}", case.query), &case.headers);
            expect_refusal(&reply, case.status, path, case.why);
            written.push(reply);
        }
        let of_case = case.headers.iter().filter(|(name, _)| name.ends_with("Authorization"));
        secrets.extend(of_case.flat_map(|(_, value)| secrets_of(value)));
    }
    // the parameter is not a credential, but an operator might think it is one
    written.push(setup.send(&format!("{ADMIN}?token={OPERATOR}&mode=diff"), &of_good(&bearer(OPERATOR))));
    expect_long_header_is_refused(&setup);
    expect_certificates_are_refused(&setup);
    expect_nothing_opens_after_revocation(&setup, &good[..3]);
    for path in ["/", METRICS, ADMIN, "/runtime_config", "/api/v1/admin/limits?tenant=a", "/-/ready"] {
        written.push(setup.send(path, &of_good(&bearer(OPERATOR))));
    }
    for path in [
        "/api/v1/refusals",
        "/api/v1/status/tsdb",
        "/api/v1/status/active_queries",
        READ,
        "/api/v1/user_stats",
    ] {
        let reply = setup.send(path, &of_good(&bearer(READER)));
        reply.expect(200, &[]);
        written.push(reply);
    }
    expect_nowhere(setup, &written, &secrets);
}

fn expect_certificates_are_refused(setup: &Setup) {
    let unknown = Client::new(&[&setup.authority], Some("other"));
    for path in ALL {
        let request = if path == WRITE { line("m") } else { Request::get(path) };
        let reply = unknown.send(setup.server.address, &request.tenant("a")).unwrap();
        expect_refusal(&reply, 401, path, "a certificate that is not in the file");
    }
    let dir = tempfile::tempdir().unwrap();
    let stranger = Authority::new(dir.path()).expect("openssl is no longer available");
    stranger.client("known", "/CN=known.example", "");
    refused(&Client::new(&[&setup.authority, &stranger], Some("known")), &setup.server);
}

/// Removes credentials from the file, then checks that they are refused.
fn expect_nothing_opens_after_revocation(setup: &Setup, good: &[(&str, String)]) {
    let new = setup.auth_file.with_extension("new");
    std::fs::write(&new, credentials(false)).unwrap();
    std::fs::rename(new, &setup.auth_file).unwrap();
    for (_, value) in good {
        let headers = vec![("Authorization", value.clone()), ("X-Scope-OrgID", "a".to_owned())];
        wait_for("the revocation", || (setup.send(WRITE, &headers).status == 401).then_some(()));
        for path in ALL {
            expect_refusal(&setup.send(path, &headers), 401, path, "replayed after its revocation");
        }
    }
}

/// Searches the answers, the log and all files of the server for secrets. There must be none.
fn expect_nowhere(setup: Setup, written: &[Reply], secrets: &[String]) {
    let Setup { mut server, .. } = setup;
    assert!(server.terminate().success());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut places = vec![("the log".to_owned(), server.log_lines("").join("\n"))];
    let log = &places[0].1;
    assert!(
        log.contains("requests refused") && log.contains("operation"),
        "the log has no audit lines:\n{log}"
    );
    for reply in written {
        let headers = reply.headers.iter().map(|(_, value)| value.as_str());
        places.push(("headers of an answer".into(), headers.collect::<Vec<_>>().join("\n")));
        places.push((format!("an answer {}", reply.status), reply.text()));
    }
    let stored = files(&server.data_dir()).into_iter();
    places.extend(stored.map(|path| (path.display().to_string(), text(&std::fs::read(&path).unwrap()))));
    for secret in secrets {
        assert!(secret.len() >= 12, "{secret:?} is too short to be searched for");
        for (place, text) in &places {
            assert!(!text.contains(secret), "{secret:?} is in {place}");
        }
    }
}
