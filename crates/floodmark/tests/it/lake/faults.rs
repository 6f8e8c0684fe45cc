//! Stores that fail: the journal keeps everything, ingest goes on, and sealing gets on by itself.

use super::{data_files, flush, seed};
use crate::disk_full::SmallDisk;
use crate::harness::ledger::Writer;
use crate::harness::{Options, Request, Server, now_ms, wait_for, wire};

const EXCUSES: [&str; 2] = ["a tenant cannot be sealed", "a tenant can be sealed again"];

fn options(tables: &str) -> Options {
    let config = format!("seal_after = \"200ms\"\ntables = \"{tables}\"");
    EXCUSES.iter().fold(Options::default().config(&config), |options, text| options.allow(text))
}

#[test]
fn a_full_disk_under_the_tables_keeps_nobody_from_writing() {
    let Some(disk) = SmallDisk::mount("8m") else { return };
    let mut server = Server::start(options(&format!("file://{}/t", disk.path().display())));
    let mut writer = Writer::new(seed(), 1);
    writer.write_once(&server).expect(204, &[]);
    flush(&server);
    for _ in 0..2 {
        disk.fill();
        let failures = server.metric("floodmark_seal_failures_total");
        wait_for("a failure", || {
            writer.write_once(&server).expect(204, &[]);
            (server.metric("floodmark_seal_failures_total") > failures + 1.0).then_some(())
        });
        writer.verify(&server, 0);
        server.kill9();
        server.restart();
        writer.verify(&server, 0);
        disk.make_room();
        writer.write_once(&server).expect(204, &[]);
        flush(&server);
        writer.verify(&server, 0);
    }
    server.kill9();
    server.restart();
    assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 0.0);
    writer.verify(&server, 0);
}

#[test]
fn without_tables_it_serves_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let tables = dir.path().join("tables");
    std::fs::write(&tables, "in the way").unwrap();
    let mut server =
        Server::start(options(&format!("file://{}", tables.display())).allow("a table cannot be read"));
    let mut writer = Writer::new(seed(), 1);
    for _ in 0..3 {
        writer.write_once(&server).expect(204, &[]);
    }
    wait_for("a failure", || (server.metric("floodmark_seal_failures_total") > 0.0).then_some(()));
    std::fs::remove_file(&tables).unwrap();
    flush(&server);
    writer.verify(&server, 0);
    // thrown away: what is in the journal stays
    server.kill9();
    std::fs::remove_dir_all(&tables).unwrap();
    server.restart();
    let mut other = Writer::new(seed(), 2);
    other.write_once(&server).expect(204, &[]);
    flush(&server);
    other.verify(&server, 0);
}

#[test]
fn lost_and_damaged_floodmarks_cost_a_replay_and_nothing_else() {
    let mut server = Server::start(Options::default().allow("floodmarks are not readable"));
    let mut writer = Writer::new(seed(), 1);
    for damage in [None, Some("{"), Some("")] {
        for _ in 0..5 {
            writer.write_once(&server).expect(204, &[]);
        }
        flush(&server);
        writer.write_once(&server).expect(204, &[]);
        server.kill9();
        let path = server.data_dir().join("floodmarks.json");
        match damage {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        server.restart();
        assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 100.0, "one request of 20 x 5");
        writer.verify(&server, 0);
    }
}

#[test]
fn answers_name_the_damaged_files_that_they_leave_out() {
    damaged_file_is_named(|len| len / 2);
}

#[test]
fn answers_name_the_files_without_a_byte_that_they_leave_out() {
    damaged_file_is_named(|_| 0);
}

/// What is left of the data is answered, and every answer says that something is missing.
fn damaged_file_is_named(left: impl Fn(u64) -> u64) {
    let server = Server::new();
    let now = now_ms();
    let mut damaged = None;
    for name in ["broken", "whole"] {
        let series = wire::Series::new(&[("__name__", name), ("kind", name)]).sample(now, 1.0);
        server.send(&Request::write(&wire::v1(&[series]))).expect(204, &[]);
        flush(&server);
        damaged = damaged.or_else(|| data_files(&server.data_dir().join("tables")).pop());
    }
    let file = std::fs::OpenOptions::new().write(true).open(damaged.expect("a file was made")).unwrap();
    file.set_len(left(file.metadata().unwrap().len())).unwrap();
    let at = format!("{}.{:03}", now / 1000, now % 1000);
    let ask = |path: &str, params: &[(&str, &str)]| server.send(&Request::ask(path, params));
    let answers = [
        ask("/api/v1/query", &[("query", "{kind!=\"\"}"), ("time", &at)]),
        ask("/api/v1/query_range", &[("query", "{kind!=\"\"}"), ("start", &at), ("end", &at), ("step", "1")]),
        ask("/api/v1/series", &[("match[]", "{kind!=\"\"}")]),
        ask("/api/v1/labels", &[]),
        ask("/api/v1/label/kind/values", &[]),
    ];
    for answer in &answers {
        answer.expect(200, &["samples are left out", ".parquet"]);
        let warnings = answer.json()["warnings"].as_array().map_or(0, Vec::len);
        assert_eq!(warnings, 1, "{}", answer.text());
    }
    for answer in &answers[..3] {
        answer.expect(200, &["\"whole\""]);
        assert!(!answer.text().contains("broken"), "{}", answer.text());
    }
    let export = ask("/api/v1/export", &[("match[]", "{kind!=\"\"}")]);
    export.expect(200, &["\"whole\""]);
    let warning = export.header("x-floodmark-warning");
    assert!(warning.is_some_and(|w| w.contains("samples are left out")), "{warning:?}");
    assert_eq!(server.metric("floodmark_query_left_out_files_total"), 6.0);
    let healthy = ask("/api/v1/query", &[("query", "nothing"), ("time", &at)]).json();
    assert_eq!(healthy.get("warnings"), None, "{healthy}");
}
