//! Data directories of earlier versions must remain usable: this version opens them, reads them back and
//! writes to them. The script `scripts/make-golden.py` made the directories in `tests/golden`, and
//! `docs/formats/README.md` lists the versions of the formats.

use crate::harness::lab::{good, lab};
use crate::harness::{Options, Request, Server};
use crate::transfer::{run, succeed, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FORMATS: &str = include_str!("../../../../docs/formats/README.md");

const LEDGERS: [(&str, &str); 4] =
    [("yesterday", "anonymous"), ("compacted", "anonymous"), ("sealed", "team-a"), ("journal", "anonymous")];

fn folders() -> Vec<PathBuf> {
    let all =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).expect("golden folders");
    let mut folders: Vec<_> = all.map(|entry| entry.expect("read a folder").path()).collect();
    folders.sort();
    assert!(!folders.is_empty());
    folders
}

fn unpack(folder: &Path, to: &Path) -> PathBuf {
    let archive = folder.join("data.tar.gz");
    let done = Command::new("tar").args(["-xzf", text(&archive), "-C", text(to)]).status().expect("run tar");
    assert!(done.success(), "{}", archive.display());
    to.join("data")
}

/// Starts a server with an old data directory. It warns about the clock, because the data is old.
fn open(data: &Path) -> Server {
    let config = "partitions = 2\nsegment_size = \"1MiB\"\nrollups = [\"5m\", \"1h\"]\nmemory = \"256MiB\"";
    Server::start(Options::default().data_dir(data).config(config).allow("the clock has jumped ahead"))
}

fn verify(server: &Server, folder: &Path) {
    for (name, tenant) in LEDGERS {
        let (ledger, url) =
            (folder.join(format!("{name}.ledger.json")), format!("http://{}", server.address));
        let header = format!("X-Scope-OrgID: {tenant}");
        let report =
            good(&lab(&["verify", text(&ledger), "--read-url", &url, "-H", &header, "--json", "-q"]));
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let kept = (&report["acknowledged"], &report["read_back"], &report["lost"]);
        assert_eq!(kept, (&720.into(), &720.into(), &0.into()), "{name} of {}: {report:#}", folder.display());
    }
}

/// Points with delta temporality, if the folder has some.
fn deltas(folder: &Path) -> Option<Value> {
    let text = fs::read(folder.join("deltas.json")).ok()?;
    Some(serde_json::from_slice(&text).expect("JSON"))
}

fn verify_sums(server: &Server, expected: &Value) {
    for sum in expected.as_array().expect("sums") {
        let (series, at_s) =
            (sum["series"].as_str().expect("a series"), sum["time"].as_i64().expect("a time"));
        let found = server.query_as(None, series, at_s * 1000);
        let value: f64 = found["result"][0]["value"][1].as_str().unwrap_or("NaN").parse().expect("a number");
        assert_eq!(Some(value), sum["value"].as_f64(), "{series} at {at_s}: {found:#}");
    }
}

/// Deleted exemplars do not come back, and no list names series that had nothing else. Folders before `2026-11-29-b` have
/// no exemplars.
fn verify_exemplars(server: &Server, folder: &Path) {
    if folder.file_name().is_some_and(|name| name < "2026-11-29-b") {
        return;
    }
    let text = fs::read(folder.join("exemplars.json")).expect("read the exemplars");
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    let ask = |path: &str, params: &[(&str, &str)]| {
        let request = Request::ask(path, params).tenant(expected["tenant"].as_str().expect("a tenant"));
        server.send(&request).expect(200, &["success"]).json()["data"].take()
    };
    let found = ask(
        "/api/v1/query_exemplars",
        &[("query", "golden_exemplars_total"), ("start", "0"), ("end", "9999999999")],
    );
    let times = |of: &Value| -> Vec<i64> {
        let exemplars = of["exemplars"].as_array().expect("exemplars").iter();
        exemplars.map(|exemplar| exemplar["timestamp"].as_f64().expect("a time") as i64).collect()
    };
    let of_series = found.as_array().expect("series").iter();
    let found: serde_json::Map<_, _> = of_series
        .map(|of| (of["seriesLabels"]["host"].as_str().expect("a host").to_owned(), times(of).into()))
        .collect();
    let hosts: Vec<_> = found.keys().cloned().collect();
    assert_eq!(Value::Object(found), expected["times"], "{}", folder.display());
    assert_eq!(ask("/api/v1/label/host/values", &[]), Value::from(hosts), "{}", folder.display());
}

/// The sums of earlier versions are gone on with: what they contain is not added again, and a gap is still open.
fn go_on_with_sums(server: &Server, deltas: &Value) {
    let send = |what: &str| {
        let request = Request::post("/v1/metrics", deltas[what].to_string().into_bytes());
        let reply = server.send(&request.header("Content-Type", "application/json"));
        let answer = reply.expect(200, &[]).json();
        let rejected = &answer["partialSuccess"]["rejectedDataPoints"];
        assert!(rejected.is_null() || rejected == "0", "{what}: {answer}");
    };
    verify_sums(server, &deltas["stored"]);
    send("repeated");
    verify_sums(server, &deltas["stored"]);
    send("late");
    verify_sums(server, &deltas["after_late"]);
    send("next");
    verify_sums(server, &deltas["after_next"]);
}

