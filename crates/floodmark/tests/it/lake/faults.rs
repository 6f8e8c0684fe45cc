//! Stores that fail: the journal keeps everything, ingest goes on, and sealing gets on by itself.

use super::{flush, seed};
use crate::disk_full::SmallDisk;
use crate::harness::ledger::Writer;
use crate::harness::{Options, Server, wait_for};

const EXCUSES: [&str; 2] = ["sealing does not get on", "sealing gets on again"];

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
        Server::start(options(&format!("file://{}", tables.display())).allow("waits for a table"));
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
