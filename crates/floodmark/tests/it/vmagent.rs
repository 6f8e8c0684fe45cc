//! A real vmagent sends remote write, compressed with zstd. The test is skipped without it.

use crate::harness::programs::{Running, find, free_port};
use crate::harness::{Request, Server, http, now_ms, wait_for};
use std::process::Command;

/// vmagent gives up zstd for good after a 400. A partial write must not make it do so.
#[test]
fn vmagent_sends_zstd_also_after_a_partial_write() {
    let Some(vmagent) = find(&["vmagent"]) else {
        return stdx::skipped::for_want_of("vmagent (install Go, then run scripts/test-servers.sh)");
    };
    let (dir, server, port) = (tempfile::tempdir().unwrap(), Server::new(), free_port());
    let log = dir.path().join("vmagent.log");
    let mut command = Command::new(vmagent);
    command
        .arg(format!("-remoteWrite.url=http://{}/api/v1/write", server.address))
        .arg(format!("-remoteWrite.tmpDataPath={}", dir.path().join("queue").display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .args(["-remoteWrite.flushInterval=100ms", "-loggerLevel=INFO"]);
    let vmagent = Running::start(&mut command, port, log.clone());
    vmagent.wait_until("/health");
    let import = |text: String| {
        let request = Request::post("/api/v1/import/prometheus", text.into_bytes());
        assert_eq!(http::once(vmagent.address(), &request).unwrap().status, 204);
    };
    import(format!("first{{a=\"b\"}} 1 {}\n", now_ms()));
    wait_for("the first sample", || server.value(r#"first{a="b"}"#, now_ms()));
    // too old, and good: the server stores what it can
    let year_ms = 365 * 86_400_000;
    import(format!("old 1 {}\ngood 2 {}\n", now_ms() - 20 * year_ms, now_ms()));
    wait_for("the good sample", || server.value("good", now_ms()));
    let dropped = || {
        let metrics = http::once(vmagent.address(), &Request::get("/metrics")).unwrap().text();
        let line = metrics.lines().find(|line| line.starts_with("vmagent_remotewrite_packets_dropped_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    wait_for("the refusal", || (dropped() == Some(1.0)).then_some(()));
    import(format!("last 3 {}\n", now_ms()));
    wait_for("the last sample", || server.value("last", now_ms()));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("too old (setting past_limit)"), "{log}");
    assert!(!log.contains("Downgrading") && !log.contains("Re-packing"), "{log}");
}
