//! Deletes whole tenants. Nothing of the tenant may remain, but what is written later must be kept.

use super::{compact, data_files, flush, foreign, seed};
use crate::authentication::sha256;
use crate::harness::ledger::Writer;
use crate::harness::{Options, Request, Server, http, now_ms, wire};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::rng::Rng;

const PATH: &str = "/api/v1/admin/delete_tenant";

/// A server logs this warning if the newest samples it has seen are from the day before.
const OLD_SAMPLES: &str = "the clock has jumped ahead";

fn request(tenant: &str) -> Request {
    Request::form(PATH, &[("tenant", tenant)])
}

#[track_caller]
fn delete(server: &Server, tenant: &str) -> u64 {
    let answer = server.send(&request(tenant)).expect(200, &["success"]).json();
    answer["data"]["files"].as_u64().unwrap()
}

fn tables(server: &Server, tenant: &str) -> PathBuf {
    server.data_dir().join("tables").join(tenant)
}

/// Returns what a tenant's queries answer at the time `now` (in Unix seconds), for many paths. The server's
/// uptime is removed.
fn shown(server: &Server, tenant: &str, now: &str) -> Vec<(String, String)> {
    let asked: [(&str, &[(&str, &str)]); 12] = [
        ("/api/v1/labels", &[]),
        ("/api/v1/label/__name__/values", &[]),
        ("/api/v1/label/job/values", &[]),
        ("/api/v1/series", &[("match[]", "{__name__=~\".+\"}"), ("start", "0")]),
        ("/api/v1/query", &[("query", "count_over_time({__name__=~\".+\"}[3d])"), ("time", now)]),
        ("/api/v1/query", &[("query", "sum(count_over_time(m[1h]))"), ("resolution", "5m"), ("time", now)]),
        ("/api/v1/query_exemplars", &[("query", "m"), ("start", "0"), ("end", now)]),
        ("/api/v1/metadata", &[]),
        ("/api/v1/cardinality/label_names", &[]),
        ("/api/v1/cardinality/active_series", &[("selector", "{__name__=~\".+\"}")]),
        ("/api/v1/cardinality/growth", &[]),
        ("/api/v1/cardinality/unqueried", &[]),
    ];
    let ask = |(path, params): (&str, &[(&str, &str)])| {
        let reply = server.send(&Request::ask(path, params).tenant(tenant));
        let mut data = reply.expect(200, &[]).json()["data"].take();
        if let Some(fields) = data.as_object_mut() {
            fields.retain(|name, _| !["seconds", "trackedSeconds", "withinSeconds"].contains(&name.as_str()));
        }
        // sorted, because the order of series depends on where they are stored
        let list = if data.is_array() { Some(&mut data) } else { data.get_mut("result") };
        if let Some(Value::Array(list)) = list {
            list.sort_by_key(Value::to_string);
        }
        (format!("{path} {params:?}"), data.to_string())
    };
    let mut all: Vec<_> = asked.into_iter().map(ask).collect();
    let export = Request::ask("/api/v1/export", &[("match[]", "{__name__=~\".+\"}")]).tenant(tenant);
    let exported = server.send(&export).expect(200, &[]).text();
    let lines: BTreeSet<_> = exported.lines().map(ToOwned::to_owned).collect();
    all.extend(lines.into_iter().map(|line| ("export".into(), line)));
    all
}

#[track_caller]
fn write(server: &Server, tenant: &str, at_ms: i64, series: usize) {
    let one = |i: usize| {
        let number = i.to_string();
        let labels = [("__name__", "m"), ("job", tenant), ("i", number.as_str())];
        let exemplar = [("trace_id", number.as_str())];
        let series = wire::Series::new(&labels).samples((0..3).map(|n| (at_ms + n, n as f64)));
        series.exemplar(&exemplar, at_ms, 1.0).metadata(1, "Help.", "")
    };
    let body = wire::v2(&(0..series).map(one).collect::<Vec<_>>());
    server.send(&Request::write_v2(&body).tenant(tenant)).expect(204, &[]);
}

fn fill(server: &Server, tenants: &[&str]) {
    for tenant in tenants {
        write(server, tenant, now_ms() - 30 * 3_600_000, 20);
    }
    flush(server);
    compact(server);
    for tenant in tenants {
        write(server, tenant, now_ms() - 60_000, 20);
    }
    flush(server);
    for tenant in tenants {
        write(server, tenant, now_ms() - 30_000, 30);
    }
}

