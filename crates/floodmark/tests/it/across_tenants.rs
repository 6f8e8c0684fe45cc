//! Queries that read from several tenants at once.

use crate::authentication::sha256;
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms};
use serde_json::{Value, json};

/// Writes three series to each of the tenants `a` and `b`. One of the series has a label `__tenant_id__`,
/// which conflicts with the label that queries of several tenants add.
fn fill(server: &Server, at_ms: i64) {
    for (tenant, value) in [("a", 1.0), ("b", 10.0)] {
        let series = |job: &str, value| Series::new(&[("__name__", "up"), ("job", job)]).sample(at_ms, value);
        let own = Series::new(&[("__name__", "own"), ("__tenant_id__", "mine")]).sample(at_ms, value);
        let all = [series("x", value), series(tenant, 2.0 * value), own];
        server.send(&Request::write(&wire::v1(&all)).tenant(tenant)).expect(204, &[]);
    }
}

fn data(server: &Server, path: &str, params: &[(&str, &str)], tenants: &str) -> Value {
    let reply = server.send(&Request::ask(path, params).tenant(tenants));
    let mut json = reply.expect(200, &[r#""status":"success""#]).json();
    json["data"].take()
}

fn vector(server: &Server, query: &str, at_ms: i64, tenants: &str) -> Vec<(Value, String)> {
    let time = (at_ms / 1000).to_string();
    let found = data(server, "/api/v1/query", &[("query", query), ("time", &time)], tenants);
    let series = found["result"].as_array().unwrap().iter();
    let mut all: Vec<_> =
        series.map(|s| (s["metric"].clone(), s["value"][1].as_str().unwrap().to_owned())).collect();
    all.sort_by_key(|(labels, _)| labels.to_string());
    all
}

fn check(server: &Server, at_ms: i64) {
    let expect = |query: &str, expected: Value| {
        let found: Vec<_> = vector(server, query, at_ms, "b|a|b")
            .into_iter()
            .map(|(labels, value)| json!([labels, value]))
            .collect();
        assert_eq!(Value::Array(found), expected, "{query}");
    };
    expect(
        "sum by (__tenant_id__) (up)",
        json!([[{"__tenant_id__": "a"}, "3"], [{"__tenant_id__": "b"}, "30"]]),
    );
    expect("sum(up)", json!([[{}, "33"]]));
    expect("sum by (job) (up)", json!([[{"job": "a"}, "2"], [{"job": "b"}, "20"], [{"job": "x"}, "11"]]));
    expect(
        r#"up{__tenant_id__="b", job="x"}"#,
        json!([[{"__name__": "up", "__tenant_id__": "b", "job": "x"}, "10"]]),
    );
    expect(r#"count(up{__tenant_id__!~"a|b"})"#, json!([]));
    expect(
        r#"own{original___tenant_id__="mine", __tenant_id__=~"a|c"}"#,
        json!([[{"__name__": "own", "__tenant_id__": "a", "original___tenant_id__": "mine"}, "1"]]),
    );
    assert_eq!(
        vector(server, "own", at_ms, "a|a"),
        [(json!({"__name__": "own", "__tenant_id__": "mine"}), "1".to_owned())],
        "a query of one tenant gets the label __tenant_id__"
    );
    let (start, end) = ((at_ms / 1000).to_string(), (at_ms / 1000 + 60).to_string());
    let params = [("query", "sum(up)"), ("start", &*start), ("end", &end), ("step", "30")];
    let range = data(server, "/api/v1/query_range", &params, "a|b");
    assert_eq!(range["result"][0]["values"].as_array().map(Vec::len), Some(3), "{range}");

    let names = ["__name__", "__tenant_id__", "job", "original___tenant_id__"];
    assert_eq!(data(server, "/api/v1/labels", &[], "a|b"), json!(names));
    assert_eq!(
        data(server, "/api/v1/labels", &[("match[]", "up")], "a|b"),
        json!(["__name__", "__tenant_id__", "job"])
    );
    let values = |name: &str, params: &[(&str, &str)]| {
        data(server, &format!("/api/v1/label/{name}/values"), params, "a|b")
    };
    assert_eq!(values("job", &[]), json!(["a", "b", "x"]));
    assert_eq!(values("job", &[("match[]", r#"up{__tenant_id__="a"}"#)]), json!(["a", "x"]));
    assert_eq!(values("__tenant_id__", &[]), json!(["a", "b"]));
    assert_eq!(values("original___tenant_id__", &[]), json!(["mine"]));
    let found = data(
        server,
        "/api/v1/series",
        &[("match[]", r#"{job="x"}"#), ("match[]", r#"own{__tenant_id__="b"}"#)],
        "a|b",
    );
    assert_eq!(
        found,
        json!([
            {"__name__": "up", "__tenant_id__": "a", "job": "x"},
            {"__name__": "up", "__tenant_id__": "b", "job": "x"},
            {"__name__": "own", "__tenant_id__": "b", "original___tenant_id__": "mine"},
        ])
    );
    let limited = server.send(&Request::ask("/api/v1/label/job/values", &[("limit", "2")]).tenant("a|b"));
    limited.expect(200, &[r#"["a","b"]"#, "truncated due to limit"]);
}

#[test]
fn several_tenants_are_one_source_from_memory_and_from_tables() {
    let server = Server::start(Options::default());
    let at_ms = now_ms() / 1000 * 1000 - 120_000;
    fill(&server, at_ms);
    check(&server, at_ms);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    check(&server, at_ms);
}

#[test]
fn several_tenants_are_read_only_where_that_is_possible() {
    // administration of two tenants is refused, which the audit log notes
    let server = Server::start(Options::default().allow("requests refused"));
    let refused = |request: Request, mentions: &[&str]| {
        server.send(&request.tenant("a|b")).expect(400, mentions);
    };
    let body = wire::v1(&[Series::new(&[("__name__", "up")]).sample(now_ms(), 1.0)]);
    refused(Request::write(&body), &["names 2 tenants", "only reads may name several"]);
    refused(Request::post("/api/v1/admin/flush", Vec::new()), &["names 2 tenants"]);
    for path in
        ["/api/v1/metadata", "/api/v1/export?match[]=up", "/api/v1/status/tsdb", "/api/v1/user_limits"]
    {
        refused(Request::get(path), &["this path supports only one"]);
    }
    let many: Vec<_> = (0..33).map(|number| format!("tenant-{number}")).collect();
    let request = Request::get("/api/v1/labels").tenant(&many.join("|"));
    server.send(&request).expect(400, &["names 33 tenants, the limit is 32"]);
    server.send(&Request::get("/api/v1/labels").tenant("a|")).expect(400, &["tenant ID is empty"]);
    server.send(&Request::get("/api/v1/labels").tenant(&many[..32].join("|"))).expect(200, &[]);
}

#[test]
fn each_tenant_must_be_the_callers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let text = format!(
        "[token.reader]\nsha256 = \"{}\"\ntenants = [\"a\", \"b-*\"]\nroles = [\"read\"]\n",
        sha256("secret")
    );
    std::fs::write(&path, text).unwrap();
    let options = Options::default().arg("--auth-file").arg(path.to_str().unwrap());
    let server = Server::start(options.allow("requests refused"));
    let ask = |tenants: &str| {
        server.send(
            &Request::get("/api/v1/labels").tenant(tenants).and_header("Authorization", "Bearer secret"),
        )
    };
    ask("a|b-1|b-2").expect(200, &[]);
    for tenants in ["a|c", "c|a", "a|b-1|b", "b|c"] {
        ask(tenants).expect(403, &["has no access to tenant"]);
    }
}
