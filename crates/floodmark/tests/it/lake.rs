//! Samples move from the journal into tables when they get older. Each must move exactly once, and queries
//! must combine both.

use crate::harness::ledger::Writer;
use crate::harness::{Options, Request, Server, SetOnDrop, now_ms, wait_for, wire};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stdx::rng::Rng;

mod azure;
mod delete_tenant;
mod deleted_names;
mod deletes;
mod faults;
mod foreign;
mod s3;

fn seed() -> u64 {
    let seed = std::env::var("FLOODMARK_SEED").ok().map(|s| s.parse().expect("FLOODMARK_SEED is a number"));
    let seed = seed.unwrap_or_else(Rng::fresh_seed);
    eprintln!("FLOODMARK_SEED={seed}");
    seed
}

#[track_caller]
fn flush(server: &Server) -> Value {
    let reply = server.send(&Request::post("/api/v1/admin/flush", Vec::new()));
    reply.expect(200, &["success"]);
    reply.json()["data"].take()
}

fn fill(server: &Server, writer: &mut Writer, rounds: usize) {
    for _ in 0..rounds {
        writer.write_once(server).expect(204, &[]);
        flush(server);
    }
}

#[track_caller]
fn compact(server: &Server) -> Value {
    let reply = server.send(&Request::post("/api/v1/admin/compact", Vec::new()));
    reply.expect(200, &["success", "\"failures\":0"]);
    reply.json()["data"].take()
}

fn data_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(data_files(&path));
        } else if path.extension().is_some_and(|e| e == "parquet")
            && !path.to_string_lossy().contains("_delta_log")
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn flushed_samples_are_in_tables_and_not_in_the_journal() {
    let mut server = Server::start(Options::default().config("partitions = 2"));
    let mut writer = Writer::new(seed(), 1);
    for _ in 0..50 {
        writer.write_once(&server).expect(204, &[]);
    }
    let flushed = flush(&server);
    assert_eq!((&flushed["samples"], &flushed["tables"]), (&Value::from(5000), &Value::from(1)), "{flushed}");
    writer.verify(&server, 0);
    let files = data_files(&server.data_dir().join("tables"));
    assert_eq!(files.len() as u64, flushed["files"].as_u64().unwrap(), "{files:?}");
    assert!(
        server.metric("floodmark_journal_bytes") < 20_000.0,
        "{}",
        server.metric("floodmark_journal_bytes")
    );
    assert_eq!(flush(&server)["samples"], Value::from(0), "samples were sealed twice");

    server.kill9();
    server.restart();
    assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 0.0);
    assert_eq!(server.metric("floodmark_head_series"), 0.0);
    writer.verify(&server, 0);
    writer.write_once(&server).expect(204, &[]);
    writer.verify(&server, 0);
    flush(&server);
    writer.verify(&server, 0);
}

#[test]
fn kill_9_while_sealing_loses_and_doubles_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let kills = if std::env::var_os("FLOODMARK_LONG").is_some() { 50 } else { 10 };
    let options = Options::default().config("segment_size = \"1MiB\"\nseal_after = \"200ms\"");
    let mut server = Server::start(options);
    let mut writers: Vec<_> = (0..3).map(|id| Writer::new(seed, id)).collect();
    for kill in 0..kills {
        let stop = AtomicBool::new(false);
        let address = server.address;
        let load_ms = 100 + rng.below(1500);
        std::thread::scope(|threads| {
            for writer in &mut writers {
                threads.spawn(|| writer.run(address, &stop));
            }
            // the only purpose of this sleep is that the kill happens at a random time
            std::thread::sleep(Duration::from_millis(load_ms));
            server.kill9();
            stop.store(true, Ordering::Relaxed);
        });
        server.restart();
        for writer in &writers {
            writer.verify(&server, 0);
        }
        let acknowledged: u64 = writers.iter().map(Writer::sample_count).sum();
        eprintln!("kill {kill} after {load_ms} ms: {acknowledged} samples in all");
    }
    for writer in &mut writers {
        writer.write_once(&server).expect(204, &[]);
    }
    flush(&server);
    server.kill9();
    server.restart();
    assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 0.0);
    for writer in &writers {
        writer.verify(&server, 0);
    }
    let acknowledged: u64 = writers.iter().map(Writer::sample_count).sum();
    foreign::check_count(&server.data_dir().join("tables/anonymous/metrics"), acknowledged);
}

#[test]
fn queries_see_everything_while_it_moves() {
    let seed = seed();
    let server = Server::start(Options::default().config("seal_after = \"100ms\""));
    let mut writers: Vec<_> = (0..2).map(|id| Writer::new(seed, id)).collect();
    let watched = writers.clone();
    let stop = AtomicBool::new(false);
    let address = server.address;
    std::thread::scope(|threads| {
        for writer in &mut writers {
            threads.spawn(|| writer.run(address, &stop));
        }
        // also if a look fails; otherwise, the writers would never end, and nobody would see why
        let _over = SetOnDrop(&stop);
        let mut seen = vec![Vec::new(); watched.len()];
        let sealed = || server.metric("floodmark_seal_rounds_total");
        let mut looks = 0;
        while looks < 30 || sealed() < 5.0 {
            looks += 1;
            for (writer, seen) in watched.iter().zip(&mut seen) {
                *seen = writer.watch(&server, seen);
            }
        }
    });
    for writer in &writers {
        writer.verify(&server, 0);
    }
}

