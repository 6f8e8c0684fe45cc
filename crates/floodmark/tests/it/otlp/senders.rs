//! OpenTelemetry's SDK for Python, unmodified. The script `scripts/test-servers.sh` installs it.

use super::buckets;
use crate::harness::programs::cache;
use crate::harness::{Options, Request, Server, now_ms};
use std::process::Command;

const HTTP: &str = include_str!("senders/http.py");
const DELTAS: &str = include_str!("senders/deltas.py");

/// Compares the buckets of an exponential histogram with the values that it counted, which are no bounds. Returns the bounds.
#[track_caller]
pub(crate) fn check_buckets(
    server: &Server,
    tenant: Option<&str>,
    selector: &str,
    values: &[f64],
) -> Vec<f64> {
    let found = buckets(server, tenant, selector, now_ms());
    for (bound, count) in &found {
        let expected = values.iter().filter(|value| *value <= bound).count() as f64;
        assert_eq!(*count, expected, "{selector} up to {bound}: {found:?}");
    }
    assert_eq!(found.last(), Some(&(f64::INFINITY, values.len() as f64)), "{selector}");
    let finite: Vec<_> = found.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
    let (least, most) =
        (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max));
    assert!(finite[0] <= least && finite[finite.len() - 1] >= most, "{selector}: {finite:?}");
    finite
}

/// The bounds with two buckets per power of two.
pub(crate) fn halves(exponents: std::ops::RangeInclusive<i32>) -> Vec<f64> {
    let bound = |half: i32| (f64::from(half) / 2.0).exp2();
    exponents.map(bound).collect()
}

#[track_caller]
pub(crate) fn check_bounds(found: &[f64], expected: &[f64]) {
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= b * 1e-15;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(is_close),
        "{found:?}, not {expected:?}"
    );
}

/// Runs a script with the SDK. Returns `None` if the SDK is missing.
pub(crate) fn run(script: &str, args: &[&str]) -> Option<String> {
    let python = cache().join("py/bin/python");
    let has_sdk = Command::new(&python)
        .args([
            "-c",
            "import opentelemetry.sdk.metrics, opentelemetry.exporter.otlp.proto.http, opentelemetry.exporter.otlp.proto.grpc",
        ])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_sdk {
        stdx::skipped::for_want_of("OpenTelemetry's SDK for Python (scripts/test-servers.sh)");
        return None;
    }
    let output = Command::new(python).args(["-c", script]).args(args).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    Some(text)
}

