//! Constant churn: every series has only one sample. Series move from memory into tables, so that a restart
//! has to replay only the others.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms, wait_for};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

const BUDGET: u64 = 64 * MIB;

const WRITERS: usize = 4;

const REQUEST_SERIES: u64 = 1000;

fn series_in_all() -> u64 {
    if std::env::var_os("FLOODMARK_LONG").is_some() { 4_000_000 } else { 400_000 }
}

/// Writers that create new series all the time. They retry each request until it is acknowledged.
struct Flood {
    address: Mutex<std::net::SocketAddr>,
    acknowledged: [AtomicU64; WRITERS],
    stop: AtomicBool,
}

impl Flood {
    fn total(&self) -> u64 {
        self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn write(&self, writer: usize) {
        let acknowledged = &self.acknowledged[writer];
        while !self.stop.load(Ordering::Relaxed) {
            let from = acknowledged.load(Ordering::Relaxed);
            let (name, now) = (format!("churn_{writer}"), now_ms());
            let one = |i| Series::named(&name).label("id", format!("{i}")).sample(now, 1.0);
            let series: Vec<_> = (from..from + REQUEST_SERIES).map(one).collect();
            self.repeat(&Request::write(&wire::v1(&series)));
            acknowledged.fetch_add(REQUEST_SERIES, Ordering::Relaxed);
        }
    }

    fn repeat(&self, request: &Request) {
        wait_for("a new request's turn", || {
            let address = *self.address.lock().unwrap();
            let reply = Connection::open(address).and_then(|mut connection| connection.send(request));
            match reply.map(|reply| reply.status) {
                Ok(204) => Some(()),
                Ok(400 | 503) | Err(_) => {
                    std::thread::sleep(Duration::from_millis(50)); // the answer also asks to wait before retrying
                    None
                }
                Ok(other) => panic!("status {other}"),
            }
        });
    }
}

fn assert_complete(server: &Server, flood: &Flood) {
    for (writer, acknowledged) in flood.acknowledged.iter().enumerate() {
        let expected = Some(acknowledged.load(Ordering::Relaxed) as f64);
        let counts = format!("count_over_time(churn_{writer}[1h])");
        for aggregate in ["count", "sum", "max"] {
            let expected = if aggregate == "max" { Some(1.0) } else { expected };
            assert_eq!(
                server.value(&format!("{aggregate}({counts})"), now_ms() + 1),
                expected,
                "{aggregate}"
            );
        }
    }
}

fn check(config: &str) {
    // for moments, the flood takes nearly all memory, and new series are refused; the peak is asserted below
    let options = Options::default().allow("uses nearly all of its memory");
    let options = options.arg("--memory").arg("64MiB").config(config);
    let mut server = Server::start(options);
    let flood = Flood {
        address: Mutex::new(server.address),
        acknowledged: Default::default(),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                threads.spawn({
                    let flood = &flood;
                    move || flood.write(writer)
                })
            })
            .collect();
        for part in [2, 1] {
            let goal = series_in_all() / part;
            while flood.total() < goal && !writers.iter().any(|writer| writer.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
            }
            server.kill9();
            server.restart();
            *flood.address.lock().unwrap() = server.address;
            server.assert_peak_within(BUDGET);
        }
        flood.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
    });
    // check once more after a kill, while some series are in memory
    server.kill9();
    server.restart();
    server.assert_peak_within(BUDGET);
    assert_complete(&server, &flood);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    assert_complete(&server, &flood);
    assert_eq!(server.metric("floodmark_seal_tenants_behind"), 0.0);
    let head_series = server.metric("floodmark_head_series");
    assert!(head_series < series_in_all() as f64, "{head_series} series in memory");
}

#[test]
fn churn_restarts_within_memory_and_loses_nothing() {
    check("durability = \"os\"\npartitions = 2");
}

#[test]
fn churn_restarts_in_the_middle_of_sealing() {
    check("durability = \"os\"\npartitions = 2\nseal_after = \"1s\"");
}
