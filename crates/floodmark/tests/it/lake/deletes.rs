//! Deleted samples must disappear from every query at once, and must never come back.

use super::{compact, flush, foreign, seed};
use crate::harness::ledger::Writer;
use crate::harness::{Options, Request, Server, http, now_ms, wire};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stdx::rng::Rng;

const PATH: &str = "/api/v1/admin/tsdb/delete_series";

#[track_caller]
fn delete(server: &Server, params: &[(&str, &str)]) {
    server.send(&Request::form(PATH, params)).expect(204, &[]);
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Returns how many series match, which the server answers without reading samples.
fn series(server: &Server, selector: &str) -> usize {
    let reply = server.send(&Request::ask("/api/v1/series", &[("match[]", selector)]));
    reply.expect(200, &["success"]).json()["data"].as_array().unwrap().len()
}

#[test]
fn what_was_deleted_under_load_stays_deleted_after_kill_9_and_can_be_written_again() {
    let seed = seed();
    let options =
        Options::default().config("segment_size = \"1MiB\"\nseal_after = \"300ms\"\npartitions = 2");
    let mut server = Server::start(options);
    let mut others = [Writer::new(seed, 0), Writer::new(seed, 2)];
    let mut deleted = Writer::new(seed, 1);
    for round in 0..4 {
        let stop = AtomicBool::new(false);
        let address = server.address;
        std::thread::scope(|threads| {
            for writer in &mut others {
                threads.spawn(|| writer.run(address, &stop));
            }
            for _ in 0..30 {
                let again = deleted.clone();
                deleted.write_once(&server);
                if deleted.has_unacknowledged_request {
                    deleted = again;
                }
            }
            delete(&server, &[("match[]", "load{writer=\"1\"}")]);
            assert!(server.samples("load{writer=\"1\"}[2h]", now_ms()).is_empty(), "round {round}");
            assert_eq!(series(&server, "load{writer=\"1\"}"), 0, "round {round}");
            server.kill9();
            stop.store(true, Ordering::Relaxed);
        });
        server.restart();
        assert!(server.samples("load{writer=\"1\"}[2h]", now_ms()).is_empty(), "round {round}");
        others.iter().for_each(|writer| writer.verify(&server, 0));
        deleted = Writer::new(seed, 1);
        deleted.write_once(&server).expect(204, &[]);
        deleted.verify(&server, 0);
        if round == 1 {
            compact(&server);
        }
    }
    for writer in &mut others {
        writer.write_once(&server).expect(204, &[]);
    }
    flush(&server);
    compact(&server);
    assert_eq!(server.metric("floodmark_tombstones"), 0.0);
    let mut samples = 0;
    for writer in others.iter().chain([&deleted]) {
        writer.verify(&server, 0);
        samples += writer.sample_count();
    }
    foreign::check_with_all(&server.data_dir().join("tables/anonymous/metrics"), samples);
}

/// A delete that is interrupted must either be complete or have no effect.
#[test]
fn kill_9_during_a_delete_leaves_everything_or_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let options =
        Options::default().config("segment_size = \"1MiB\"\nseal_after = \"300ms\"\npartitions = 2");
    let mut server = Server::start(options);
    let mut other = Writer::new(seed, 0);
    let (mut deleted, mut outcomes) = (Writer::new(seed, 1), [0; 3]);
    for round in 0..12 {
        let stop = AtomicBool::new(false);
        let (address, pause_ms) = (server.address, rng.below(500));
        for _ in 0..10 {
            deleted.write_once(&server).expect(204, &[]);
        }
        let is_answered = std::thread::scope(|threads| {
            threads.spawn(|| other.run(address, &stop));
            let request = Request::form(PATH, &[("match[]", "load{writer=\"1\"}")]);
            let answer = threads.spawn(move || http::once(address, &request).map(|reply| reply.status));
            // the only purpose of this sleep is that the kill happens at a random time
            std::thread::sleep(Duration::from_millis(pause_ms));
            server.kill9();
            stop.store(true, Ordering::Relaxed);
            answer.join().unwrap().is_ok_and(|status| status == 204)
        });
        server.restart();
        other.verify(&server, 0);
        let is_gone = server.samples("load{writer=\"1\"}[2h]", now_ms()).is_empty();
        assert!(
            is_gone || !is_answered,
            "round {round}: the samples exist, although the delete was answered with 204"
        );
        outcomes[usize::from(is_gone) + usize::from(is_answered)] += 1;
        if is_gone {
            deleted = Writer::new(seed, 1);
        } else {
            deleted.verify(&server, 0);
        }
    }
    eprintln!("deletes without effect, complete without an answer, complete with an answer: {outcomes:?}");
    delete(&server, &[("match[]", "load{writer=\"1\"}")]);
    other.write_once(&server).expect(204, &[]);
    flush(&server);
    compact(&server);
    other.verify(&server, 0);
    foreign::check_with_all(&server.data_dir().join("tables/anonymous/metrics"), other.sample_count());
}

