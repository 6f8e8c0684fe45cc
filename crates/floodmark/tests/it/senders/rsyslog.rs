//! rsyslog with the configuration of its page. The tests start instances of their own.

use super::page;
use crate::harness::pages::with;
use crate::harness::programs::{Running, find, free_port};
use crate::harness::{Options, Request, Server, wait_for};
use crate::streams::{ask, wait_until_loaded};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Starts rsyslog, and returns it with its connection for lines. `None` if it is missing.
fn start(server: &Server, dir: &Path) -> Option<(Running, TcpStream)> {
    let modules = [
        "/usr/lib/x86_64-linux-gnu/rsyslog",
        "/usr/lib/aarch64-linux-gnu/rsyslog",
        "/usr/lib64/rsyslog",
        "/usr/lib/rsyslog",
    ];
    let has_module = modules.iter().any(|dir| Path::new(dir).join("omelasticsearch.so").exists());
    let Some(rsyslogd) = find(&["rsyslogd", "/usr/sbin/rsyslogd"]).filter(|_| has_module) else {
        stdx::skipped::for_want_of("rsyslog with omelasticsearch (scripts/test-servers.sh)");
        return None;
    };
    let port = free_port();
    let block = page("rsyslog").block("Set-up", "rsyslog").to_owned();
    let block = with(&block, &[("9009", server.address.port().to_string())]);
    let own = format!(
        "global(workDirectory=\"{}\")\nmodule(load=\"imtcp\")\ninput(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")\n",
        dir.display()
    );
    let conf = dir.join("rsyslog.conf");
    std::fs::write(&conf, own + &block).unwrap();
    let mut command = Command::new(rsyslogd);
    command.arg("-n").arg("-iNONE").arg("-f").arg(&conf);
    let running = Running::start(&mut command, port, dir.join("rsyslog.log"));
    let lines = wait_for("rsyslog's port", || TcpStream::connect(("127.0.0.1", port)).ok());
    Some((running, lines))
}

fn line(n: usize) -> String {
    format!("<11>1 2026-11-21T18:00:00.{n:06}Z web1 app {n} - - größe \"{n}\"\n")
}

fn options(config: &str) -> Options {
    Options::default().port(free_port()).config(&format!("stream_freshness = \"100ms\"\n{config}"))
}

/// Waits until every line is in the table, and compares each value. Lines may be there more than once.
#[track_caller]
fn check(server: &Server, lines: usize) {
    // after a restart, rsyslog needs some time to come back
    let first = "tables/anonymous/streams/syslog/_delta_log/00000000000000000000.json";
    wait_for("the table", || server.data_dir().join(first).exists().then_some(()));
    wait_for("all lines", || {
        wait_until_loaded(server);
        let found = ask("deltalake", server, "anonymous", "syslog", "SELECT count(DISTINCT pid) FROM t");
        found.is_none_or(|found| found == json!([[lines]])).then_some(())
    });
    let query = r#"SELECT DISTINCT epoch_us("time") AS us, host, program, severity, facility, pid, message FROM t ORDER BY us"#;
    for engine in ["duckdb", "deltalake"] {
        let Some(found) = ask(engine, server, "anonymous", "syslog", query) else { return };
        let of = |n: usize| {
            json!([
                1_795_284_000_000_000 + n,
                "web1",
                "app",
                "err",
                "user",
                n.to_string(),
                format!("größe \"{n}\"")
            ])
        };
        assert_eq!(found, (0..lines).map(of).collect::<Value>(), "{engine}");
    }
}

#[test]
fn lines_of_rsyslog_are_read_back_after_a_kill() {
    const LINES: usize = 20_000;
    let (dir, mut server) = (tempfile::tempdir().unwrap(), Server::start(options("")));
    let Some((_rsyslog, mut tcp)) = start(&server, dir.path()) else { return };
    for n in 0..LINES {
        if n == LINES / 2 {
            wait_for("the first lines", || (server.metric("floodmark_records_total") > 100.0).then_some(()));
            server.kill9();
        }
        tcp.write_all(line(n).as_bytes()).unwrap();
    }
    server.restart();
    check(&server, LINES);
}

/// rsyslog does not look at the status of an answer, so a refusal must not look like an answer.
#[test]
fn lines_of_rsyslog_are_sent_again_after_a_refusal() {
    const LINES: usize = 3_000;
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port = free_port();
    let start_with = |streams: usize| {
        Server::start(options(&format!("streams = {streams}")).port(port).data_dir(data.path()))
    };
    let mut server = start_with(1);
    let body = b"{\"index\":{\"_index\":\"other\"}}\n{}\n".to_vec();
    server.send(&Request::post("/_bulk", body).header("User-Agent", "test")).expect(200, &[]);
    let Some((_rsyslog, mut tcp)) = start(&server, dir.path()) else { return };
    for n in 0..LINES {
        tcp.write_all(line(n).as_bytes()).unwrap();
    }
    wait_for("refusals", || {
        (server.metric(r#"floodmark_refusals_total{reason="streams"}"#) >= 3.0).then_some(())
    });
    server.kill9();
    let server = start_with(2);
    check(&server, LINES);
}