#[test]
fn data_of_earlier_versions_are_read_and_gone_on_with() {
    for folder in folders() {
        let dir = tempfile::tempdir().expect("make a directory");
        let data = unpack(&folder, dir.path());
        let mut server = open(&data);
        verify(&server, &folder);
        verify_exemplars(&server, &folder);
        let deltas = deltas(&folder);
        if let Some(deltas) = &deltas {
            go_on_with_sums(&server, deltas);
        }
        // a query of one hour on the day before must be answered from the rollup
        server.send(&Request::post("/api/v1/admin/compact", Vec::new())).expect(200, &["\"failures\":0"]);
        let params = [
            ("query", "sum(count_over_time(metric_1[1h]))"),
            ("time", "2026-01-14T13:00:00Z"),
            ("resolution", "5m"),
        ];
        let answer = server.send(&Request::form("/api/v1/query", &params)).text();
        assert!(answer.contains("are answered from the rollup"), "{answer}");
        // writes new samples, both to the journal and to the tables
        let target = format!("http://{}/api/v1/write", server.address);
        good(&lab(&[
            "write",
            "--target",
            &target,
            "--metrics",
            "4",
            "--series",
            "3",
            "--rounds",
            "20",
            "--verify",
            "-q",
        ]));
        server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
        verify(&server, &folder);
        server.kill9();
        server.restart();
        verify(&server, &folder);
        verify_exemplars(&server, &folder);
        if let Some(deltas) = &deltas {
            verify_sums(&server, &deltas["after_next"]);
        }
    }
}

#[test]
fn inspect_and_export_read_data_of_earlier_versions() {
    for folder in folders() {
        let dir = tempfile::tempdir().expect("make a directory");
        let data = unpack(&folder, dir.path());
        let place = ["--data-dir", text(&data)];
        let journal = succeed(&[&["inspect", "journal", "--json"], &place[..]].concat());
        let journal: Value = serde_json::from_str(&journal).expect("JSON");
        let of_all = |key: &str| -> u64 {
            journal.as_array().expect("segments").iter().map(|s| s[key].as_u64().expect("a count")).sum()
        };
        assert!(of_all("samples") >= 720 && of_all("unreadable") + of_all("damaged") == 0, "{journal:#}");
        let lines = succeed(&[&["export", "jsonl", "-q"], &place[..]].concat());
        assert_eq!(
            crate::transfer::read_lines(lines.as_bytes()).values().map(|s| s.len()).sum::<usize>(),
            1_440
        );
    }
}

#[test]
fn recordings_and_results_of_earlier_versions_are_read() {
    let server = Server::new();
    let target = format!("http://{}/api/v1/write", server.address);
    for folder in folders() {
        let replayed =
            good(&lab(&["replay", text(&folder.join("golden.rec")), "--target", &target, "--json", "-q"]));
        let replayed: Value = serde_json::from_str(&replayed).expect("JSON");
        let others =
            deltas(&folder).map_or(0, |deltas| deltas["recorded_samples"].as_u64().expect("a number"));
        assert_eq!(replayed["totals"]["samples_acknowledged"], 720 + others, "{replayed:#}");
        let shown = succeed(&["lab", "report", text(&folder.join("result.json"))]);
        assert!(shown.contains("cortex-110k-steady") && shown.contains("PASS"), "{shown}");
    }
}

/// `docs/formats/README.md` must list the versions of formats that the code writes and refuses.
#[test]
fn the_page_of_formats_has_the_versions_that_are_written() {
    let row = |name: &str| {
        let row = FORMATS.lines().find(|line| line.starts_with(&format!("| {name} |")));
        row.unwrap_or_else(|| panic!("no row for {name}"))
    };
    let check = |name: &str, version: &str| {
        let written = row(name).split('|').nth(2).expect("a version").trim();
        assert_eq!(written, version, "{name}: on the left the version in docs/formats/README.md");
    };
    check("journal: segment", &journal::files::SEGMENT_VERSION.to_string());
    check("journal: record", &journal::record::RECORD_VERSION.to_string());
    check("journal: batch of records", &journal::records::BATCH_VERSION.to_string());
    check("metrics table", &tables::METRICS.version.to_string());
    check("result", &lab::result::FORMAT.to_string());
    check("ledger", &lab::verify::ledger::FORMAT.to_string());
    for folder in folders() {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a plain name");
        assert!(FORMATS.contains(&format!("`{name}`")), "the page does not name the golden folder {name}");
    }
}

#[test]
fn ledgers_and_results_of_later_versions_are_refused() {
    let dir = tempfile::tempdir().expect("make a directory");
    for (file, args) in [("journal.ledger.json", ["lab", "verify"]), ("result.json", ["lab", "report"])] {
        let source = folders().last().expect("a folder").join(file);
        let mut value: Value = serde_json::from_slice(&fs::read(source).expect("read a file")).expect("JSON");
        value["format"] = 99.into();
        let later = dir.path().join(file);
        fs::write(&later, value.to_string()).expect("write a file");
        let output = run(&[&args[..], &[text(&later)]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("format 99"), "{output:?}");
    }
}
