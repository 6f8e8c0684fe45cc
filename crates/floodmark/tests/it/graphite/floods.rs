//! Floods of Graphite's ports, and searches that select too much. Meanwhile another sender sends points of known series: all
//! of them are stored, and the server stays within its memory.

use super::lines::{all_durable, connect, options};
use crate::harness::{Options, Request, Server, SetOnDrop, now_ms, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stdx::rng::Rng;

const MIB: u64 = 1 << 20;

const KNOWN: usize = 100;

const OPEN: &str = "floodmark_graphite_connections";

/// Between two rounds of points of known series.
const ROUND: Duration = Duration::from_millis(200);

/// Longest time that a query of a known series takes during a flood, on a busy machine with a debug build.
const ANSWER_MAX: Duration = Duration::from_secs(20);

struct Flood {
    memory_mib: u64,
    options: Options,
}

impl Flood {
    fn new(memory_mib: u64) -> Self {
        // a debug build is slow at sealing, so the server may warn about it
        let options = options().arg("--memory").arg(&format!("{memory_mib}MiB"));
        Self {
            memory_mib,
            options: options.allow("server::seal::sealer::report").allow("points were dropped"),
        }
    }

    /// Runs `flood` while points of known series are sent.
    #[track_caller]
    fn check(self, flood: impl FnOnce(&Server)) {
        let mut server = Server::start(self.options);
        // times are a second apart, so that they do not reach the present; if all were older than an hour, the server would
        // doubt its clock
        let start_s = now_ms() / 1000 - 3000;
        let round = |round: usize| -> String {
            (0..KNOWN).map(|i| format!("known.n{i} {round} {}\n", start_s + round as i64)).collect()
        };
        let mut stream = connect(&server);
        stream.write_all(round(0).as_bytes()).unwrap();
        let known = || server.value(r#"count(last_over_time({__name__=~"known.+"}[3h]))"#, now_ms());
        wait_for("the known series", || (known() == Some(KNOWN as f64)).then_some(()));
        let (is_over, mut rounds) = (AtomicBool::new(false), 1);
        let slowest = std::thread::scope(|threads| {
            let (server, is_over) = (&server, &is_over);
            let (stream, rounds) = (&mut stream, &mut rounds);
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // connections whose points are stored need not make room for others
                    let sent = stream.write_all(round(*rounds).as_bytes());
                    sent.expect("the connection of a known sender was closed");
                    *rounds += 1;
                    // counted from the last round: rounds in a burst could all be unread when a connection is closed
                    let sent = Instant::now();
                    wait_for("the next round", || (sent.elapsed() >= ROUND).then_some(()));
                }
            });
            let asker = threads.spawn(move || {
                let (mut slowest, mut answered) = (Duration::ZERO, 0);
                let query = [("query", r#"last_over_time({"known.n7"}[3h])"#)];
                while !is_over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    match server.send(&Request::form("/api/v1/query", &query)).status {
                        200 => answered += 1,
                        // the flood's queries may take the tenant's part of the memory
                        status => assert!([422, 429, 503].contains(&status), "{status}"),
                    }
                    slowest = slowest.max(start.elapsed());
                }
                assert!(answered > 0, "no query of a known series was answered");
                slowest
            });
            // also if the flood panics, so that the threads end
            let over = SetOnDrop(is_over);
            flood(server);
            drop(over);
            asker.join().expect("a query of a known series failed")
        });
        assert!(all_durable(&stream), "points of known series were dropped");
        for i in [0, 42, KNOWN - 1] {
            let stored = server.samples_of_one(&format!(r#"{{"known.n{i}"}}[3h]"#), now_ms()).len();
            assert_eq!(stored, rounds, "points of known.n{i}");
        }
        let (peak, dropped) =
            (server.peak_bytes(), server.metric_sum("floodmark_graphite_dropped_points_total"));
        eprintln!(
            "peak memory {} MiB of {} MiB, {rounds} rounds of known series, slowest query {slowest:?}, {dropped} points dropped",
            peak / MIB,
            self.memory_mib
        );
        assert!(peak < self.memory_mib * MIB, "peak memory {} MiB of {} MiB", peak / MIB, self.memory_mib);
        assert!(slowest < ANSWER_MAX, "a query of a known series took {slowest:?}");
        assert!(server.is_running());
    }
}

/// True if the server has closed the connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    !stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn dropped(server: &Server, reason: &str) -> f64 {
    server.metric(&format!(r#"floodmark_graphite_dropped_points_total{{reason="{reason}"}}"#))
}

/// Most of them are beyond the limit. They replace idle ones, or are closed, and are counted.
#[test]
fn ten_thousand_connections() {
    const CONNECTIONS: usize = 10_000;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < CONNECTIONS as u64 + 5000) {
        return stdx::skipped::for_want_of("a limit on open files of at least 15000 (ulimit -Hn)");
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    Flood::new(128).check(|server| {
        let (now_s, address) = (now_ms() / 1000, server.logged_address("graphite"));
        let mut open = Vec::with_capacity(CONNECTIONS);
        for i in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).expect("connect");
            // a connection beyond the limit may be closed already
            let _ = (&stream).write_all(format!("wide.n{i} 1 {now_s}\nwide.unfinished").as_bytes());
            open.push(stream);
        }
        assert!(server.metric(OPEN) < 2000.0, "{} connections in little memory", server.metric(OPEN));
        let stored = || server.value(r#"count({__name__=~"wide.+"})"#, now_ms()).unwrap_or(0.0);
        let not_served = || {
            let count = |what| server.metric(&format!("floodmark_graphite_{what}_connections_total"));
            (count("rejected"), count("replaced"))
        };
        // whoever was not served was counted
        wait_for("all connections", || {
            let ((rejected, replaced), stored, open) = (not_served(), stored(), server.metric(OPEN));
            let are_counted = rejected + replaced + open.min(stored) >= CONNECTIONS as f64;
            are_counted
                .then(|| eprintln!("{open} open, {rejected} rejected, {replaced} replaced, {stored} series"))
        });
    });
}

/// Lines and frames that never end take most of the memory. Whoever sends complete ones must not wait until their time is
/// over.
#[test]
fn messages_that_never_end() {
    const SENDERS: usize = 100;
    let options = Flood::new(128).options.arg("--graphite-pickle=127.0.0.1:0").arg("--body-timeout=1h");
    Flood { options, memory_mib: 128 }.check(|server| {
        let line = vec![b'x'; 66_000];
        let frame = [&(1u32 << 20).to_be_bytes()[..], &vec![b'('; (1 << 20) - 1]].concat();
        let open = |number: usize| {
            let (name, message) =
                if number.is_multiple_of(2) { ("graphite", &line) } else { ("pickle", &frame) };
            let stream = TcpStream::connect(server.logged_address(name)).unwrap();
            stream.set_nonblocking(true).unwrap();
            let _ = (&stream).write(message); // the server may not read all of it
            stream
        };
        let mut senders: Vec<_> = (0..SENDERS).map(open).collect();
        // whoever is closed comes back
        let mut renew = || {
            let mut renewed = 0;
            for (number, sender) in senders.iter_mut().enumerate() {
                if is_closed(sender) {
                    *sender = open(number);
                    renewed += 1;
                }
            }
            renewed
        };
        wait_for("connections that are closed because of their messages", || (renew() > 0).then_some(()));
        let newest_round = || {
            let rounds = server.samples_of_one(r#"{"known.n7"}[3h]"#, now_ms());
            rounds.iter().map(|(_, value)| *value).fold(0.0, f64::max)
        };
        let before = newest_round();
        wait_for("ten more rounds of known series", || {
            renew();
            (newest_round() >= before + 10.0).then_some(())
        });
        let late = format!("known.late 1 {}\n", now_ms() / 1000);
        let mut known = None;
        wait_for("a point on a new connection", || {
            // like any sender, it connects again if it is closed because there is no memory
            if known.as_ref().is_none_or(is_closed) {
                known = Some(connect(server)).filter(|mut stream| stream.write_all(late.as_bytes()).is_ok());
            }
            server.value(r#"{"known.late"}"#, now_ms())
        });
        assert!(server.metric("floodmark_graphite_replaced_connections_total") >= 1.0);
    });
}

#[test]
fn datagrams_as_fast_as_possible() {
    const DATAGRAMS: usize = 100_000;
    let seed = Rng::announced().next_u64();
    Flood::new(128).check(|server| {
        let (now_s, address) = (now_ms() / 1000, server.logged_address("graphite"));
        std::thread::scope(|threads| {
            for sender in 0..2 {
                threads.spawn(move || {
                    let mut rng = Rng::new(seed + sender);
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    for _ in 0..DATAGRAMS {
                        let mut text: String =
                            (0..10).map(|_| format!("udp.n{} 1 {now_s}\n", rng.next_u64())).collect();
                        text.push_str("no point\n");
                        // the system drops what the server does not read
                        let _ = socket.send_to(text.as_bytes(), address);
                    }
                });
            }
        });
        // each datagram is somewhere: one of its eleven lines is malformed
        wait_for("all datagrams to be counted", || {
            let points = server.metric("floodmark_graphite_points_total");
            let unread = server.metric("floodmark_graphite_unread_datagrams_total");
            let overflowed = server.metric("floodmark_graphite_overflowed_datagrams_total");
            let decoded = dropped(server, "malformed");
            let queue = dropped(server, "datagram_queue") / 11.0;
            eprintln!("{points} points, {decoded} datagrams decoded, {queue} dropped, {unread} without memory, {overflowed} by the kernel");
            (decoded + queue + unread + overflowed == (2 * DATAGRAMS) as f64).then_some(())
        });
    });
}

/// Datagrams may be empty, so that nothing else ends the reading of them.
#[test]
fn empty_datagrams_do_not_delay_a_stop() {
    let mut server = Server::start(options());
    let (address, is_over) = (server.logged_address("graphite"), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let over = SetOnDrop(&is_over);
        for _ in 0..3 {
            threads.spawn(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let _ = socket.send_to(b"", address);
                }
            });
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = format!("between.the.empty 1 {}\n", now_ms() / 1000);
        wait_for("a point among the empty datagrams", || {
            let _ = socket.send_to(text.as_bytes(), address);
            server.value(r#"{"between.the.empty"}"#, now_ms())
        });
        assert!(server.terminate().success());
        drop(over);
    });
}

/// Bytes that are neither lines nor pickles, long lines, and series that nobody asked for.
#[test]
fn lines_that_cannot_be_read() {
    const BYTES: usize = 8 << 20;
    let seed = Rng::announced().next_u64();
    Flood { options: Flood::new(128).options.arg("--graphite-pickle=127.0.0.1:0"), memory_mib: 128 }.check(
        |server| {
            let now_s = now_ms() / 1000;
            std::thread::scope(|threads| {
                for sender in 0..6 {
                    threads.spawn(move || {
                        let mut rng = Rng::new(seed + sender);
                        let address = server.logged_address(if sender == 5 { "pickle" } else { "graphite" });
                        let mut sent = 0;
                        while sent < BYTES {
                            let stream = TcpStream::connect(address).unwrap();
                            // until the server closes the connection
                            loop {
                                let mut block: Vec<u8> =
                                    (0..8192).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
                                match sender {
                                    0 => block.fill(b'x'),
                                    1 => block.iter_mut().for_each(|byte| *byte |= 0x20),
                                    2 => {
                                        block = (0..1000)
                                            .flat_map(|_| {
                                                format!("new.n{} 1 {now_s}\n", rng.next_u64()).into_bytes()
                                            })
                                            .collect()
                                    }
                                    3 => {
                                        block = format!("known.n{} nan {now_s}\n", rng.below(100))
                                            .repeat(1000)
                                            .into_bytes()
                                    }
                                    // a length, and a pickle that nests lists
                                    5 => {
                                        block =
                                            [&(1u32 << 20).to_be_bytes()[..], &vec![b'('; 1 << 20]].concat()
                                    }
                                    _ => {}
                                }
                                sent += block.len();
                                if sent >= BYTES || (&stream).write_all(&block).is_err() {
                                    break;
                                }
                            }
                        }
                    });
                }
            });
            wait_for("the lines", || {
                (dropped(server, "malformed") > 1000.0 && dropped(server, "too_long") >= 1.0).then_some(())
            });
        },
    );
}

/// Patterns, braces and expressions that stand for very much are answered or refused. With enough memory, those that select
/// all metrics are answered in full.
#[test]
fn searches_that_select_too_much() {
    // a million metrics take a while to create
    let (count, memory_mib) =
        if std::env::var_os("FLOODMARK_LONG").is_some() { (1_000_000, 1024) } else { (100_000, 256) };
    let (dir, now_s) = (tempfile::tempdir().unwrap(), now_ms() / 1000);
    let options = Flood::new(memory_mib).options.data_dir(dir.path());
    Flood { options, memory_mib }.check(|server| {
        let stream = connect(server);
        let queued = || server.metric("floodmark_graphite_queued_points");
        let created = || server.metric("floodmark_graphite_created_points_total") as usize;
        for first in (0..count).step_by(5_000) {
            let text: String = (first..first + 5_000)
                .map(|i| format!("x.y{}.a-long-name-of-a-metric-{i} 1 {now_s}\n", i % 300))
                .collect();
            (&stream).write_all(text.as_bytes()).unwrap();
            // the queue of new series is short in so little memory
            let are_there = || queued() == 0.0 && created() >= first + 5_000 + KNOWN;
            wait_for("the metrics", || are_there().then_some(()));
        }
        let braces = "{a,b}".repeat(40);
        let nested = "{".repeat(300) + &",}".repeat(300);
        let globs = [
            "x.*.*",
            "**",
            "*.*.*",
            "x.y*.*metric*",
            "x.*.*a*o*e*m*",
            &braces,
            &nested,
            &format!("x.{braces}"),
            &format!("x.{{y,{}z}}.*", "a,".repeat(9_000)),
            &"{a,b,c,d}".repeat(7),
            &"*".repeat(60_000),
            &"[a-z]*".repeat(5_000),
            &format!("{}x", "**.".repeat(8)),
            &"{".repeat(60_000),
        ]
        .map(str::to_owned);
        std::thread::scope(|threads| {
            let ask = |path: &'static str, name: &'static str| {
                let globs = &globs;
                threads.spawn(move || {
                    for glob in globs {
                        for target in [
                            glob.clone(),
                            format!("sumSeries({glob})"),
                            format!("sortByName(movingAverage({glob},5))"),
                        ] {
                            let target = if path == "/render" { target } else { glob.clone() };
                            let params = [(name, target.as_str()), ("from", "-10min"), ("format", "json")];
                            let reply = server.send(&Request::form(path, &params));
                            let allowed = [200, 400, 413, 422, 429, 503];
                            assert!(
                                allowed.contains(&reply.status),
                                "{} of {path} and {:.99}: {:.300}",
                                reply.status,
                                target,
                                reply.text()
                            );
                        }
                    }
                });
            };
            ask("/render", "target");
            ask("/metrics/find", "query");
            ask("/metrics/expand", "query");
        });
        for expression in
            ["name=~.*", "name=~(a|b|c|x)*y.*", "name=~(x+x+)+y", &format!("name=~({}z)", "x|".repeat(5_000))]
        {
            let params = [("expr", expression)];
            let status = server.send(&Request::form("/tags/findSeries", &params)).status;
            assert!([200, 400, 413, 422].contains(&status), "{status} of {expression:.99}");
        }
    });
    // the memory of one query is a small part of it
    let memory = format!("--memory={}MiB", 16 * memory_mib);
    let options = Options::default().data_dir(dir.path()).allow("is more than");
    let server = Server::start(options.arg(&memory).arg("--query-concurrency=1"));
    let answer = |path: &str, params: &[(&str, &str)]| -> serde_json::Value {
        let reply = server.send(&Request::form(path, params));
        serde_json::from_str(&reply.expect(200, &[]).text()).unwrap()
    };
    let found = |path: &str| answer(path, &[("query", "x.*.*")]);
    assert_eq!(found("/metrics/find").as_array().map(Vec::len), Some(count));
    assert_eq!(found("/metrics/expand")["results"].as_array().map(Vec::len), Some(count));
    let (from, until) = ((now_s - 120).to_string(), (now_s + 120).to_string());
    let params = [
        ("target", "countSeries(x.*.*)"),
        ("from", from.as_str()),
        ("until", until.as_str()),
        ("format", "json"),
    ];
    let counted = answer("/render", &params);
    let points = counted[0]["datapoints"].as_array().unwrap();
    assert!(points.iter().any(|point| point[0].as_f64() == Some(count as f64)), "{counted}");
}
