//! Authentication: which requests are accepted and refused, and what is logged about it.

use crate::harness::process::command;
use crate::harness::{Connection, Options, Reply, Request, Server, now_ms, wait_for};
use crate::reference::routes;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Computes the digest of a secret with the command that
/// [authentication.md](../../../../docs/authentication.md) recommends.
pub(crate) fn sha256(secret: &str) -> String {
    let script = format!("printf %s '{secret}' | sha256sum | cut -d ' ' -f 1");
    let output = Command::new("sh").args(["-c", &script]).output().expect("sha256sum of coreutils");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A credentials file in a temporary directory. It is always replaced atomically.
pub(crate) struct Credentials(TempDir);

impl Credentials {
    pub(crate) fn new() -> Self {
        let credentials = Self(tempfile::tempdir().unwrap());
        credentials.write(&credentials.usual());
        credentials
    }

    fn usual(&self) -> String {
        let entry = |name: &str, secret: &str, rest: &str| {
            format!("[{name}]\nsha256 = \"{}\"\n{rest}\n\n", sha256(secret))
        };
        [
            entry("token.reader", "secret-read", "tenants = [\"a\", \"b-*\"]\nroles = [\"read\"]"),
            entry("token.scraper", "secret-scrape", "roles = [\"metrics\"]"),
            entry("token.operator", "secret-operate", "roles = [\"admin\"]"),
            entry("user.prometheus", "secret-write", "tenants = [\"a\"]\nroles = [\"write\"]"),
        ]
        .concat()
    }

    pub(crate) fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn path(&self) -> Box<Path> {
        self.0.path().join("auth.toml").into()
    }

    /// Options for a server with the credentials file. `trusted_proxies` replaces the default, which would
    /// trust the loopback addresses that tests connect from.
    pub(crate) fn options(&self, trusted_proxies: &str) -> Options {
        let options = Options::default().arg("--auth-file").arg(self.path().to_str().unwrap());
        options.arg("--trusted-proxies").arg(trusted_proxies).allow("requests refused")
    }
}

const BASIC: &str = "Basic cHJvbWV0aGV1czpzZWNyZXQtd3JpdGU="; // prometheus:secret-write

fn with(request: Request, authorization: &str) -> Request {
    request.header("Authorization", authorization)
}

pub(crate) fn line(name: &str) -> Request {
    Request::post("/api/v1/graphite", format!("{name} 1 {}\n", now_ms() / 1000).into_bytes())
}

fn metrics(server: &Server) -> String {
    server.send(&with(Request::get("/metrics"), "Bearer secret-scrape")).text()
}

/// Operations of administration show and change only the tenants of a credential, unless it names none.
#[test]
fn an_operator_of_some_tenants_reaches_no_other_tenant() {
    let credentials = Credentials::new();
    let lead = format!(
        "[token.lead]\nsha256 = \"{}\"\ntenants = [\"b-*\"]\nroles = [\"admin\", \"read\", \"write\"]\n",
        sha256("secret-lead")
    );
    credentials.write(&(credentials.usual() + &lead));
    let server = Server::start(credentials.options("[]"));
    let ask = |request: Request, token: &str| server.send(&with(request, &format!("Bearer {token}")));
    server.send(&with(line("m").tenant("a"), BASIC)).expect(204, &[]);
    ask(line("m").tenant("b-1"), "secret-lead").expect(204, &[]);
    let wrong = |tenant: &str| Request::get("/api/v1/query?query=(").tenant(tenant);
    ask(wrong("a"), "secret-read").expect(400, &[]);
    ask(wrong("b-1"), "secret-lead").expect(400, &[]);
    server.send(&wrong("a")).expect(401, &[]);
    for (path, of_nobody) in [
        ("/api/v1/admin/tenants", false),
        ("/api/v1/admin/tenant_limits", false),
        ("/api/v1/admin/refusals", true),
    ] {
        let shown = |token: &str| ask(Request::get(path), token).expect(200, &[]).text();
        let (all, some) = (shown("secret-operate"), shown("secret-lead"));
        let has = |text: &str, tenant: &str| text.contains(&format!("\"tenant\":\"{tenant}\""));
        assert!(has(&all, "a") && has(&all, "b-1"), "{path}: {all}");
        assert!(!has(&some, "a") && has(&some, "b-1"), "{path}: {some}");
        assert!(
            !of_nobody || (all.contains("unauthenticated") && !some.contains("unauthenticated")),
            "{some}"
        );
    }
    let series = |token: &str| -> Vec<String> {
        let text = ask(Request::get("/metrics"), token).expect(200, &[]).text();
        let rows = text.lines().filter(|line| line.starts_with("floodmark_tenant_active_series{"));
        rows.map(str::to_owned).collect()
    };
    let of = |tenant: &str| format!("floodmark_tenant_active_series{{tenant=\"{tenant}\"}} 1");
    assert_eq!(series("secret-scrape"), [of("a"), of("b-1")]);
    assert_eq!(series("secret-lead"), [of("b-1")]);
    let limits = |tenant: &str| Request::get(format!("/api/v1/admin/limits?tenant={tenant}"));
    ask(limits("a"), "secret-lead").expect(403, &["token lead has no access to tenant a"]);
    ask(limits("b-1"), "secret-lead").expect(200, &[]);
    ask(limits("a"), "secret-operate").expect(200, &[]);
    let delete = |tenant: &str| Request::form("/api/v1/admin/delete_tenant", &[("tenant", tenant)]);
    ask(delete("a"), "secret-lead").expect(403, &["token lead has no access to tenant a"]);
    ask(delete("b-1"), "secret-lead").expect(200, &["files"]);
    ask(delete("a"), "secret-operate").expect(200, &["files"]);
    let series = Request::form("/api/v1/admin/tsdb/delete_series", &[("match[]", "m")]);
    ask(series, "secret-operate").expect(403, &["token operator has no access to any tenant (auth_file)"]);
}

#[test]
fn roles_and_tenants_of_a_credential_decide() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]"));
    let ask = |request: Request, authorization: &str| server.send(&with(request, authorization));
    ask(line("m"), BASIC).expect(204, &[]); // the tenant need not be named, because the credential allows only one
    ask(line("m").tenant("a"), BASIC).expect(204, &[]);
    ask(line("m").tenant("b-1"), BASIC).expect(403, &["user prometheus has no access to tenant b-1"]);
    let query = || Request::get(format!("/api/v1/query?query=m&time={}", now_ms() / 1000));
    let found = ask(query().tenant("a"), "bearer secret-read");
    assert!(found.text().contains(r#""value""#), "{}", found.text());
    ask(query().tenant("a"), "Token secret-read").expect(200, &[]); // as senders of InfluxDB write it
    ask(query().tenant("b-1"), "Bearer secret-read").expect(200, &["\"result\":[]"]);
    ask(query().tenant("c"), "Bearer secret-read").expect(403, &["token reader has no access to tenant c"]);
    ask(query(), "Bearer secret-read").expect(400, &["several tenants", "X-Scope-OrgID"]);
    ask(query().tenant("a"), BASIC).expect(403, &["does not have the role read"]);
    ask(line("m").tenant("a"), "Bearer secret-read").expect(403, &["does not have the role write"]);
    let event = || Request::post("/events/", br#"{"what":"deploy"}"#.to_vec()).tenant("a");
    ask(event(), BASIC).expect(200, &[]);
    ask(event(), "Bearer secret-read").expect(403, &["does not have the role write"]);
    let events = || Request::get("/graphite/events/get_data");
    ask(events().tenant("a"), "Bearer secret-read").expect(200, &["deploy"]);
    ask(events().tenant("a"), BASIC).expect(403, &["does not have the role read"]);
    ask(events().tenant("c"), "Bearer secret-read").expect(403, &["no access to tenant c"]);
    server.send(&event()).expect(401, &[]);
    ask(Request::get("/metrics"), "Bearer secret-scrape").expect(200, &[]);
    ask(Request::get("/metrics"), "Bearer secret-operate").expect(200, &[]);
    ask(Request::get("/metrics"), "Bearer secret-read").expect(403, &["does not have the role metrics"]);
    ask(Request::get("/config"), "Bearer secret-operate").expect(200, &["auth_file"]);
    ask(Request::post("/api/v1/admin/flush", Vec::new()), "Bearer secret-scrape")
        .expect(403, &["role admin"]);
    ask(Request::post("/write", b"a b=1".to_vec()), "Bearer secret-scrape").expect(403, &[r#"{"error":"#]);
    server
        .send(&Request::post("/api/v2/write", b"a b=1".to_vec()))
        .expect(401, &[r#""code":"unauthorized""#]);
    server.send(&Request::get("/ping")).expect(204, &[]);
    for open in ["/", "/-/healthy", "/-/ready", "/influx/health", "/lb_check", "/graphite/lb_check/"] {
        server.send(&Request::get(open)).expect(200, &[]);
    }
    wait_for("the audit log", || {
        let audit = server.log_lines("operation");
        audit.iter().any(|line| line.contains("token operator") && line.contains("/config")).then_some(())
    });
}

pub(crate) type Wrong = Vec<(&'static str, String)>;

/// Every kind of wrong credential. All of them must be refused, on every path and with every method.
fn wrong() -> Vec<Wrong> {
    let authorization = |value: &str| vec![("Authorization", value.to_owned())];
    let mut wrong = vec![vec![]];
    wrong.extend([
        authorization(""),
        authorization("Bearer"),
        authorization("Bearer "),
        authorization("Bearer secret-rea"),
        authorization("Bearer secret-read-"),
        authorization("Bearer SECRET-READ"),
        authorization("secret-read"),
        authorization(&format!("Bearer {}", sha256("secret-read"))),
        authorization("Basic cHJvbWV0aGV1czpzZWNyZXQ="), // prometheus:secret
        authorization("Basic bm9ib2R5OnNlY3JldC13cml0ZQ=="), // nobody:secret-write
        authorization("Basic OnNlY3JldC13cml0ZQ=="),     // :secret-write
        authorization("Basic prometheus:secret-write"),
        authorization("Basic !"),
        authorization("Digest username=\"prometheus\""),
        // {"alg":"none"}.{"sub":"reader"}.
        authorization("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyZWFkZXIifQ."),
        authorization(&format!("Bearer {}", "x".repeat(5 << 10))),
        authorization(&format!("Bearer {}", "x".repeat(9 << 10))),
        vec![("Authorization", "Bearer secret-read".into()), ("Authorization", "Bearer secret-read".into())],
        vec![("X-Forwarded-For", "127.0.0.1".into()), ("Forwarded", "for=127.0.0.1".into())],
        vec![("X-Forwarded-User", "reader".into())],
        vec![("Proxy-Authorization", "Bearer secret-read".into())],
    ]);
    wrong
}

fn send_with(server: &Server, request: Request, headers: &[(&'static str, String)]) -> Reply {
    let headers = headers.iter();
    server.send(&headers.fold(request, |request, (name, value)| request.and_header(name, value)))
}

/// Checks that every path which needs credentials refuses each of the `wrong` ones. Returns how many paths
/// there are.
pub(crate) fn expect_closed(server: &Server, wrong: &[Wrong]) -> usize {
    let open = ["/", "/-/healthy", "/health", "/-/ready", "/ready"];
    let routes: Vec<_> = routes().into_iter().filter(|path| !open.contains(&path.as_str())).collect();
    assert!(routes.len() > 25, "{routes:?}");
    let under = routes.iter().filter(|path| path.starts_with("/api/v1/"));
    let prefixed: Vec<_> = under.map(|path| format!("/prometheus{path}")).collect();
    let graphite = ["/render", "/tags", "/tags/delSeries", "/graphite/tags/delSeries/"].map(str::to_owned);
    for path in routes.iter().chain(&prefixed).chain(&graphite) {
        let path = path.replace("<name>", "job").replace("<id>", "0");
        for method in ["GET", "POST"] {
            for headers in wrong {
                let request = Request::get(path.clone()).method(method).tenant("a");
                let reply = send_with(server, request, headers);
                // some paths accept only one method, or exist only without the prefix
                let is_refused = reply.status == 401
                    || reply.status == 405
                    || (reply.status == 404 && path.starts_with("/prom"));
                assert!(is_refused, "{method} {path} {headers:?}: {} {}", reply.status, reply.text());
                if reply.status == 401 {
                    assert!(reply.header("www-authenticate").is_some());
                    assert!(!reply.text().contains("secret-"), "{}", reply.text());
                }
            }
        }
    }
    routes.len()
}

#[test]
fn no_wrong_credential_opens_any_path() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]"));
    let routes = expect_closed(&server, &wrong());
    let refused = metrics(&server).lines().find_map(|line| {
        line.strip_prefix("floodmark_refusals_total{reason=\"unauthenticated\"} ")?.parse::<usize>().ok()
    });
    assert!(refused >= Some(wrong().len() * routes), "{refused:?}");
    let lines = server.log_lines("requests refused").len();
    assert!(lines < 200, "{lines} lines for {refused:?} refused requests");
    assert_eq!(server.log_lines("secret-"), Vec::<String>::new());
    let tsdb = server.send(&with(Request::get("/api/v1/refusals").tenant("a"), "Bearer secret-read"));
    tsdb.expect(200, &[]);
    assert!(
        !tsdb.text().contains("unauthenticated"),
        "a request of an unknown caller is in the list of a tenant"
    );
}

/// What was only counted is logged when its time has come, and when the server stops.
#[test]
fn the_log_has_all_refused_requests() {
    let credentials = Credentials::new();
    let mut server = Server::start(credentials.options("[]"));
    let refused = |count: usize| {
        for _ in 0..count {
            server.send(&line("m")).expect(401, &[]);
        }
    };
    let logged = |server: &Server| {
        let lines = server.log_lines("requests refused");
        let counts = lines.iter().filter_map(|line| {
            let is_whole = line.contains("sender=127.0.0.1") && line.contains("/api/v1/graphite");
            line.split_once("count=")?.1.split(' ').next()?.parse::<usize>().ok().filter(|_| is_whole)
        });
        (counts.sum::<usize>(), lines.len())
    };
    refused(20);
    let (_, lines) = wait_for("lines about all, although no further request is refused", || {
        Some(logged(&server)).filter(|(count, _)| *count == 20)
    });
    assert!(lines < 20, "{lines} lines");
    refused(20);
    server.terminate();
    wait_for("the rest", || (logged(&server).0 == 40).then_some(()));
}

/// The sender either gets an answer or finds the connection closed, and the server keeps running.
#[test]
fn a_credential_of_a_mebibyte_is_refused() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]"));
    let mut connection = Connection::open(server.address).unwrap();
    let request = with(line("m").tenant("a"), &format!("Bearer {}", "x".repeat(1 << 20)));
    let reply = connection.send(&request);
    assert!(
        reply.as_ref().map_or(true, |reply| [400, 401, 431].contains(&reply.status)),
        "{:?}",
        reply.map(|r| r.status)
    );
    server.send(&with(line("m"), BASIC)).expect(204, &[]);
}

/// The server refuses requests before it reads their bodies. A client that sends the body at once must get the answer, too, rather
/// than a connection that breaks.
#[test]
fn a_client_that_sends_a_large_body_gets_the_refusal() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]"));
    let large = |bytes: usize| Request::post("/api/v1/graphite", vec![b'x'; bytes]).tenant("a");
    let wrong = |request: Request| with(request, "Bearer wrong");
    let mut connection = Connection::open(server.address).unwrap();
    for _ in 0..3 {
        connection.send(&wrong(large(300_000))).unwrap().expect(401, &["unknown"]);
        connection.send(&with(large(300_000).tenant("b"), BASIC)).unwrap().expect(403, &[]);
        let chunked = wrong(large(0)).header("Transfer-Encoding", "chunked").head() + "2\r\nxx\r\n0\r\n\r\n";
        connection.send_bytes(chunked.as_bytes()).unwrap();
        connection.reply().unwrap().expect(401, &["unknown"]);
        connection.send(&with(line("m"), BASIC)).unwrap().expect(204, &[]);
    }
    let expect_last = |mut connection: Connection, request: &[u8]| {
        connection.send_bytes(request).unwrap();
        let reply = connection.reply().unwrap();
        reply.expect(401, &["unknown"]);
        assert_eq!(reply.header("connection"), Some("close"));
        let end = connection.reply().unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof, "{end}");
    };
    expect_last(connection, &wrong(large(3_000_000)).bytes());
    let head = || wrong(large(0)).header("Content-Length", "1000");
    let open = || Connection::open(server.address).unwrap();
    // neither client sends its body: one waits until it is asked for it, and the other is too slow
    expect_last(open(), head().header("Expect", "100-continue").head().as_bytes());
    expect_last(open(), head().head().as_bytes());
}

#[test]
fn a_trusted_proxy_names_the_tenant() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("127.0.0.0/8"));
    server.send(&line("m").tenant("any")).expect(204, &[]);
    server.send(&line("m")).expect(401, &["Authorization"]);
    server.send(&with(line("m").tenant("any"), "Bearer wrong")).expect(401, &["unknown"]);
    server.send(&Request::get("/config").tenant("any")).expect(401, &[]);
    server.send(&Request::get("/metrics").tenant("any")).expect(401, &[]);
}

