//! Real traffic is recorded by a proxy and replayed against another server. The report about it is opened in
//! a browser.

use crate::harness::lab::{Running, good, lab};
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, http, now_ms, wait_for};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

fn record(file: &Path, extra: &[&str]) -> Value {
    let server = Server::new();
    let backend = format!("http://{}", server.address);
    let path = file.to_str().expect("a plain path");
    let args = ["lab", "record", path, "--target", &backend, "--listen", "127.0.0.1:0", "--json"];
    let recorder = Running::start(&[&args, extra].concat(), "recording requests that are sent to");
    let (_, url) = recorder.said.split_once("sent to ").expect("the line has the address");
    let url = format!("{}/api/v1/write", url.split_whitespace().next().expect("an address"));
    good(&lab(&[
        "write",
        "--target",
        &url,
        "--metrics",
        "20",
        "--series",
        "10",
        "--writers",
        "2",
        "--rounds",
        "5",
        "--rate",
        "4000",
        "--quiet",
        "--verify",
        "--read-url",
        &backend,
    ]));
    let (status, printed) = recorder.interrupt();
    assert_eq!(status, Some(0), "{printed}");
    serde_json::from_str(&printed).expect("read the result")
}

#[test]
fn recorded_traffic_can_be_played_three_times_over() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("traffic.rec");
    let recorded = record(&file, &[]);
    assert_eq!(recorded["kept"]["samples"], 2000);
    assert_eq!(recorded["kept"]["series"], 400);
    assert_eq!(recorded["missing"], serde_json::json!({}));

    let server = Server::new();
    let url = format!("http://{}/api/v1/write", server.address);
    let (save, path) = (folder.path().join("a.json"), file.to_str().expect("a plain path"));
    let save = save.to_str().expect("a plain path");
    let pid = server.pid().to_string();
    let metrics = format!("http://{}/metrics", server.address);
    let args =
        ["replay", path, "--target", &url, "--speed", "5", "--writers", "3", "--times", "3", "--out", save];
    let printed = good(&lab(&[&args[..], &["--pid", &pid, "--metrics-url", &metrics, "--quiet"]].concat()));
    assert!(printed.contains("6\u{202f}000"), "{printed}");
    let count = server.value("count({floodmark_copy=~\".+\"})", now_ms());
    assert_eq!(count, Some(1200.0), "400 series, three times");
    let of_one = server.value("count({floodmark_copy=\"2\"})", now_ms());
    assert_eq!(of_one, Some(400.0));

    let compared = good(&lab(&["compare", save, save, "--json"]));
    let compared: Value = serde_json::from_str(&compared).expect("read the comparison");
    assert!(
        compared["figures"].as_array().is_some_and(|f| f.iter().any(|f| f["ratio"] == 1.0)),
        "{compared}"
    );
}

/// A request of each protocol is recorded, and the recording is sent in each protocol.
#[test]
fn all_protocols_are_recorded_and_replayed() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("traffic.rec");
    let path = file.to_str().expect("a plain path");
    let server = Server::start(Options::default().arg("--otlp-grpc=127.0.0.1:0"));
    let grpc = server.logged_address("grpc");
    let backend = format!("http://{}", server.address);
    let args = ["lab", "record", path, "--target", &backend, "--listen", "127.0.0.1:0", "--json"];
    let recorder = Running::start(&args, "recording requests that are sent to");
    let (_, url) = recorder.said.split_once("sent to http://").expect("the line has the address");
    let address = url.split_whitespace().next().expect("an address").parse().expect("an address");
    let now = now_ms();
    let seconds = now / 1000;
    let point = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"otlp.v","gauge":{{"dataPoints":[{{"asDouble":1.5,"timeUnixNano":"{now}000000"}}]}}}}]}}]}}]}}"#
    );
    let json_line =
        format!(r#"{{"metric":{{"__name__":"json_v","a":"b"}},"values":[2.5],"timestamps":[{now}]}}"#);
    let remote_write = wire::v1(&[Series::named("thanos_v").sample(now, 7.5)]);
    let post = |path: &str, body: String| Request::post(path, body.into_bytes());
    for request in [
        post("/v1/metrics", point).header("Content-Type", "application/json"),
        post("/api/v1/import", json_line),
        post("/write?precision=s", format!("influx,a=b v=3.5 {seconds}\n")),
        post("/api/v1/import/prometheus", format!("text_v{{a=\"b\"}} 4.5 {now}\n")),
        post("/metrics/job/backup", "pushed_v 5.5\n".into()),
        post("/api/v1/import/csv?format=1:label:a,2:metric:csv_v,3:time:unix_ms", format!("b,6.5,{now}\n")),
        Request::write(&remote_write).path("/api/v1/receive"),
        post("/api/v1/graphite", format!("graphite_v 8.5 {seconds}\n")),
    ] {
        let reply = http::once(address, &request).expect("an answer");
        assert!([200, 204].contains(&reply.status), "{} {}", reply.status, reply.text());
    }
    let (status, printed) = recorder.interrupt();
    assert_eq!(status, Some(0), "{printed}");
    let recorded: Value = serde_json::from_str(&printed).expect("read the result");
    assert_eq!(
        (&recorded["kept"]["requests"], &recorded["kept"]["samples"]),
        (&8.into(), &8.into()),
        "{printed}"
    );
    for (protocol, target) in [
        ("1.0", format!("{backend}/api/v1/write")),
        ("otlp", format!("{backend}/v1/metrics")),
        ("otlp-grpc", format!("http://{grpc}")),
        ("otlp-json", format!("{backend}/v1/metrics")),
        ("influx", format!("{backend}/write")),
        ("json-lines", format!("{backend}/api/v1/import")),
        ("text", format!("{backend}/api/v1/import/prometheus")),
    ] {
        let header = format!("X-Scope-OrgID: as-{protocol}");
        let args = ["replay", path, "--protocol", protocol, "--target", &target, "-H", &header, "--quiet"];
        good(&lab(&[&args[..], &["--sample-times", "shifted", "--speed", "100"]].concat()));
        // recording took longer than the replay, so that times that are shifted may be in the future
        let soon = now_ms() + 60_000;
        let answer = server.query_as(Some(&format!("as-{protocol}")), "sort({__name__=~'.+_v'})", soon);
        let series = answer["result"].as_array().expect("a list");
        let value = |series: &Value| series["value"][1].as_str().expect("a value").to_owned();
        let values: Vec<String> = series.iter().map(value).collect();
        assert_eq!(values, ["1.5", "2.5", "3.5", "4.5", "5.5", "6.5", "7.5", "8.5"], "{protocol}: {answer}");
    }
}

