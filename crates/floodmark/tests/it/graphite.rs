//! Sends lines in HTTP requests, and queries them with PromQL. The modules have other protocols, and Graphite's own API.

mod archives;
mod clients;
mod encrypted;
mod events;
mod find;
mod floods;
mod formats;
mod grafana;
mod graphite_web;
mod lab;
pub(crate) mod lines;
mod listeners;
mod new_series;
mod searches;
mod senders;
mod tags;

use crate::harness::{Options, Request, Server, now_ms};

fn lines(text: &str) -> Request {
    Request::post("/api/v1/graphite", text.into())
}

#[test]
fn graphite_lines_are_series_and_survive_a_kill() {
    let mut server = Server::new();
    let now_s = now_ms() / 1000;
    let text = format!("load.web1 0.5 {now_s}\ndisk.used;rack=b;host=web1 42 {}.5\n", now_s - 60);
    server.send(&lines(&text)).expect(204, &[]);
    // the same series again, with its tags in another order and in a compressed body
    let text = format!("disk.used;host=web1;rack=b 43 {now_s}\n");
    let zstd = zstd::bulk::compress(text.as_bytes(), 3).unwrap();
    server.send(&Request::post("/api/v1/graphite", zstd).header("Content-Encoding", "zstd")).expect(204, &[]);
    let check = |server: &Server| {
        let at_ms = now_s * 1000;
        assert_eq!(server.value(r#"{"load.web1"}"#, at_ms), Some(0.5));
        let disk = r#"{"disk.used", host="web1", rack="b"}[2m]"#;
        assert_eq!(server.samples_of_one(disk, at_ms), [(at_ms - 59_500, 42.0), (at_ms, 43.0)]);
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// The time of arrival must not replace a missing time, because a request that is retried would be stored
/// twice.
#[test]
fn graphite_lines_without_a_time_are_left_out() {
    let server = Server::new();
    server.send(&lines("a 1\nb 2 -1")).expect(400, &["line 1", "no time"]);
    assert_eq!(server.value(r#"count({__name__=~".+"})"#, now_ms()), None);
}

#[test]
fn graphite_lines_that_are_wrong_are_named_and_the_others_stored() {
    let server = Server::new();
    let now_s = now_ms() / 1000;
    let text =
        format!("good 1 {now_s}\nbad one {now_s}\nold 1 -7\ntwice;a=1;a=2 1 {now_s}\nalso.good 2 {now_s}\n");
    server.send(&lines(&text)).expect(
        400,
        &["3 samples stored; 2 samples of 2 series refused", "line 2: value \"one\"", "before 1970: old"],
    );
    assert_eq!(server.value(r#"count({__name__=~".+"})"#, now_ms()), Some(3.0));
    assert_eq!(server.value(r#"twice{a="2"}"#, now_ms()), Some(1.0), "the last value of a tag counts");
}

#[test]
fn graphite_bodies_are_negotiated_and_bounded() {
    let server = Server::new();
    let encoded = |encoding, body: Vec<u8>| {
        server.send(&Request::post("/api/v1/graphite", body).header("Content-Encoding", encoding))
    };
    encoded("snappy", b"a 1".to_vec()).expect(415, &["snappy", "identity or gzip or zstd"]);
    encoded("gzip", b"a 1".to_vec()).expect(400, &["gzip"]);
    encoded("zstd", zstd::bulk::compress(&vec![b'\n'; 65 << 20], 1).unwrap()).expect(413, &["decompresses"]);
    server.send(&lines(&"a 1\n".repeat(250_001))).expect(413, &["250000 lines"]);
    server.send(&Request::get("/api/v1/graphite")).expect(405, &[]);
}

/// From the status, a sender can tell whether its tenant's limit or the node's limit was reached.
#[test]
fn graphite_senders_learn_when_a_limit_is_theirs() {
    let server = Server::start(Options::default().config("tenant_burst = 1\ntenants_per_minute = 1"));
    let line = format!("a 1 {}", now_ms() / 1000);
    server.send(&lines(&line).tenant("first")).expect(204, &[]);
    server.send(&lines(&line).tenant("second")).expect(503, &["tenants_per_minute"]);
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="new_tenants"}"#), 1.0);

    let limits = "[tenant.fast]\nsamples_per_second = 10\nrate_burst = '1s'";
    let server = Server::start(Options::default().config(limits));
    let line = format!("a 1 {}\n", now_ms() / 1000);
    server.send(&lines(&line.repeat(600)).tenant("fast")).expect(204, &[]);
    let refused = server.send(&lines(&line).tenant("fast"));
    refused.expect(429, &["tenant fast", "10 samples a second", "samples_per_second"]);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(
        (50..=120).contains(&seconds),
        "Retry-After is {seconds} s, too short or too long for 590 excess samples"
    );
    server.send(&lines(&line).tenant("slow")).expect(204, &[]);
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="samples_rate"}"#), 1.0);
}