#[test]
fn credentials_change_while_the_server_runs() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]").allow("cannot reload a file"));
    let write = || server.send(&with(line("m"), BASIC)).status;
    assert_eq!(write(), 204);
    let without_user = credentials.usual().split("[user.").next().unwrap().to_owned();
    credentials.write(&without_user);
    wait_for("the user to be gone", || (write() == 401).then_some(()));
    credentials.write(&credentials.usual());
    wait_for("the user to be back", || (write() == 204).then_some(()));
    let current = || metrics(&server).contains("floodmark_file_current{file=\"auth\"} 1");
    assert!(current());
    credentials.write("[token.reader]\nsha256 = \"secret-read\"\nroles = [\"read\"]\n");
    wait_for("the error", || (!current()).then_some(()));
    let logged = wait_for("its line", || {
        Some(server.log_lines("cannot reload a file")).filter(|lines| !lines.is_empty())
    });
    assert!(logged.len() == 1 && logged[0].contains("auth.toml:2: sha256 must be 64"), "{logged:?}");
    assert_eq!(server.log_lines("secret-"), Vec::<String>::new());
    assert_eq!(write(), 204, "an invalid file changes the credentials in effect");
    let url = "\n[jwt.x]\nkeys_url = \"http://10.9.8.7/x\"\ntenants = [\"a\"]\nroles = [\"read\"]\n";
    credentials.write(&format!("{without_user}{url}"));
    wait_for("the refused address of keys", || {
        (server.log_lines("keys_url must begin with https://").len() == 1).then_some(())
    });
    assert_eq!(write(), 204, "an invalid file changes the credentials in effect");
}

