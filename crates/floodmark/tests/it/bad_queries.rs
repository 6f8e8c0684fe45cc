//! Reading requests with something wrong in them: Prometheus' error shape, the right status and type.

use crate::harness::wire::{self, Series};
use crate::harness::{Request, Server, now_ms};
use serde_json::Value;

/// Checks one request and the same as a form.
#[track_caller]
fn check(server: &Server, path: &str, params: &[(&str, &str)], status: u16, kind: &str, mentions: &[&str]) {
    for request in [Request::ask(path, params), Request::form(path, params)] {
        let reply = server.send(&request);
        reply.expect(status, &[]);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let json = reply.json();
        assert_eq!(
            (&json["status"], &json["errorType"]),
            (&Value::from("error"), &Value::from(kind)),
            "{json}"
        );
        let error = json["error"].as_str().unwrap_or_else(|| panic!("no error in {json}"));
        for mention in mentions {
            assert!(error.contains(mention), "{mention:?} is not in: {error}");
        }
    }
}

#[test]
fn expressions() {
    let server = Server::new();
    let deep = "(".repeat(10_000) + "1" + &")".repeat(10_000);
    let long = format!("sum({})", vec!["a"; 20_000].join(" + "));
    let bad = [
        "",
        "sum(",
        "a{b=",
        "a{b=\"c\"",
        "1 +",
        "a b",
        "rate(a)",
        "sum(rate(a[5m])",
        "a[5m]",
        "a[5x]",
        "nofunction(a)",
        "{}",
        "{a=~\"(\"}",
        "\"\u{0}",
        "a offset",
        "a @ b",
        "1 == 1",
        "sum by (a) (1)",
        "-\"text\"",
        &deep,
    ];
    let range = [("start", "0"), ("end", "60"), ("step", "1")];
    for query in bad {
        let shown = &query[..query.len().min(40)];
        if query != "a[5m]" {
            check(
                &server,
                "/api/v1/query",
                &[("query", query)],
                400,
                "bad_data",
                &["invalid parameter \"query\""],
            );
        }
        let params = [&range[..], &[("query", query)]].concat();
        check(&server, "/api/v1/query_range", &params, 400, "bad_data", &["invalid parameter \"query\""]);
        eprintln!("{shown:?}: refused");
    }
    // neither deep nor long expressions end the process
    let reply = server.send(&Request::form("/api/v1/query", &[("query", &long)]));
    assert!([200, 400, 422].contains(&reply.status), "{}", reply.text());
    let minus = "-".repeat(50_000) + "1";
    let reply = server.send(&Request::form("/api/v1/query", &[("query", &minus)]));
    assert!([200, 400, 422].contains(&reply.status), "{}", reply.text());
    // patterns that would be large or slow in some engines
    let now = now_ms();
    let long = "a".repeat(10_000);
    server
        .send(&Request::write(&wire::v1(&[Series::named("m").label("l", &long).sample(now, 1.0)])))
        .expect(204, &[]);
    for pattern in [
        "(a+)+$",
        "(a|a)*b",
        "((a{100}){100}){100}",
        "(.{1000}){1000}",
        "\\p{L}{1000,5000}",
        "(?i)a*a*a*a*a*b",
    ] {
        let query = format!("m{{l=~\"{pattern}\"}}");
        let reply = server.send(&Request::form("/api/v1/query", &[("query", &query)]));
        assert!([200, 400].contains(&reply.status), "{pattern}: {} {}", reply.status, reply.text());
    }
    for (open, close) in [("sum(", ")"), ("-(", ")"), ("max_over_time(", "[1m:1s])"), ("a or (", ")")] {
        let query = open.repeat(3_000) + "a" + &close.repeat(3_000);
        let reply = server.send(&Request::form("/api/v1/query", &[("query", &query)]));
        assert!([200, 400, 422].contains(&reply.status), "{open}: {} {}", reply.status, reply.text());
    }
    // missing altogether
    check(&server, "/api/v1/query", &[], 400, "bad_data", &["invalid parameter \"query\""]);
    check(&server, "/api/v1/query_range", &range, 400, "bad_data", &["invalid parameter \"query\""]);
    assert_eq!(server.query("1", 0)["result"][1], "1");
}