#[test]
fn points_of_the_python_sdk_are_read_back() {
    let server = Server::new();
    let endpoint = format!("http://{}/v1/metrics", server.address);
    for compression in ["none", "gzip", "deflate"] {
        let Some(text) = run(HTTP, &[&endpoint, compression, "cumulative"]) else { return };
        if compression == "deflate" {
            assert!(text.contains("415"), "{text}");
            continue;
        }
        let now = now_ms();
        let value = |query: &str| server.value(&query.replace("JOB", &format!("tests/{compression}")), now);
        assert_eq!(value(r#"requests_total{job="JOB",http_method="GET",code="200"}"#), Some(7.0));
        assert_eq!(value(r#"requests_total{job="JOB",http_method="POST",code="500"}"#), Some(2.5));
        assert_eq!(value(r#"queue_length{job="JOB"}"#), Some(-3.0));
        assert_eq!(value(r#"temperature_celsius{job="JOB",room="größer"}"#), Some(21.5));
        assert_eq!(value(r#"took_milliseconds_count{job="JOB"}"#), Some(3.0));
        assert_eq!(value(r#"took_milliseconds_sum{job="JOB"}"#), Some(1_010.0));
        assert_eq!(value(r#"took_milliseconds_bucket{job="JOB",le="5"}"#), Some(1.0));
        assert_eq!(value(r#"took_milliseconds_bucket{job="JOB",le="10"}"#), Some(2.0));
        assert_eq!(value(r#"took_milliseconds_bucket{job="JOB",le="+Inf"}"#), Some(3.0));
        assert_eq!(value(r#"exponential_seconds_count{job="JOB"}"#), Some(100.0));
        assert!((value(r#"exponential_seconds_sum{job="JOB"}"#).unwrap() - 50.5).abs() < 1e-9);
        let values: Vec<_> = (1..=100).map(|n| f64::from(n) / 100.0).collect();
        let series = format!(r#"exponential_seconds_bucket{{job="tests/{compression}"}}"#);
        check_bounds(&check_buckets(&server, None, &series, &values), &halves(-14..=0));
        assert_eq!(value(r#"target_info{job="JOB",telemetry_sdk_language="python"}"#), Some(1.0));
    }
}

#[test]
fn delta_temporality_is_refused_by_name_if_so_configured() {
    let server = Server::start(Options::default().config("otlp_delta = \"refuse\"\n"));
    let endpoint = format!("http://{}/v1/metrics", server.address);
    let Some(_) = run(HTTP, &[&endpoint, "none", "delta"]) else { return };
    assert_eq!(server.value("temperature_celsius", now_ms()), Some(21.5), "a gauge has no temporality");
    assert_eq!(server.value("count(requests_total)", now_ms()), None);
    let reply = server.send(&Request::get("/api/v1/refusals"));
    reply.expect(200, &["otlp_delta", "requests_total"]);
}

/// The SDK exports several times, and sends each export twice, as it does if it gets no answer. The server is killed in
/// between.
#[test]
fn deltas_of_the_python_sdk_are_added_up_over_http_and_grpc() {
    for (protocol, seal) in [("http", false), ("grpc", true)] {
        let mut server = Server::start(Options::default().arg("--otlp-grpc=127.0.0.1:0"));
        for run_number in 1..=2_u32 {
            let endpoint = match protocol {
                "http" => format!("http://{}/v1/metrics", server.address),
                _ => format!("http://{}", server.logged_address("grpc")),
            };
            let Some(text) = run(DELTAS, &[protocol, &endpoint]) else { return };
            assert!(text.contains("exported 5 times"), "{text}");
            for (result, expected) in
                [("repeated", true), ("late", false), ("too_late", false), ("overlapping", false)]
            {
                let count = server.metric(&format!("floodmark_delta_samples_total{{result=\"{result}\"}}"));
                assert_eq!(count > 0.0, expected, "{protocol}, {run_number}: {result}");
            }
            if seal {
                server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
            }
            server.kill9();
            server.restart();
            let (now, times) = (now_ms(), f64::from(run_number));
            let check = |query: &str, expected: f64| {
                assert_eq!(
                    server.value(query, now),
                    Some(times * expected),
                    "{protocol}, {run_number}: {query}"
                );
            };
            check(r#"requests_total{http_method="GET"}"#, 1.0 + 2.0 + 3.0 + 4.0 + 5.0);
            check(r#"requests_total{http_method="POST"}"#, 2.5 * 5.0);
            check("took_milliseconds_count", 3.0 * 5.0);
            check("took_milliseconds_sum", 1_010.0 * 5.0);
            check(r#"took_milliseconds_bucket{le="5"}"#, 5.0);
            check(r#"took_milliseconds_bucket{le="10"}"#, 2.0 * 5.0);
            check(r#"took_milliseconds_bucket{le="+Inf"}"#, 3.0 * 5.0);
            assert_eq!(server.value("rare_total", now), Some(times), "{protocol}: only in the first export");
            let values = (1..=5).flat_map(|n| [0.3 * f64::from(n), 7.0_f64.powi(n)]);
            let values: Vec<_> = values.collect::<Vec<_>>().repeat(run_number as usize);
            let fine = check_buckets(&server, None, "fine_bucket", &values);
            check_bounds(&fine, &halves(-4..=29));
            // with so few buckets, the SDK has lower scales
            let coarse = check_buckets(&server, None, "coarse_bucket", &values);
            assert!((4..=10).contains(&coarse.len()), "{coarse:?}");
            for name in ["fine", "coarse"] {
                check(&format!("{name}_count"), 10.0);
                let sum = server.value(&format!("{name}_sum"), now).unwrap();
                let expected = values.iter().sum::<f64>();
                assert!((sum - expected).abs() < expected * 1e-12, "{name}: {sum}, not {expected}");
            }
        }
        assert_eq!(server.value("resets(requests_total{http_method=\"GET\"}[10m])", now_ms()), Some(0.0));
    }
}