#[test]
fn no_path_shows_anything_of_a_deleted_tenant_also_after_kill_9() {
    let config = "partitions = 2\nrollups = [\"5m\", \"1h\"]\npast_limit = \"3d\"";
    let mut server = Server::start(Options::default().config(config).allow(OLD_SAMPLES));
    fill(&server, &["gone", "stays"]);
    let now = (now_ms() / 1000).to_string();
    let (nothing, before) = (shown(&server, "nobody", &now), shown(&server, "stays", &now));
    // files that compaction has replaced remain until a vacuum deletes them
    let stored = data_files(&tables(&server, "gone"));
    let dry = Request::form(PATH, &[("tenant", "gone"), ("dry_run", "true")]);
    let counted = server.send(&dry).expect(200, &["success"]).json()["data"].take();
    assert_eq!((&counted["series"], &counted["samples"]), (&30.into(), &210.into()), "{counted}");
    let files = counted["files"].as_u64().unwrap();
    assert!(files >= 4 && counted["bytes"].as_u64().unwrap() > 0, "{counted}");
    assert_eq!(counted["exists"], true);
    let misspelled = Request::form(PATH, &[("tenant", "gome"), ("dry_run", "true")]);
    let counted = server.send(&misspelled).expect(200, &["success"]).json()["data"].take();
    let expected = serde_json::json!({"series": 0, "samples": 0, "files": 0, "bytes": 0, "exists": false});
    assert_eq!(counted, expected);
    assert_eq!(data_files(&tables(&server, "gone")), stored, "a dry run deletes nothing");
    let removed = delete(&server, "gone");
    assert!(removed > files, "those of the flush too: {removed} of {files}");
    assert_eq!(data_files(&tables(&server, "gone")).len() as u64, stored.len() as u64 - files);
    let check = |server: &Server, is_same_life: bool| {
        assert_eq!(shown(server, "gone", &now), nothing);
        let stays = shown(server, "stays", &now);
        assert_eq!(stays.len(), before.len());
        for (after, before) in stays.iter().zip(&before) {
            // the cardinality counts only series in memory, so it may change with a restart
            if is_same_life || !before.0.contains("cardinality") {
                assert_eq!(after, before, "another tenant's data changed");
            }
        }
    };
    check(&server, true);
    let lines = server.log_lines("a tenant is deleted");
    assert!(lines.len() == 1 && lines[0].contains("tenant=gone") && lines[0].contains("audit"), "{lines:?}");
    assert_eq!(delete(&server, "gone"), 0, "once more does no harm");
    assert_eq!(delete(&server, "nobody"), 0);
    server.kill9();
    server.restart();
    check(&server, false);
    compact(&server);
    check(&server, false);
    assert_eq!(server.metric("floodmark_tombstones"), 0.0);
    // after that, the tenant starts empty; it writes the same series again
    write(&server, "gone", now_ms() - 30_000, 2);
    server.kill9();
    server.restart();
    for _ in 0..2 {
        let count = server.query_as(Some("gone"), "sum(count_over_time(m[3d]))", now_ms());
        assert_eq!(count["result"][0]["value"][1], "6", "{count}");
        flush(&server);
        compact(&server);
    }
    foreign::check_count(&tables(&server, "gone").join("metrics"), 6);
    foreign::check_count(&tables(&server, "stays").join("metrics"), 210);
}

#[test]
fn a_delete_under_load_takes_nothing_that_is_written_afterwards() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let config = "segment_size = \"1MiB\"\nseal_after = \"300ms\"\npartitions = 2";
    let mut server = Server::start(Options::default().config(config));
    let mut other = Writer::new(seed, 0);
    for round in 0..6 {
        let mut writer = Writer::new(seed, 1).of_tenant("gone");
        while writer.acknowledged < 20 {
            writer.write_once(&server);
        }
        let (stop, address) = (AtomicBool::new(false), server.address);
        let answered = std::thread::scope(|threads| {
            threads.spawn(|| other.run(address, &stop));
            let deleting =
                threads.spawn(move || http::once(address, &request("gone")).is_ok_and(|r| r.status == 200));
            // in every other round, the process is killed while it deletes
            let answered = if round % 2 == 0 {
                for _ in 0..rng.below(60) {
                    server.send(&Request::get("/-/healthy")).expect(200, &[]);
                }
                server.kill9();
                deleting.join().unwrap()
            } else {
                let answered = deleting.join().unwrap();
                assert!(answered, "round {round}");
                writer = Writer::new(seed, 2).of_tenant("gone");
                (0..5).for_each(|_| _ = writer.write_once(&server).expect(204, &[]).status);
                writer.verify(&server, 0);
                server.kill9();
                answered
            };
            stop.store(true, Ordering::Relaxed);
            answered
        });
        server.restart();
        other.verify(&server, 0);
        let found = server.query_as(Some("gone"), "count(count_over_time(load{writer=\"1\"}[2h]))", now_ms());
        let is_there = found["result"] != Value::Array(Vec::new());
        match (round % 2 == 0, answered) {
            (true, true) | (false, _) => assert!(!is_there, "round {round}: {found}"),
            // the delete was not acknowledged, so either everything remains or nothing
            (true, false) if is_there => writer.verify(&server, 0),
            (true, false) => {}
        }
        if round % 2 == 1 {
            writer.verify(&server, 0);
        }
        delete(&server, "gone");
    }
    // the request that was not acknowledged is sent again, so that exactly the acknowledged samples are
    // stored
    other.write_once(&server).expect(204, &[]);
    flush(&server);
    compact(&server);
    other.verify(&server, 0);
    foreign::check_count(&server.data_dir().join("tables/anonymous/metrics"), other.sample_count());
    foreign::check_count(&tables(&server, "gone").join("metrics"), 0);
}