/// A file that is cut off while it is written is often valid, and every credential in it is unknown then.
#[test]
fn an_emptied_file_of_credentials_is_warned_about() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]").allow("has no credentials"));
    let write = || server.send(&with(line("m"), BASIC)).status;
    assert_eq!(write(), 204);
    for (number, text) in ["", "# nothing\n[token]\n"].into_iter().enumerate() {
        credentials.write(text);
        wait_for("the warning", || {
            (server.log_lines("auth.toml has no credentials").len() > number).then_some(())
        });
        assert_eq!(write(), 401, "it takes effect: somebody may want to lock everybody out");
        credentials.write(&credentials.usual());
        wait_for("the credentials to be back", || (write() == 204).then_some(()));
    }
    assert_eq!(server.log_lines("has no credentials").len(), 2);
}

/// Whoever guesses passwords must not learn which users exist.
#[test]
fn only_operators_see_whose_password_is_wrong() {
    let credentials = Credentials::new();
    let server = Server::start(credentials.options("[]"));
    let answer = |user: &str| {
        let both = BASE64_STANDARD.encode(format!("{user}:guessed-password"));
        let reply = server.send(&with(line("m"), &format!("Basic {both}")));
        reply.expect(401, &["the credentials are unknown"]).text()
    };
    assert_eq!(answer("prometheus"), answer("mallory"));
    let cause = "the password of user prometheus is wrong";
    server.send(&with(Request::get("/api/v1/admin/refusals"), "Bearer secret-operate")).expect(200, &[cause]);
    wait_for("the line of the refusal", || {
        let lines = server.log_lines("requests refused");
        lines.iter().any(|line| line.contains(cause)).then_some(())
    });
    let log = server.log_lines("").join("\n");
    assert!(!log.contains("guessed-password") && !log.contains("mallory"), "{log}");
}

#[test]
fn without_authentication_other_machines_are_kept_out() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let serve = |more: &[&str]| {
        let args = [&["serve", "--http", "0.0.0.0:0", "--data-dir", data.to_str().unwrap()], more].concat();
        command(&args).output().unwrap()
    };
    let refused = serve(&[]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(text.contains("auth_file") && text.contains("allow_unauthenticated"), "{text}");
    assert!(!data.exists(), "the server started and created its data directory");
    let broken = directory.path().join("auth.toml");
    std::fs::write(&broken, "[token.a]\nsha256 = \"hunter2\"\nroles = [\"admin\"]\n").unwrap();
    let refused = serve(&["--auth-file", broken.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(text.contains("auth.toml:2: sha256 must be 64") && !text.contains("hunter2"), "{text}");
    let far = "[jwt.x]\nkeys_url = \"http://example.com/k\"\nroles = [\"admin\"]\n";
    std::fs::write(&broken, far).unwrap();
    let refused = serve(&["--auth-file", broken.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("auth.toml:2: keys_url must begin"), "{text}");
}
