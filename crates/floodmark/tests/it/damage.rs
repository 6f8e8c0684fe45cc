//! Damaged data directories. The server must start, report what was lost, serve the rest, and accept writes.

use crate::harness::ledger::Writer;
use crate::harness::process::command;
use crate::harness::{Options, Request, Server, wait_for};
use journal::record::RECORD_VERSION;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const REQUESTS: u64 = 20;

/// Starts a server with one partition, fills three segments of its journal, and kills it.
fn stopped() -> (Server, Writer) {
    let options = Options::default().config("partitions = 1");
    let options = options
        .allow("journal is damaged")
        .allow("journal: ")
        .allow("segment")
        .allow("damage")
        .allow("stays closed");
    let mut server = Server::start(options);
    let mut writer = Writer::new(3, 1);
    for segment in 0..3 {
        if segment > 0 {
            server.restart();
        }
        for _ in 0..REQUESTS {
            writer.write_once(&server).expect(204, &[]);
        }
        server.kill9();
    }
    assert!(segments(&server).len() >= 3, "{:?}", segments(&server));
    (server, writer)
}

fn segments(server: &Server) -> Vec<PathBuf> {
    let dir = server.data_dir().join("journal/0");
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut segments: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "journal")).collect();
    segments.sort();
    segments
}

fn flip(path: &PathBuf, at: u64, len: usize) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|b| *b ^= 0x55);
    file.write_all_at(&bytes, at).unwrap();
}

/// Returns the middle of the part of a segment that has records. The rest of the file is preallocated space.
fn middle(path: &PathBuf) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let written = bytes.iter().rposition(|b| *b != 0).unwrap() as u64;
    1024 + (written - 1024) / 2
}

fn goes_on(server: &mut Server) {
    let mut writer = Writer::new(4, 2);
    for _ in 0..5 {
        writer.write_once(server).expect(204, &[]);
    }
    writer.verify(server, 0);
    server.kill9();
    server.restart();
    writer.verify(server, 0);
}

#[test]
fn one_damaged_byte_is_harmless_or_reported() {
    let (mut server, writer) = stopped();
    let middle_segment = &segments(&server)[1];
    flip(middle_segment, middle(middle_segment), 1);
    server.restart();
    let missing = writer.count_missing(&server);
    let lost = server.metric("floodmark_journal_lost_records_total");
    assert_eq!(missing > 0, lost > 0.0, "{missing} samples are missing, {lost} lost records reported");
    goes_on(&mut server);
}

#[test]
fn damage_in_the_middle_is_reported_and_the_rest_is_served() {
    let (mut server, mut writer) = stopped();
    let middle_segment = &segments(&server)[1];
    flip(middle_segment, middle(middle_segment), 200);
    server.restart();
    let missing = writer.count_missing(&server);
    let records = server.metric("floodmark_journal_lost_records_total");
    assert!(records >= 1.0 && missing > 0, "{records} records, {missing} samples");
    assert!(server.metric("floodmark_journal_damaged_ranges_total") >= 1.0);
    assert!(missing as u64 <= writer.sample_count() / 3, "{missing} of {} are gone", writer.sample_count());
    assert!(!server.log_lines("journal is damaged").is_empty(), "the log does not report the damage");
    // senders that still have their samples can send them again
    let all = writer.acknowledged;
    writer.acknowledged = 0;
    for _ in 0..all {
        writer.write_once(&server).expect(204, &[]);
    }
    writer.verify(&server, 0);
    server.kill9();
    server.restart();
    writer.verify(&server, 0);
    goes_on(&mut server);
}

#[test]
fn a_cut_newest_segment_loses_its_tail_only() {
    let (mut server, writer) = stopped();
    let newest = segments(&server).pop().unwrap();
    let file = OpenOptions::new().write(true).open(&newest).unwrap();
    file.set_len(middle(&newest)).unwrap();
    server.restart();
    let missing = writer.count_missing(&server) as u64;
    assert!(0 < missing && missing < writer.sample_count() / 2, "{missing} of {}", writer.sample_count());
    goes_on(&mut server);
}

#[test]
fn an_empty_newest_segment_is_passed_over() {
    let (mut server, writer) = stopped();
    let newest = segments(&server).pop().unwrap();
    File::create(&newest).unwrap();
    server.restart();
    let missing = writer.count_missing(&server) as u64;
    assert!(missing < writer.sample_count() / 2, "{missing} of {}", writer.sample_count());
    goes_on(&mut server);
}

#[test]
fn a_missing_segment_is_reported() {
    let (mut server, writer) = stopped();
    std::fs::remove_file(&segments(&server)[1]).unwrap();
    server.restart();
    let missing = writer.count_missing(&server) as u64;
    assert!(0 < missing && missing < writer.sample_count(), "{missing} of {}", writer.sample_count());
    assert!(server.metric("floodmark_journal_lost_records_total") >= 1.0);
    goes_on(&mut server);
}

