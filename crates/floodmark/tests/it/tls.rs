//! Encrypted connections: valid and invalid certificates, and clients without TLS.

use crate::authentication::sha256;
use crate::harness::lab::{good, lab};
use crate::harness::tls::Client;
use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, http, now_ms, wait_for};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::authority::Authority;
use tempfile::TempDir;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ProtocolVersion};

/// Creates an authority with a certificate for the server. Returns `None` if `openssl` is missing.
pub(crate) fn authority() -> Option<(Authority, TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path())?;
    authority.server("server");
    Some((authority, dir))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn options(authority: &Authority) -> Options {
    let options = Options::default().arg("--tls-cert").arg(text(&authority.path("server.pem")));
    options.arg("--tls-key").arg(text(&authority.path("server.key")))
}

fn line(name: &str) -> Request {
    Request::post("/api/v1/graphite", format!("{name} 1 {}\n", now_ms() / 1000).into_bytes())
}

fn handshakes(server: &Server, result: &str) -> f64 {
    server.metric(&format!("floodmark_tls_handshakes_total{{result=\"{result}\"}}"))
}

#[test]
fn both_versions_are_spoken_and_http1_alone() {
    let Some((authority, _dir)) = authority() else { return };
    let server = Server::start(options(&authority).client(Client::new(&[&authority], None)));
    for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let client = Client::with(&[&authority], None, &[version], b"http/1.1");
        let mut connection = client.open(server.address).unwrap();
        assert_eq!(connection.session().protocol_version(), Some(expected));
        assert_eq!(connection.session().alpn_protocol(), Some(&b"http/1.1"[..]));
        for number in 0..20 {
            let body = wire::v1(&[Series::named("m").sample(now_ms(), f64::from(number))]);
            connection.send(&Request::write(&body)).unwrap().expect(204, &[]);
        }
    }
    let http2 = Client::with(&[&authority], None, &[&TLS13], b"h2");
    let error = http2.open(server.address).err().unwrap();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    assert!(handshakes(&server, "failed") >= 1.0 && handshakes(&server, "ok") >= 2.0);
    let expiry = server.metric("floodmark_tls_certificate_expiry_seconds");
    let days = (expiry - now_ms() as f64 / 1000.0) / 86_400.0;
    assert!((1.0..=2.1).contains(&days), "{days} days");
    let nobody = tempfile::tempdir().unwrap();
    let stranger = Authority::new(nobody.path()).unwrap();
    assert!(
        Client::new(&[&stranger], None).open(server.address).is_err(),
        "the certificate is not signed by the authority"
    );
}

#[test]
fn unencrypted_clients_get_an_explanation() {
    let Some((authority, _dir)) = authority() else { return };
    let server = Server::start(options(&authority).client(Client::new(&[&authority], None)));
    let plain = http::once(server.address, &Request::get("/-/ready")).unwrap();
    plain.expect(400, &["must be encrypted", "https://"]);
    let plain = http::once(server.address, &line("m")).unwrap();
    plain.expect(400, &["https://"]);
    assert_eq!(handshakes(&server, "plaintext"), 2.0);
    // bytes that are neither HTTP nor TLS, a message that no client sends, and a record that is too long
    for bytes in [&[0; 100][..], &[22, 3, 1, 0, 4, 2, 0, 0, 0], &[22, 3, 1, 255, 255, 1]] {
        let mut connection = Connection::open(server.address).unwrap();
        connection.send_bytes(bytes).unwrap();
        let mut answer = Vec::new();
        match connection.stream.read_to_end(&mut answer) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(_) => assert!(answer.len() < 200, "{answer:?}"),
        }
    }
    // a client that disconnects before it begins the handshake
    drop(Connection::open(server.address).unwrap());
    wait_for("the count", || (handshakes(&server, "failed") == 3.0).then_some(()));
    assert_eq!(handshakes(&server, "plaintext"), 3.0);
    server.send(&line("m")).expect(204, &[]);
}