/// Large requests of any composition stay within the limits.
#[test]
fn large_requests() {
    let server = Server::new();
    let list = |one: &str, count: usize| vec![one; count].join(",");
    let post = |path: &str, params: &[(&str, &str)], status: u16, kind: &str, mentions: &[&str]| {
        let reply = server.send(&Request::form(path, params));
        reply.expect(status, &[]);
        let json = reply.json();
        let error = json["error"].as_str().unwrap_or_default();
        assert_eq!(json["errorType"], kind, "{error}");
        for mention in mentions {
            assert!(error.contains(mention), "{mention:?} is not in: {error}");
        }
    };
    let long = "x".repeat(16_000);
    server
        .send(&Request::write(&wire::v1(&[Series::named("m").label("l", &long).sample(now_ms(), 1.0)])))
        .expect(204, &[]);
    // labels that would be much longer than a label may be
    let replaced = format!("label_replace(m,\"d\",\"{}\",\"l\",\"(.*)\")", "$1".repeat(100_000));
    let joined = format!("label_join(m,\"d\",\"{}\",{})", "x".repeat(200_000), list("\"l\"", 2_000));
    for query in [replaced, joined] {
        post("/api/v1/query", &[("query", &query)], 422, "execution", &["16384 bytes", "\"d\""]);
    }
    // matchers, patterns and arguments
    let matchers = format!("count({{{}}})", list("l=~\".+\"", 8_192));
    post("/api/v1/query", &[("query", &matchers)], 400, "bad_data", &["1000 matchers"]);
    let patterns = format!("{{{}}}", list("l=~\"a[bc]\"", 65));
    post("/api/v1/query", &[("query", &patterns)], 400, "bad_data", &["64 regular expressions"]);
    let nested = vec!["label_replace(m,\"a\",\"\",\"l\",\"b[cd]\")"; 65].join(" or ");
    post("/api/v1/query", &[("query", &nested)], 400, "bad_data", &["64 regular expressions"]);
    let arguments = format!("sort_by_label(m,{})", list("\"l\"", 30_000));
    post("/api/v1/query", &[("query", &arguments)], 400, "bad_data", &["10000 arguments"]);
    // and in as many parts as there are
    for path in ["/api/v1/labels", "/api/v1/series", "/api/v1/label/l/values", "/api/v1/export"] {
        let many = [("match[]", "{l=~\"\\\\w{8}\"}"); 65];
        let reply = server.send(&Request::ask(path, &many));
        let error = reply.text();
        assert_eq!(reply.status, 400, "{path}: {error}");
        assert!(error.contains("64 regular expressions"), "{path}: {error}");
    }
    // a pattern that takes more to compile than a query may hold
    let pattern = "[ab]".repeat(15_000);
    post("/api/v1/query", &[("query", &format!("m{{l=~\"{pattern}\"}}"))], 400, "bad_data", &[]);
    assert_eq!(server.query("count(m)", now_ms())["result"][0]["value"][1], "1");
}

#[test]
fn ranges() {
    let server = Server::new();
    let check_range = |start: &str, end: &str, step: &str, mentions: &[&str]| {
        let params = [("query", "1"), ("start", start), ("end", end), ("step", step)];
        let given: Vec<_> = params.into_iter().filter(|(_, v)| *v != "-").collect();
        check(&server, "/api/v1/query_range", &given, 400, "bad_data", mentions);
    };
    check_range(
        "100",
        "99",
        "1",
        &["invalid parameter \"end\": end timestamp must not be before start time"],
    );
    let zero = "invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer";
    check_range("0", "60", "0", &[zero]);
    check_range("0", "60", "-1", &[zero]);
    check_range("0", "60", "0s", &[zero]);
    let fine = [("query", "1"), ("resolution", "fine")];
    let words = ["invalid parameter \"resolution\": \"fine\" is not one of raw, auto, 5m, 1h"];
    check(&server, "/api/v1/query", &fine, 400, "bad_data", &words);
    check_range("0", "60", "x", &["invalid parameter \"step\": cannot parse \"x\" to a valid duration"]);
    check_range("0", "60", "NaN", &["invalid parameter \"step\""]);
    check_range("0", "60", "1e300", &["invalid parameter \"step\""]);
    check_range("0", "60", "-", &["invalid parameter \"step\": cannot parse \"\" to a valid duration"]);
    check_range("-", "60", "1", &["invalid parameter \"start\": cannot parse \"\" to a valid timestamp"]);
    check_range("0", "-", "1", &["invalid parameter \"end\": cannot parse \"\" to a valid timestamp"]);
    check_range(
        "yesterday",
        "60",
        "1",
        &["invalid parameter \"start\": cannot parse \"yesterday\" to a valid timestamp"],
    );
    check_range("1e300", "1e301", "1", &["invalid parameter \"start\""]);
    check_range("NaN", "1", "1", &["invalid parameter \"start\""]);
    let points = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
    check_range("0", "11001", "1", &[points]);
    check_range("0", "9000000000", "1ms", &[points]);
    check_range("-9007199254740", "9007199254740", "0.001", &[points]);
    // a step below a millisecond is none
    check_range("0", "60", "0.0001", &[]);
}

