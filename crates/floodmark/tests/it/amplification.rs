//! Small inputs that expand into much memory or work. The process must stay within its budget.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms};
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

const MIB: u64 = 1 << 20;

const BUDGET: u64 = 64 * MIB;

fn small() -> Server {
    Server::start(Options::default().arg("--memory").arg("64MiB"))
}

#[track_caller]
fn is_well(mut server: Server) {
    assert!(server.is_running());
    server.assert_peak_within(BUDGET);
    server.wait_until_zero("floodmark_write_inflight_bytes");
    assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
}

/// Returns the status of the reply. Checks that it has `Retry-After` if and only if the status is 503.
#[track_caller]
fn status(server: &Server, request: &Request) -> u16 {
    let reply = server.send(request);
    assert!([204, 400, 413, 503].contains(&reply.status), "{} {}", reply.status, reply.text());
    assert_eq!(reply.status == 503, reply.header("retry-after").is_some());
    reply.status
}

#[test]
fn metadata_beyond_the_limit() {
    let server = small();
    let mut last = 0;
    for round in 0..60 {
        let help = "a text of about a hundred bytes ".repeat(16);
        let mut message = Vec::new();
        for i in 0..2_000 {
            message.extend(wire::v1_metadata(1, &format!("metric_{round}_{i}"), &help, "bytes"));
        }
        last = status(&server, &Request::write(&wire::snappy(&message)));
    }
    eprintln!("last: {last}");
    assert!(server.metric("floodmark_write_refused_metadata_total{reason=\"bytes\"}") > 0.0);
    check_part(&server, "metadata");
    is_well(server);
}

/// Checks the memory of exemplars or metadata. Each of them is a `part` of the head's memory with a limit of
/// its own, and must use some of it, but no more than the limit.
fn check_part(server: &Server, part: &str) {
    let of = |what| {
        server.metric(&format!("floodmark_budget_part_{what}_bytes{{account=\"head\",part=\"{part}\"}}"))
    };
    let (used, limit) = (of("used"), of("limit"));
    assert!(used > 0.0 && used <= limit, "{used} of {limit}");
}

#[test]
fn exemplars_beyond_the_limit() {
    let server = small();
    let now = now_ms();
    for round in 0..60 {
        let mut series = Series::named("m").sample(now + round, 1.0);
        for i in 0..2_000 {
            let trace = format!("{round}-{i}-{}", "0123456789abcdef".repeat(6));
            series = series.exemplar(&[("trace_id", &trace)], now + round, f64::from(i));
        }
        status(&server, &Request::write(&wire::v1(&[series])));
    }
    assert!(server.metric("floodmark_head_exemplars_dropped_total") > 0.0);
    check_part(&server, "exemplars");
    is_well(server);
}

#[test]
fn tenants_beyond_the_limit() {
    let server = small();
    let now = now_ms();
    let body = wire::v1(&[Series::named("m").sample(now, 1.0)]);
    let mut connection = Connection::open(server.address).unwrap();
    let mut refused = 0;
    for i in 0..20_000 {
        let request = Request::write(&body).tenant(&format!("tenant-{i}-{}", "x".repeat(100)));
        let reply = connection.send(&request).unwrap();
        assert!([204, 400, 503].contains(&reply.status), "{} {}", reply.status, reply.text());
        refused += usize::from(reply.status != 204);
    }
    eprintln!("{refused} of 20000 tenants refused");
    server.send(&Request::write(&body).tenant(&format!("tenant-0-{}", "x".repeat(100)))).expect(204, &[]);
    is_well(server);
}

#[test]
fn series_with_the_longest_labels() {
    let server = small();
    let now = now_ms();
    for round in 0..20 {
        let long = |i: usize| {
            let series = Series::named("m").label("i", format!("{round}-{i}"));
            (0..4).fold(series, |s, l| s.label(&format!("l{l}"), "v".repeat(15 << 10))).sample(now, 1.0)
        };
        status(&server, &Request::write(&wire::v1(&(0..40).map(long).collect::<Vec<_>>())));
    }
    is_well(server);
}

