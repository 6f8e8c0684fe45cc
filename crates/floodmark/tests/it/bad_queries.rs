//! Invalid read requests. The answers must have Prometheus' error format, and the right status and error
//! type.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Request, Server, now_ms};
use expect_test::expect;
use serde_json::json;

/// Sends a request as a GET and as a form. Both must be refused in the same way. Returns the error message.
#[track_caller]
fn refusal(server: &Server, path: &str, params: &[(&str, &str)], status: u16, kind: &str) -> String {
    let [asked, form] = [Request::ask(path, params), Request::form(path, params)].map(|request| {
        let reply = server.send(&request);
        reply.expect(status, &[]);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let mut json = reply.json();
        let error = json["error"].take();
        assert_eq!(json, json!({ "status": "error", "errorType": kind, "error": null }), "{error}");
        error.as_str().expect("an error is text").to_owned()
    });
    assert_eq!(asked, form);
    asked
}

/// Sends requests that the server must refuse, and lists each request's parameters followed by the error
/// message.
fn refusals(server: &Server, requests: &[(&str, &[(&str, &str)])]) -> String {
    let lines = requests.iter().map(|(path, params)| {
        let text: Vec<_> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let message = refusal(server, path, params, 400, "bad_data");
        format!("{path}?{}\n    {message}\n", text.join("&"))
    });
    lines.collect()
}

