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

const OPERATIONS: [&str; 7] = [
    "/config",
    "/runtime_config",
    "/api/v1/admin/tenants",
    "/api/v1/admin/tenant_limits",
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
    let foreign = ask(with("operator").header("Host", "evil.example"));
    assert_eq!(foreign.expect(421, &["unknown host"]).header("x-floodmark-reason"), Some("host"));
    for reason in ["origin", "host"] {
        let lines = server.log_lines("requests refused");
        let is_of_guard =
            |line: &&String| line.contains(&format!("reason=\"{reason}\"")) && line.contains("flush");
        assert!(lines.iter().any(|line| is_of_guard(&line)), "{reason}: {lines:?}");
    }
    wait_for("the line of the operator", || {
        let lines = server.log_lines("operation");
        lines.iter().any(|line| line.contains("token operator") && line.contains("flush")).then_some(())
    });
}

/// A request that deletes refuses what it does not know, and its line in the audit log says what was deleted, also if a form did.
#[test]
fn deletes_are_exact_and_leave_a_trace() {
    let server = Server::new();
    let held = |tenant: &str| {
        let request = Request::ask("/api/v1/query", &[("query", "count_over_time(m[1h])")]);
        server.send(&request.tenant(tenant)).expect(200, &[]).text().contains(r#""value""#)
    };
    server.send(&line().tenant("a")).expect(204, &[]);
    let series = "/api/v1/admin/tsdb/delete_series";
    let stream = "/api/v1/admin/delete_stream";
    for (path, params, unknown) in [
        (series, &[("match[]", "m"), ("dryrun", "true")][..], "dryrun"),
        (series, &[("match[]", "m"), ("tenant", "a")], "tenant"),
        (series, &[("match[]", "m"), ("from", "1")], "from"),
        (stream, &[("stream", "app"), ("dry-run", "true")], "dry-run"),
        ("/api/v1/admin/delete_tenant", &[("tenant", "a"), ("dryRun", "true")], "dryRun"),
        ("/api/v1/admin/delete_tenant", &[("tenant", "a"), ("match[]", "m")], "match[]"),
        ("/compactor/delete_tenant", &[("tenant", "b")], "tenant"),
        ("/purger/delete_tenant", &[("dryrun", "")], "dryrun"),
        ("/tags/delSeries", &[("path", "m"), ("dry_run", "true")], "dry_run"),
    ] {
        let named = format!("invalid parameter {unknown:?}: unknown; nothing was deleted");
        let named = if path.contains("tags") { named } else { named.replace('"', r#"\""#) };
        server.send(&Request::form(path, params).tenant("a")).expect(400, &[&named, "Valid parameters are"]);
        let text = params.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        let query = text.replace("[]", "%5B%5D");
        server.send(&Request::post(format!("{path}?{query}"), Vec::new()).tenant("a")).expect(400, &[&named]);
        assert!(held("a"), "{path}?{query}");
    }
    for (path, params, why) in [
        ("/purger/delete_tenant", &[("dry_run", "")][..], "empty; nothing was deleted"),
        (series, &[("match[]", "m"), ("end", "")], "empty; nothing was deleted"),
        (
            series,
            &[("match[]", "m"), ("match[]", "n"), ("start", "1"), ("start", "2")],
            "given more than once",
        ),
    ] {
        server.send(&Request::form(path, params).tenant("a")).expect(400, &[why]);
    }
    let json = Request::post("/purger/delete_tenant", br#"{"dry_run":true}"#.to_vec());
    let json = json.header("Content-Type", "application/json").tenant("a");
    server.send(&json).expect(400, &["the body is no form"]);
    assert!(held("a"));
    let delete = |params: &[(&str, &str)]| server.send(&Request::form(series, params).tenant("a"));
    delete(&[("match[]", "{user=\"1&2\"\n}"), ("start", "17"), ("dry_run", "true")]).expect(200, &[]);
    delete(&[("match[]", "m"), ("end", "99999999999"), ("dry_run", "false")]).expect(204, &[]);
    assert!(!held("a"));
    let tenant = Request::form("/api/v1/admin/delete_tenant", &[("tenant", "b"), ("dry_run", "true")]);
    server.send(&tenant).expect(200, &[]);
    server.send(&Request::form("/tags/delSeries", &[("path", "n;a=b")]).tenant("c")).expect(200, &[]);
    server.send(&Request::get("/config?mode=diff&token=secret-x")).expect(200, &[]);
    for parts in [
        &[
            series,
            "tenant=\"a\"",
            r#"match[]={user=\"1%262\"\n}&start=17&dry_run=true"#,
            "dry_run=true status=200",
        ][..],
        &[series, "tenant=\"a\"", r#""match[]=m&end=99999999999&dry_run=false""#, "dry_run=false status=204"],
        &[series, "match[]=m&dryrun=true", "status=400"],
        &["/api/v1/admin/delete_tenant", "tenant=\"b\"", "dry_run=true status=200"],
        &["/tags/delSeries", "tenant=\"c\"", "path=n;a=b", "dry_run=false status=200"],
        &["/config", r#"parameters="mode=diff&token=…" status=200"#],
    ] {
        wait_for("the line of the audit log", || {
            let lines = server.log_lines("operation");
            lines.iter().any(|line| parts.iter().all(|part| line.contains(part))).then_some(())
        });
    }
    assert_eq!(server.log_lines("secret-x"), Vec::<String>::new());
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