#[test]
fn other_parameters() {
    let server = Server::new();
    let check = |path: &str, params: &[(&str, &str)], mentions: &[&str]| {
        check(&server, path, params, 400, "bad_data", mentions);
    };
    check("/api/v1/query", &[("query", "1"), ("time", "noon")], &["invalid parameter \"time\"", "\"noon\""]);
    check("/api/v1/query", &[("query", "1"), ("time", "1e99")], &["invalid parameter \"time\""]);
    check("/api/v1/query", &[("query", "1"), ("limit", "-1")], &["limit must be non-negative"]);
    check("/api/v1/query", &[("query", "1"), ("limit", "many")], &["invalid parameter \"limit\""]);
    check(
        "/api/v1/query",
        &[("query", "1"), ("lookback_delta", "x")],
        &["invalid parameter \"lookback_delta\""],
    );
    check("/api/v1/query", &[("query", "1"), ("timeout", "x")], &["invalid parameter \"timeout\"", "\"x\""]);
    check("/api/v1/series", &[], &["no match[] parameter provided"]);
    check("/api/v1/series", &[("match[]", "{")], &["invalid parameter \"match[]\""]);
    check("/api/v1/series", &[("match[]", "a + b")], &["invalid parameter \"match[]\""]);
    check("/api/v1/series", &[("match[]", "{a=~\".*\"}")], &["must contain at least one non-empty matcher"]);
    check(
        "/api/v1/series",
        &[("match[]", "a"), ("start", "2"), ("end", "1")],
        &["end timestamp must not be before start time"],
    );
    check("/api/v1/labels", &[("match[]", "a["), ("start", "x")], &["invalid parameter"]);
    check("/api/v1/labels", &[("limit", "x")], &["invalid parameter \"limit\""]);
    check("/api/v1/query_exemplars", &[("start", "1"), ("end", "2")], &["invalid parameter \"query\""]);
    check(
        "/api/v1/query_exemplars",
        &[("query", "a"), ("start", "2"), ("end", "1")],
        &["invalid parameter \"end\""],
    );
    // what is not UTF-8 is read as far as it can be, and matches nothing
    let reply = server.send(&Request::get("/api/v1/query?query=%ff%fe"));
    reply.expect(400, &["bad_data"]);
    let reply = server.send(&Request::get("/api/v1/label/%ff/values"));
    assert!([200, 400].contains(&reply.status), "{}", reply.text());
    let unknown = server.send(&Request::get("/api/v1/nothing"));
    unknown.expect(404, &["/api/v1/nothing"]);
    let large = Request::form("/api/v1/query", &[("query", &"a".repeat(2 << 20))]);
    server.send(&large).expect(413, &["bad_data"]);
}

#[test]
fn what_fails_while_it_runs() {
    let server = Server::new();
    let now = now_ms();
    let series = |name: &str, x: &str| Series::named(name).label("x", x).label("y", "1").sample(now, 1.0);
    let all = [series("a", "1"), series("a", "2"), series("b", "1"), series("b", "2")];
    server.send(&Request::write(&wire::v1(&all))).expect(204, &[]);
    let at = (now / 1000 + 1).to_string();
    for (query, mentions) in [
        ("a * on (y) b", &["many-to-many matching not allowed"][..]),
        ("label_replace(a, \"x\", \"same\", \"x\", \".*\")", &["same labelset"]),
        ("label_replace(a, \"~\\xff\", \"\", \"\", \"\")", &[]),
        ("a + on (y) group_left () b", &["found duplicate series"]),
    ] {
        let params = [("query", query), ("time", at.as_str())];
        let reply = server.send(&Request::form("/api/v1/query", &params));
        if reply.status == 400 {
            continue; // also a good answer where the text itself is not accepted
        }
        check(&server, "/api/v1/query", &params, 422, "execution", mentions);
    }
    assert_eq!(server.value("count(a)", now), Some(2.0));
}
