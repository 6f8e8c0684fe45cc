//! Little input that makes much of something: memory stays within the budget whatever it is.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms};

const MIB: u64 = 1 << 20;

/// What `--memory` is set to.
const BUDGET: u64 = 64 * MIB;

/// See `overload`.
const SLACK: u64 = 32 * MIB;

fn small() -> Server {
    Server::start(Options::default().arg("--memory").arg("64MiB"))
}

#[track_caller]
fn is_well(mut server: Server) {
    assert!(server.is_running());
    let peak = server.memory_bytes("VmHWM");
    eprintln!("peak memory {} MiB of a budget of {} MiB", peak / MIB, BUDGET / MIB);
    assert!(peak < BUDGET + SLACK, "peak memory {} MiB of a budget of {} MiB", peak / MIB, BUDGET / MIB);
    server.wait_until_zero("floodmark_write_inflight_bytes");
    assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
}

/// The status; a refusal must say when to come back, or that it is for good.
#[track_caller]
fn status(server: &Server, request: &Request) -> u16 {
    let reply = server.send(request);
    assert!([204, 400, 413, 503].contains(&reply.status), "{} {}", reply.status, reply.text());
    assert_eq!(reply.status == 503, reply.header("retry-after").is_some());
    reply.status
}

#[test]
fn metadata_without_end() {
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
    is_well(server);
}

#[test]
fn exemplars_without_end() {
    let server = small();
    let now = now_ms();
    for round in 0..60 {
        let mut series = Series::named("m").sample(now + round, 1.0);
        for i in 0..2_000 {
            let trace = format!("{round}-{i}-{}", "0123456789abcdef".repeat(20));
            series = series.exemplar(&[("trace_id", &trace)], now + round, f64::from(i));
        }
        status(&server, &Request::write(&wire::v1(&[series])));
    }
    is_well(server);
}

#[test]
fn tenants_without_end() {
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

/// Series whose labels are as long as they may be.
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

/// Sends the beginning of a request on many connections and leaves them there. Refusals are fine.
fn begin_many(server: &Server, count: usize, beginning: &[u8]) -> Vec<Connection> {
    let begin = |_| {
        let mut connection = Connection::open(server.address).ok()?;
        connection.stream.set_write_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
        let _ = connection.send_bytes(beginning); // the server need not read it all
        Some(connection)
    };
    (0..count).filter_map(begin).collect()
}

#[test]
fn bodies_without_end_on_many_connections() {
    let server = small();
    let head = Request::write(&[]).header("Content-Length", "1000000").head();
    let body = [head.as_bytes(), &vec![0; 990_000]].concat();
    let open = begin_many(&server, 300, &body);
    eprintln!("{} bodies of {} bytes", open.len(), body.len());
    is_well_but_busy(server);
}

/// Like [`is_well`], while others still hold what they have reserved.
#[track_caller]
fn is_well_but_busy(mut server: Server) {
    assert!(server.is_running());
    let peak = server.memory_bytes("VmHWM");
    assert!(peak < BUDGET + SLACK, "peak memory {} MiB of a budget of {} MiB", peak / MIB, BUDGET / MIB);
    assert_eq!(server.query("1 + 1", 0)["result"][1], "2");
}