#[test]
fn a_part_of_each_series_is_cut_exactly() {
    let server = Server::start(Options::default());
    let from_ms = now_ms() - 60_000;
    let one = |name: &str| {
        let labels = [("__name__", name), ("job", "x")];
        wire::Series::new(&labels).samples((0..100).map(|n| (from_ms + n * 100, n as f64)))
    };
    let body = wire::v1(&[one("a"), one("b")]);
    server.send(&Request::write(&body)).expect(204, &[]);
    let (start, end) = (seconds(from_ms + 1000), seconds(from_ms + 2999));
    let params =
        [("match[]", "a"), ("match[]", "{job=\"x\",__name__=~\"a|c\"}"), ("start", &start), ("end", &end)];
    let dry: Vec<_> = params.iter().copied().chain([("dry_run", "true")]).collect();
    let count = |server: &Server| {
        let counted = server.send(&Request::form(PATH, &dry)).expect(200, &["success"]).json();
        (counted["data"]["series"].clone(), counted["data"]["samples"].clone())
    };
    assert_eq!(count(&server), (Value::from(1), Value::from(20)));
    delete(&server, &params);
    assert_eq!(count(&server), (Value::from(0), Value::from(0)));
    let check = || {
        let found = server.samples("{job=\"x\"}[5m]", now_ms());
        let of = |name: &str| {
            let (_, samples) =
                found.iter().find(|(labels, _)| labels.contains(&format!("{name:?}"))).unwrap();
            samples.iter().map(|(t, _)| (t - from_ms) / 100).collect::<Vec<_>>()
        };
        assert_eq!(of("a"), (0..10).chain(30..100).collect::<Vec<_>>());
        assert_eq!(of("b"), (0..100).collect::<Vec<_>>());
    };
    check();
    compact(&server);
    check();
    foreign::check_count(&server.data_dir().join("tables/anonymous/metrics"), 180);
    // samples that are sent again after they were deleted must be kept
    server.send(&Request::write(&body)).expect(204, &[]);
    assert_eq!(count(&server), (Value::from(1), Value::from(20)));
    flush(&server);
    compact(&server);
    assert_eq!(count(&server), (Value::from(1), Value::from(20)));
}

#[test]
fn deletes_are_of_one_tenant_and_need_a_selector_of_something() {
    let server = Server::start(Options::default());
    let body = wire::v1(&[wire::Series::named("up").sample(now_ms(), 1.0)]);
    for tenant in ["a", "b"] {
        server.send(&Request::write(&body).tenant(tenant)).expect(204, &[]);
    }
    server.send(&Request::form(PATH, &[])).expect(400, &["no match[] parameter"]);
    server.send(&Request::form(PATH, &[("match[]", "{a=~\".*\"}")])).expect(400, &["non-empty matcher"]);
    server.send(&Request::form(PATH, &[("match[]", "up{")])).expect(400, &["match[]"]);
    server.send(&Request::form(PATH, &[("match[]", "up"), ("dry_run", "maybe")])).expect(400, &["dry_run"]);
    server
        .send(&Request::form(PATH, &[("match[]", "up"), ("start", "2"), ("end", "1")]))
        .expect(400, &["end"]);
    server.send(&Request::get(PATH)).expect(405, &[]);
    let long = format!("up{{a=\"{}\"}}", "x".repeat(20 << 10));
    server.send(&Request::form(PATH, &[("match[]", &long)])).expect(413, &["selectors of a delete"]);
    let put = Request::ask(PATH, &[("match[]", "up")]).method("PUT").tenant("a");
    server.send(&put).expect(204, &[]);
    let count =
        |tenant| server.query_as(Some(tenant), "count(up)", now_ms())["result"].as_array().unwrap().len();
    assert_eq!((count("a"), count("b")), (0, 1));
    server.send(&Request::form(PATH, &[("match[]", "up")]).tenant("c")).expect(204, &[]);
}