/// Sends the beginning of a request on many connections and keeps them open. The server may refuse some of
/// them.
fn begin_many(server: &Server, count: usize, beginning: &[u8]) -> Vec<Connection> {
    let begin = |_| {
        let mut connection = Connection::open(server.address).ok()?;
        connection.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let _ = connection.send_bytes(beginning); // the server need not read it all
        Some(connection)
    };
    (0..count).filter_map(begin).collect()
}

#[test]
fn bodies_beyond_the_limit_on_many_connections() {
    let server = small();
    let head = Request::write(&[]).header("Content-Length", "1000000").head();
    let body = [head.as_bytes(), &vec![0; 990_000]].concat();
    let open = begin_many(&server, 300, &body);
    eprintln!("{} bodies of {} bytes", open.len(), body.len());
    is_well_but_busy(server);
}

/// Like [`is_well`], for a server in which other requests may still hold memory.
#[track_caller]
fn is_well_but_busy(mut server: Server) {
    assert!(server.is_running());
    server.assert_peak_within(BUDGET);
    assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
}

/// A client asks for all labels of many series but does not read the answers. They must not pile up in
/// memory.
#[test]
fn catalog_answers_that_nobody_reads() {
    let server = small();
    let now = now_ms();
    // 400 series with 15 KiB of labels each, so that an answer with all of them has 6 MB
    for part in 0..10 {
        let long = |i: usize| {
            let series = Series::named("m").label("i", format!("{part}-{i}"));
            series.label("long", "v".repeat(15 << 10)).sample(now, 1.0)
        };
        status(&server, &Request::write(&wire::v1(&(0..40).map(long).collect::<Vec<_>>())));
    }
    let requests = [
        Request::ask("/api/v1/query", &[("query", "m"), ("time", &(now / 1000 + 1).to_string())]),
        Request::ask("/api/v1/series", &[("match[]", "m")]),
    ];
    never_read(&server, &requests, 40);
    is_well(server);
}

fn never_read(server: &Server, requests: &[Request], count: usize) {
    let mut idle: Vec<_> = (0..count).map(|_| Connection::open(server.address).unwrap()).collect();
    for (connection, request) in idle.iter_mut().zip(requests.iter().cycle()) {
        connection.send_bytes(request.head().as_bytes()).unwrap();
    }
    // the server has built a whole answer in memory before it sends the first bytes
    let mut answers = BTreeMap::<String, usize>::new();
    for connection in &mut idle {
        connection.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut first = [0; 12];
        let answer = connection.stream.read_exact(&mut first);
        let answer = answer.map_or_else(|e| e.to_string(), |()| String::from_utf8_lossy(&first).into_owned());
        *answers.entry(answer).or_default() += 1;
    }
    eprintln!("never read: {answers:?}");
    let meanwhile = server.send(&Request::ask("/api/v1/query", &[("query", "1")]));
    assert!([200, 503].contains(&meanwhile.status), "{}", meanwhile.text());
}

/// The work for the exemplars of new series must not grow with the square of their number.
#[test]
fn exemplars_of_many_new_series() {
    let server = Server::new();
    let now = now_ms();
    let least = |count: usize| {
        let took = (0..3).map(|round| {
            let one = |i: usize| {
                let series = Series::named("m").label("i", format!("{count}-{round}-{i}"));
                series.sample(now, 1.0).exemplar(&[("t", "x")], now, 1.0)
            };
            let body = wire::v1(&(0..count).map(one).collect::<Vec<_>>());
            let began = std::time::Instant::now();
            server.send(&Request::write(&body)).expect(204, &[]);
            began.elapsed()
        });
        took.min().expect("three rounds")
    };
    // compares the fastest of three requests, because other tests use the processors too; quadratic work
    // would take 64 times as long
    let (few, many) = (least(5_000), least(40_000));
    assert!(many < 40 * few, "5,000 took {few:?}, 40,000 took {many:?}");
}

