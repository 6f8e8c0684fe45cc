//! A collector of OpenTelemetry between the SDK and the server, with each exporter that can send here.

use super::{GRPC, HTTP, TEAM, have, page, values_of};
use crate::harness::pages::{run, shell, with};
use crate::harness::programs::{Running, free_port};
use crate::harness::{Options, Server, now_ms, wait_for};
use std::net::TcpStream;
use std::path::Path;

const COLLECTOR: &str = "127.0.0.1:14317";

/// Short pauses, so that the test takes seconds.
fn fast(exporter: &str) -> String {
    format!(
        "processors: {{ batch: {{ timeout: 50ms }} }}\n\
         exporters:\n  {exporter}:\n    retry_on_failure: {{ initial_interval: 50ms, max_interval: 500ms }}\n\
         service: {{ telemetry: {{ metrics: {{ level: none }} }} }}\n"
    )
}

/// The addresses that a collector needs.
struct Addresses {
    http: String,
    grpc: String,
    collector: String,
}

/// Starts a collector with the configuration of the page below a heading, and the additions below another one.
fn start(dir: &Path, to: &Addresses, exporter: &str, headings: &[&str]) -> Running {
    let page = page("opentelemetry-collector");
    let mut arguments = String::new();
    let base =
        with(page.block("gRPC", "yaml"), &[(GRPC, to.grpc.clone()), (COLLECTOR, to.collector.clone())]);
    let additions = headings.iter().map(|heading| page.block(heading, "yaml").replace(HTTP, &to.http));
    for (number, text) in std::iter::once(base).chain(additions).chain([fast(exporter)]).enumerate() {
        let name = format!("config{number}.yaml");
        std::fs::write(dir.join(&name), text).unwrap();
        arguments.push_str(&format!(" --config {name}"));
    }
    let mut command = shell(&format!("exec otelcol{arguments}"), dir);
    let collector = Running::start(&mut command, 0, dir.join("otelcol.log"));
    wait_for("the collector", || TcpStream::connect(&to.collector).ok());
    collector
}

/// Sends to a collector over gRPC, as the page of the SDKs says.
fn send(dir: &Path, to: &Addresses, program: &str) {
    let settings = page("opentelemetry-sdk");
    let settings = with(settings.block("gRPC", "sh"), &[(GRPC, to.collector.clone())]);
    run(&format!("{settings}{program}\n"), dir);
}

/// The server is killed and stopped meanwhile. Each value that the SDK sent must be there once.
fn nothing_is_lost(exporter: &str, headings: &[&str]) {
    if !have("otelcol", "Go") || !have("otel-sdk-go", "Go") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let address = || format!("127.0.0.1:{}", free_port());
    let (port, grpc) = (free_port(), address());
    let to = Addresses { http: format!("127.0.0.1:{port}"), grpc, collector: address() };
    let options = Options::default().port(port).arg(&format!("--otlp-grpc={}", to.grpc));
    let mut server = Server::start(options);
    let _collector = start(dir.path(), &to, exporter, headings);
    // each run of the program has its own series, because it has its own resource
    let steps = |instance: &str, count: usize| {
        send(
            dir.path(),
            &to,
            &format!("export OTEL_RESOURCE_ATTRIBUTES=service.instance.id={instance}\notel-sdk-go {count}"),
        );
    };
    let stored = |server: &Server, instance: &str| {
        values_of(server, TEAM, &format!(r#"steps_total{{job="shop",instance="{instance}"}}"#))
    };
    // the last export repeats the last value
    let expected = |count: u32| -> Vec<f64> { (1..=count).chain([count]).map(f64::from).collect() };
    let wait = |server: &Server, instance: &str, count: u32| {
        wait_for(instance, || (stored(server, instance).len() > count as usize).then_some(()));
        assert_eq!(stored(server, instance), expected(count), "{exporter}, {instance}");
    };
    steps("before", 30);
    wait(&server, "before", 30);
    server.kill9();
    steps("while-down", 30);
    server.restart();
    wait(&server, "while-down", 30);
    // killed and stopped while points arrive
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| steps("during", 300));
        wait_for("the first points", || (stored(&server, "during").len() > 10).then_some(()));
        server.kill9();
        server.restart();
        wait_for("further points", || (stored(&server, "during").len() > 50).then_some(()));
        assert!(server.terminate().success());
        server.restart();
        sender.join().unwrap();
    });
    for (instance, count) in [("before", 30), ("while-down", 30), ("during", 300)] {
        wait(&server, instance, count);
    }
}

#[test]
fn a_collector_sends_over_grpc() {
    nothing_is_lost("otlp", &[]);
}

#[test]
fn a_collector_sends_over_http() {
    nothing_is_lost("otlphttp", &["HTTP"]);
}

#[test]
fn a_collector_sends_remote_write() {
    nothing_is_lost("prometheusremotewrite", &["Remote write"]);
}

/// Deltas become cumulative in the collector, and all kinds of points pass through it.
#[test]
fn a_collector_makes_deltas_cumulative() {
    if !have("otelcol", "Go") || !have("otel-sdk-go", "Go") {
        return;
    }
    let (dir, server) =
        (tempfile::tempdir().unwrap(), Server::start(Options::default().arg("--otlp-grpc=127.0.0.1:0")));
    let grpc = server.logged_address("grpc").to_string();
    let collector = format!("127.0.0.1:{}", free_port());
    let to = Addresses { http: server.address.to_string(), grpc, collector };
    let _collector = start(dir.path(), &to, "otlp", &["Delta temporality"]);
    send(dir.path(), &to, "export OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta\notel-sdk-go");
    let last = |series: &str| {
        wait_for(series, || super::value_of(&server, TEAM, &format!("last_over_time({series}[1h])")))
    };
    wait_for("the last export", || (values_of(&server, TEAM, "read_bytes_total").len() >= 3).then_some(()));
    for (series, expected) in [
        (r#"requests_total{job="shop",http_method="GET",code="200"}"#, 12.0),
        (r#"requests_total{job="shop",http_method="POST",retried="true"}"#, 2.5),
        (r#"read_bytes_total{job="shop"}"#, 1500.0),
        (r#"queue_length{job="shop"}"#, -2.0),
        (r#"took_milliseconds_sum{job="shop"}"#, 1017.0),
        (r#"took_milliseconds_bucket{job="shop",le="10"}"#, 3.0),
        (r#"exponential_seconds_bucket{job="shop",le="+Inf"}"#, 100.0),
    ] {
        assert_eq!(last(series), expected, "{series} at {}", now_ms());
    }
}
