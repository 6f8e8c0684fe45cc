//! Floods of new series, of new tenants and of returning senders. Meanwhile, three tenants with known series
//! must never be refused, the process must stay within `--memory`, and no acknowledged sample may be lost.

use crate::harness::ledger::Writer;
use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, SetOnDrop, now_ms, wait_for};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stdx::rng::Rng;

const MIB: u64 = 1 << 20;

const BUDGET: u64 = 128 * MIB;

const SENDERS: usize = 8;

const KNOWN: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy)]
struct Flood {
    requests: usize,
    series: usize,
    tenant_of: fn(usize) -> String,
    /// How many times the requests are sent. Each time, the label `version` has another value, so that all
    /// series are new.
    versions: usize,
}

impl Flood {
    fn request(self, number: usize, version: usize) -> Request {
        let (now, version) = (now_ms(), version.to_string());
        let one = |i: usize| {
            let series =
                Series::named("flood").label("i", format!("{number}-{i}")).label("version", &version);
            (0..6)
                .fold(series, |s, l| s.label(&format!("label_{l}"), format!("some value {l}")))
                .sample(now, 1.0)
        };
        let body = wire::v1(&(0..self.series).map(one).collect::<Vec<_>>());
        Request::write(&body).tenant(&(self.tenant_of)(number))
    }

    fn send(self, server: &Server) {
        for version in 0..self.versions {
            let next = AtomicUsize::new(0);
            std::thread::scope(|threads| {
                for _ in 0..SENDERS {
                    threads.spawn(|| {
                        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                        for number in numbers.take_while(|number| *number < self.requests) {
                            repeat(server, &self.request(number, version));
                        }
                    });
                }
            });
        }
    }

    #[track_caller]
    fn verify(self, server: &Server) {
        let mut expected = BTreeMap::<String, usize>::new();
        for number in 0..self.requests {
            *expected.entry((self.tenant_of)(number)).or_default() += self.series * self.versions;
        }
        for (tenant, series) in expected {
            for aggregate in ["count", "sum"] {
                let query = format!("{aggregate}(count_over_time(flood[1h]))");
                let found = server.query_as(Some(&tenant), &query, now_ms());
                let found = found["result"][0]["value"][1].clone();
                assert_eq!(found, series.to_string(), "tenant {tenant}: {aggregate} of series");
            }
        }
    }
}

/// Sends the request until it is stored. A refusal must always have `Retry-After`.
fn repeat(server: &Server, request: &Request) {
    wait_for("the turn of new series", || {
        let reply = server.send(request);
        assert!([204, 503].contains(&reply.status), "{} {}", reply.status, reply.text());
        if reply.status == 503 {
            std::thread::sleep(Duration::from_millis(50)); // retries sooner than the answer asks for
        }
        (reply.status == 204).then_some(())
    });
}

fn start() -> Server {
    let config = "durability = \"os\"\npartitions = 2\nseal_after = \"10s\"";
    // a debug build is slow at sealing, so the server may warn about it
    let options = Options::default().arg("--memory").arg(&format!("{}MiB", BUDGET / MIB)).config(config);
    Server::start(options.allow("server::seal::sealer::report"))
}

/// Runs `flood` while the three known tenants write. Verifies all samples afterwards, and once more after a
/// kill -9.
#[track_caller]
fn check(mut server: Server, flood: impl FnOnce(&Server), verify: impl Fn(&Server)) {
    let seed = Rng::announced().next_u64();
    let mut writers = KNOWN.map(|tenant| Writer::new(seed, 0).of_tenant(tenant));
    for writer in &mut writers {
        writer.write_once(&server).expect(204, &[]);
    }
    // a tenant that has tables does not have to share memory with new tenants
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    server.kill9();
    server.restart();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stop = SetOnDrop(&stop);
        let (address, stop) = (server.address, &stop);
        for writer in &mut writers {
            threads.spawn(move || writer.run(address, stop));
        }
        flood(&server);
    });
    assert!(server.is_running());
    server.assert_peak_within(BUDGET);
    let refused = writers.each_ref().map(|writer| (writer.acknowledged, writer.refused));
    eprintln!("requests of known series that were acknowledged and refused: {refused:?}");
    assert!(refused.iter().all(|(acknowledged, refused)| *acknowledged > 1 && *refused == 0), "{refused:?}");
    for is_killed in [false, true] {
        if is_killed {
            server.kill9();
            server.restart();
        }
        writers.iter().for_each(|writer| writer.verify(&server, 0));
        verify(&server);
    }
    server.assert_peak_within(BUDGET);
}

fn check_flood(flood: Flood) {
    check(start(), |server| flood.send(server), |server| flood.verify(server));
}

