//! A tenant with valid credentials sends harmful requests while two other tenants write and query. Those two
//! must get correct answers, and the process must stay within `--memory` and never restart.

mod connections;
mod graphite;
mod imports;
mod otlp;
mod queries;
mod records;
mod writes;

use crate::authentication::sha256;
use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Reply, Request, Server, SetOnDrop, now_ms, wait_for};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

const BUDGET: u64 = 256 * MIB;

/// Each harmful request is sent this many times at the same time.
const AT_ONCE: usize = 4;

/// Limit on the time of a request of the other tenants. A loaded machine takes seconds. A longer time means that the server stood
/// still, or that the request waited for the end of an attack.
const SLOWEST: Duration = Duration::from_secs(30);

/// A harmful request, and the statuses with which the server may answer it.
struct Attack {
    name: &'static str,
    request: Request,
    allowed: &'static [u16],
}

impl Attack {
    const fn new(name: &'static str, request: Request, allowed: &'static [u16]) -> Self {
        Self { name, request, allowed }
    }
}

/// The name of an attack, its request, and the statuses that may answer it.
type Row = (&'static str, Request, &'static [u16]);

fn attacks(rows: Vec<Row>) -> Vec<Attack> {
    rows.into_iter().map(|(name, request, allowed)| Attack::new(name, request, allowed)).collect()
}

/// Statuses that may answer an invalid body. With 503, the server asks to retry later, because other bodies
/// of the tenant hold the memory.
const BAD: &[u16] = &[400, 413, 503];

/// Statuses that may answer a valid body. The server stores all or part of it, or refuses it because there is
/// no room.
const ROOM: &[u16] = &[204, 400, 413, 503];

/// Compresses at least `bytes` zeros to a gzip member whose end is missing. 258 zeros take only 13 bits (RFC
/// 1951, fixed codes).
fn gzip_of_zeros(bytes: usize) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut bits, mut count) = (0u32, 0);
    let mut put = |value: u32, length: u32| {
        bits |= value << count;
        count += length;
        while count >= 8 {
            out.push(bits as u8);
            (bits, count) = (bits >> 8, count - 8);
        }
    };
    put(0b011, 3); // the last block, with fixed codes
    put(0b0000_1100, 8); // the literal 0 is 00110000, from its first bit
    // the code for a length of 258 is 11000101, the code for a distance of 1 is 00000
    (0..bytes / 258).for_each(|_| put(0b1010_0011, 13));
    put(0, 14); // the end of the block, and the rest of a byte
    out
}

fn zstd_of_zeros(bytes: usize) -> Vec<u8> {
    zstd::bulk::compress(&vec![0; bytes], 3).unwrap()
}

fn credentials() -> String {
    let token = |tenant: &str| {
        let digest = sha256(&secret(tenant));
        format!(
            "[token.{tenant}]\nsha256 = \"{digest}\"\ntenants = [\"{tenant}\"]\nroles = [\"read\", \"write\"]\n"
        )
    };
    let metrics =
        format!("[token.scraper]\nsha256 = \"{}\"\nroles = [\"metrics\"]\n", sha256(&secret("scraper")));
    ["a", "b", "hostile"].map(token).concat() + &metrics
}

fn secret(name: &str) -> String {
    format!("secret-of-{name}")
}

fn of(tenant: &str, request: Request) -> Request {
    request.header("Authorization", &format!("Bearer {}", secret(tenant)))
}

struct Watcher<'s> {
    server: &'s Server,
    tenant: &'static str,
    /// A connection that is kept alive, or `None` if each request has a new connection.
    kept: Option<Connection>,
    requests: u64,
    slowest: (Duration, &'static str),
}

impl<'s> Watcher<'s> {
    fn new(server: &'s Server, tenant: &'static str, is_keeping: bool) -> Self {
        let kept = is_keeping.then(|| Connection::open(server.address).unwrap());
        Self { server, tenant, kept, requests: 0, slowest: (Duration::ZERO, "") }
    }

