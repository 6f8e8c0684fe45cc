//! Administration on a port of its own.

use crate::authentication::sha256;
use crate::harness::programs::{Running, free_port};
use crate::harness::{Connection, Options, Request, Server, http, now_ms, wait_for};
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;

fn admin(server: &Server) -> SocketAddr {
    let lines = server.log_lines("listening for administration");
    lines[0].split_once("address=").unwrap().1.trim().parse().unwrap()
}

fn flush() -> Request {
    Request::post("/api/v1/admin/flush", Vec::new())
}

fn line() -> Request {
    Request::post("/api/v1/graphite", format!("m 1 {}\n", now_ms() / 1000).into_bytes())
}

const OPERATIONS: [&str; 6] = [
    "/config",
    "/runtime_config",
    "/api/v1/admin/tenants",
    "/api/v1/admin/queries",
    "/distributor/all_user_stats",
    "/distributor/ha_tracker",
];

#[test]
fn operations_are_where_the_setting_says() {
    let same = Server::new();
    let apart = Server::start(Options::default().arg("--admin-listen").arg("127.0.0.1:0"));
    let none = Server::start(Options::default().arg("--admin-listen").arg("none"));
    let at = admin(&apart);
    for path in OPERATIONS {
        let request = Request::get(path);
        same.send(&request).expect(200, &[]);
        apart.send(&request).expect(404, &["admin_listen", "127.0.0.1"]);
        none.send(&request).expect(404, &["not served (setting admin_listen)"]);
        http::once(at, &request).unwrap().expect(200, &[]);
    }
    for path in ["/tags/delSeries", "/graphite/tags/delSeries/"] {
        let request = Request::form(path, &[("path", "m;a=b")]);
        same.send(&request).expect(200, &["true"]);
        apart.send(&request).expect(404, &["admin_listen", "127.0.0.1"]);
        none.send(&request).expect(404, &["not served (setting admin_listen)"]);
        http::once(at, &request).unwrap().expect(200, &["true"]);
    }
    same.send(&flush()).expect(200, &["success"]);
    apart.send(&flush()).expect(404, &["admin_listen"]);
    http::once(at, &flush()).unwrap().expect(200, &["success"]);
    for path in ["/metrics", "/-/healthy", "/-/ready"] {
        apart.send(&Request::get(path)).expect(200, &[]);
        http::once(at, &Request::get(path)).unwrap().expect(200, &[]);
    }
    for request in
        [line(), Request::get("/api/v1/labels"), Request::get("/"), Request::get("/prometheus/api/v1/labels")]
    {
        http::once(at, &request)
            .unwrap()
            .expect(404, &["only administration", "all other paths are at 127.0.0.1"]);
    }
    http::once(at, &Request::get("/config")).unwrap().expect(200, &["admin_listen = \"127.0.0.1:0\""]);
}

#[test]
fn the_admin_listener_requires_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let entry = |name: &str, rest: &str| format!("[token.{name}]\nsha256 = \"{}\"\n{rest}\n", sha256(name));
    let entries =
        [entry("operator", "roles = [\"admin\"]"), entry("reader", "tenants = [\"a\"]\nroles = [\"read\"]")];
    std::fs::write(&path, entries.concat()).unwrap();
    let options = Options::default().arg("--admin-listen").arg("127.0.0.1:0");
    let options = options.arg("--auth-file").arg(path.to_str().unwrap()).allow("requests refused");
    let server = Server::start(options);
    let ask = |request: Request| http::once(admin(&server), &request).unwrap();
    let with = |token: &str| flush().header("Authorization", &format!("Bearer {token}"));
    ask(flush()).expect(401, &[]);
    ask(with("wrong")).expect(401, &[]);
    ask(with("reader")).expect(403, &["role admin"]);
    ask(with("operator")).expect(200, &["success"]);
    let delete = |token: &str| {
        let request = Request::form("/tags/delSeries", &[("path", "m")]).tenant("a");
        ask(request.and_header("Authorization", &format!("Bearer {token}")))
    };
    delete("reader").expect(403, &["role admin"]);
    delete("operator").expect(403, &["tenant a"]);
    ask(Request::get("/metrics")).expect(401, &[]);
    ask(with("operator").header("Origin", "http://evil.example")).expect(403, &["cross-origin"]);
    ask(with("operator").header("Host", "evil.example")).expect(421, &["unknown host"]);
    wait_for("the line of the operator", || {
        let lines = server.log_lines("operation");
        lines.iter().any(|line| line.contains("token operator") && line.contains("flush")).then_some(())
    });
}

/// The log may be on a disk that is full, or the reader of a pipe may be gone.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["serve", "--http", &format!("127.0.0.1:{port}"), "--data-dir"]).arg(dir.path());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let running = Running::start_with_stderr(&mut command, port, full);
    running.wait_until("/-/ready");
    let send = |request: Request| http::once(running.address(), &request).unwrap();
    for _ in 0..2 {
        send(line()).expect(204, &[]);
        // a line of the audit, and one of the sealer
        send(flush()).expect(200, &["success"]);
    }
    send(Request::get("/-/ready")).expect(200, &[]);
}

/// This works because each listener has its own limit on connections.
#[test]
fn operators_can_connect_when_senders_hold_all_connections() {
    let options = Options::default().arg("--admin-listen").arg("127.0.0.1:0").arg("--connections").arg("16");
    let server = Server::start(options);
    let half = Request::write(&[]).header("Content-Length", "1000").head();
    let hold = |_| {
        let mut connection = Connection::open(server.address).unwrap();
        connection.send_bytes(half.as_bytes()).unwrap();
        connection
    };
    let _held: Vec<_> = (0..16).map(hold).collect();
    let reply = http::once(admin(&server), &Request::get("/metrics")).unwrap();
    reply.expect(200, &["floodmark_admin_connections 1\n"]);
}