#[test]
fn all_series_get_another_label_value_at_once() {
    let tenant_of = |_| "flood".to_owned();
    check_flood(Flood { requests: 50, series: 1_000, tenant_of, versions: 2 });
}

/// No single tenant has many series, but together they do.
#[test]
fn many_tenants_create_series_at_once() {
    let tenant_of = |number| format!("flood-{}", number % 25);
    check_flood(Flood { requests: 75, series: 1_000, tenant_of, versions: 1 });
}

/// Between two requests of the known tenant, its samples are sealed, and another tenant fills the head. Only the other tenant
/// may lose series.
#[test]
fn a_flood_evicts_no_known_series_of_others() {
    let options =
        Options::default().arg("--memory").arg("64MiB").config("durability = \"os\"\npartitions = 1");
    let server = Server::start(options.allow("server::seal::sealer::report"));
    let request = |tenant: &str, name: &str| {
        let now = now_ms();
        let one = |i: usize| Series::named(name).label("i", i.to_string()).sample(now, 1.0);
        Request::write(&wire::v1(&(0..1000).map(one).collect::<Vec<_>>())).tenant(tenant)
    };
    let known = || server.send(&request("known", "m"));
    known().expect(204, &[]);
    server.send(&request("flood", "idle")).expect(204, &[]);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    let mut number = 0;
    wait_for("the eviction of the flood's idle series", || {
        let reply = server.send(&request("flood", &format!("flood_{number}")));
        assert!([204, 503].contains(&reply.status), "{} {}", reply.status, reply.text());
        number += usize::from(reply.status == 204);
        (server.metric("floodmark_head_series_evicted_total") > 0.0).then_some(())
    });
    let created = || server.metric("floodmark_head_series_created_total");
    let before = created();
    known().expect(204, &[]);
    assert_eq!(created(), before, "series of the known tenant were evicted");
}

/// Tenants beyond the limit `tenant_burst` must be told to retry later.
#[test]
fn many_new_tenants_at_once() {
    const TENANTS: usize = 5_000;
    let (next, accepted) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let request = |number: usize| {
        let body = wire::v1(&[Series::named("flood").sample(now_ms(), number as f64)]);
        Request::write(&body).tenant(&format!("new-{number}"))
    };
    let send = |server: &Server| {
        std::thread::scope(|threads| {
            for _ in 0..SENDERS {
                threads.spawn(|| {
                    let mut connection = Connection::open(server.address).unwrap();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= TENANTS {
                            return;
                        }
                        let reply = connection.send(&request(number)).unwrap();
                        match reply.status {
                            204 => accepted.lock().unwrap().push(number),
                            _ => {
                                reply.expect(503, &["too many new tenants", "tenant_burst"]);
                                assert!(reply.header("retry-after").is_some());
                            }
                        }
                    }
                });
            }
        });
    };
    let verify = |server: &Server| {
        let accepted = accepted.lock().unwrap();
        eprintln!("{} of {TENANTS} tenants were accepted", accepted.len());
        assert!((900..TENANTS).contains(&accepted.len()), "{}", accepted.len());
        for number in accepted.iter() {
            let found = server.query_as(Some(&format!("new-{number}")), "flood", now_ms());
            assert_eq!(found["result"][0]["value"][1], number.to_string(), "tenant {number}");
        }
    };
    check(start(), send, verify);
}

/// When the server is back, many senders deliver at once what their queues collected during the outage.
#[test]
fn senders_that_return_after_an_outage() {
    const RETURNING: u64 = 100;
    let (before, queued) = (3, 40);
    let seed = Rng::announced().next_u64();
    let mut server = start();
    let mut senders: Vec<_> =
        (0..RETURNING).map(|id| Writer::new(seed, id).of_tenant(&format!("returning-{}", id % 10))).collect();
    let catch_up = |server: &Server, senders: &mut [Writer], requests| {
        let address = server.address;
        std::thread::scope(|threads| {
            for sender in senders {
                threads.spawn(move || sender.catch_up(address, requests).unwrap());
            }
        });
    };
    catch_up(&server, &mut senders, before);
    server.kill9();
    server.restart();
    senders.iter_mut().for_each(|sender| sender.refused = 0);
    catch_up(&server, &mut senders, before + queued);
    let refused: u64 = senders.iter().map(|sender| sender.refused).sum();
    eprintln!("{refused} refusals of {} requests", RETURNING * queued);
    assert!(refused <= RETURNING, "{refused} refusals: senders are refused more than once");
    senders.iter().for_each(|sender| sender.verify(&server, 0));
    server.assert_peak_within(BUDGET);
}
