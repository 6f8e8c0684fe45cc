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
fn exemplars_metadata_and_counts_are_those_of_all_tenants() {
    let server = Server::start(Options::default());
    let now = now_ms() / 1000 * 1000 - 60_000;
    for (tenant, count, help) in [("a", 2, "as in a"), ("b", 3, "as in b"), ("c", 5, "as in b")] {
        let series = |number: i32| {
            let labels = [("__name__", "up".to_owned()), ("job", format!("{tenant}{number}"))];
            Series::new(&labels).sample(now, 1.0).exemplar(&[("trace", tenant)], now, 1.0)
        };
        let all: Vec<_> = (0..count).map(series).collect();
        let message = [wire::v1_message(&all), wire::v1_metadata(2, "up", help, "")].concat();
        server.send(&Request::write(&wire::snappy(&message)).tenant(tenant)).expect(204, &[]);
    }
    let (start, end) = ((now / 1000 - 1).to_string(), (now / 1000 + 1).to_string());
    let exemplars = |query: &str| {
        let params = [("query", query), ("start", &*start), ("end", &end)];
        let found = data(&server, "/api/v1/query_exemplars", &params, "a|b");
        let series = found.as_array().expect("series").iter().map(|one| {
            let trace = one["exemplars"][0]["labels"]["trace"].as_str().expect("a label").to_owned();
            assert_eq!(one["seriesLabels"]["__tenant_id__"], *trace, "{one}");
            trace
        });
        series.collect::<Vec<_>>()
    };
    assert_eq!(exemplars("up"), ["a", "a", "b", "b", "b"]);
    assert_eq!(exemplars(r#"rate(up{__tenant_id__="b", job!="b0"}[1m])"#), ["b", "b"]);
    assert!(exemplars(r#"up{__tenant_id__="c"}"#).is_empty(), "a tenant that the request does not name");

    let metadata =
        |tenants: &str| data(&server, "/api/v1/metadata", &[("metric", "up")], tenants)["up"].clone();
    let entry = |help: &str| json!({"type": "gauge", "help": help, "unit": ""});
    assert_eq!(metadata("a|b"), json!([entry("as in a"), entry("as in b")]));
    assert_eq!(metadata("b|c"), json!([entry("as in b")]));

    let status = data(&server, "/api/v1/status/tsdb", &[], "a|b");
    assert_eq!(status["headStats"]["numSeries"], 5, "{status}");
    assert_eq!(status["seriesCountByMetricName"], json!([{"name": "up", "value": 5}]));
    let pairs = status["seriesCountByLabelValuePair"].to_string();
    assert!(pairs.contains(r#"{"name":"__tenant_id__=b","value":3}"#) && !pairs.contains("=c"), "{pairs}");
    let counts = |path: &str, params: &[(&str, &str)]| {
        server.send(&Request::ask(path, params).tenant("a|b")).expect(200, &[]).json()
    };
    let values = counts("/api/v1/cardinality/label_values", &[("label_names[]", "__tenant_id__")]);
    assert_eq!(
        values["labels"][0]["cardinality"],
        json!([{"label_value": "b", "series_count": 3}, {"label_value": "a", "series_count": 2}])
    );
    let names = counts("/api/v1/cardinality/label_names", &[]);
    assert_eq!((&names["label_names_count"], &names["label_values_count_total"]), (&json!(3), &json!(8)));
    let active = counts("/api/v1/cardinality/active_series", &[("selector", r#"{job=~".0"}"#)]);
    assert_eq!(
        active["data"],
        json!([
            {"__name__": "up", "__tenant_id__": "a", "job": "a0"},
            {"__name__": "up", "__tenant_id__": "b", "job": "b0"},
        ])
    );
    let grown = &counts("/api/v1/cardinality/growth", &[])["data"];
    assert_eq!(grown["created"], 5, "{grown}");
    let unqueried = &counts("/api/v1/cardinality/unqueried", &[])["data"];
    assert_eq!(unqueried["metrics"], json!([{"name": "up", "series": 5}]));
}

#[test]
fn an_export_has_the_series_of_all_tenants() {
    let server = Server::start(Options::default());
    let at_ms = now_ms() / 1000 * 1000 - 120_000;
    fill(&server, at_ms);
    let check = || {
        let params = [("match[]", r#"up{job="x"}"#), ("match[]", r#"{__name__="up", __tenant_id__="b"}"#)];
        let reply =
            server.send(&Request::ask("/api/v1/export", &params).tenant("a|b")).expect(200, &[]).text();
        let lines = reply.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut found: Vec<_> =
            lines.map(|line| (line["metric"].to_string(), line["values"].clone())).collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let series = |tenant: &str, job: &str, value: f64| {
            let metric = json!({"__name__": "up", "__tenant_id__": tenant, "job": job});
            (metric.to_string(), json!([value]))
        };
        let as_numbers = |values: &Value| values[0].as_f64();
        let expected = [series("a", "x", 1.0), series("b", "b", 20.0), series("b", "x", 10.0)];
        assert_eq!(found.len(), 3, "each series once: {reply}");
        for ((metric, values), (expected, value)) in found.iter().zip(&expected) {
            assert_eq!((metric, as_numbers(values)), (expected, as_numbers(value)));
        }
    };
    check();
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    check();
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
    for path in ["/render?target=a", "/metrics/find?query=*", "/api/v1/refusals", "/api/v1/user_limits"] {
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
    let ask = |path: &str, tenants: &str| {
        server.send(&Request::get(path).tenant(tenants).and_header("Authorization", "Bearer secret"))
    };
    for path in [
        "/api/v1/labels",
        "/api/v1/query_exemplars?query=up",
        "/api/v1/metadata",
        "/api/v1/export?match[]=up",
        "/api/v1/status/tsdb",
        "/api/v1/cardinality/growth",
        "/api/v1/cardinality/label_names",
        "/api/v1/cardinality/label_values?label_names[]=job",
        "/api/v1/cardinality/active_series?selector=up",
        "/api/v1/cardinality/unqueried",
    ] {
        ask(path, "a|b-1|b-2").expect(200, &[]);
        for tenants in ["a|c", "c|a", "a|b-1|b", "b|c"] {
            ask(path, tenants).expect(403, &["has no access to tenant"]);
        }
    }
}
