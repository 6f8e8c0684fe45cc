//! Records that were deleted are in no table, and do not come back.

use super::{READERS, ask, json_lines, kill_and_restart, stored};
use crate::harness::programs::free_port;
use crate::harness::{Options, Request, Server};
use serde_json::{Value, json};

/// Records reach their tables only when they must.
fn server() -> Server {
    Server::start(Options::default().port(free_port()).config("stream_freshness = \"1h\""))
}

fn send(server: &Server, tenant: &str, stream: &str, from: u64) {
    let lines: Vec<_> = (from..from + 10).map(|n| json!({"n": n})).collect();
    stored(&server.send(&json_lines(stream, &lines).tenant(tenant)), 10, 0);
}

fn flush(server: &Server) {
    server.send(&Request::form("/api/v1/admin/flush", &[])).expect(200, &["success"]);
}

/// The records of a stream, in its table.
#[track_caller]
fn check(server: &Server, tenant: &str, stream: &str, from: &[u64]) {
    let expected: Vec<_> = from.iter().flat_map(|from| *from..from + 10).map(|n| json!([n])).collect();
    for engine in ["duckdb", "deltalake"] {
        match ask(engine, server, tenant, stream, "SELECT n FROM t ORDER BY n") {
            Some(found) => assert_eq!(found, Value::Array(expected.clone()), "{engine}: {tenant}/{stream}"),
            None => stdx::skipped::for_want_of(READERS),
        }
    }
}

fn deleted(server: &Server, request: &Request) -> u64 {
    server.send(request).expect(200, &["success"]).json()["data"]["files"].as_u64().unwrap()
}

#[test]
fn streams_are_deleted_alone_or_with_their_tenant() {
    let mut server = server();
    let stream = |name: &str, dry: &str| {
        Request::form("/api/v1/admin/delete_stream", &[("stream", name), ("dry_run", dry)]).tenant("a")
    };
    let tenant =
        |dry: &str| Request::form("/api/v1/admin/delete_tenant", &[("tenant", "a"), ("dry_run", dry)]);
    for of in ["a", "b"] {
        send(&server, of, "app", 0);
        send(&server, of, "web", 0);
    }
    flush(&server);
    send(&server, "a", "app", 10);
    assert_eq!(deleted(&server, &stream("app", "true")), 1, "the rest is in no file yet");
    assert_eq!(deleted(&server, &stream("app", "false")), 2);
    assert_eq!(deleted(&server, &stream("nothing", "false")), 0);
    send(&server, "a", "app", 20);
    kill_and_restart(&mut server);
    flush(&server);
    check(&server, "a", "app", &[20]);
    check(&server, "a", "web", &[0]);

    let status = Request::get("/compactor/delete_tenant_status").tenant("a");
    server.send(&status).expect(200, &["\"blocks_deleted\":false"]);
    send(&server, "a", "web", 10);
    assert_eq!(deleted(&server, &tenant("true")), 2);
    assert_eq!(deleted(&server, &tenant("false")), 3);
    server.send(&status).expect(200, &["\"blocks_deleted\":true"]);
    send(&server, "a", "web", 30);
    kill_and_restart(&mut server);
    flush(&server);
    check(&server, "a", "web", &[30]);
    check(&server, "b", "app", &[0]);
    check(&server, "b", "web", &[0]);
    server.send(&stream("_no", "false")).expect(400, &["stream"]);
    server.send(&Request::form("/api/v1/admin/delete_stream", &[])).expect(400, &["stream"]);
}
