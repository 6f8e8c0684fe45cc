//! Overload. The process must stay within its budget, refuse requests quickly, and work normally afterwards.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Reply, Request, Server, now_ms};
use std::collections::BTreeMap;
use std::sync::Mutex;

const MIB: u64 = 1 << 20;

const BUDGET: u64 = 64 * MIB;

const CLIENTS: usize = 24;

fn small() -> Options {
    Options::default().arg("--memory").arg("64MiB")
}

fn wide(name: &str, count: usize, tag: &str, timestamp_ms: i64) -> Vec<Series> {
    let one = |i: usize| {
        let number = format!("{tag}-{i}");
        let labels = (0..8).fold(Series::named(name).label("i", &number), |s, l| {
            s.label(&format!("label_{l}"), format!("a value that is somewhat long {l}"))
        });
        labels.sample(timestamp_ms, i as f64)
    };
    (0..count).map(one).collect()
}

#[derive(Default)]
struct Answers {
    statuses: BTreeMap<u16, usize>,
    /// The first reply that refused a request because the head, which holds the latest samples, was full.
    full: Option<Reply>,
}

impl Answers {
    fn add(&mut self, reply: Option<Reply>) {
        let Some(reply) = reply else {
            *self.statuses.entry(0).or_default() += 1;
            return;
        };
        *self.statuses.entry(checked(&reply)).or_default() += 1;
        if self.full.is_none() && reply.status == 503 && reply.text().contains("the head") {
            self.full = Some(reply);
        }
    }
}

/// Lets each client send `requests` requests. Every refusal must tell the sender what to do.
fn flood(
    server: &Server,
    requests: usize,
    answers: &mut Answers,
    body: impl Fn(usize, usize) -> Vec<u8> + Sync,
) {
    let shared = Mutex::new(answers);
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (shared, body) = (&shared, &body);
            threads.spawn(move || {
                for number in 0..requests {
                    // a new connection for each request, because the server may close one after a refusal
                    let mut connection = Connection::open(server.address).unwrap();
                    let reply = connection.send(&Request::write(&body(client, number)));
                    shared.lock().unwrap().add(reply.ok());
                }
            });
        }
    });
}

fn checked(reply: &Reply) -> u16 {
    match reply.status {
        204 => {}
        503 => {
            let seconds = reply.header("retry-after").map(|s| s.parse::<u32>().unwrap());
            assert!(seconds.is_some_and(|s| (1..=45).contains(&s)), "{seconds:?}: {}", reply.text());
            assert!(!reply.body.is_empty());
        }
        413 => assert!(!reply.body.is_empty()),
        other => panic!("status {other}: {}", reply.text()),
    }
    reply.status
}

fn works(server: &Server, name: &str) {
    let now = now_ms();
    let body = wire::v1(&[Series::named(name).sample(now, 1.5)]);
    server.send(&Request::write(&body)).expect(204, &[]);
    assert_eq!(server.value(name, now), Some(1.5));
}

#[test]
fn many_large_bodies_at_once() {
    let mut server = Server::start(small());
    works(&server, "early");
    let now = now_ms();
    // bodies of about 2.6 MiB, four of which fill the account
    let bodies: Vec<_> = (0..4).map(|i| wire::v1(&wide("large", 8_000, "same", now + i))).collect();
    let mut answers = Answers::default();
    flood(&server, 6, &mut answers, |client, number| bodies[(client + number) % bodies.len()].clone());
    let statuses = answers.statuses;
    eprintln!("large bodies: {statuses:?}");
    assert!(server.is_running());
    assert!(statuses.get(&204).is_some_and(|n| *n > 0), "all requests were refused: {statuses:?}");
    assert!(!statuses.contains_key(&0), "connections without an answer: {statuses:?}");
    server.wait_until_zero("floodmark_write_inflight_bytes");
    works(&server, "early");
    server.assert_peak_within(BUDGET);
    assert!(server.metric("floodmark_write_inflight_peak_bytes") <= (BUDGET * 15 / 100) as f64);
}

#[test]
fn a_body_that_can_never_fit_is_refused_for_good() {
    let server = Server::start(small());
    let body = wire::v1(&wide("huge", 40_000, "x", now_ms()));
    server.send(&Request::write(&body)).expect(413, &["inflight", "--memory"]);
    works(&server, "after");
    server.assert_peak_within(BUDGET);
}

