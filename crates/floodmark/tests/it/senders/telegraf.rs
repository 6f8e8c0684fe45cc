//! Telegraf with the outputs of its page. It sends memory, and lines of a script with values that the test knows.

use super::{GRPC, HTTP, TEAM, have, page, server_with_grpc, value_of};
use crate::harness::pages::{shell, with};
use crate::harness::programs::{Running, free_port};
use crate::harness::{Options, Server, wait_for};
use crate::streams::{ask, wait_until_loaded};
use serde_json::json;
use std::path::Path;

/// Starts Telegraf with the output below a heading of the page. `None` if it is missing.
fn telegraf(dir: &Path, heading: &str, address: (&str, String)) -> Option<Running> {
    if !have("telegraf", "Go") {
        return None;
    }
    let inputs = "[agent]\n  interval = \"200ms\"\n  flush_interval = \"200ms\"\n  hostname = \"web1\"\n  debug = true\n\
         [[inputs.mem]]\n\
         [[inputs.exec]]\n  commands = [\"printf 'own,k=v\\\\ w f=1.5,i=2i,u=3u,t=true,s=\\\"text\\\"'\"]\n  data_format = \"influx\"\n";
    let page = page("telegraf");
    let text = format!("{inputs}{}", with(page.block(heading, "toml"), &[address]));
    std::fs::write(dir.join("telegraf.conf"), text).unwrap();
    let mut command = shell("exec telegraf --config telegraf.conf", dir);
    Some(Running::start(&mut command, 0, dir.join("telegraf.log")))
}

/// Waits for the values of the script, and for the memory.
fn check(server: &Server, labels: &str, fields: &[&str]) {
    for (field, value) in [("f", 1.5), ("i", 2.0), ("u", 3.0), ("t", 1.0)] {
        if fields.contains(&field) {
            let series = format!(r#"own_{field}{{host="web1",k="v w"{labels}}}"#);
            assert_eq!(wait_for(&series, || value_of(server, TEAM, &series)), value, "{series}");
        }
    }
    let bytes = wait_for("memory", || value_of(server, TEAM, r#"mem_total{host="web1"}"#));
    assert!(bytes > 1e6, "{bytes}");
    assert_eq!(value_of(server, TEAM, "own_s"), None, "a string");
}

/// A string does not keep the other fields from being stored. Telegraf drops what was refused for good, and goes on.
fn check_lines(server: &Server, dir: &Path, labels: &str) {
    check(server, labels, &["f", "i", "u", "t"]);
    let refused = r#"floodmark_refusals_total{reason="partial_write"}"#;
    let before = server.metric(refused);
    wait_for("further requests", || (server.metric(refused) > before + 1.0).then_some(()));
    let log = std::fs::read_to_string(dir.join("telegraf.log")).unwrap();
    assert!(log.contains("is a string, which cannot be stored"), "{log}");
}

#[test]
fn telegraf_writes_to_influxdb_1() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let address = (HTTP, server.address.to_string());
    let Some(_telegraf) = telegraf(dir.path(), "InfluxDB 1", address) else { return };
    check_lines(&server, dir.path(), r#",db="metrics""#);
}

#[test]
fn telegraf_writes_to_influxdb_2() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let address = (HTTP, server.address.to_string());
    let Some(_telegraf) = telegraf(dir.path(), "InfluxDB 2", address) else { return };
    check_lines(&server, dir.path(), "");
}

#[test]
fn telegraf_sends_remote_write() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let address = (HTTP, server.address.to_string());
    let Some(_telegraf) = telegraf(dir.path(), "Remote write", address) else { return };
    check(&server, "", &["f", "i", "u", "t"]);
}

#[test]
fn telegraf_sends_opentelemetry() {
    let dir = tempfile::tempdir().unwrap();
    let (server, grpc) = server_with_grpc(Options::default());
    let Some(_telegraf) = telegraf(dir.path(), "OpenTelemetry", (GRPC, grpc)) else { return };
    // Telegraf leaves booleans out here
    check(&server, r#",job="telegraf""#, &["f", "i", "u"]);
}

/// Each line is read back, also those that were stored before the server was killed.
#[test]
fn telegraf_sends_to_loki() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().port(free_port()).config("stream_freshness = \"100ms\"");
    let mut server = Server::start(options);
    let address = (HTTP, server.address.to_string());
    let Some(_telegraf) = telegraf(dir.path(), "Loki", address) else { return };
    for _ in 0..2 {
        wait_for("lines", || (server.metric("floodmark_records_total") >= 6.0).then_some(()));
        server.kill9();
        server.restart();
    }
    wait_until_loaded(&server);
    let query = r#"SELECT "labels.host", "labels.k", message, count(*) >= 4 FROM t WHERE "labels.__name" = 'own'
        GROUP BY ALL"#;
    let line = r#"f="1.5" i="2" u="3" t="true" s="text" "#;
    for engine in ["duckdb", "deltalake"] {
        let found = ask(engine, &server, TEAM, "telegraf", query);
        assert!(
            found.as_ref().is_none_or(|found| *found == json!([["web1", "v w", line, true]])),
            "{found:?}"
        );
    }
}

#[test]
fn telegraf_writes_to_graphite() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::default().arg("--graphite=127.0.0.1:0"));
    let address = ("127.0.0.1:2003", server.logged_address("graphite").to_string());
    let Some(_telegraf) = telegraf(dir.path(), "Graphite", address) else { return };
    for (series, value) in [(r#"{"own.f", host="web1"}"#, 1.5), (r#"{"own.i", host="web1"}"#, 2.0)] {
        assert_eq!(wait_for(series, || value_of(&server, "anonymous", series)), value);
    }
    assert_eq!(server.metric(r#"floodmark_graphite_dropped_points_total{reason="malformed"}"#), 0.0);
}
