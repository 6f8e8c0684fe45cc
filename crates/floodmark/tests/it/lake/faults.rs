//! Tables that cannot be written or read for a while. Until they work again, the journal must keep everything
//! and writes must be accepted. Afterwards, sealing must continue without a restart.

use super::{data_files, flush, foreign, seed};
use crate::disk_full::SmallDisk;
use crate::harness::ledger::Writer;
use crate::harness::read::{self, seconds};
use crate::harness::{Options, Reply, Request, Server, now_ms, wait_for, wire};
use std::path::Path;

const EXCUSES: [&str; 2] = ["a tenant cannot be sealed", "a tenant can be sealed again"];

fn options(tables: &str) -> Options {
    let config = format!("seal_after = \"200ms\"\ntables = \"{tables}\"");
    EXCUSES.iter().fold(Options::default().config(&config), |options, text| options.allow(text))
}

#[test]
fn a_full_disk_under_the_tables_does_not_stop_writes() {
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
fn without_tables_the_node_serves_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let tables = dir.path().join("tables");
    std::fs::write(&tables, "in the way").unwrap();
    let options = options(&format!("file://{}", tables.display()))
        .allow("cannot read a table")
        .allow("cannot list the tenants that have tables");
    let mut server = Server::start(options);
    let mut writer = Writer::new(seed(), 1);
    for _ in 0..3 {
        writer.write_once(&server).expect(204, &[]);
    }
    wait_for("a failure", || (server.metric("floodmark_seal_failures_total") > 0.0).then_some(()));
    std::fs::remove_file(&tables).unwrap();
    flush(&server);
    writer.verify(&server, 0);
    // the tables are lost, but samples that are still in the journal remain
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
    let mut server = Server::start(Options::default().allow("cannot read floodmarks"));
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

/// If a file is damaged, the other data is returned, and every answer reports what is missing.
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
    // nobody knows whether the metric is in the damaged file, unless the log says which names the file has
    ask("/info", &[("target", "broken")]).expect(503, &[".parquet"]);
    // the log says so for files that are still to be listed, but the index of all names is not complete without the file
    let other = ask("/info", &[("target", "nothing")]);
    assert!(matches!(other.status, 404 | 503), "{}: {}", other.status, other.text());
}

/// Writes one sample to each of three series, with an exemplar and metadata.
fn write_as(server: &Server, tenant: &str, timestamp_ms: i64) -> Reply {
    let series = ["x", "y", "z"].map(|kind| {
        wire::Series::new(&[("__name__", "owned"), ("kind", kind)])
            .sample(timestamp_ms, timestamp_ms as f64)
            .exemplar(&[("trace_id", kind)], timestamp_ms, 1.0)
            .metadata(1, "what is owned", "")
    });
    server.send(&Request::write_v2(&wire::v2(&series)).tenant(tenant))
}

/// Overwrites the newest entry of a table's log with invalid JSON. Returns a function that restores it.
fn damage_log(table: &Path) -> impl FnOnce() + use<> {
    let entries = std::fs::read_dir(table.join("_delta_log")).unwrap().map(|entry| entry.unwrap().path());
    let newest = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).max().unwrap();
    let content = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, "{").unwrap();
    move || std::fs::write(&newest, content).unwrap()
}