fn credentials(dir: &Path) -> String {
    let path = dir.join("auth.toml");
    let operator = sha256("secret-operate");
    let entries = format!(
        "[certificate.team-a]\nname = \"team-a.example\"\ntenants = [\"a\"]\nroles = [\"write\", \"read\"]\n\
         [certificate.ops]\nname = \"spiffe://example/ops\"\nroles = [\"admin\"]\n\
         [token.operator]\nsha256 = \"{operator}\"\nroles = [\"admin\"]\n"
    );
    std::fs::write(&path, entries).unwrap();
    text(&path).to_owned()
}

pub(crate) fn with_clients(authority: &Authority, dir: &Path, auth: &str) -> Options {
    authority.client("team-a", "/CN=Team-A.example", "");
    authority.client("ops", "/CN=ignored", "URI:spiffe://example/ops");
    authority.client("other", "/CN=other.example", "");
    let options =
        options(authority).arg("--auth-file").arg(&credentials(dir)).arg("--trusted-proxies").arg("[]");
    let options = options.arg("--tls-client-ca").arg(text(&authority.path("ca.pem")));
    let options = options.arg("--tls-client-auth").arg(auth).client(Client::new(&[authority], Some("ops")));
    options.allow("handshakes refused").allow("requests refused")
}

/// Sends a request with a client that must be refused, and returns the error. With TLS 1.3, the client gets
/// the error only after it has sent the request.
pub(crate) fn refused(client: &Client, server: &Server) -> io::Error {
    let error = client.send(server.address, &line("m")).expect_err("the client was accepted");
    let is_alert = error.get_ref().is_some_and(|error| error.is::<rustls::Error>());
    let is_closed = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
    assert!(is_alert || is_closed.contains(&error.kind()), "{error}");
    error
}

#[test]
fn certificates_identify_clients() {
    let Some((authority, dir)) = authority() else { return };
    let server = Server::start(with_clients(&authority, dir.path(), "required"));
    let client = |name| Client::new(&[&authority], name);
    let ask = |name, request: &Request| client(Some(name)).send(server.address, request).unwrap();
    ask("team-a", &line("m")).expect(204, &[]);
    ask("team-a", &line("m").tenant("a")).expect(204, &[]);
    ask("team-a", &line("m").tenant("b")).expect(403, &["certificate team-a has no access to tenant b"]);
    ask("team-a", &Request::get("/config")).expect(403, &["does not have the role admin"]);
    ask("team-a", &Request::get("/config").header("Authorization", "Bearer secret-operate")).expect(200, &[]);
    ask("team-a", &line("m").header("Authorization", "Bearer wrong")).expect(401, &["unknown"]);
    ask("ops", &Request::get("/config")).expect(200, &["tls_client_ca"]);
    ask("other", &line("m")).expect(401, &["client certificate is unknown"]);
    ask("other", &Request::get("/-/ready")).expect(200, &[]);
    wait_for("the line of the operator", || {
        server.log_lines("operation").iter().any(|line| line.contains("certificate ops")).then_some(())
    });

    let stranger_dir = tempfile::tempdir().unwrap();
    let stranger = Authority::new(stranger_dir.path()).unwrap();
    stranger.client("team-a", "/CN=team-a.example", "");
    authority.expired_client("expired", "/CN=team-a.example");
    let wrong = [
        client(None),
        client(Some("expired")),
        client(Some("server")), // not for clients
        Client::new(&[&authority, &stranger], Some("team-a")),
        Client::with(&[&authority, &stranger], Some("team-a"), &[&TLS12], b"http/1.1"),
    ];
    let before = handshakes(&server, "ok");
    for client in &wrong {
        refused(client, &server);
    }
    wait_for("the count", || (handshakes(&server, "certificate") == wrong.len() as f64).then_some(()));
    assert!(handshakes(&server, "ok") > before);
    wait_for("a line of the refusal", || {
        let lines = server.log_lines("handshakes refused");
        lines.iter().any(|line| line.contains("no client certificate")).then_some(())
    });
}