/// Records what is sent to `backend` while `send` runs, which gets the address of the proxy. Returns the report.
fn record_from(file: &Path, backend: &str, send: impl FnOnce(&str)) -> Value {
    let path = file.to_str().expect("a plain path");
    let args = ["lab", "record", path, "--target", backend, "--listen", "127.0.0.1:0", "--json"];
    let recorder = Running::start(&args, "sent to ");
    let (_, address) = recorder.said.split_once("sent to ").expect("the line has the address");
    send(address.split_whitespace().next().expect("an address"));
    let (status, printed) = recorder.interrupt();
    assert_eq!(status, Some(0), "{printed}");
    serde_json::from_str(&printed).expect("read the result")
}

/// Each refused call says when it may be repeated, and only the repetition that is accepted is recorded.
#[test]
fn calls_of_grpc_are_recorded_and_replayed() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("grpc.rec");
    let limits = "samples_per_second = 1000\nrate_burst = \"1s\"\n";
    let server = Server::start(Options::default().config(limits).arg("--otlp-grpc=127.0.0.1:0"));
    let (grpc, read) =
        (format!("http://{}", server.logged_address("grpc")), format!("http://{}", server.address));
    let recorded = record_from(&file, &grpc, |proxy| {
        let shape = ["--metrics", "20", "--series", "5", "--rounds", "6", "--verify", "--quiet"];
        let target = ["write", "--protocol", "otlp-grpc", "--target", proxy, "--read-url", &read];
        good(&lab(&[&target[..], &shape, &["-H", "X-Scope-OrgID: limited"]].concat()));
    });
    assert_eq!((&recorded["kept"]["samples"], &recorded["missing"]), (&2400.into(), &serde_json::json!({})));
    let statuses = &recorded["statuses"];
    assert_eq!(statuses["OK"], 24, "{recorded}");
    assert!(statuses["RESOURCE_EXHAUSTED"].as_u64() > Some(0), "{recorded}");
    let path = file.to_str().expect("a plain path");
    let args = ["replay", path, "--protocol", "otlp-grpc", "--target", &grpc, "--speed", "100", "--quiet"];
    good(&lab(&[&args[..], &["-H", "X-Scope-OrgID: copy"]].concat()));
    let answer = server.query_as(Some("copy"), "count({__name__=~'metric_.+'})", now_ms());
    assert_eq!(answer["result"][0]["value"][1], "400", "{answer}");
}

/// Values of each type are replayed as what they were.
#[test]
fn datagrams_of_statsd_are_recorded_and_replayed() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("statsd.rec");
    let options = || Options::default().arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=100ms");
    let check = |server: &Server| {
        for (query, expected) in [
            ("hits{code=\"200\"}", 20.0),
            ("pool", 5.0),
            ("latency_count", 2.0),
            ("latency_sum", 29.0),
            ("max_over_time(users[1m])", 2.0),
        ] {
            wait_for(query, || (server.value(query, now_ms()) == Some(expected)).then_some(()));
        }
    };
    let server = Server::start(options());
    let recorded = record_from(&file, &format!("udp://{}", server.logged_address("statsd")), |proxy| {
        let proxy = proxy.strip_prefix("udp://").expect("an address of datagrams");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for datagram in [
            "hits:2|c|@0.1|#code:200\npool:7|g\npool:-2|g",
            "latency:12:17|ms",
            "users:a|s\nusers:b|s\nusers:a|s",
        ] {
            socket.send_to(datagram.as_bytes(), proxy).expect("send");
        }
        check(&server);
    });
    assert_eq!(recorded["kept"]["samples"], 8, "{recorded}");
    assert_eq!(recorded["statuses"]["passed on"], 3, "{recorded}");

    let again = Server::start(options());
    let (path, target) =
        (file.to_str().expect("a plain path"), format!("udp://{}", again.logged_address("statsd")));
    let args = ["replay", path, "--protocol", "statsd", "--target", &target, "--writers", "1", "--quiet"];
    good(&lab(&args));
    check(&again);
}