    /// Until `stop` is set, writes a sample and then queries it, again and again. No request may fail.
    fn run(&mut self, stop: &AtomicBool) {
        let mut last_ms = 0;
        while !stop.load(Ordering::Relaxed) {
            let at_ms = now_ms().max(last_ms + 1);
            last_ms = at_ms;
            let value = self.requests as f64;
            let body =
                wire::v1(&[Series::named("watched").label("tenant", self.tenant).sample(at_ms, value)]);
            self.send("a write", Request::write(&body)).expect(204, &[]);
            let time = crate::harness::read::seconds(at_ms);
            let query = Request::ask("/api/v1/query", &[("query", "sum(watched)"), ("time", &time)]);
            let found = self.send("a query", query).expect(200, &["success"]).json();
            assert_eq!(found["data"]["result"][0]["value"][1], value.to_string(), "{found}");
        }
    }

    fn send(&mut self, what: &'static str, request: Request) -> Reply {
        let (request, began) = (of(self.tenant, request), Instant::now());
        let reply = match &mut self.kept {
            None => self.server.send(&request),
            // the server may close an idle connection when others need it, and clients then connect again
            Some(kept) => kept.send(&request).unwrap_or_else(|_| {
                *kept = Connection::open(self.server.address).unwrap();
                kept.send(&request)
                    .unwrap_or_else(|e| panic!("tenant {}: no answer to {what}: {e}", self.tenant))
            }),
        };
        if reply.header("connection") == Some("close") && self.kept.is_some() {
            self.kept = Some(Connection::open(self.server.address).unwrap());
        }
        self.requests += 1;
        self.slowest = self.slowest.max((began.elapsed(), what));
        reply
    }
}

/// Checks that an answer has the form in which its path reports results and errors.
#[track_caller]
fn check_form(name: &str, request: &Request, reply: &Reply) {
    let text = reply.text();
    assert_ne!(reply.status, 500, "{name}: {text}");
    let is_temporary = matches!(reply.status, 429 | 503);
    assert_eq!(is_temporary, reply.header("retry-after").is_some(), "{name}: {} {text}", reply.status);
    if reply.status < 300 {
        return;
    }
    if request.is_write() {
        assert!(!text.trim().is_empty() && !text.starts_with('{'), "{name}: {} {text}", reply.status);
        return;
    }
    if reply.header("content-type") == Some("application/x-protobuf") {
        // the code, which is the first field of google.rpc.Status
        return assert_eq!(reply.body.first(), Some(&0x08), "{name}: {text}");
    }
    if request.path_is("/loki/api/v1/push") || request.path_is("/api/v1/streams/own") {
        return assert!(!text.trim().is_empty(), "{name}: {text}");
    }
    if ["/render", "/metrics/find", "/tags/t", "/tags/tagSeries"].iter().any(|path| request.path_is(path)) {
        return assert!(!text.trim().is_empty() && !text.starts_with('{'), "{name}: {} {text}", reply.status);
    }
    let json: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {} {e}: {text}", reply.status));
    if request.path_is("/_bulk") {
        return assert!(
            json["error"]["reason"].is_string() && json["status"] == reply.status,
            "{name}: {text}"
        );
    }
    if request.path_is("/v1/metrics") || request.path_is("/v1/logs") || request.path_is("/v1/traces") {
        return assert!(json["code"].is_number() && json["message"].is_string(), "{name}: {text}");
    }
    let has = |field: &str| json[field].as_str().is_some_and(|text| !text.is_empty());
    if request.is_influx() {
        return assert!(has("error"), "{name}: {text}");
    }
    assert!(json["status"] == "error" && has("errorType") && has("error"), "{name}: {text}");
}

