//! What is deleted besides samples: exemplars, and the names in lists. Nothing of it may be answered after the delete, or come
//! back after a crash.

use super::{compact, flush};
use crate::harness::{Options, Request, Server, http, now_ms, wire};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PATH: &str = "/api/v1/admin/tsdb/delete_series";

/// Every exemplar, whatever its time.
const EVERYTHING: [(&str, &str); 3] =
    [("query", "{__name__=~\".+\"}"), ("start", "0"), ("end", "9999999999")];

#[track_caller]
fn delete(server: &Server, tenant: &str, params: &[(&str, &str)]) {
    server.send(&Request::form(PATH, params).tenant(tenant)).expect(204, &[]);
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// A series with labels, and one without, each with a sample and an exemplar, and with names that nothing else contains.
fn series_of(name: &str, at_ms: i64) -> [wire::Series; 2] {
    let (host, path) = (format!("host-{name}"), format!("servers.{name}.cpu"));
    let own = format!("label_{name}");
    let tagged = wire::Series::named("m").label("host", &host).label(&own, "x");
    [tagged, wire::Series::named(&path)]
        .map(|series| series.sample(at_ms, 1.0).exemplar(&[("trace_id", name)], at_ms, 1.0))
}

#[track_caller]
fn write(server: &Server, tenant: &str, names: &[&str], at_ms: i64) {
    let all: Vec<_> = names.iter().flat_map(|name| series_of(name, at_ms)).collect();
    server.send(&Request::write_v2(&wire::v2(&all)).tenant(tenant)).expect(204, &[]);
}

/// Deletes what [`series_of`] returns for the name.
fn delete_name(server: &Server, tenant: &str, name: &str) {
    let selectors =
        [format!("{{host=\"host-{name}\"}}"), format!("{{__name__=~\"servers\\\\.{name}\\\\..+\"}}")];
    let params: Vec<_> = selectors.iter().map(|selector| ("match[]", selector.as_str())).collect();
    delete(server, tenant, &params);
}

/// What lists answer: those of all series that are stored, and those of series in memory.
struct Lists {
    stored: Vec<(&'static str, String)>,
    in_memory: Vec<(&'static str, String)>,
}

fn lists(server: &Server, tenant: &str) -> Lists {
    let ask = |path: &'static str, params: &[(&str, &str)]| {
        let reply = server.send(&Request::ask(path, params).tenant(tenant));
        let mut answer = reply.expect(200, &[]).json();
        // sorted, because the order of series depends on where they are stored
        let list = if answer.is_array() { &mut answer } else { &mut answer["data"] };
        if let Value::Array(list) = list {
            list.sort_by_key(Value::to_string);
        }
        (path, answer.to_string())
    };
    let all = ("match[]", "{__name__=~\".+\"}");
    let stored = vec![
        ask("/api/v1/labels", &[]),
        ask("/api/v1/labels", &[all]),
        ask("/api/v1/label/__name__/values", &[]),
        ask("/api/v1/label/host/values", &[]),
        ask("/api/v1/label/host/values", &[("match[]", "m")]),
        ask("/api/v1/series", &[all, ("start", "0")]),
        ask("/api/v1/query_exemplars", &EVERYTHING),
        ask("/metrics/find", &[("query", "servers.*")]),
        ask("/metrics/expand", &[("query", "servers.*.*")]),
        ask("/metrics/index.json", &[]),
        ask("/tags", &[]),
        ask("/tags/findSeries", &[("expr", "name=m")]),
        ask("/tags/autoComplete/tags", &[]),
        ask("/tags/autoComplete/values", &[("tag", "host")]),
    ];
    let in_memory = vec![
        ask("/api/v1/cardinality/label_names", &[]),
        ask("/api/v1/cardinality/label_values", &[("label_names[]", "host"), ("label_names[]", "__name__")]),
        ask("/api/v1/cardinality/active_series", &[("selector", "{__name__=~\".+\"}")]),
        ask("/api/v1/status/tsdb", &[]),
        ask("/api/v1/cardinality/growth", &[]),
        ask("/api/v1/cardinality/unqueried", &[]),
    ];
    Lists { stored, in_memory }
}

/// The answers must be those of a tenant that only ever had the other series. Counts of series in memory also contain those that
/// were created, so in these, `gone` must only not occur.
#[track_caller]
fn check_same(server: &Server, tenant: &str, model: &str, gone: &[&str]) {
    let (found, expected) = (lists(server, tenant), lists(server, model));
    assert_eq!(found.stored, expected.stored);
    for (path, answer) in found.stored.iter().chain(&found.in_memory) {
        assert!(!gone.iter().any(|gone| answer.contains(gone)), "{path}: {answer}");
    }
}

#[test]
fn no_list_names_what_was_deleted_also_after_kill_9() {
    let mut server = Server::start(Options::default().config("partitions = 2"));
    let at_ms = now_ms() - 60_000;
    for tenant in ["some", "untouched"] {
        write(&server, tenant, &["stays", "gone"], at_ms);
    }
    write(&server, "model", &["stays"], at_ms);
    // what is only in memory is deleted like what is in tables
    flush(&server);
    write(&server, "some", &["late"], at_ms);
    let untouched = lists(&server, "untouched");
    delete_name(&server, "some", "gone");
    delete_name(&server, "some", "late");
    let gone = ["gone", "late"];
    check_same(&server, "some", "model", &gone);
    let check_untouched = |server: &Server, in_memory: bool| {
        let now = lists(server, "untouched");
        assert_eq!(now.stored, untouched.stored);
        assert!(!in_memory || now.in_memory[..3] == untouched.in_memory[..3]);
    };
    check_untouched(&server, true);
    for _ in 0..2 {
        server.kill9();
        server.restart();
        check_same(&server, "some", "model", &gone);
        // only series in memory count, and after a restart these are not all
        check_untouched(&server, false);
        compact(&server);
    }
    // what is written again is there again, with its exemplars
    for tenant in ["some", "model"] {
        write(&server, tenant, &["late"], at_ms + 1000);
    }
    let (found, expected) = (lists(&server, "some"), lists(&server, "model"));
    assert_eq!((&found.stored, &found.in_memory[..3]), (&expected.stored, &expected.in_memory[..3]));
    assert!(found.stored.iter().all(|(_, answer)| answer.contains("late")));
    server.kill9();
    server.restart();
    check_same(&server, "some", "model", &["gone"]);
    flush(&server);
    check_same(&server, "some", "model", &["gone"]);
}

/// Values and times of exemplars.
fn exemplars(server: &Server, tenant: &str, query: &str) -> Vec<(f64, i64)> {
    let params = [("query", query), EVERYTHING[1], EVERYTHING[2]];
    let answer = server.send(&Request::ask("/api/v1/query_exemplars", &params).tenant(tenant));
    let answer = answer.expect(200, &["success"]).json();
    let of_series = answer["data"].as_array().unwrap().iter();
    let all = of_series.flat_map(|of| of["exemplars"].as_array().unwrap());
    let number = |exemplar: &Value| {
        let at_ms = (exemplar["timestamp"].as_f64().unwrap() * 1000.0).round() as i64;
        (exemplar["value"].as_str().unwrap().parse().unwrap(), at_ms)
    };
    all.map(number).collect()
}

#[test]
fn a_range_of_exemplars_is_cut_exactly() {
    let mut server = Server::start(Options::default().config("partitions = 2"));
    let from_ms = now_ms() - 60_000;
    let one = |name: &str| {
        let series = wire::Series::new(&[("__name__", name), ("job", name)]);
        let at = |n: i64| (from_ms + n * 100, n as f64);
        (0..100).fold(series.samples((0..100).map(at)), |series, n| {
            series.exemplar(&[("trace_id", "x")], at(n).0, at(n).1)
        })
    };
    let body = wire::v2(&[one("a"), one("b")]);
    for tenant in ["some", "untouched"] {
        server.send(&Request::write_v2(&body).tenant(tenant)).expect(204, &[]);
    }
    let check = |server: &Server| {
        let at = |n: i64| (n as f64, from_ms + n * 100);
        let all: Vec<_> = (0..100).map(at).collect();
        assert_eq!(exemplars(server, "some", "a"), (0..10).chain(30..100).map(at).collect::<Vec<_>>());
        assert_eq!(
            [("some", "b"), ("untouched", "a"), ("untouched", "b")].map(|(t, q)| exemplars(server, t, q)),
            [(); 3].map(|()| all.clone())
        );
        let values = server.send(&Request::ask("/api/v1/label/job/values", &[]).tenant("some"));
        values.expect(200, &["[\"a\",\"b\"]"]);
    };
    let (start, end) = (seconds(from_ms + 1000), seconds(from_ms + 2999));
    delete(&server, "some", &[("match[]", "{job=~\"a|c\"}"), ("start", &start), ("end", &end)]);
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// An exemplar that was acknowledged before the delete is gone, one that was sent after its answer is kept.
#[test]
fn exemplars_that_are_written_during_a_delete() {
    let config = "segment_size = \"1MiB\"\nseal_after = \"300ms\"\npartitions = 2";
    let mut server = Server::start(Options::default().config(config));
    let from_ms = now_ms();
    let write = |address: SocketAddr, metric: &str, n: u64| {
        let at_ms = from_ms + n as i64;
        let series = wire::Series::named(metric).sample(at_ms, 1.0);
        let series = series.exemplar(&[("trace_id", "x")], at_ms, n as f64);
        http::once(address, &Request::write_v2(&wire::v2(&[series]))).unwrap().expect(204, &[]);
    };
    let numbers = |server: &Server, metric: &str| -> BTreeSet<u64> {
        exemplars(server, "anonymous", metric).into_iter().map(|(value, _)| value as u64).collect()
    };
    let kept = 50;
    (0..kept).for_each(|n| write(server.address, "other", n));
    for round in 0..4 {
        let (stop, next, address) = (AtomicBool::new(false), AtomicU64::new(round * 10_000), server.address);
        let write_next = || {
            let number = next.fetch_add(1, Ordering::SeqCst);
            write(address, "m", number);
            number
        };
        let before = (0..20).map(|_| write_next()).max().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // not more than the exemplars that a tenant may have
                for _ in 0..1000 {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    write_next();
                }
            });
            delete(&server, "anonymous", &[("match[]", "m")]);
            stop.store(true, Ordering::SeqCst);
        });
        // the other thread may have sent its last request before the answer
        let after: BTreeSet<_> = (0..20).map(|_| write_next()).collect();
        for _ in 0..2 {
            let found = numbers(&server, "m");
            assert!(found.is_superset(&after), "round {round}: {found:?} lacks some of {after:?}");
            let first = found.first().copied();
            assert!(
                first.is_some_and(|first| first > before),
                "round {round}: {first:?}, up to {before} were deleted"
            );
            assert_eq!(numbers(&server, "other"), (0..kept).collect::<BTreeSet<_>>());
            server.kill9();
            server.restart();
        }
    }
}