#[test]
fn garbage_behind_the_end_is_cut() {
    let (mut server, writer) = stopped();
    let newest = segments(&server).pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    // skip a few bytes, because the last record may end in zeros
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() as u64 + 16;
    let file = OpenOptions::new().write(true).open(&newest).unwrap();
    file.write_all_at(&bytes[1024..1024 + 100], end).unwrap();
    server.restart();
    writer.verify(&server, 0);
    goes_on(&mut server);
}

#[test]
fn files_of_others_are_left_alone() {
    let (mut server, writer) = stopped();
    let dir = server.data_dir();
    for name in [
        "journal/0/notes.txt",
        "journal/lost+found",
        "lost+found",
        "journal/0/00000000000000000000.journal.bak",
    ] {
        std::fs::write(dir.join(name), "mine").unwrap();
    }
    server.restart();
    writer.verify(&server, 0);
    goes_on(&mut server);
    assert_eq!(std::fs::read(dir.join("journal/0/notes.txt")).unwrap(), b"mine");
}

/// Without this file, it is unknown which partition a series belongs to, so the server must not start.
#[test]
fn a_directory_without_its_identity_is_refused() {
    let (mut server, writer) = stopped();
    let identity = server.data_dir().join("identity.json");
    let good = std::fs::read(&identity).unwrap();
    let refused = |mentions: &[&str]| {
        let dir = server.data_dir();
        let ended = command(&["serve", "--http", "127.0.0.1:0", "--data-dir"]).arg(dir).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && !text.contains("panicked"), "{text}");
        for mention in mentions {
            assert!(text.contains(mention), "{mention:?} is not in: {text}");
        }
    };
    std::fs::remove_file(&identity).unwrap();
    refused(&["identity.json", "missing"]);
    assert!(!identity.exists());
    for bad in ["", "{", "[]", "{\"version\": 999, \"seed\": \"0\", \"partitions\": 1}"] {
        std::fs::write(&identity, bad).unwrap();
        refused(&["identity.json"]);
        assert_eq!(std::fs::read(&identity).unwrap(), bad.as_bytes());
    }
    std::fs::write(&identity, good).unwrap();
    server.restart();
    writer.verify(&server, 0);
}

fn append(server: &Server, payload: &[u8]) {
    use journal::{Files, Journal, Options};
    let mut journal = Files::open(&server.data_dir().join("journal"), 0, Options::default()).unwrap();
    journal.begin().unwrap();
    journal.append(payload).unwrap();
    journal.sync().unwrap();
}

fn quarantined(server: &Server, extension: &str) -> usize {
    let dir = server.data_dir().join("journal/0/quarantine");
    let files = std::fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == extension)).count()
}

#[test]
fn a_malformed_record_is_put_aside_and_its_segment_kept() {
    let (mut server, writer) = stopped();
    append(&server, &[1, 200, 0, 0, 0, 0]);
    for _ in 0..2 {
        server.restart();
        writer.verify(&server, 0);
        assert_eq!(server.metric("floodmark_journal_unreadable_records_total"), 1.0);
        assert_eq!(server.metric("floodmark_journal_lost_records_total"), 1.0);
        assert_eq!((quarantined(&server, "bytes"), quarantined(&server, "journal")), (1, 0));
        server.kill9();
    }
    server.restart();
    let dropped = segments(&server);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    assert!(!dropped[0].exists(), "the segment was not dropped");
    assert_eq!(
        quarantined(&server, "journal"),
        1,
        "not exactly the segment with the malformed record is in quarantine"
    );
    server.kill9();
    server.restart();
    writer.verify(&server, 0);
    assert_eq!(server.metric("floodmark_journal_unreadable_records_total"), 0.0);
    goes_on(&mut server);
}

#[test]
fn a_record_of_a_later_version_closes_the_partition_and_changes_nothing() {
    let (mut server, writer) = stopped();
    append(&server, &[RECORD_VERSION + 1, 1, b't', 0]);
    let found = format!("version {}", RECORD_VERSION + 1);
    let known = format!("up to {RECORD_VERSION}");
    let before = segments(&server);
    server.restart_unready();
    let refusal = wait_for("the reason", || {
        let reply = server.send(&Request::get("/-/ready"));
        reply.text().contains("closed").then_some(reply)
    });
    refusal.expect(503, &["partition 0", &found, &known, "start that version again"]);
    server.send(&Request::write(&[])).expect(503, &[&found]);
    server.kill9();
    assert_eq!(segments(&server), before);
    // simulates a later version that has sealed and dropped the last segment
    std::fs::remove_file(before.last().unwrap()).unwrap();
    server.restart();
    writer.verify(&server, 0);
}