#[test]
fn labels_and_series_are_known_from_tables_alone() {
    let mut server = Server::new();
    let now = now_ms();
    let series =
        ["a", "b"].map(|zone| wire::Series::new(&[("__name__", "up"), ("zone", zone)]).sample(now, 1.0));
    server.send(&Request::write(&wire::v1(&series))).expect(204, &[]);
    flush(&server);
    server.kill9();
    server.restart();
    let ask =
        |path: &str, params: &[(&str, &str)]| server.send(&Request::ask(path, params)).json()["data"].take();
    assert_eq!(ask("/api/v1/labels", &[]), serde_json::json!(["__name__", "zone"]));
    assert_eq!(ask("/api/v1/label/zone/values", &[]), serde_json::json!(["a", "b"]));
    assert_eq!(ask("/api/v1/label/zone/values", &[("match[]", "up{zone!=\"a\"}")]), serde_json::json!(["b"]));
    let series = ask("/api/v1/series", &[("match[]", "{zone=~\"b|c\"}")]);
    assert_eq!(series, serde_json::json!([{ "__name__": "up", "zone": "b" }]));
    let other = server.query_as(Some("nobody"), "up", now);
    assert_eq!(other["result"], serde_json::json!([]));
    assert!(!server.data_dir().join("tables/nobody").exists(), "a query created a table");
}

/// Exemplars and metadata are stored nowhere but in the journal, so they must survive when it is truncated.
#[test]
fn metadata_and_exemplars_survive_truncation_of_the_journal() {
    let mut server = Server::new();
    let now = now_ms();
    let series = wire::Series::new(&[("__name__", "requests")]).sample(now, 1.0);
    let series = series.exemplar(&[("trace", "x7")], now, 0.5);
    server.send(&Request::write(&wire::v1(&[series]))).expect(204, &[]);
    let metadata = wire::v1_metadata(1, "requests", "How many.", "");
    server.send(&Request::write(&wire::snappy(&metadata))).expect(204, &[]);
    for _ in 0..3 {
        flush(&server);
        server.kill9();
        server.restart();
        let metadata = server.send(&Request::ask("/api/v1/metadata", &[])).json();
        assert_eq!(metadata["data"]["requests"][0]["help"], "How many.", "{metadata}");
        let params = [("query", "requests"), ("start", "0"), ("end", "9999999999")];
        let exemplars = server.send(&Request::ask("/api/v1/query_exemplars", &params)).json();
        let found = exemplars["data"][0]["exemplars"].as_array().map_or(0, Vec::len);
        assert_eq!(found, 1, "{exemplars}");
    }
}

#[test]
fn tenants_and_late_samples_stay_apart_and_in_order() {
    let mut server = Server::start(Options::default().config("partitions = 3"));
    let now = now_ms();
    let write = |server: &Server, tenant: &str, at: i64, value: f64| {
        let series = wire::Series::new(&[("__name__", "m")]).sample(at, value);
        let request = Request::write(&wire::v1(&[series])).tenant(tenant);
        server.send(&request).expect(204, &[]);
    };
    for round in 0..4 {
        for (tenant, value) in [("a", 1.0), ("b(*)'!", 2.0)] {
            write(&server, tenant, now + round, value);
            // a late sample, which is overwritten in the next round
            write(&server, tenant, now - 1000, value + round as f64);
        }
        flush(&server);
    }
    server.kill9();
    server.restart();
    for (tenant, value) in [("a", 1.0), ("b(*)'!", 2.0)] {
        let data = server.query_as(Some(tenant), "m[1h]", now + 10);
        let all = crate::harness::read::matrix(&data).into_values().next().unwrap();
        let expected: Vec<_> = std::iter::once((now - 1000, value + 3.0))
            .chain((0..4).map(|i| (now + i, value)))
            .map(|(t, v): (i64, f64)| (t, v.to_bits()))
            .collect();
        assert_eq!(all, expected, "{tenant}");
    }
}

#[test]
fn compaction_makes_fewer_files_and_changes_nothing() {
    let mut server = Server::new();
    let mut writer = Writer::new(seed(), 3);
    fill(&server, &mut writer, 12);
    let compacted = compact(&server);
    assert!(compacted["merges"].as_u64() > Some(0), "{compacted}");
    writer.verify(&server, 0);
    server.kill9();
    server.restart();
    writer.verify(&server, 0);
    let samples = writer.sample_count();
    foreign::check_count(&server.data_dir().join("tables/anonymous/metrics"), samples);
}

#[test]
fn old_days_are_dropped() {
    let mut server = Server::start(
        Options::default().config("retention_wait = \"1ms\"\n[tenant.short]\nretention = \"1d\""),
    );
    let now = now_ms();
    let old = now - 3 * 86_400_000;
    for tenant in ["short", "long"] {
        for at in [old, now] {
            let name = format!("m{}", i32::from(at == now));
            let series = wire::Series::named(&name).sample(at, 1.0);
            server.send(&Request::write(&wire::v1(&[series])).tenant(tenant)).expect(204, &[]);
        }
    }
    flush(&server);
    let count = |server: &Server, tenant: &str| {
        let data = server.query_as(Some(tenant), "last_over_time({__name__=~\"m.\"}[5d])", now);
        data["result"].as_array().unwrap().len()
    };
    wait_for("retention", || (count(&server, "short") == 1).then_some(()));
    assert_eq!(count(&server, "long"), 2);
    server.kill9();
    server.restart();
    assert_eq!((count(&server, "short"), count(&server, "long")), (1, 2));
}