#[test]
fn a_broken_table_and_lost_floodmarks_close_one_tenant_and_no_other() {
    let excuses = ["cannot read a table", "table can be read again"];
    let options = excuses.iter().fold(Options::default(), |options, text| options.allow(text));
    let mut server = Server::start(options.config("partitions = 2"));
    let base_ms = now_ms() - 60_000;
    let mut times = Vec::new();
    for round in 0..4 {
        for tenant in ["broken", "whole"] {
            write_as(&server, tenant, base_ms + round).expect(204, &[]);
        }
        times.push(base_ms + round);
        // the samples of the last two rounds are not flushed to tables, so they remain in the journal
        if round < 2 {
            flush(&server);
        }
    }
    server.kill9();
    let table = server.data_dir().join("tables/broken/metrics");
    let repair = damage_log(&table);
    std::fs::remove_file(server.data_dir().join("floodmarks.json")).unwrap();
    server.restart();
    let stored = |tenant: &str| {
        let found = server.query_as(Some(tenant), "owned[5m]", now_ms());
        read::matrix(&found)
            .into_values()
            .map(|s| s.into_iter().map(|(t, _)| t).collect())
            .collect::<Vec<Vec<_>>>()
    };
    assert_eq!(stored("whole"), vec![times.clone(); 3]);
    write_as(&server, "whole", base_ms + 10).expect(204, &[]);
    let ask = |path: &str, params: &[(&str, &str)]| server.send(&Request::ask(path, params).tenant("broken"));
    let answers = [
        ask("/api/v1/query", &[("query", "owned")]),
        ask("/api/v1/query_range", &[("query", "owned"), ("start", "1"), ("end", "2"), ("step", "1")]),
        ask("/api/v1/series", &[("match[]", "owned")]),
        ask("/api/v1/labels", &[]),
        ask("/api/v1/export", &[("match[]", "owned")]),
        ask("/api/v1/query_exemplars", &[("query", "owned"), ("start", "1"), ("end", "2")]),
    ];
    for answer in &answers {
        answer.expect(503, &["tenant broken is unavailable", "broken/metrics"]);
        let json = answer.json();
        assert_eq!((&json["status"], &json["errorType"]), (&"error".into(), &"unavailable".into()), "{json}");
    }
    write_as(&server, "broken", base_ms + 11)
        .expect(503, &["tenant broken is unavailable", "broken/metrics"]);
    assert!(server.metric("floodmark_refusals_total{reason=\"table_unreadable\"}") >= 1.0);
    assert_eq!(server.metric("floodmark_seal_tenants_behind"), 1.0);

    repair();
    wait_for("the tenant", || (write_as(&server, "broken", base_ms + 11).status == 204).then_some(()));
    times.push(base_ms + 11);
    assert_eq!(stored("broken"), vec![times.clone(); 3]);
    flush(&server);
    assert_eq!(stored("broken"), vec![times; 3]);
    let (start, end) = (seconds(base_ms), seconds(now_ms()));
    let all = [("query", "owned"), ("start", start.as_str()), ("end", end.as_str())];
    let exemplars = read::data(&ask("/api/v1/query_exemplars", &all));
    let counts = exemplars.as_array().unwrap().iter().map(|s| s["exemplars"].as_array().unwrap().len());
    assert_eq!(counts.collect::<Vec<_>>(), [5; 3], "{exemplars}");
    ask("/api/v1/metadata", &[]).expect(200, &["what is owned"]);
    foreign::check_count(&table, 3 * 5);
}

/// Blocks a table by an empty entry at the end of its log. Returns a function that removes the entry.
fn block(table: &Path) -> impl FnOnce() + use<> {
    let log = table.join("_delta_log");
    let entries = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let versions = entries.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let versions = versions.map(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    let entry = log.join(format!("{:020}.json", versions.max().unwrap() + 1));
    std::fs::write(&entry, "").unwrap();
    move || std::fs::remove_file(entry).unwrap()
}

#[test]
fn a_tenant_that_cannot_be_sealed_does_not_keep_the_journal_of_others() {
    const SAMPLES: i64 = 40_000;
    const MIB: f64 = 1024.0 * 1024.0;
    let options = EXCUSES.iter().fold(Options::default(), |options, text| options.allow(text));
    let config = "partitions = 1\nsegment_size = \"1MiB\"\nseal_after = \"100ms\"";
    let mut server = Server::start(options.config(config));
    let base_ms = now_ms() - 3_000_000;
    let mut times = Vec::new();
    let mut write_blocked = |server: &Server| {
        let time_ms = base_ms + times.len() as i64;
        times.push(time_ms);
        // try again, because writes are refused while the tenant is moved within the journal
        wait_for("a write", || (write_as(server, "blocked", time_ms).status == 204).then_some(()));
    };
    write_blocked(&server);
    flush(&server);
    let table = server.data_dir().join("tables/blocked/metrics");
    let unblock = block(&table);
    write_blocked(&server);
    let (mut written, mut longest) = (0, 0.0f64);
    for round in 0..40 {
        let samples = (0..SAMPLES).map(|i| (base_ms + written + i, ((written + i) as f64).sqrt()));
        let series = wire::Series::new(&[("__name__", "many")]).samples(samples);
        server.send(&Request::write(&wire::v1(&[series])).tenant("other")).expect(204, &[]);
        written += SAMPLES;
        wait_for("others' samples in tables", || {
            (server.metric("floodmark_seal_samples_total") >= (written % (20 * SAMPLES)) as f64).then_some(())
        });
        longest = longest.max(server.metric("floodmark_journal_bytes"));
        match round {
            5 | 25 => write_blocked(&server),
            19 => {
                assert!(server.metric("floodmark_journal_relocations_total") >= 1.0);
                server.kill9();
                server.restart();
            }
            _ => {}
        }
    }
    assert!(server.metric("floodmark_journal_relocations_total") >= 1.0);
    // the journal is truncated, so it has hardly more than two segments
    assert!(longest < 5.0 * MIB, "the journal has {longest} bytes, although {written} samples were sealed");
    unblock();
    wait_for("the tenant", || (server.metric("floodmark_seal_tenants_behind") == 0.0).then_some(()));
    write_blocked(&server);
    for _ in 0..2 {
        let found = read::matrix(&server.query_as(Some("blocked"), "owned[1h]", now_ms()));
        let found: Vec<Vec<_>> =
            found.into_values().map(|s| s.into_iter().map(|(t, _)| t).collect()).collect();
        assert_eq!(found, vec![times.clone(); 3]);
        server.kill9();
        server.restart();
    }
    flush(&server);
    foreign::check_count(&table, 3 * times.len() as u64);
}
