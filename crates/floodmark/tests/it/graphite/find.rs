//! Finds metrics by patterns: `/metrics/find`, `/metrics/expand` and `/metrics/index.json`. Says when they were last written:
//! `/metrics/details`.

use super::lines;
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::transfer::import;
use expect_test::{Expect, expect};

/// Writes one sample of each metric.
fn write(server: &Server, tenant: &str, names: &[&str]) {
    let now_s = now_ms() / 1000;
    let text: String = names.iter().map(|name| format!("{name} 1 {now_s}\n")).collect();
    server.send(&lines(&text).tenant(tenant)).expect(204, &[]);
}

fn ask(server: &Server, tenant: &str, path: &str, params: &[(&str, &str)]) -> String {
    let reply = server.send(&Request::ask(path, params).tenant(tenant));
    reply.expect(200, &[]);
    reply.text()
}

fn find(server: &Server, params: &[(&str, &str)], expected: &Expect) {
    expected.assert_eq(&ask(server, "a", "/metrics/find", params));
}

const NAMES: &[&str] = &[
    "servers.web-1.cpu",
    "servers.web-1.load",
    "servers.web-2.cpu",
    "servers.db.cpu",
    "servers.db",
    "other",
];

#[test]
fn nodes_are_found_in_all_formats() {
    let server = Server::start(Options::default().config("graphite_jsonp = true"));
    write(&server, "a", NAMES);
    write(&server, "a", &["tagged.metric;host=web", "servers.tagged;host=web"]);
    find(
        &server,
        &[("query", "servers.*")],
        &expect![[
            r#"[{"text":"db","id":"servers.db","allowChildren":1,"expandable":1,"leaf":0},{"text":"web-1","id":"servers.web-1","allowChildren":1,"expandable":1,"leaf":0},{"text":"web-2","id":"servers.web-2","allowChildren":1,"expandable":1,"leaf":0}]"#
        ]],
    );
    find(
        &server,
        &[("query", "*"), ("wildcards", "1")],
        &expect![[
            r#"[{"text":"*","id":"*","allowChildren":1,"expandable":1,"leaf":0},{"text":"servers","id":"servers","allowChildren":1,"expandable":1,"leaf":0},{"text":"other","id":"other","allowChildren":0,"expandable":0,"leaf":1}]"#
        ]],
    );
    find(
        &server,
        &[("query", "servers.{web-1,d*}.*"), ("leavesOnly", "1"), ("jsonp", "show")],
        &expect![[
            r#"show([{"text":"cpu","id":"servers.{web-1,d*}.cpu","allowChildren":0,"expandable":0,"leaf":1},{"text":"load","id":"servers.{web-1,d*}.load","allowChildren":0,"expandable":0,"leaf":1}])"#
        ]],
    );
    find(
        &server,
        &[("query", "servers.d"), ("format", "completer")],
        &expect![[
            r#"{"metrics":[{"path":"servers.db.","name":"db","is_leaf":"0"},{"path":"servers.db","name":"db","is_leaf":"1"}]}"#
        ]],
    );
    find(
        &server,
        &[("query", "servers.web..c"), ("format", "completer"), ("wildcards", "1")],
        &expect![[
            r#"{"metrics":[{"path":"servers.web-1.cpu","name":"cpu","is_leaf":"1"},{"path":"servers.web-2.cpu","name":"cpu","is_leaf":"1"},{"name":"*"}]}"#
        ]],
    );
    find(
        &server,
        &[("query", "servers.db,web-2"), ("format", "completer"), ("automatic_variants", "1")],
        &expect![[
            r#"{"metrics":[{"path":"servers.db.","name":"db","is_leaf":"0"},{"path":"servers.db","name":"db","is_leaf":"1"},{"path":"servers.web-2.","name":"web-2","is_leaf":"0"}]}"#
        ]],
    );
    find(
        &server,
        &[("query", "servers.*.*"), ("format", "nodelist"), ("position", "1")],
        &expect![[r#"{"nodes":["db","web-1","web-2"]}"#]],
    );
    find(
        &server,
        &[("query", "**"), ("format", "nodelist")],
        &expect![[r#"{"nodes":["cpu","db","load","other","servers","web-1","web-2"]}"#]],
    );
    let protobuf = server.send(
        &Request::ask("/metrics/find/", &[("query", "servers.d*"), ("format", "protobuf")]).tenant("a"),
    );
    assert_eq!(protobuf.header("content-type"), Some("application/x-protobuf"));
    let bytes: String = protobuf.expect(200, &[]).body.escape_ascii().to_string();
    expect![[r#"\n\nservers.d*\x12\x0c\n\nservers.db\x12\x0e\n\nservers.db\x10\x01"#]].assert_eq(&bytes);
    let json = ask(&server, "a", "/graphite/metrics/find/", &[("query", "servers.db"), ("format", "json")]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0], serde_json::json!({"path": "servers.db", "is_leaf": false}));
    assert_eq!((&json[1]["is_leaf"], &json[1]["intervals"][0]["start"]), (&true.into(), &0.into()));
}

#[test]
fn patterns_expand_to_paths() {
    let server = Server::new();
    write(&server, "a", NAMES);
    let check = |params: &[(&str, &str)], expected: &Expect| {
        let reply = server.send(&Request::form("/metrics/expand", params).tenant("a"));
        expected.assert_eq(&reply.expect(200, &[]).text());
    };
    check(
        &[("query", "servers.*"), ("query", "o*"), ("query", "o*")],
        &expect![[r#"{"results":["other","servers.db","servers.web-1","servers.web-2"]}"#]],
    );
    check(
        &[("query", "servers.*"), ("query", "o*"), ("leavesOnly", "1"), ("groupByExpr", "1")],
        &expect![[r#"{"results":{"servers.*":["servers.db"],"o*":["other"]}}"#]],
    );
    check(&[], &expect![[r#"{"results":[]}"#]]);
    expect![[r#"["other","servers.db","servers.db.cpu","servers.web-1.cpu","servers.web-1.load","servers.web-2.cpu"]"#]]
        .assert_eq(&ask(&server, "a", "/metrics/index.json", &[]));
}

/// A metric is found as soon as its first sample is acknowledged, from memory and from tables, after a restart, and by no
/// other tenant.
#[test]
fn metrics_are_found_at_once_and_wherever_they_are() {
    let mut server = Server::new();
    let found = |server: &Server, tenant: &str| -> Vec<String> {
        let json = ask(server, tenant, "/metrics/expand", &[("query", "a.*")]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["results"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
    };
    let mut all: Vec<String> = Vec::new();
    for i in 0..30 {
        let name = format!("a.{i:02}");
        write(&server, "a", &[&name]);
        all.push(name);
        assert_eq!(found(&server, "a"), all);
        if i % 10 == 5 {
            server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
        }
        if i == 17 {
            server.kill9();
            server.restart();
            assert_eq!(found(&server, "a"), all);
        }
    }
    assert!(found(&server, "b").is_empty());
    write(&server, "b", &["a.of-b"]);
    assert_eq!((found(&server, "a"), found(&server, "b")), (all, vec!["a.of-b".to_owned()]));
}

/// As go-carbon answers, but for what only Whisper files have.
#[test]
fn details_say_when_metrics_were_last_written() {
    let server = Server::new();
    let now_s = now_ms() / 1000;
    let ages_s = [("b.old", 90_000), ("a", 5), ("b.new", 60), ("b.old", 90_060), ("b;host=web", 1)];
    let text: String = ages_s.iter().map(|(name, age_s)| format!("{name} 1 {}\n", now_s - age_s)).collect();
    server.send(&lines(&text).tenant("a")).expect(204, &[]);
    let details = |params: &[(&str, &str)]| -> Vec<(String, i64)> {
        let found = ask(&server, "a", "/metrics/details", params);
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let (free, total) = (found["FreeSpace"].as_u64().unwrap(), found["TotalSpace"].as_u64().unwrap());
        assert!(0 < total && free <= total, "{free} of {total}");
        let metric = |metric: &serde_json::Value| {
            let name = metric["Name"].as_str().unwrap().to_owned();
            (name, now_s - metric["ModTime"].as_i64().unwrap())
        };
        found["Metrics"].as_array().unwrap().iter().map(metric).collect()
    };
    let all = [("a".into(), 5), ("b.new".into(), 60), ("b.old".into(), 90_000)];
    assert_eq!(details(&[]), all);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    assert_eq!(details(&[]), all);
    assert_eq!(details(&[("limit", "2")]), all[..2]);
    assert_eq!(details(&[("limit", "2"), ("after", "b.new")]), all[2..]);
    assert_eq!(details(&[("query", "b.*"), ("limit", "1")]), all[1..2]);
    assert!(details(&[("query", "none")]).is_empty());
    let reply = server.send(
        &Request::form("/graphite/metrics/details/", &[("format", "protobuf"), ("query", "a")]).tenant("a"),
    );
    reply.expect(200, &[]);
    assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    let mut expected = vec![0x0a, 11, 0x0a, 1, b'a', 0x12, 6, 0x18];
    let mut mod_time_s = (now_s - 5) as u64;
    while mod_time_s >= 0x80 {
        expected.push(mod_time_s as u8 | 0x80);
        mod_time_s >>= 7;
    }
    expected.push(mod_time_s as u8);
    assert_eq!(reply.body.get(..expected.len()), Some(&expected[..]));
    assert_eq!(reply.body.get(expected.len()), Some(&0x10), "FreeSpace follows");
    let accept =
        Request::ask("/metrics/details", &[]).tenant("a").header("accept", "application/x-carbonapi-v3-pb");
    assert_eq!(server.send(&accept).header("content-type"), Some("application/x-carbonapi-v3-pb"));
    server.send(&Request::ask("/metrics/details", &[("format", "pickle")])).expect(400, &["format"]);
    assert_eq!(ask(&server, "b", "/metrics/details", &[]).find(r#"{"Metrics":[],"FreeSpace":"#), Some(0));
}

#[test]
fn requests_that_make_no_sense_are_refused_as_plain_text() {
    let server = Server::new();
    let check = |path: &str, params: &[(&str, &str)], mentions: &[&str]| {
        let reply = server.send(&Request::ask(path, params));
        reply.expect(400, mentions);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    };
    check("/metrics/find", &[], &["Missing required parameter 'query'"]);
    check("/metrics/find", &[("query", "")], &["Required parameter 'query' is empty"]);
    check("/metrics/find", &[("query", "a"), ("format", "xml")], &["'format'"]);
    check("/metrics/find", &[("query", "a"), ("leavesOnly", "yes")], &["leavesOnly", "yes"]);
    let all = [
        "/render",
        "/metrics/find",
        "/metrics/expand",
        "/metrics/index.json",
        "/metrics/details",
        "/events/get_data",
    ];
    for path in all {
        let params = [("target", "a"), ("query", "a"), ("format", "json"), ("jsonp", "show")];
        check(path, &params, &["graphite_jsonp"]);
    }
    let open = Server::start(Options::default().config("graphite_jsonp = true"));
    let script = Request::ask("/metrics/find", &[("query", "a"), ("jsonp", "alert(1)")]);
    open.send(&script).expect(400, &["name of a function"]);
    let braces = "{a,b}".repeat(40);
    check("/metrics/find", &[("query", &braces)], &["10000 alternatives"]);
    check("/metrics/find", &[("query", &"a.".repeat(2000))], &["2001 nodes"]);
    check("/metrics/expand", &[("query", "a"), ("query", &braces)], &["10000 alternatives"]);
    let several = Request::ask("/metrics/find", &[("query", "*")]).tenant("a|b");
    server.send(&several).expect(400, &["only one"]);
    server.send(&Request::post("/metrics/index.json", Vec::new()).method("DELETE")).expect(405, &[]);
}

/// A pattern that selects a hundred thousand nodes is answered or refused, and the server goes on. With enough memory, it is
/// answered in full.
#[test]
fn patterns_that_select_very_many_metrics_stay_within_their_memory() {
    const COUNT: usize = 100_000;
    let mut server = Server::start(Options::default().arg("--memory=128MiB"));
    let now_s = now_ms() / 1000;
    for chunk in (0..COUNT).collect::<Vec<_>>().chunks(10_000) {
        let text: String =
            chunk.iter().map(|i| format!("x.y{}.a-long-name-of-a-metric-{i} 1 {now_s}\n", i % 300)).collect();
        let mut left = 100;
        while server.send(&lines(&text)).status != 204 {
            left -= 1;
            assert!(left > 0, "the metrics are not accepted");
        }
    }
    let reply = server.send(&Request::ask("/metrics/find", &[("query", "x.*.*")]));
    match reply.status {
        200 => assert_eq!(reply.json().as_array().unwrap().len(), COUNT),
        _ => _ = reply.expect(413, &["answer"]),
    }
    assert_eq!(
        ask(&server, "anonymous", "/metrics/expand", &[("query", "x.y7.*-7")]).matches("x.y7").count(),
        1
    );
    let all = Request::ask("/metrics/index.json", &[]);
    for _ in 0..3 {
        assert!([200, 413, 422].contains(&server.send(&all).status));
    }
    assert!(server.terminate().success());
    // the directory belongs to the first server
    let options = Options::default().data_dir(&server.data_dir()).allow("is more than");
    let server_with_more = Server::start(options.arg("--memory=2GiB").arg("--query-concurrency=1"));
    let answer = |path: &str| -> serde_json::Value {
        let answer = ask(&server_with_more, "anonymous", path, &[("query", "x.*.*")]);
        serde_json::from_str(&answer).unwrap()
    };
    let count = |list: &serde_json::Value| list.as_array().unwrap().len();
    assert_eq!(count(&answer("/metrics/find")), COUNT);
    assert_eq!(count(&answer("/metrics/expand")["results"]), COUNT);
    assert_eq!(count(&answer("/metrics/index.json")), COUNT);
}

/// The index has the names of heads, and those that were in the table when it was built.
#[test]
fn names_that_an_import_adds_to_the_table_are_found() {
    let server = Server::new();
    let found = |query: &str| ask(&server, "anonymous", "/metrics/find", &[("query", query)]);
    let admin = |path: &str| server.send(&Request::post(path, Vec::new())).expect(200, &[]).json();
    let scans = || server.metric("floodmark_paths_scans_total");
    write(&server, "anonymous", &["sent_a"]);
    wait_for("the index", || {
        assert!(found("sent_*").contains("sent_a"));
        (server.metric("floodmark_paths_builds_total") > 0.0).then_some(())
    });
    let before = scans();
    write(&server, "anonymous", &["sent_b"]);
    admin("/api/v1/admin/flush");
    admin("/api/v1/admin/compact");
    assert!(found("sent_*").contains("sent_b"));
    assert_eq!(scans(), before, "the server's own changes of the table do not end the index");
    let dir = tempfile::tempdir().unwrap();
    for name in ["imported_a", "imported_b"] {
        let file = dir.path().join(name);
        std::fs::write(&file, format!("# TYPE {name} gauge\n{name} 1 {}\n# EOF\n", now_ms() / 1000 - 60))
            .unwrap();
        import("openmetrics", &file, &server.data_dir());
        // the server looks at the table, and merges what was imported
        admin("/api/v1/admin/compact");
        let nodes = found("*_*");
        assert!(nodes.contains(name) && nodes.contains("sent_a") && nodes.contains("sent_b"), "{nodes}");
        assert!(scans() > before, "until there is a new index, all names are read");
    }
}
