//! Servers that ask Floodmark as one of their backends: carbonapi, and graphite-web as part of a cluster. They answer with what
//! was written to Floodmark. Tests of them are skipped without the program they need.

use super::lines;
use super::senders::needs;
use crate::harness::http::once;
use crate::harness::programs::{Running, cache, free_port};
use crate::harness::{Options, Reply, Request, Server, now_ms};
use serde_json::{Value, json};
use std::process::Command;

/// The caches of answers are off. The routing by the first level of names is on, so that carbonapi asks for these levels. If
/// `BATCH` is not 0, carbonapi finds metrics first, and then asks for the values of so many at a time.
const CARBONAPI: &str = r#"
listen: "ADDRESS"
notFoundStatusCode: 200
cache: {type: "null"}
backendCache: {type: "null"}
upstreams:
  tldCacheDisabled: false
  timeouts: {find: "60s", render: "60s", connect: "5s"}
  concurrencyLimitPerServer: 4
  backendsv2:
    backends:
      - groupName: "floodmark"
        protocol: "PROTOCOL"
        lbMethod: "broadcast"
        maxTries: 1
        maxBatchSize: BATCH
        timeouts: {find: "60s", render: "60s", connect: "5s"}
        servers: ["BACKEND"]
logger: [{logger: "", file: "stderr", level: "info"}]
"#;

/// The directory of the rule files, a server with values of three minutes, and the time of the last. The directory comes first, so that it
/// is dropped last: the server reads its files until it ends.
fn written() -> (tempfile::TempDir, Server, i64) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let schemas = file("schemas.conf", "[servers]\npattern = ^servers\nretentions = 60s:1d,5m:30d\n");
    let methods =
        file("methods.conf", "[max]\npattern = load$\nxFilesFactor = 0.25\naggregationMethod = max\n");
    let options = Options::default().arg(&format!("--graphite-schemas={schemas}"));
    let server = Server::start(options.arg(&format!("--graphite-aggregation={methods}")));
    let last_s = now_ms() / 60_000 * 60 - 60;
    let mut text = String::new();
    for (value, minutes) in [(1.5, 3), (-2.0, 2), (1e9, 0)] {
        for (factor, name) in [(1.0, "servers.web-1.load"), (10.0, "servers.web-2.load"), (7.0, "other.x")] {
            text.push_str(&format!("{name} {} {}\n", value * factor, last_s - 60 * minutes));
        }
        text.push_str(&format!("requests;dc=eu;host=web-1 {value} {}\n", last_s - 60 * minutes));
    }
    server.send(&lines(&text)).expect(204, &[]);
    (dir, server, last_s)
}

/// What was written of a series, multiplied by `factor`, as points of `/render`.
fn points(factor: f64, last_s: i64) -> Vec<(f64, i64)> {
    [(1.5, 3), (-2.0, 2), (1e9, 0)].map(|(value, minutes)| (value * factor, last_s - 60 * minutes)).to_vec()
}