#[test]
fn bad_expressions() {
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
    let range_of = |query| {
        let params = [&range[..], &[("query", query)]].concat();
        refusal(&server, "/api/v1/query_range", &params, 400, "bad_data")
    };
    let mut messages = String::new();
    for query in bad {
        let message = refusal(&server, "/api/v1/query", &[("query", query)], 400, "bad_data");
        assert_eq!(message, range_of(query));
        let message =
            message.strip_prefix("invalid parameter \"query\": ").expect("the message names the parameter");
        messages += &format!("{:?}: {message}\n", &query[..query.len().min(16)]);
    }
    expect![[r#"
        "": unknown position: parse error: no expression found in input
        "sum(": 1:5: parse error: unclosed left parenthesis
        "a{b=": 1:5: parse error: unexpected end of input inside braces
        "a{b=\"c\"": 1:8: parse error: unexpected end of input inside braces
        "1 +": 1:4: parse error: unexpected end of input
        "a b": 1:3: parse error: unexpected identifier "b"
        "rate(a)": 1:6: parse error: expected type range vector in call to function "rate", got instant vector
        "sum(rate(a[5m])": 1:16: parse error: unclosed left parenthesis
        "a[5x]": 1:3: parse error: bad number or duration syntax: "5x"
        "nofunction(a)": 1:1: parse error: unknown function with name "nofunction"
        "{}": 1:1: parse error: vector selector must contain at least one non-empty matcher
        "{a=~\"(\"}": 1:5: parse error: error parsing regexp: unclosed group: `(`
        "\"\0": 1:1: parse error: unterminated quoted string
        "a offset": 1:9: parse error: unexpected end of input in offset, expected number or duration
        "a @ b": 1:5: parse error: unexpected identifier "b" in @, expected timestamp
        "1 == 1": 1:3: parse error: comparisons between scalars must use BOOL modifier
        "sum by (a) (1)": 1:13: parse error: expected type instant vector in aggregation expression, got scalar
        "-\"text\"": 1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got "string"
        "((((((((((((((((": 1:101: parse error: expression nests deeper than 100 levels
    "#]].assert_eq(&messages);
    // this is valid as an instant query, but not as a range query
    expect![[r#"invalid parameter "query": invalid expression type "range vector" for range query, must be Scalar or instant Vector"#]].assert_eq(&range_of("a[5m]"));
    // expressions that are deeply nested or very long must not crash the process
    let reply = server.send(&Request::form("/api/v1/query", &[("query", &long)]));
    assert!([200, 400, 422].contains(&reply.status), "{}", reply.text());
    let minus = "-".repeat(50_000) + "1";
    let reply = server.send(&Request::form("/api/v1/query", &[("query", &minus)]));
    assert!([200, 400, 422].contains(&reply.status), "{}", reply.text());
    // patterns that are large or slow to match
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
    expect![[r#"
        /api/v1/query?
            invalid parameter "query": unknown position: parse error: no expression found in input
        /api/v1/query_range?start=0&end=60&step=1
            invalid parameter "query": unknown position: parse error: no expression found in input
    "#]]
    .assert_eq(&refusals(&server, &[("/api/v1/query", &[]), ("/api/v1/query_range", &range)]));
    assert_eq!(server.query("1", 0)["result"][1], "1");
}

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
    // the query would create labels far above the limit
    let replaced = format!("label_replace(m,\"d\",\"{}\",\"l\",\"(.*)\")", "$1".repeat(100_000));
    let joined = format!("label_join(m,\"d\",\"{}\",{})", "x".repeat(200_000), list("\"l\"", 2_000));
    for query in [replaced, joined] {
        post("/api/v1/query", &[("query", &query)], 422, "execution", &["16384 bytes", "\"d\""]);
    }
    let matchers = format!("count({{{}}})", list("l=~\".+\"", 8_192));
    post("/api/v1/query", &[("query", &matchers)], 400, "bad_data", &["1000 matchers"]);
    let patterns = format!("{{{}}}", list("l=~\"a[bc]\"", 65));
    post("/api/v1/query", &[("query", &patterns)], 400, "bad_data", &["64 regular expressions"]);
    let nested = vec!["label_replace(m,\"a\",\"\",\"l\",\"b[cd]\")"; 65].join(" or ");
    post("/api/v1/query", &[("query", &nested)], 400, "bad_data", &["64 regular expressions"]);
    let arguments = format!("sort_by_label(m,{})", list("\"l\"", 30_000));
    post("/api/v1/query", &[("query", &arguments)], 400, "bad_data", &["10000 arguments"]);
    // the limit applies to all patterns of a request together
    for path in ["/api/v1/labels", "/api/v1/series", "/api/v1/label/l/values", "/api/v1/export"] {
        let many = [("match[]", "{l=~\"\\\\w{8}\"}"); 65];
        let reply = server.send(&Request::ask(path, &many));
        let error = reply.text();
        assert_eq!(reply.status, 400, "{path}: {error}");
        assert!(error.contains("64 regular expressions"), "{path}: {error}");
    }
    // this pattern takes more memory than a query may hold
    let pattern = "[ab]".repeat(15_000);
    post("/api/v1/query", &[("query", &format!("m{{l=~\"{pattern}\"}}"))], 400, "bad_data", &[]);
    assert_eq!(server.query("count(m)", now_ms())["result"][0]["value"][1], "1");
}

#[test]
fn ranges() {
    let server = Server::new();
    let ranges = [
        ["100", "99", "1"],
        ["0", "60", "0"],
        ["0", "60", "-1"],
        ["0", "60", "0s"],
        ["0", "60", "x"],
        ["0", "60", "NaN"],
        ["0", "60", "1e300"],
        ["0", "60", "(none)"],
        ["(none)", "60", "1"],
        ["0", "(none)", "1"],
        ["yesterday", "60", "1"],
        ["1e300", "1e301", "1"],
        ["NaN", "1", "1"],
        ["0", "11001", "1"],
        ["0", "9000000000", "1ms"],
        ["-9007199254740", "9007199254740", "0.001"],
        // a step of less than a millisecond is treated as 0
        ["0", "60", "0.0001"],
    ];
    let mut messages = String::new();
    for [start, end, step] in ranges {
        let params = [("query", "1"), ("start", start), ("end", end), ("step", step)];
        let given: Vec<_> = params.into_iter().filter(|(_, value)| *value != "(none)").collect();
        let message = refusal(&server, "/api/v1/query_range", &given, 400, "bad_data");
        messages += &format!("{start} to {end} by {step}\n    {message}\n");
    }
    expect![[r#"
        100 to 99 by 1
            invalid parameter "end": end timestamp must not be before start time
        0 to 60 by 0
            invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer
        0 to 60 by -1
            invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer
        0 to 60 by 0s
            invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer
        0 to 60 by x
            invalid parameter "step": cannot parse "x" to a valid duration
        0 to 60 by NaN
            invalid parameter "step": cannot parse "NaN" to a valid duration
        0 to 60 by 1e300
            invalid parameter "step": cannot parse "1e300" to a valid duration
        0 to 60 by (none)
            invalid parameter "step": cannot parse "" to a valid duration
        (none) to 60 by 1
            invalid parameter "start": cannot parse "" to a valid timestamp
        0 to (none) by 1
            invalid parameter "end": cannot parse "" to a valid timestamp
        yesterday to 60 by 1
            invalid parameter "start": cannot parse "yesterday" to a valid timestamp
        1e300 to 1e301 by 1
            invalid parameter "start": cannot parse "1e300" to a valid timestamp
        NaN to 1 by 1
            invalid parameter "start": cannot parse "NaN" to a valid timestamp
        0 to 11001 by 1
            exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX): the smallest step that fits is 2s
        0 to 9000000000 by 1ms
            exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX): the smallest step that fits is 818182s
        -9007199254740 to 9007199254740 by 0.001
            exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX): the smallest step that fits is 1637672592s
        0 to 60 by 0.0001
            invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer
    "#]].assert_eq(&messages);
}

#[test]
fn other_parameters() {
    let server = Server::new();
    let (query, series) = ("/api/v1/query", "/api/v1/series");
    let (labels, exemplars) = ("/api/v1/labels", "/api/v1/query_exemplars");
    let requests: [(&str, &[(&str, &str)]); 16] = [
        (query, &[("query", "1"), ("resolution", "fine")]),
        (query, &[("query", "1"), ("time", "noon")]),
        (query, &[("query", "1"), ("time", "1e99")]),
        (query, &[("query", "1"), ("limit", "-1")]),
        (query, &[("query", "1"), ("limit", "many")]),
        (query, &[("query", "1"), ("lookback_delta", "x")]),
        (query, &[("query", "1"), ("timeout", "x")]),
        (series, &[]),
        (series, &[("match[]", "{")]),
        (series, &[("match[]", "a + b")]),
        (series, &[("match[]", "{a=~\".*\"}")]),
        (series, &[("match[]", "a"), ("start", "2"), ("end", "1")]),
        (labels, &[("match[]", "a["), ("start", "x")]),
        (labels, &[("limit", "x")]),
        (exemplars, &[("start", "1"), ("end", "2")]),
        (exemplars, &[("query", "a"), ("start", "2"), ("end", "1")]),
    ];
    expect![[r#"
        /api/v1/query?query=1&resolution=fine
            invalid parameter "resolution": "fine" is not one of raw, auto, 5m, 1h
        /api/v1/query?query=1&time=noon
            invalid parameter "time": cannot parse "noon" to a valid timestamp
        /api/v1/query?query=1&time=1e99
            invalid parameter "time": cannot parse "1e99" to a valid timestamp
        /api/v1/query?query=1&limit=-1
            invalid parameter "limit": limit must be non-negative
        /api/v1/query?query=1&limit=many
            invalid parameter "limit": limit must be a number
        /api/v1/query?query=1&lookback_delta=x
            invalid parameter "lookback_delta": cannot parse "x" to a valid duration
        /api/v1/query?query=1&timeout=x
            invalid parameter "timeout": cannot parse "x" to a valid duration
        /api/v1/series?
            no match[] parameter provided
        /api/v1/series?match[]={
            invalid parameter "match[]": 1:2: parse error: unexpected end of input inside braces
        /api/v1/series?match[]=a + b
            invalid parameter "match[]": 1:1: parse error: expected a series selector without modifiers
        /api/v1/series?match[]={a=~".*"}
            invalid parameter "match[]": 1:1: parse error: vector selector must contain at least one non-empty matcher
        /api/v1/series?match[]=a&start=2&end=1
            invalid parameter "end": end timestamp must not be before start time
        /api/v1/labels?match[]=a[&start=x
            invalid parameter "start": cannot parse "x" to a valid timestamp
        /api/v1/labels?limit=x
            invalid parameter "limit": limit must be a number
        /api/v1/query_exemplars?start=1&end=2
            invalid parameter "query": unknown position: parse error: no expression found in input
        /api/v1/query_exemplars?query=a&start=2&end=1
            invalid parameter "end": end timestamp must not be before start time
    "#]].assert_eq(&refusals(&server, &requests));
    // parameters that are not valid UTF-8
    let reply = server.send(&Request::get("/api/v1/query?query=%ff%fe"));
    reply.expect(400, &["bad_data"]);
    let reply = server.send(&Request::get("/api/v1/label/%ff/values"));
    assert!([200, 400].contains(&reply.status), "{}", reply.text());
    let unknown = server.send(&Request::get("/api/v1/nothing"));
    unknown.expect(404, &["/api/v1/nothing"]);
    let large = Request::form("/api/v1/query", &[("query", &"a".repeat(2 << 20))]);
    server.send(&large).expect(413, &["bad_data"]);
    // the length of the last chunk is not a number
    let form = Request::form("/api/v1/query", &[]).header("Transfer-Encoding", "chunked");
    let mut connection = Connection::open(server.address).unwrap();
    connection.send_bytes(form.head().as_bytes()).unwrap();
    connection.send_bytes(b"8\r\nquery=up\r\nzz\r\n").unwrap();
    connection.reply().unwrap().expect(400, &["bad_data", "cannot read the form"]);
}

#[test]
fn errors_during_evaluation() {
    let server = Server::new();
    let now = now_ms();
    let series = |name: &str, x: &str| Series::named(name).label("x", x).label("y", "1").sample(now, 1.0);
    let all = [series("a", "1"), series("a", "2"), series("b", "1"), series("b", "2")];
    server.send(&Request::write(&wire::v1(&all))).expect(204, &[]);
    let at = (now / 1000 + 1).to_string();
    for (query, mention) in [
        ("a * on (y) b", "many-to-many matching not allowed"),
        ("label_replace(a, \"x\", \"same\", \"x\", \".*\")", "same labelset"),
        ("a + on (y) group_left () b", "found duplicate series"),
    ] {
        let params = [("query", query), ("time", at.as_str())];
        let message = refusal(&server, "/api/v1/query", &params, 422, "execution");
        assert!(message.contains(mention), "{mention:?} is not in: {message}");
    }
    // Prometheus reports this error during evaluation, but reporting it as a parse error is just as good
    let odd = Request::form(
        "/api/v1/query",
        &[("query", "label_replace(a, \"~\\xff\", \"\", \"\", \"\")"), ("time", &at)],
    );
    let reply = server.send(&odd);
    assert!([400, 422].contains(&reply.status), "{}", reply.text());
    assert_eq!(server.value("count(a)", now), Some(2.0));
}