fn run(server: &Server, attack: Attack) {
    let Attack { name, request, allowed } = attack;
    let (request, began) = (of("hostile", request), Instant::now());
    let send = || {
        let mut connection = Connection::open(server.address).unwrap();
        // the server may answer before it has read everything
        let _ = connection.send_bytes(&request.bytes());
        let reply = connection.reply().unwrap_or_else(|e| panic!("{name}: no answer: {e}"));
        check_form(name, &request, &reply);
        assert!(allowed.contains(&reply.status), "{name}: {} {}", reply.status, reply.text());
        reply.status
    };
    let statuses: Vec<_> = std::thread::scope(|threads| {
        let sent: Vec<_> = (0..AT_ONCE).map(|_| threads.spawn(send)).collect();
        sent.into_iter().map(|sent| sent.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    eprintln!(
        "{name}: {statuses:?} in {:.1} s, {} MiB",
        began.elapsed().as_secs_f64(),
        server.peak_bytes() / MIB
    );
}

/// Writes some MB of labels for the hostile tenant, and the samples that its queries read.
fn fill(server: &Server) {
    let now = now_ms();
    for part in 0..10 {
        let one = |i: usize| {
            let series =
                Series::named("own").label("i", format!("{part}-{i}")).label("text", "ab".repeat(200));
            series.samples((0..60).map(|n| (now - 600_000 + n * 10_000, n as f64)))
        };
        let body = wire::v1(&(0..200).map(one).collect::<Vec<_>>());
        server.send(&of("hostile", Request::write(&body))).expect(204, &[]);
    }
}

#[track_caller]
fn check(attack: impl FnOnce(&Server)) {
    check_with("", attack);
}

#[track_caller]
fn check_with(settings: &str, attack: impl FnOnce(&Server)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("auth.toml");
    std::fs::write(&path, credentials()).unwrap();
    let options = Options::default().arg("--auth-file").arg(path.to_str().unwrap());
    let options =
        options.arg("--trusted-proxies").arg("[]").arg("--memory").arg(&format!("{}MiB", BUDGET / MIB));
    let config = format!("query_timeout = \"3s\"\nbody_timeout = \"5s\"\n{settings}");
    let mut server = Server::start(options.config(&config).allow("slow query").allow("requests refused"));
    let pid = server.pid();
    fill(&server);
    let stop = AtomicBool::new(false);
    let watched = std::thread::scope(|threads| {
        let set_on_drop = SetOnDrop(&stop);
        let watch = |tenant, is_keeping| {
            let (server, stop) = (&server, &stop);
            threads.spawn(move || {
                let mut watcher = Watcher::new(server, tenant, is_keeping);
                watcher.run(stop);
                (watcher.requests, watcher.slowest)
            })
        };
        let watchers = [watch("a", true), watch("b", false)];
        attack(&server);
        drop(set_on_drop);
        watchers.map(|watcher| watcher.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
    });
    for (requests, (slowest, what)) in watched {
        eprintln!("{requests} requests of others were answered, the slowest, {what}, after {slowest:?}");
        assert!(requests > 10, "{requests}");
        assert!(slowest < SLOWEST, "{what} took {slowest:?}");
    }
    assert!(server.is_running() && server.pid() == pid);
    server.assert_peak_within(BUDGET);
    // afterwards, memory is released, and the hostile tenant is served like any other
    wait_for("memory of requests", || {
        let text = server.send(&of("scraper", Request::get("/metrics"))).text();
        text.contains("\nfloodmark_write_inflight_bytes 0\n").then_some(())
    });
    let mut watcher = Watcher::new(&server, "hostile", false);
    let body = wire::v1(&[Series::named("own")
        .label("i", "0-0")
        .label("text", "ab".repeat(200))
        .sample(now_ms(), 1.0)]);
    watcher.send("a write", Request::write(&body)).expect(204, &[]);
    watcher.send("a query", Request::ask("/api/v1/query", &[("query", "1 + 1")])).expect(200, &["\"2\""]);
}

#[test]
fn queries_of_a_hostile_tenant() {
    check(|server| queries::attacks(now_ms()).into_iter().for_each(|attack| run(server, attack)));
}

#[test]
fn writes_of_a_hostile_tenant() {
    check(|server| writes::attacks(now_ms()).into_iter().for_each(|attack| run(server, attack)));
}

#[test]
fn imports_of_a_hostile_tenant() {
    check(|server| imports::attacks(now_ms()).into_iter().for_each(|attack| run(server, attack)));
}

#[test]
fn otlp_of_a_hostile_tenant() {
    check(|server| otlp::attacks(now_ms()).into_iter().for_each(|attack| run(server, attack)));
}

#[test]
fn records_of_a_hostile_tenant() {
    check(|server| records::attacks(now_ms()).into_iter().for_each(|attack| run(server, attack)));
}

#[test]
fn graphite_of_a_hostile_tenant() {
    // fewer threads than requests at once, so that those which cannot be canceled leave no thread to the next ones
    check_with("query_concurrency = 2", |server| {
        graphite::fill(server, now_ms());
        graphite::attacks().into_iter().for_each(|attack| run(server, attack));
    });
}

#[test]
fn connections_of_a_hostile_tenant() {
    check(connections::attack);
}