#[test]
fn the_paths_of_mimir_and_cortex_delete_the_tenant_of_the_request() {
    let config = "past_limit = \"3d\"";
    let server = Server::start(Options::default().config(config).allow(OLD_SAMPLES));
    for folder in ["/compactor", "/purger"] {
        fill(&server, &["gone", "stays"]);
        let status = |tenant: &str| {
            let request = Request::get(format!("{folder}/delete_tenant_status")).tenant(tenant);
            let answer = server.send(&request).expect(200, &[]).json();
            assert_eq!(answer["tenant_id"], tenant);
            answer["blocks_deleted"].as_bool().unwrap()
        };
        assert!(!status("gone") && !status("stays") && status("nobody"));
        let path = format!("{folder}/delete_tenant");
        server.send(&Request::get(path.as_str()).tenant("gone")).expect(405, &[]);
        server
            .send(&Request::form(&path, &[("dry_run", "true")]).tenant("gone"))
            .expect(200, &["\"samples\":"]);
        assert!(!status("gone"));
        server.send(&Request::form(&path, &[]).tenant("gone")).expect(200, &[]);
        assert!(status("gone") && !status("stays"));
        let now = (now_ms() / 1000).to_string();
        assert_eq!(shown(&server, "gone", &now), shown(&server, "nobody", &now));
    }
}

#[test]
fn only_operators_delete_tenants_and_they_name_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let entry = |name: &str, rest: &str| format!("[token.{name}]\nsha256 = \"{}\"\n{rest}\n", sha256(name));
    let entries = [
        entry("operator", "roles = [\"admin\"]"),
        entry("owner", "tenants = [\"a\"]\nroles = [\"admin\"]"),
        entry("writer", "tenants = [\"a\"]\nroles = [\"read\", \"write\"]"),
    ];
    std::fs::write(&path, entries.concat()).unwrap();
    let options = Options::default().arg("--auth-file").arg(path.to_str().unwrap()).allow("requests refused");
    let server = Server::start(options);
    let with = |request: Request, token: &str| {
        server.send(&request.header("Authorization", &format!("Bearer {token}")))
    };
    server.send(&request("a")).expect(401, &[]);
    with(request("a"), "writer").expect(403, &["role admin"]);
    with(Request::form(PATH, &[]), "operator").expect(400, &["tenant"]);
    with(request("../b"), "operator").expect(400, &["tenant"]);
    let maybe = Request::form(PATH, &[("tenant", "a"), ("dry_run", "maybe")]);
    with(maybe, "operator").expect(400, &["dry_run"]);
    with(Request::get(PATH), "operator").expect(405, &[]);
    with(request("a"), "operator").expect(200, &["\"files\":0"]);
    // an operator of some tenants deletes no others
    with(request("b"), "owner").expect(403, &["token owner has no access to tenant b"]);
    let dry = Request::form(PATH, &[("tenant", "b"), ("dry_run", "true")]);
    with(dry, "owner").expect(403, &["token owner has no access to tenant b"]);
    with(request("a"), "owner").expect(200, &["\"files\":0"]);
    let own = |tenant: &str| Request::form("/compactor/delete_tenant", &[]).tenant(tenant);
    server.send(&own("a")).expect(401, &[]);
    with(own("a"), "writer").expect(403, &["role admin"]);
    with(own("b"), "owner").expect(403, &["b"]);
    with(own("a"), "owner").expect(200, &["\"files\":0"]);
    let stream =
        |tenant: &str| Request::form("/api/v1/admin/delete_stream", &[("stream", "app")]).tenant(tenant);
    server.send(&stream("a")).expect(401, &[]);
    with(stream("a"), "writer").expect(403, &["role admin"]);
    with(stream("b"), "owner").expect(403, &["b"]);
    with(stream("a"), "owner").expect(200, &["\"files\":0"]);
}