#[test]
fn hashed_recordings_hold_no_label_values() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("traffic.rec");
    record(&file, &["--hash-values"]);
    let server = Server::new();
    let url = format!("http://{}/api/v1/write", server.address);
    good(&lab(&[
        "replay",
        file.to_str().expect("a plain path"),
        "--target",
        &url,
        "--speed",
        "10",
        "--quiet",
    ]));
    let query = |query: &str| server.value(query, now_ms());
    assert_eq!(query("count({pod=~\"v[0-9a-f]{16}\"})"), Some(400.0));
    assert_eq!(query("count(count by (pod) ({pod=~\".+\"}))"), Some(20.0), "equal values stay equal");
}

#[test]
fn interrupted_replays_are_partial_and_a_report_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("traffic.rec");
    record(&file, &[]);
    let path = file.to_str().expect("a plain path");
    let server = Server::new();
    let url = format!("http://{}/api/v1/write", server.address);
    // at this speed, the replay would take hours, so it is interrupted
    let slow = Running::start(&["lab", "replay", path, "--target", &url, "--speed", "0.002"], "replayed in");
    let (status, printed) = slow.interrupt();
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("PARTIAL"), "{printed}");

    let nowhere = folder.path().join("no/such/report.html");
    let nowhere = nowhere.to_str().expect("a plain path");
    let output = lab(&["replay", path, "--target", &url, "--speed", "10", "--quiet", "--html", nowhere]);
    assert_eq!(output.status.code(), Some(2));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("samples acknowledged"), "the result is not printed: {out}");
    assert!(err.contains("write the report"), "{err}");
}

#[test]
fn the_report_can_be_read_in_a_browser() {
    let Some(browser) = browser() else {
        stdx::skipped::for_want_of("Chromium (apt-get install chromium)");
        return;
    };
    let folder = tempfile::tempdir().expect("make a directory");
    let file = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    record(Path::new(&file("r.rec")), &[]);
    let server = Server::new();
    let url = format!("http://{}/api/v1/write", server.address);
    let hostile = "X-Any: </script><script>document.title='owned'</script>";
    let (save, html) = (file("r.json"), file("r.html"));
    let args = ["replay", &file("r.rec"), "--target", &url, "--speed", "5", "-H", hostile, "--quiet"];
    good(&lab(&[&args[..], &["--pid", &server.pid().to_string(), "--out", &save]].concat()));

    // HTML and scripts that occur in texts must be shown as text
    let text = std::fs::read_to_string(&save).expect("read the result");
    let mut result: Value = serde_json::from_str(&text).expect("read the result");
    let evil =
        "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    result["scenario"] = evil.into();
    result["target"] = evil.into();
    result["events"] = serde_json::json!([{"at_s": 0.5, "kind": "target", "text": evil}]);
    std::fs::write(&save, result.to_string()).expect("write the result");
    good(&lab(&["report", &save, "--html", &html]));

    let page = dom(&browser, folder.path(), &html);
    assert!(
        page.contains("<title>replay – Floodmark lab</title>"),
        "a script changed the title: {}",
        &page[..1000]
    );
    let samples = result["totals"]["samples_acknowledged"].as_u64().expect("a count");
    assert_eq!(samples, 2000);
    assert!(page.contains("data-figure=\"samples_per_s\""), "the page has no tiles");
    assert!(page.contains(">PASS<"), "the verdict is not PASS");
    let drawn = between(&page, "data-drawn=\"", "\"").parse::<usize>().expect("charts were drawn");
    assert!(drawn >= 4, "{drawn} charts");
    assert_eq!(page.matches("<figure").count(), drawn);
    assert!(page.contains("<path d=\"M"), "the charts have no lines");
    assert!(!page.contains("<img"), "text became markup");

    good(&lab(&["compare", &save, &save, "--html", &html]));
    let page = dom(&browser, folder.path(), &html);
    assert!(between(&page, "data-drawn=\"", "\"").parse::<usize>().is_ok_and(|n| n >= 4));
}

fn browser() -> Option<String> {
    let named = std::env::var("FLOODMARK_CHROMIUM").ok();
    let usual = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let works =
        |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    named.into_iter().chain(usual).find(works)
}

/// Returns the DOM of a page, as it is after the page's scripts have run.
fn dom(browser: &str, folder: &Path, page: &str) -> String {
    let mut command = Command::new(browser);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", folder.join("browser").display()));
    command.arg(format!("file://{page}")).stderr(Stdio::null());
    let output = command.output().expect("run the browser");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map_or("", |(found, _)| found)
}