/// A 2.0 body with `count` series, each of which takes nine bytes because all of them refer to the same
/// symbol of 15 KiB.
fn long_symbol(count: usize) -> Vec<u8> {
    let long = "x".repeat(15 << 10);
    let mut symbols: Vec<String> = ["", "__name__", "m", "long", &long, "i"].map(String::from).to_vec();
    symbols.extend((0..count).map(|i| i.to_string()));
    let mut message = Vec::new();
    symbols.iter().for_each(|s| wire::put_bytes(&mut message, 4, s.as_bytes()));
    let now = now_ms();
    for i in 0..count {
        let mut refs = Vec::new();
        [1, 2, 5, 6 + i as u64, 3, 4].iter().for_each(|r| wire::varint(&mut refs, *r));
        let mut series = Vec::new();
        wire::put_bytes(&mut series, 1, &refs);
        wire::put_bytes(&mut series, 2, &wire::sample(now, 1.0));
        wire::put_bytes(&mut message, 5, &series);
    }
    wire::snappy(&message)
}

#[test]
fn one_symbol_in_many_series() {
    let server = small();
    for count in [2_000, 20_000, 100_000] {
        let body = long_symbol(count);
        let status = status(&server, &Request::write_v2(&body));
        eprintln!("{count} series in {} bytes: {status}", body.len());
        assert!(count < 20_000 || status != 204, "more series were accepted than fit into memory");
    }
    is_well(server);
}

#[test]
fn one_symbol_in_many_series_many_times() {
    let server = Server::start(Options::default().arg("--memory").arg("256MiB"));
    let body = long_symbol(50_000);
    std::thread::scope(|threads| {
        for _ in 0..16 {
            threads.spawn(|| status(&server, &Request::write_v2(&body)));
        }
    });
    server.assert_peak_within(256 * MIB);
}

/// A client asks for many samples but does not read the answers. They must not pile up in memory.
#[test]
fn query_answers_that_nobody_reads() {
    let server = Server::start(Options::default().arg("--memory").arg("256MiB"));
    let now = now_ms();
    // 500,000 samples: some 20 MB of JSON
    for part in 0..50 {
        let times = (0..100).map(|i| (now - 1_000_000 + (part * 100 + i) * 200, i as f64 / 7.0));
        let series: Vec<_> = (0..100)
            .map(|s| Series::named("many").label("s", s.to_string()).samples(times.clone()))
            .collect();
        server.send(&Request::write(&wire::v1(&series))).expect(204, &[]);
    }
    let params = [("query", "many[30m]"), ("time", &(now / 1000).to_string())];
    never_read(&server, &[Request::ask("/api/v1/query", &params)], 40);
    server.assert_peak_within(256 * MIB);
}

#[test]
fn request_headers_beyond_the_limit_on_many_connections() {
    let server = small();
    let head = format!("GET / HTTP/1.1\r\n{}", format!("X-Header: {}\r\n", "h".repeat(4000)).repeat(90));
    let open = begin_many(&server, 600, head.as_bytes());
    eprintln!("{} heads of {} bytes", open.len(), head.len());
    is_well(server);
}

#[test]
fn forms_beyond_the_limit_on_many_connections() {
    let server = small();
    let head = Request::form("/api/v1/query", &[]).header("Content-Length", "1000000").head();
    let form = [head.as_bytes(), &vec![b'a'; 990_000]].concat();
    let open = begin_many(&server, 300, &form);
    eprintln!("{} forms of {} bytes", open.len(), form.len());
    is_well(server);
}

/// A large request makes a decoder allocate much memory, which must be released when the decoder handles a
/// small one.
#[test]
fn a_small_request_holds_little_memory() {
    let server = small();
    let now = now_ms();
    let one = |i: usize| Series::named("m").label("i", format!("{i}-{}", "x".repeat(200))).sample(now, 1.0);
    server.send(&Request::write(&wire::v1(&(0..8_000).map(one).collect::<Vec<_>>()))).expect(204, &[]);
    let tiny = Request::write(&wire::v1(&[Series::named("tiny").sample(now, 1.0)]));
    let refused = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..16 {
            threads.spawn(|| {
                for _ in 0..50 {
                    if server.send(&tiny).status != 204 {
                        refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 0, "some of 800 requests of 50 bytes were refused");
}