#[test]
fn a_certificate_may_be_optional_but_not_wrong() {
    let Some((authority, dir)) = authority() else { return };
    let server = Server::start(with_clients(&authority, dir.path(), "optional"));
    let nobody = Client::new(&[&authority], None);
    let ask = |request: &Request| nobody.send(server.address, request).unwrap();
    ask(&Request::get("/-/ready")).expect(200, &[]);
    ask(&line("m")).expect(401, &["credentials are required"]);
    ask(&Request::get("/config").header("Authorization", "Bearer secret-operate")).expect(200, &[]);
    Client::new(&[&authority], Some("team-a")).send(server.address, &line("m")).unwrap().expect(204, &[]);
    authority.expired_client("expired", "/CN=team-a.example");
    refused(&Client::new(&[&authority], Some("expired")), &server);
    wait_for("a line that says what is wrong with the certificate", || {
        let lines = server.log_lines("handshakes refused");
        lines.iter().any(|line| line.contains("not accepted: it expired on 2020-02-01")).then_some(())
    });
}

/// Senders write on open and on new connections while certificates are replaced, sometimes with broken ones.
#[test]
fn certificates_change_under_load() {
    let Some((authority, _dir)) = authority() else { return };
    let second_dir = tempfile::tempdir().unwrap();
    let second = Authority::new(second_dir.path()).unwrap();
    second.server("server");
    let client = Client::new(&[&authority, &second], None);
    let options = options(&authority).client(client.clone());
    let server = Server::start(options.allow("cannot reload a file").allow("every user of this machine"));
    let replace = |name: &str, bytes: &[u8]| {
        let new = authority.path("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, authority.path(name)).unwrap();
    };
    let shown = || {
        let connection = client.open(server.address).unwrap();
        connection.session().peer_certificates().unwrap()[0].to_vec()
    };
    let is_current = || server.metric("floodmark_file_current{file=\"tls\"}") == 1.0;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let write = || {
            let mut open = client.open(server.address).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                open.send(&line("kept")).unwrap().expect(204, &[]);
                client.send(server.address, &line("fresh")).unwrap().expect(204, &[]);
            }
            open.send(&line("kept")).unwrap().expect(204, &[]);
        };
        let writers = [threads.spawn(write), threads.spawn(write)];
        let [first, pem] = [shown(), std::fs::read(authority.path("server.pem")).unwrap()];
        // at this moment, the certificate is new but its key is not
        replace("server.pem", &std::fs::read(second.path("server.pem")).unwrap());
        wait_for("the error", || (!is_current()).then_some(()));
        assert_eq!(shown(), first, "a certificate without its key took effect");
        replace("server.key", &std::fs::read(second.path("server.key")).unwrap());
        server.signal_hangup();
        let next =
            wait_for("the other certificate", || Some(shown()).filter(|certificate| *certificate != first));
        wait_for("the end of the error", || is_current().then_some(()));
        replace("server.key", b"nonsense");
        wait_for("the error", || (!is_current()).then_some(()));
        replace("server.pem", &pem);
        assert_eq!(shown(), next);
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    // the test writes the key like an ordinary file, so every user may read it, which the server must report
    for text in ["server.key does not belong to", "server.key: no private key", "every user of this machine"]
    {
        wait_for(text, || (!server.log_lines(text).is_empty()).then_some(()));
    }
    assert!(server.log_lines("PRIVATE").is_empty());
    server.send(&line("m")).expect(204, &[]);
}

const HALF_A_HELLO: [u8; 12] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 0];

/// An address of this machine that counts as another network than 127.0.0.1.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));