/// Series of an answer of `/render` by their names, with their values that are not null.
fn rendered(answer: &Value) -> Vec<(String, Vec<(f64, i64)>)> {
    let point = |point: &Value| Some((point[0].as_f64()?, point[1].as_i64().expect("a time")));
    let series = |series: &Value| {
        let points = series["datapoints"].as_array().expect("points").iter().filter_map(point).collect();
        (series["target"].as_str().expect("a name").to_owned(), points)
    };
    let mut all: Vec<_> = answer.as_array().expect("series").iter().map(series).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// Nodes of an answer of `/metrics/find` in the format `treejson`: ids, and whether they are leaves.
fn nodes(answer: &Value) -> Vec<(String, bool)> {
    let node = |node: &Value| (node["id"].as_str().expect("an id").to_owned(), node["leaf"] == 1);
    answer.as_array().expect("nodes").iter().map(node).collect()
}

#[test]
fn carbonapi_answers_what_was_written() {
    let Some(program) = needs(&["carbonapi"]) else { return };
    let (_dir, server, last_s) = written();
    for protocol in ["auto", "carbonapi_v2_pb", "msgpack"] {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let conf = dir.path().join("carbonapi.yaml");
        let text = CARBONAPI
            .replace("ADDRESS", &format!("127.0.0.1:{port}"))
            .replace("BACKEND", &format!("http://{}", server.address))
            .replace("BATCH", if protocol == "auto" { "100" } else { "0" })
            .replace("PROTOCOL", protocol);
        std::fs::write(&conf, text).unwrap();
        let mut command = Command::new(&program);
        command.arg("-config").arg(&conf);
        let carbonapi = Running::start(&mut command, port, dir.path().join("carbonapi.log"));
        carbonapi.wait_until("/lb_check");
        let ask = |path: &str, params: &[(&str, &str)]| -> Reply {
            once(carbonapi.address(), &Request::ask(path, params)).expect("carbonapi answers")
        };
        let find = |query: &str| {
            let reply = ask("/metrics/find", &[("query", query), ("format", "treejson")]);
            nodes(&reply.expect(200, &[]).json())
        };
        let node = |id: &str, is_leaf| (id.to_owned(), is_leaf);
        assert_eq!(find("*"), [node("other", false), node("servers", false)], "{protocol}");
        assert_eq!(find("servers.web-*"), [node("servers.web-1", false), node("servers.web-2", false)]);
        assert_eq!(find("servers.web-2.*"), [node("servers.web-2.load", true)]);
        assert_eq!(find("servers.none.*"), []);
        let (from, until) = ((last_s - 600).to_string(), (last_s + 1).to_string());
        let render = |target: &str| {
            let params = [("target", target), ("from", &from), ("until", &until), ("format", "json")];
            rendered(&ask("/render", &params).expect(200, &[]).json())
        };
        let series = |name: &str, factor| (name.to_owned(), points(factor, last_s));
        let loads = [series("servers.web-1.load", 1.0), series("servers.web-2.load", 10.0)];
        assert_eq!(render("servers.*.load"), loads, "{protocol}");
        assert_eq!(render("sumSeries(servers.*.load)")[0].1, points(11.0, last_s), "{protocol}");
        let tagged = [series("requests;dc=eu;host=web-1", 1.0)];
        assert_eq!(render("seriesByTag('dc=eu')"), tagged, "{protocol}");
        assert_eq!(render("none.*"), [], "{protocol}");
        let values = ask("/tags/autoComplete/values", &[("tag", "host"), ("expr", "dc=eu")]);
        assert_eq!(values.expect(200, &[]).json(), json!(["web-1"]), "{protocol}");
        assert_eq!(
            ask("/lb_check", &[]).text(),
            server.send(&Request::get("/lb_check")).expect(200, &[]).text()
        );
        let info = ask("/info", &[("target", "servers.web-1.load"), ("format", "json")]);
        let info = info.expect(200, &[]).json();
        let backend = info["info"].as_object().and_then(|all| all.values().next());
        let metric = &backend.unwrap_or_else(|| panic!("no metric in {info} by {protocol}"))["metrics"][0];
        assert_eq!(metric["name"], "servers.web-1.load", "{info}");
        assert_eq!((&metric["consolidationFunc"], &metric["xFilesFactor"]), (&json!("max"), &json!(0.25)));
        assert_eq!(metric["maxRetention"], 30 * 86_400, "{info}");
        let retentions = json!([
            {"secondsPerPoint": 60, "numberOfPoints": 1440},
            {"secondsPerPoint": 300, "numberOfPoints": 8640},
        ]);
        assert_eq!(metric["retentions"], retentions, "{info}");
    }
}

/// As a pattern, it would stand for other names.
const ODD_NAME: &str = "a.{b,c}[d]";

/// Requests that carbonapi does not send.
#[test]
fn info_returns_retention_and_aggregation() {
    let (_dir, server, _) = written();
    let ask = |params: &[(&str, &str)]| server.send(&Request::ask("/info/", params));
    let info = |target: &str| ask(&[("target", target)]).expect(200, &[]).text();
    assert_eq!(
        info("servers.web-2.load"),
        r#"{"name":"servers.web-2.load","aggregationMethod":"max","maxRetention":2592000,"xFilesFactor":0.25,"retentions":[{"secondsPerPoint":60,"numberOfPoints":1440},{"secondsPerPoint":300,"numberOfPoints":8640}]}"#
    );
    assert_eq!(
        info("other.x"),
        r#"{"name":"other.x","aggregationMethod":"average","maxRetention":604800,"xFilesFactor":0.5,"retentions":[{"secondsPerPoint":60,"numberOfPoints":10080}]}"#
    );
    for none in ["servers.web-2", "servers.*.load", "requests", "none", "**"] {
        ask(&[("target", none)]).expect(404, &[none]);
    }
    ask(&[]).expect(400, &["target"]);
    ask(&[("target", "other.x"), ("format", "pickle")]).expect(400, &["format", "carbonapi_v2_pb"]);
    // without rules, values are kept forever, which is the largest number that the format has
    let server = Server::new();
    let now_s = now_ms() / 1000;
    let text = format!("a.b 1 {now_s}\n{ODD_NAME} 1 {now_s}\n");
    server.send(&lines(&text)).expect(204, &[]);
    let odd = server.send(&Request::ask("/info", &[("target", ODD_NAME)]));
    assert_eq!(odd.expect(200, &[]).json()["name"], ODD_NAME);
    server.send(&Request::ask("/info", &[("target", "a.c")])).expect(404, &["a.c"]);
    let ask = |format| server.send(&Request::ask("/info", &[("target", "a.b"), ("format", format)]));
    let reply = ask("protobuf");
    assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(reply.body, ask("msgpack").body);
    let text: String = reply.expect(200, &[]).body.escape_ascii().to_string();
    expect_test::expect![[
        r#"\n\x03a.b\x12\x07average\x18\xff\xff\xff\xff\x07%\x00\x00\x00?*\x07\x08<\x10\xa2\xc4\x88\x11"#
    ]]
    .assert_eq(&text);
    assert_eq!(server.send(&Request::get("/graphite/lb_check/")).expect(200, &[]).text(), "Ok\n");
}

#[test]
fn graphite_web_answers_what_its_cluster_server_has() {
    let python = cache().join("graphite/bin/python");
    if !python.is_file() {
        return stdx::skipped::for_want_of("graphite-web (scripts/test-servers.sh)");
    }
    let (_dir, server, last_s) = written();
    let range = format!("from={}&until={}&format=json", last_s - 600, last_s + 1);
    let paths = [
        "/metrics/find?query=servers.*".to_owned(),
        "/metrics/find?query=servers.web-2.*".into(),
        format!("/render?target=servers.*.load&{range}"),
        format!("/render?target=sumSeries(servers.*.load)&{range}"),
        format!("/render?target=seriesByTag('dc=eu')&{range}"),
        "/tags/autoComplete/values?tag=host&expr=dc=eu".into(),
        "/metrics/index.json?cluster=1".into(),
    ];
    for format in ["pickle", "msgpack"] {
        let mut command = Command::new(&python);
        command.args(["-W", "ignore", "-c", include_str!("cluster.py")]);
        command.arg(format!("{}?format={format}", server.address)).args(&paths);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let answers: Vec<Value> = serde_json::from_slice(&ran.stdout).unwrap();
        let answer = |at: usize| -> Value {
            assert_eq!(answers[at]["status"], 200, "{} by {format}: {}", paths[at], answers[at]);
            serde_json::from_str(answers[at]["body"].as_str().unwrap()).unwrap()
        };
        let node = |id: &str, is_leaf| (id.to_owned(), is_leaf);
        assert_eq!(nodes(&answer(0)), [node("servers.web-1", false), node("servers.web-2", false)]);
        assert_eq!(nodes(&answer(1)), [node("servers.web-2.load", true)]);
        let series = |name: &str, factor| (name.to_owned(), points(factor, last_s));
        let loads = [series("servers.web-1.load", 1.0), series("servers.web-2.load", 10.0)];
        assert_eq!(rendered(&answer(2)), loads, "{format}");
        assert_eq!(rendered(&answer(3)), [series("sumSeries(servers.*.load)", 11.0)], "{format}");
        assert_eq!(rendered(&answer(4)), [series("requests;dc=eu;host=web-1", 1.0)], "{format}");
        assert_eq!(answer(5), json!(["web-1"]), "{format}");
        assert_eq!(answer(6), json!(["other.x", "servers.web-1.load", "servers.web-2.load"]), "{format}");
    }
}
