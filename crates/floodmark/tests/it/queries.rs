//! Operators can list, log and cancel queries.

use crate::authentication::{Credentials, sha256};
use crate::harness::read::data;
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Reply, Request, Server, now_ms, wait_for};
use serde_json::{Value, json};

const LIST: &str = "/api/v1/admin/queries";

/// A query that takes practically forever: it sorts 108,000 values for each of 11,000 steps. It has a line
/// break, which the log must escape.
const ENDLESS: &str = "quantile_over_time(0.5,\nvector(1)[3h:100ms])";

fn endless(tenant: &str, end: i64, timeout: &str) -> Request {
    let (start, end) = ((end - 10_999).to_string(), end.to_string());
    let params = [("query", ENDLESS), ("start", &start), ("end", &end), ("step", "1"), ("timeout", timeout)];
    Request::ask("/api/v1/query_range", &params).tenant(tenant)
}

fn listed(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    wait_for("a query in the list", || {
        let list = data(&server.send(&Request::get(LIST)));
        list.as_array().expect("a list").iter().find(|query| wanted(query)).cloned()
    })
}

fn cancel(server: &Server, id: &str) -> Reply {
    server.send(&Request::post(format!("{LIST}/{id}/cancel"), Vec::new()))
}

#[test]
fn a_running_query_is_listed_and_can_be_canceled() {
    let server = Server::new();
    std::thread::scope(|threads| {
        let asked = threads.spawn(|| server.send(&endless("a", now_ms() / 1000, "1h")));
        let query = listed(&server, |query| query["state"] == "running" && query["peak_memory_bytes"] != 0);
        assert_eq!((&query["tenant"], &query["query"]), (&json!("a"), &json!(ENDLESS)));
        assert_eq!((&query["path"], &query["step"]), (&json!("/api/v1/query_range"), &json!(1)));
        assert!(query["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{query}");
        assert!(query["age_seconds"].as_f64().unwrap() > 0.0, "{query}");
        let of =
            |tenant: &str| data(&server.send(&Request::get("/api/v1/status/active_queries").tenant(tenant)));
        assert_eq!(of("b"), json!([]), "a tenant sees queries of another tenant");
        let id = query["id"].as_str().unwrap();
        assert_eq!(of("a")[0]["id"], json!(id));

        assert_eq!(data(&cancel(&server, id))["state"], "canceled");
        let reply = asked.join().unwrap();
        reply
            .expect(503, &["\"errorType\":\"canceled\"", &format!("query {id} was canceled by an operator")]);
        wait_for("the end of the query", || (of("a") == json!([])).then_some(()));
        for unknown in [id, "0", "x"] {
            cancel(&server, unknown).expect(404, &["not_found"]);
        }
        wait_for("the line of the operation", || {
            let lines = server.log_lines("operation");
            let is_of_tenant =
                |line: &String| line.contains(&format!("{id}/cancel")) && line.contains("tenant=\"a\"");
            lines.iter().any(is_of_tenant).then_some(())
        });
    });
    server.wait_until_zero("floodmark_queries_running");
}

/// An operator of some tenants neither sees nor cancels queries of others, nor queries over several tenants of which one
/// is another's.
#[test]
fn an_operator_of_some_tenants_cancels_only_their_queries() {
    let credentials = Credentials::new();
    let entry = |name: &str, rest: &str| format!("[token.{name}]\nsha256 = \"{}\"\n{rest}\n", sha256(name));
    credentials.write(
        &[
            entry("reader", "tenants = [\"a\", \"b-1\"]\nroles = [\"read\"]"),
            entry("lead", "tenants = [\"b-*\"]\nroles = [\"admin\"]"),
            entry("operator", "roles = [\"admin\"]"),
        ]
        .concat(),
    );
    let server = Server::start(credentials.options("[]"));
    let ask = |request: Request, token: &str| {
        server.send(&request.header("Authorization", &format!("Bearer {token}")))
    };
    let list = |token: &str| data(&ask(Request::get(LIST), token)).as_array().expect("a list").clone();
    let cancel = |id: &str, token: &str| ask(Request::post(format!("{LIST}/{id}/cancel"), Vec::new()), token);
    std::thread::scope(|threads| {
        for (tenants, shown) in [("a", false), ("a|b-1", false), ("b-1", true)] {
            let asked = threads.spawn(move || ask(endless(tenants, now_ms() / 1000, "1h"), "reader"));
            let query = wait_for("the query", || list("operator").into_iter().next());
            let id = query["id"].as_str().unwrap();
            assert_eq!(list("lead").len(), usize::from(shown), "{tenants}: {query}");
            if !shown {
                cancel(id, "lead").expect(404, &["not_found"]);
                assert_ne!(list("operator")[0]["state"], "canceled", "{tenants}");
            }
            cancel(id, if shown { "lead" } else { "operator" }).expect(200, &["canceled"]);
            asked.join().unwrap().expect(503, &["by an operator"]);
            wait_for("the end of the query", || list("operator").is_empty().then_some(()));
        }
    });
}

#[test]
fn an_export_is_listed_and_can_be_canceled() {
    let server = Server::start(Options::default().allow("export aborted"));
    let now = now_ms();
    for part in 0..4 {
        let of = |i: i64| Series::named("m").label("i", i.to_string());
        let series = (0..500)
            .map(|i| of(part * 500 + i).samples((0..500).map(|i| (now - i, (0.1 * i as f64).sqrt()))));
        server.send(&Request::write(&wire::v1(&series.collect::<Vec<_>>()))).expect(204, &[]);
    }
    // an export that the client does not read, and that is larger than the buffers of the sockets
    let mut connection = crate::harness::Connection::open(server.address).unwrap();
    connection.send_bytes(Request::ask("/api/v1/export", &[("match[]", "m")]).head().as_bytes()).unwrap();
    let query = listed(&server, |query| query["state"] == "running" && query["samples"] != 0);
    assert_eq!((&query["path"], &query["query"]), (&json!("/api/v1/export"), &json!("m")));
    cancel(&server, query["id"].as_str().unwrap()).expect(200, &[]);
    // samples may have been read, and nothing of the answer sent yet
    let is_whole = connection.reply().is_ok_and(|reply| reply.status != 503);
    assert!(!is_whole, "the answer of a canceled export is complete");
    wait_for("the end of the export", || {
        (data(&server.send(&Request::get(LIST))) == json!([])).then_some(())
    });
}

/// A search in names ends soon after it is canceled, however many nodes it visits.
#[test]
fn a_search_of_very_many_names_can_be_canceled() {
    const NAMES: usize = 20_000;
    let server = Server::new();
    let now_s = now_ms() / 1000;
    let text: String = (0..NAMES).map(|i| format!("many.names-{i}.of-a-{i}-search 1 {now_s}\n")).collect();
    server.send(&Request::post("/api/v1/graphite", text.into_bytes()).tenant("a")).expect(204, &[]);
    // thousands of alternatives, each of which is searched for in each name
    let numbers: Vec<String> = (0..5000).map(|i| format!("{i}x")).collect();
    let pattern = format!("**.*{{{}}}*.*", numbers.join(","));
    let is_idle = || data(&server.send(&Request::get(LIST))) == json!([]);
    for (path, parameters) in [
        ("/metrics/find", [("query", pattern.as_str()), ("format", "json")]),
        ("/metrics/expand", [("query", pattern.as_str()), ("leavesOnly", "1")]),
        ("/metrics/details", [("query", pattern.as_str()), ("limit", "10")]),
    ] {
        let request = Request::form(path, &parameters).tenant("a");
        std::thread::scope(|threads| {
            let asked = threads.spawn(|| server.send(&request));
            let query = listed(&server, |query| query["state"] == "running");
            assert_eq!((&query["path"], &query["tenant"]), (&json!(path), &json!("a")));
            let id = query["id"].as_str().unwrap();
            cancel(&server, id).expect(200, &["canceled"]);
            let reply = asked.join().unwrap();
            reply.expect(503, &[&format!("query {id} was canceled by an operator")]);
        });
        wait_for("the end of the search", || is_idle().then_some(()));
    }
    // other searches go on
    let found = server.send(&Request::ask("/metrics/find", &[("query", "many.names-7.*")]).tenant("a"));
    assert_eq!(found.expect(200, &[]).json()[0]["text"], json!("of-a-7-search"));
    server.wait_until_zero("floodmark_queries_running");
}

#[test]
fn queries_are_logged_when_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queries.log");
    let config = format!("slow_query = \"1ms\"\nquery_log = {:?}", path.to_str().unwrap());
    let mut server = Server::start(Options::default().config(&config));
    let time = now_ms() / 1000;
    let at = time.to_string();
    let ask = |query: &str| {
        let params = [("query", query), ("time", at.as_str())];
        server.send(&Request::ask("/api/v1/query", &params).tenant("a")).status
    };
    assert_eq!((ask("vector(1)"), ask("1 +")), (200, 400));
    server.send(&endless("a", time, "2ms")).expect(503, &["timed out"]);
    server.send(&Request::ask("/api/v1/series", &[("match[]", "up"), ("end", &at)])).expect(200, &[]);
    let slow = wait_for("the slow query in the log", || server.log_lines("outcome=\"timeout\"").pop());
    for part in ["slow query", "tenant=a", "client=127.0.0.1:", "samples=", "(0.5,\\nvector(1)"] {
        assert!(slow.contains(part), "{part} is not in {slow}");
    }
    assert!(server.metric("floodmark_query_slow_total") >= 1.0);
    assert_eq!(server.metric("floodmark_query_log_lost_lines_total"), 0.0);
    assert!(server.terminate().success());

    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |line: &Value| json!([line["tenant"], line["path"], line["query"], line["end"], line["outcome"]]);
    let expected = [
        json!(["a", "/api/v1/query", "vector(1)", time, "success"]),
        json!(["a", "/api/v1/query", "1 +", time, "bad_data"]),
        json!(["a", "/api/v1/query_range", ENDLESS, time, "timeout"]),
        json!(["anonymous", "/api/v1/series", "up", time, "success"]),
    ];
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected);
    assert!(lines[1]["error"].as_str().unwrap().contains("parse error"), "{}", lines[1]);
}