#[test]
fn slow_handshakes_hinder_nobody() {
    let Some((authority, _dir)) = authority() else { return };
    let client = Client::new(&[&authority], None);
    let options = options(&authority).client(client.clone().from(ELSEWHERE));
    let server = Server::start(options.config("connections = 250"));
    let slow = || -> Vec<_> {
        let open = |number: usize| {
            let mut connection = Connection::open(server.address).unwrap();
            // some of the connections send nothing, and the server may refuse some
            let _ = connection.send_bytes(&HALF_A_HELLO[..number % HALF_A_HELLO.len()]);
            connection
        };
        (0..200).map(open).collect()
    };
    let mut known = client.open(server.address).unwrap();
    known.send(&line("m")).unwrap().expect(204, &[]);
    let mut held = slow();
    for _ in 0..50 {
        known.send(&line("m")).unwrap().expect(204, &[]);
        server.send(&line("m")).expect(204, &[]);
    }
    // the new connections take the places of those that have sent nothing
    held.extend(slow());
    for _ in 0..20 {
        wait_for("a place", || {
            client.send(server.address, &line("m")).ok().filter(|reply| reply.status == 204)
        });
    }
    assert!(handshakes(&server, "refused") > 0.0 && handshakes(&server, "displaced") > 0.0);
    assert!(server.metric("floodmark_http_connections") <= 250.0);
    assert!(
        server.metric("floodmark_tls_handshakes_pending") <= 32.0,
        "one network has more than half of the 62 handshakes"
    );
}

/// Handshakes are expensive here: the server has to sign its answer to each ClientHello with an RSA key of
/// 4,096 bits.
#[test]
fn a_flood_of_handshakes_does_not_starve_senders() {
    let Some((authority, _dir)) = authority() else { return };
    authority.server_with_rsa("server");
    let client = Client::new(&[&authority], None);
    let options = options(&authority).client(client.clone().from(ELSEWHERE));
    let server = Server::start(options.config("connections = 128"));
    let mut known = client.open(server.address).unwrap();
    known.send(&line("m")).unwrap().expect(204, &[]);
    let hello = client.hello();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let flood = || {
            let mut held = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(mut connection) = Connection::open(server.address)
                    && connection.send_bytes(&hello).is_ok()
                {
                    held.push_back(connection);
                }
                if held.len() > 64 {
                    held.pop_front();
                }
            }
        };
        let flood = [threads.spawn(flood), threads.spawn(flood)];
        wait_for("the bound", || (handshakes(&server, "refused") > 0.0).then_some(()));
        for _ in 0..10 {
            // senders are served on an open connection, and also on a new one from another network
            known.send(&line("m")).unwrap().expect(204, &[]);
            server.send(&line("m")).expect(204, &[]);
        }
        assert!(server.metric("floodmark_tls_handshakes_pending") <= 17.0);
        is_over.store(true, Ordering::Relaxed);
        flood.into_iter().for_each(|flood| flood.join().unwrap());
    });
    wait_for("a neighbour's turn", || {
        client.send(server.address, &line("m")).ok().filter(|reply| reply.status == 204)
    });
    let limits = server.send(&Request::get("/api/v1/admin/limits")).text();
    assert!(limits.contains(r#"{"name":"TLS handshakes in progress","value":32,"#), "{limits}");
}

#[test]
fn the_lab_and_curl_show_their_certificates() {
    let Some((authority, dir)) = authority() else { return };
    let server = Server::start(with_clients(&authority, dir.path(), "required"));
    let url = format!("https://localhost:{}", server.address.port());
    let files = ["ca.pem", "team-a.pem", "team-a.key"].map(|name| authority.path(name));
    let [ca, cert, key] = files.each_ref().map(|path| text(path));
    let target = format!("{url}/api/v1/write");
    let access = ["--target", &target, "--ca", ca, "--cert", cert, "--key", key];
    let load =
        ["write", "--metrics", "20", "--series", "5", "--writers", "2", "--rounds", "3", "--verify", "-q"];
    good(&lab(&[&load[..], &access].concat()));
    let without = lab(&[&load[..], &access[..4], &["--give-up-after", "1s"]].concat());
    assert!(!without.status.success(), "{}", String::from_utf8_lossy(&without.stdout));
    let curl = Command::new("curl")
        .args(["--silent", "--show-error", "--cacert", ca, "--cert", cert, "--key", key])
        .arg(format!("{url}/api/v1/labels"))
        .output();
    match curl {
        Err(_) => stdx::skipped::for_want_of("curl"),
        Ok(output) => assert!(String::from_utf8_lossy(&output.stdout).contains("__name__"), "{output:?}"),
    }
}
