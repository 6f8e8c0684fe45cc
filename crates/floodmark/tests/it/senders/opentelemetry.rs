//! OpenTelemetry's SDKs for Go and Python.

use super::{GRPC, HTTP, TEAM, have, page, server_with_grpc, value_of, values_of};
use crate::harness::pages::{Page, run, shell, with};
use crate::harness::programs::{cache, free_port};
use crate::harness::read::{data, seconds};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::otlp::{check_bounds, check_buckets, halves};
use crate::streams::{ask, wait_until_loaded};
use serde_json::json;
use std::process::{Command, Stdio};

const DELTA: &str = "export OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta\n";

/// The settings of the page for a transport.
fn settings(page: &Page, transport: &str, server: &Server, grpc: &str) -> String {
    let address = match transport {
        "gRPC" => (GRPC, grpc.to_owned()),
        _ => (HTTP, server.address.to_string()),
    };
    with(page.block(transport, "sh"), &[address])
}

fn for_tenant(page: &Page, tenant: &str) -> String {
    with(page.block("Tenant and compression", "sh"), &[(TEAM, tenant.to_owned())])
}

/// The values of each series in the exports of the program, if points are cumulative. There are three exports, and the last
/// one has nothing new.
const CUMULATIVE: &[(&str, &[f64])] = &[
    (r#"requests_total{job="shop",http_method="GET",code="200"}"#, &[7.0, 12.0, 12.0]),
    (r#"requests_total{job="shop",http_method="POST",retried="true"}"#, &[2.5, 2.5, 2.5]),
    (r#"queue_length{job="shop"}"#, &[-3.0, -2.0, -2.0]),
    (r#"limit{job="shop"}"#, &[100.0, 50.0, 50.0]),
    (r#"temperature_celsius{job="shop",room="größer"}"#, &[21.5, 21.5, 21.5]),
    (r#"read_bytes_total{job="shop"}"#, &[1000.0, 1500.0, 1500.0]),
    (r#"took_milliseconds_count{job="shop"}"#, &[3.0, 4.0, 4.0]),
    (r#"took_milliseconds_sum{job="shop"}"#, &[1010.0, 1017.0, 1017.0]),
    (r#"took_milliseconds_bucket{job="shop",le="5"}"#, &[1.0, 1.0, 1.0]),
    (r#"took_milliseconds_bucket{job="shop",le="10"}"#, &[2.0, 3.0, 3.0]),
    (r#"took_milliseconds_bucket{job="shop",le="+Inf"}"#, &[3.0, 4.0, 4.0]),
    (r#"exponential_seconds_count{job="shop"}"#, &[100.0, 100.0, 100.0]),
    (r#"exponential_seconds_bucket{job="shop",le="0.25"}"#, &[25.0, 25.0, 25.0]),
    (r#"exponential_seconds_bucket{job="shop",le="0.5"}"#, &[50.0, 50.0, 50.0]),
    (r#"exponential_seconds_bucket{job="shop",le="+Inf"}"#, &[100.0, 100.0, 100.0]),
    (r#"target_info{job="shop",telemetry_sdk_language="go"}"#, &[1.0, 1.0, 1.0]),
];

/// The same if counters and histograms are deltas that are kept as sent.
const KEPT: &[(&str, &[f64])] = &[
    (r#"requests_total{job="shop",http_method="GET",code="200"}"#, &[7.0, 5.0]),
    (r#"requests_total{job="shop",http_method="POST",retried="true"}"#, &[2.5]),
    (r#"queue_length{job="shop"}"#, &[-3.0, -2.0, -2.0]),
    (r#"temperature_celsius{job="shop",room="größer"}"#, &[21.5, 21.5, 21.5]),
    (r#"read_bytes_total{job="shop"}"#, &[1000.0, 500.0, 0.0]),
    (r#"took_milliseconds_count{job="shop"}"#, &[3.0, 1.0]),
    (r#"took_milliseconds_sum{job="shop"}"#, &[1010.0, 7.0]),
    (r#"took_milliseconds_bucket{job="shop",le="5"}"#, &[1.0, 0.0]),
    (r#"took_milliseconds_bucket{job="shop",le="10"}"#, &[2.0, 1.0]),
    (r#"took_milliseconds_bucket{job="shop",le="+Inf"}"#, &[3.0, 1.0]),
    (r#"exponential_seconds_count{job="shop"}"#, &[100.0]),
    (r#"exponential_seconds_bucket{job="shop",le="0.5"}"#, &[50.0]),
];

/// The same if they are added up.
const ADDED: &[(&str, &[f64])] = &[
    (r#"requests_total{job="shop",http_method="GET",code="200"}"#, &[7.0, 12.0]),
    (r#"requests_total{job="shop",http_method="POST",retried="true"}"#, &[2.5]),
    (r#"queue_length{job="shop"}"#, &[-3.0, -2.0, -2.0]),
    (r#"temperature_celsius{job="shop",room="größer"}"#, &[21.5, 21.5, 21.5]),
    (r#"read_bytes_total{job="shop"}"#, &[1000.0, 1500.0, 1500.0]),
    (r#"took_milliseconds_count{job="shop"}"#, &[3.0, 4.0]),
    (r#"took_milliseconds_sum{job="shop"}"#, &[1010.0, 1017.0]),
    (r#"took_milliseconds_bucket{job="shop",le="5"}"#, &[1.0, 1.0]),
    (r#"took_milliseconds_bucket{job="shop",le="10"}"#, &[2.0, 3.0]),
    (r#"took_milliseconds_bucket{job="shop",le="+Inf"}"#, &[3.0, 4.0]),
    (r#"exponential_seconds_count{job="shop"}"#, &[100.0]),
    (r#"exponential_seconds_bucket{job="shop",le="0.25"}"#, &[25.0]),
    (r#"exponential_seconds_bucket{job="shop",le="0.5"}"#, &[50.0]),
    (r#"exponential_seconds_bucket{job="shop",le="+Inf"}"#, &[100.0]),
];

/// The same if they are refused.
const REFUSED: &[(&str, &[f64])] = &[
    (r#"{__name__=~"requests.*|read.*|took.*|exponential.*"}"#, &[]),
    (r#"queue_length{job="shop"}"#, &[-3.0, -2.0, -2.0]),
    (r#"temperature_celsius{job="shop",room="größer"}"#, &[21.5, 21.5, 21.5]),
];

#[test]
fn points_of_the_go_sdk_are_read_back() {
    if !have("otel-sdk-go", "Go") {
        return;
    }
    let page = page("opentelemetry-sdk");
    for transport in ["HTTP", "gRPC"] {
        let deltas = "[tenant.kept]\notlp_delta = \"keep\"\n[tenant.refused]\notlp_delta = \"refuse\"\n";
        let options = Options::default().config(deltas);
        let (mut server, grpc) = server_with_grpc(options);
        let dir = tempfile::tempdir().unwrap();
        let send = |tenant: &str, temporality: &str| {
            let settings = settings(&page, transport, &server, &grpc) + &for_tenant(&page, tenant);
            run(&format!("{settings}{temporality}otel-sdk-go\n"), dir.path())
        };
        let cumulative = send("cumulative", "");
        let said: Vec<_> = cumulative.lines().filter(|line| line.starts_with("said:")).collect();
        assert!(!said.is_empty() && said.iter().all(|line| line.contains("exponential")), "{said:?}");
        let added = send("added", DELTA);
        assert!(added.contains("1 points of exponential histograms stored as classic histograms"), "{added}");
        send("kept", DELTA);
        let refused = send("refused", DELTA);
        assert!(refused.contains("otlp_delta") && refused.contains("requests_total"), "{refused}");
        for _ in 0..2 {
            for (tenant, expected) in
                [("cumulative", CUMULATIVE), ("added", ADDED), ("kept", KEPT), ("refused", REFUSED)]
            {
                for (series, values) in expected {
                    assert_eq!(
                        values_of(&server, tenant, series),
                        *values,
                        "{transport}, {tenant}: {series}"
                    );
                }
            }
            let values: Vec<_> = (1..=100).map(|n| f64::from(n) / 100.0).collect();
            for tenant in ["cumulative", "added", "kept"] {
                let bounds = check_buckets(&server, Some(tenant), "exponential_seconds_bucket", &values);
                check_bounds(&bounds, &halves(-14..=0));
                let sum = values_of(&server, tenant, "exponential_seconds_sum");
                assert!((sum[0] - 50.5).abs() < 1e-9, "{tenant}: {sum:?}");
            }
            let ask = [("query", "took_milliseconds_bucket"), ("end", &*seconds(now_ms()))];
            let request = Request::ask("/api/v1/query_exemplars", &ask).tenant("cumulative");
            let found = data(&server.send(&request));
            let exemplar = &found[0]["exemplars"][0];
            assert_eq!(exemplar["labels"]["trace_id"], format!("01{}", "0".repeat(30)), "{found}");
            assert_eq!((&exemplar["value"], &found[0]["seriesLabels"]["le"]), (&"7".into(), &"10".into()));
            // compare again after the journal was replayed
            server.kill9();
            server.restart();
        }
    }
}

/// Over gRPC, the SDK repeats requests until the server is back. Over HTTP, it gives up when a connection fails, and the
/// program exports again.
#[test]
fn nothing_of_the_go_sdk_is_lost_while_the_server_restarts() {
    if !have("otel-sdk-go", "Go") {
        return;
    }
    let page = page("opentelemetry-sdk");
    for transport in ["HTTP", "gRPC"] {
        let grpc = format!("127.0.0.1:{}", free_port());
        let options = Options::default().port(free_port()).arg(&format!("--otlp-grpc={grpc}"));
        let (mut server, dir) = (Server::start(options), tempfile::tempdir().unwrap());
        let settings = settings(&page, transport, &server, &grpc) + &for_tenant(&page, "steps");
        let mut sender = shell(&format!("{settings}exec otel-sdk-go 300\n"), dir.path());
        let sender = sender.stdout(Stdio::piped()).spawn().unwrap();
        let stored = |server: &Server| values_of(server, "steps", "steps_total");
        wait_for("the first steps", || (stored(&server).len() > 20).then_some(()));
        server.kill9();
        server.restart();
        let ended = sender.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}");
        assert!(said.is_empty() || transport == "HTTP", "{said}");
        let mut steps = stored(&server);
        // the last export repeats the last value, and so do exports that were stored but not answered
        steps.dedup();
        assert_eq!(steps, (1..=300).map(f64::from).collect::<Vec<_>>(), "{transport}");
    }
}

#[test]
fn the_program_for_the_python_sdk_sends() {
    let installed = Command::new(cache().join("py/bin/python"))
        .args(["-c", "import opentelemetry.exporter.otlp.proto.http"])
        .output();
    if !installed.is_ok_and(|ended| ended.status.success()) {
        return stdx::skipped::for_want_of("OpenTelemetry's SDK for Python (scripts/test-servers.sh)");
    }
    let page = page("opentelemetry-sdk");
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let settings = settings(&page, "HTTP", &server, "") + &for_tenant(&page, TEAM);
    std::fs::write(dir.path().join("program.py"), page.block("Python", "python")).unwrap();
    run(&format!("{settings}python program.py\n"), dir.path());
    assert_eq!(value_of(&server, TEAM, r#"orders_total{country="de",job="shop"}"#), Some(1.0));
}

#[test]
fn the_programs_for_logs_and_traces_send() {
    let page = page("opentelemetry-sdk");
    let (server, dir) = (
        Server::start(Options::default().config("stream_freshness = \"100ms\"")),
        tempfile::tempdir().unwrap(),
    );
    for (heading, stream, query, expected) in [
        (
            "Logs in Python",
            "shop",
            r#"SELECT body, severity_number, "attributes.order" FROM t"#,
            json!([["order received", 9, 7]]),
        ),
        (
            "Traces in Python",
            "traces",
            r#"SELECT name, "attributes.order" FROM t WHERE duration_nano > 0"#,
            json!([["pay", 7]]),
        ),
    ] {
        let settings = with(page.block(heading, "sh"), &[(HTTP, server.address.to_string())]);
        std::fs::write(dir.path().join("program.py"), page.block(heading, "python")).unwrap();
        // an empty program tells whether the SDK is there
        if crate::otlp::run("", &[]).is_none() {
            return;
        }
        run(&format!("{settings}python program.py\n"), dir.path());
        wait_until_loaded(&server);
        for engine in ["duckdb", "deltalake"] {
            let found = ask(engine, &server, TEAM, stream, query);
            assert!(found.as_ref().is_none_or(|found| *found == expected), "{engine}, {stream}: {found:?}");
        }
    }
}
