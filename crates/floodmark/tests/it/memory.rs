//! The process must not use more memory than `--memory`. Pages of mapped files do not count, because the
//! kernel can drop them.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms, wait_for};

const MIB: u64 = 1 << 20;
const DAY_MS: i64 = 86_400_000;

const CLIENTS: usize = 8;

#[track_caller]
fn check(attack: impl Fn(&Server)) {
    for memory in [128, 256] {
        // on a busy machine, sealing the files of a whole year may be so slow that the server warns
        let options = Options::default().allow("server::seal::sealer::report");
        let server = Server::start(options.arg("--memory").arg(&format!("{memory}MiB")));
        let account = |name| server.metric(&format!("floodmark_budget_limit_bytes{{account=\"{name}\"}}"));
        let accounts = ["head", "inflight", "query", "flush", "decoders", "auth", "other"].map(account);
        assert_eq!(accounts.iter().sum::<f64>(), (memory * MIB) as f64, "{accounts:?}");
        attack(&server);
        server.assert_peak_within(memory * MIB);
        assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
    }
}

fn at_once(send: impl Fn(usize) + Sync) {
    std::thread::scope(|threads| {
        let send = &send;
        (0..CLIENTS).for_each(|client| _ = threads.spawn(move || send(client)));
    });
}

fn seal(server: &Server) {
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
}

/// There is one file for each day, and decoding a file takes more than a MiB of memory.
#[test]
fn queries_over_a_year_of_daily_files() {
    const SERIES: i64 = 6;
    check(|server| {
        let first = now_ms() - 364 * DAY_MS;
        let one = |i: i64| {
            let samples = (0..365).map(|day| (first + day * DAY_MS, (day * i) as f64));
            Series::named("m").label("i", i.to_string()).samples(samples)
        };
        let body = wire::v1(&(0..SERIES).map(one).collect::<Vec<_>>());
        server.send(&Request::write(&body)).expect(204, &[]);
        seal(server);
        let (query, time) = ("sum(count_over_time(m[370d]))", (now_ms() / 1000 + 60).to_string());
        let request = Request::ask("/api/v1/query", &[("query", query), ("time", &time)]);
        at_once(|_| {
            let reply = server.send(&request).expect(200, &["success"]).json();
            let count = &reply["data"]["result"][0]["value"][1];
            assert_eq!(*count, (SERIES * 365).to_string(), "{reply}");
        });
    });
}

/// Samples that arrive late and in random order take more memory, because they cannot be compressed as well.
#[test]
fn late_samples_of_a_few_series() {
    check(|server| {
        let now = now_ms();
        at_once(|client| {
            for round in 0..10 {
                // the time of each sample is far before or after that of the previous one
                let time = |i: i64| now - 3_000_000 + (i * 7_919 + round * 13) % 3_000_000;
                let samples = (0..5_000).map(|i| (time(i), i as f64 / 7.0));
                let series = Series::named("late").label("i", client.to_string()).samples(samples);
                let reply = server.send(&Request::write(&wire::v1(&[series])));
                assert!([204, 400, 503].contains(&reply.status), "{}", reply.text());
            }
        });
    });
}

#[test]
fn new_series_while_others_are_sealed() {
    check(|server| {
        let now = now_ms();
        at_once(|client| {
            for round in 0..12 {
                let one = |i: usize| {
                    let series = Series::named("new").label("i", format!("{client}-{round}-{i}"));
                    (0..8)
                        .fold(series, |s, l| s.label(&format!("label_{l}"), "v".repeat(40)))
                        .sample(now, 1.0)
                };
                let body = wire::v1(&(0..2_000).map(one).collect::<Vec<_>>());
                let reply = server.send(&Request::write(&body));
                assert!([204, 503].contains(&reply.status), "{}", reply.text());
                if client == 0 && round % 4 == 3 {
                    seal(server);
                }
            }
        });
    });
}

/// The settings permit more connections than the memory has room for. As long as too many are open, only
/// samples of known series may be stored.
#[test]
fn work_that_can_wait_is_refused_while_connections_hold_the_memory() {
    let options = Options::default().arg("--memory").arg("64MiB").config("connections = 8000");
    let server =
        Server::start(options.allow("server::limits::headroom").allow("connections = 8000 may hold"));
    let write = |name: &str| {
        let body = wire::v1(&[Series::named(name).sample(now_ms(), 1.0)]);
        server.send(&Request::write(&body))
    };
    write("known").expect(204, &[]);
    // the server waits ten seconds for the rest of a head, and holds its memory meanwhile
    let head = format!("GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(60_000));
    let mut halves = Vec::new();
    let refused = wait_for("a refusal", || {
        for _ in 0..200 {
            let mut half = Connection::open(server.address).unwrap();
            half.send_bytes(head.as_bytes()).unwrap();
            halves.push(half);
        }
        let reply = write(&format!("new_{}", halves.len()));
        (reply.status == 503).then_some(reply)
    });
    refused.expect(503, &["no memory", "the process holds", "--memory"]);
    write("known").expect(204, &[]);
    assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
    assert!(server.metric("floodmark_refusals_total{reason=\"process_memory\"}") >= 1.0);
    drop(halves);
    wait_for("memory", || (write("later").status == 204).then_some(()));
    let export = Request::ask("/api/v1/export", &[("match[]", "later")]);
    server.send(&export).expect(200, &["later"]);
}

#[test]
fn a_heap_profile_is_written_at_the_watermark() {
    let options = Options::default().arg("--memory").arg("128MiB").config("heap_profile_percent = 1");
    let server = Server::start(options.allow("server::heap::profiles"));
    wait_for("a heap profile", || (server.metric("floodmark_heap_profiles_total") > 0.0).then_some(()));
    let folder = std::fs::read_dir(server.data_dir().join("heap_profiles")).unwrap();
    let profiles: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(profiles.len(), 1, "{profiles:?}");
    let profile = std::fs::read_to_string(&profiles[0]).unwrap();
    assert!(profile.starts_with("heap_v2/524288") && profile.contains("MAPPED_LIBRARIES"), "{profile:.300}");
}