#[test]
fn ever_new_series_are_refused_and_known_ones_go_on() {
    let mut server = Server::start(small());
    works(&server, "early");
    let now = now_ms();
    let mut answers = Answers::default();
    // how many rounds it takes to fill the head depends on how fast samples are sealed
    for round in 0..100 {
        flood(&server, 4, &mut answers, |client, number| {
            wire::v1(&wide("new", 500, &format!("{round}-{client}-{number}"), now))
        });
        if answers.full.is_some() {
            break;
        }
    }
    let series = server.metric("floodmark_head_series");
    eprintln!("new series: {:?}, {series} series", answers.statuses);
    assert!(server.is_running());
    let refused = answers.full.expect("the head never filled up");
    refused.expect(503, &["head", "--memory", "new series"]);
    // the estimate of when sealing has made room, at most 30 s and a half
    assert!((1..=45).contains(&refused.header("retry-after").unwrap().parse().unwrap()));
    works(&server, "early");
    server.assert_peak_within(BUDGET);
    // the replay of the journal must fit into the same memory
    server.kill9();
    server.restart();
    works(&server, "early");
    server.assert_peak_within(BUDGET);
}

#[test]
fn requests_in_flight_are_counted() {
    let server = Server::start(Options::default().config("inflight_requests = 2"));
    let now = now_ms();
    let body = wire::v1(&wide("m", 1_000, "x", now));
    let mut answers = Answers::default();
    flood(&server, 10, &mut answers, |_, _| body.clone());
    let statuses = answers.statuses;
    eprintln!("two at a time: {statuses:?}");
    assert!(statuses.keys().all(|s| [204, 503].contains(s)), "{statuses:?}");
    assert!(server.metric("floodmark_write_inflight_requests_peak") <= 2.0);
    server.wait_until_zero("floodmark_write_inflight_requests");
    assert_eq!(server.value("count(m)", now), Some(1000.0));
}

#[test]
fn a_query_beyond_its_share_ends_with_a_clear_error() {
    let server = Server::start(small());
    let now = now_ms();
    let start = now - 1_000_000;
    // 100 series with 4,000 samples each, which take 6.4 MB
    for part in 0..40 {
        let times = (0..100).map(|i| (start + (part * 100 + i) * 250, i as f64));
        let series: Vec<_> = (0..100)
            .map(|s| Series::named("many").label("s", s.to_string()).samples(times.clone()))
            .collect();
        server.send(&Request::write(&wire::v1(&series))).expect(204, &[]);
    }
    let (from, to) = ((start / 1000).to_string(), (now / 1000).to_string());
    let params = [("query", "many[30m]"), ("time", to.as_str())];
    let reply = server.send(&Request::ask("/api/v1/query", &params));
    reply.expect(422, &["execution", "samples"]);
    let params = [("query", "count_over_time(many[15m])"), ("start", &from), ("end", &to), ("step", "1")];
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let status = server.send(&Request::ask("/api/v1/query_range", &params)).status;
                assert!([200, 422, 503].contains(&status), "{status}");
            });
        }
    });
    assert_eq!(server.value("count(many)", now), Some(100.0));
    works(&server, "after");
    server.assert_peak_within(BUDGET);
}

/// A writer can read a sample as soon as it is acknowledged, even while others are writing.
#[test]
fn everyone_reads_their_own_writes() {
    let server = Server::new();
    std::thread::scope(|threads| {
        for client in 0..8 {
            let server = &server;
            threads.spawn(move || {
                let mut connection = Connection::open(server.address).unwrap();
                let name = format!("own_{client}");
                for number in 0..60 {
                    let now = now_ms();
                    // every third request creates a series
                    let fresh = format!("fresh_{client}_{number}");
                    let mut series = vec![Series::named(&name).sample(now, f64::from(number))];
                    if number % 3 == 0 {
                        series.push(Series::named(&fresh).sample(now, f64::from(number)));
                    }
                    connection.send(&Request::write(&wire::v1(&series))).unwrap().expect(204, &[]);
                    assert_eq!(server.value(&name, now), Some(f64::from(number)));
                    if number % 3 == 0 {
                        assert_eq!(server.value(&fresh, now), Some(f64::from(number)));
                    }
                }
            });
        }
    });
}
