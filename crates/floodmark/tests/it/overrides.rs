//! The overrides file changes a hundred times while tenants write. A valid version must take effect as a
//! whole, a broken version must change nothing, and no acknowledged sample may be lost.

use crate::harness::read::{data, matrix};
use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Reply, Request, Server, SetOnDrop, now_ms, wait_for};
use crate::tenants::Overrides;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stdx::rng::Rng;

const VERSIONS: usize = 100;

/// The tenants that write. The file has a table for tenant `b`, and a class for tenant `c`.
const TENANTS: [&str; 3] = ["a", "b", "c"];

const KNOWN: usize = 5;

/// One in this many requests creates a series.
const NEW_EVERY: u64 = 8;

/// According to the documentation, a change takes effect within this time.
const DEADLINE: Duration = Duration::from_secs(1);

const BROKEN: [(&str, usize); 7] = [
    ("query_samples = 7\n\n[tenant.a]\nactive_series = \"many\"\n", 4),
    ("query_samples = 7\n[tenant.a\nactive_series = 1\n", 2),
    ("# a comment\nmemory = \"1GiB\"\n", 2),
    ("query_samples = 0\n", 1),
    ("active_series = 1\n[tenant.b]\nactve_series = 1\n", 3),
    ("active_series = 1\nactive_series = 2\n", 2),
    ("active_series = 1\n\n[tenant.\"no/tenant\"]\nactive_series = 2\n", 3),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Nothing,
    /// Fewer series than tenant c already has.
    BelowUse {
        status: u16,
    },
    /// A limit on how many series each tenant may create per second.
    NewSeries,
}

impl Limit {
    /// Returns the contents of the overrides file. The value of `query_samples` is different in each version.
    fn text(self, version: usize) -> String {
        let [a, b, c] = values(version);
        let (of_all, of_c) = match self {
            Self::Nothing => (String::new(), String::new()),
            Self::BelowUse { status } => {
                (String::new(), format!("active_series = 2\nlimit_status = \"{status}\"\n"))
            }
            Self::NewSeries => ("new_series_per_second = 3\nrate_burst = \"1s\"\n".into(), String::new()),
        };
        format!(
            "query_samples = {a}\n{of_all}[tenant.b]\nquery_samples = {b}\n\
             [class.some]\ntenants = [\"c*\"]\nquery_samples = {c}\n{of_c}"
        )
    }
}

/// Returns the value of `query_samples` that each tenant has in a version.
fn values(version: usize) -> [u64; 3] {
    [1, 2, 3].map(|tenant| tenant * 10_000_000 + version as u64)
}

struct Writer {
    tenant: &'static str,
    base_ms: i64,
    /// The number of requests so far. The server must have stored all of their samples of known series, even
    /// if a request was refused because of a new series.
    sent: u64,
    created: Vec<u64>,
}

impl Writer {
    fn new(tenant: &'static str) -> Self {
        // the samples of two requests are a millisecond apart
        Self { tenant, base_ms: now_ms() - 30 * 60_000, sent: 0, created: Vec::new() }
    }

    fn run(&mut self, address: SocketAddr, stop: &AtomicBool, refused: &AtomicUsize) {
        let mut connection = Connection::open(address).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let is_creating = self.sent.is_multiple_of(NEW_EVERY);
            let reply = connection.send(&self.request(is_creating)).unwrap();
            match reply.status {
                204 if is_creating => self.created.push(self.sent),
                204 => {}
                429 | 503 if is_creating => {
                    let text = reply.text();
                    let is_of_new = text.contains("active_series") || text.contains("new_series_per_second");
                    assert!(is_of_new, "tenant {}: {text}", self.tenant);
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                other => panic!("tenant {}, request {}: {other} {}", self.tenant, self.sent, reply.text()),
            }
            self.sent += 1;
            if reply.header("connection") == Some("close") {
                connection = Connection::open(address).unwrap();
            }
        }
    }

    fn request(&self, is_creating: bool) -> Request {
        let (at_ms, value) = (self.base_ms + self.sent as i64, self.sent as f64);
        let known = (0..KNOWN).map(|i| Series::named("known").label("i", i.to_string()).sample(at_ms, value));
        let new =
            is_creating.then(|| Series::named("new").label("n", self.sent.to_string()).sample(at_ms, value));
        Request::write(&wire::v1(&known.chain(new).collect::<Vec<_>>())).tenant(self.tenant)
    }

    /// Checks that all samples of known series are stored exactly once, and also the samples of those new
    /// series whose creation was acknowledged.
    #[track_caller]
    fn verify(&self, server: &Server) {
        let (tenant, at_ms) = (Some(self.tenant), self.base_ms + self.sent as i64);
        let sent = (0..self.sent).map(|n| (self.base_ms + n as i64, (n as f64).to_bits()));
        let stored = matrix(&server.query_as(tenant, "known[1h]", at_ms));
        assert_eq!(stored.len(), KNOWN);
        for (series, samples) in stored {
            assert!(samples.iter().copied().eq(sent.clone()), "tenant {}: samples of {series}", self.tenant);
        }
        let stored = matrix(&server.query_as(tenant, "new[1h]", at_ms));
        assert!(stored.values().all(|samples| samples.len() == 1), "tenant {}: {stored:?}", self.tenant);
        let stored: BTreeSet<u64> =
            stored.values().map(|samples| (samples[0].0 - self.base_ms) as u64).collect();
        let lost: Vec<_> = self.created.iter().filter(|n| !stored.contains(n)).collect();
        assert!(lost.is_empty(), "tenant {}: lost {lost:?}", self.tenant);
        let created = self.created.len();
        eprintln!("tenant {}: {} requests, {created} new series", self.tenant, self.sent);
        assert!(created > 0, "tenant {} created nothing", self.tenant);
    }
}

fn in_effect(server: &Server) -> [u64; 3] {
    TENANTS.map(|tenant| {
        let limits = data(&server.send(&Request::get("/api/v1/user_limits").tenant(tenant)));
        let rows = limits["limits"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "query_samples").unwrap();
        row["value"].as_u64().unwrap() // derived before the first version
    })
}

fn runtime_config(server: &Server) -> String {
    server.send(&Request::get("/runtime_config?mode=diff")).expect(200, &[]).text()
}

fn probe(server: &Server, version: usize) -> Reply {
    let (known, new) = (Series::named("probe"), Series::named("probe").label("version", version.to_string()));
    let body = wire::v1(&[known, new].map(|series| series.sample(now_ms(), version as f64)));
    server.send(&Request::write(&body).tenant("c"))
}

/// Waits until a version is in effect for all tenants. Returns how long it took.
fn apply(server: &Server, version: usize, limit: Limit) -> Duration {
    let began = Instant::now();
    let expected = values(version);
    let seen = wait_for("the version", || {
        let seen = in_effect(server);
        (seen[0] == expected[0]).then(|| (seen, began.elapsed()))
    });
    assert_eq!(seen.0, expected, "a version does not apply to all tenants at once");
    let Limit::BelowUse { status } = limit else { return seen.1 };
    probe(server, version).expect(status, &["2 active series", "active_series"]);
    let stored = server.query_as(Some("c"), "probe", now_ms());
    let stored = stored["result"].as_array().unwrap();
    let value = version.to_string();
    let written: Vec<_> = stored.iter().filter(|row| row["value"][1] == value).collect();
    let is_known = written.len() == 1 && written[0]["metric"]["version"].is_null();
    assert!(is_known, "not exactly the known series was written: {written:?}");
    let refusals = server.send(&Request::get("/api/v1/refusals").tenant("c")).json();
    let refusals = refusals["data"].as_array().unwrap();
    assert!(refusals.iter().any(|refusal| refusal["reason"] == "active_series"), "{refusals:?}");
    seen.1
}

/// Waits until the error is reported. The previous limits must stay in effect.
fn expect_refused(server: &Server, line: usize, errors_before: usize, config: &str) {
    let errors = wait_for("the error", || {
        Some(server.log_lines("cannot reload a file")).filter(|errors| errors.len() > errors_before)
    });
    let (error, place) = (errors.last().unwrap(), format!("overrides.toml:{line}: "));
    assert!(errors.len() == errors_before + 1 && error.contains(&place), "no {place:?} in {errors:?}");
    assert_eq!(server.metric("floodmark_file_current{file=\"overrides\"}"), 0.0);
    assert_eq!(runtime_config(server), config, "a broken file changed the limits in effect");
}

/// Replaces the file again and again. Every other time, it also sends SIGHUP. Returns how long it took until
/// each valid version was in effect.
fn change(server: &Server, overrides: &Overrides, rng: &mut Rng) -> Vec<Duration> {
    let (mut took, mut broken) = (Vec::new(), 0);
    for version in 1..=VERSIONS {
        let limit = match rng.below(4) {
            0 => None,
            1 => Some(Limit::BelowUse { status: if rng.below(2) == 0 { 429 } else { 503 } }),
            2 => Some(Limit::NewSeries),
            _ => Some(Limit::Nothing),
        };
        let (text, line) = match limit {
            Some(limit) => (limit.text(version), 0),
            // the comment makes each version different
            None => {
                let (text, line) = BROKEN[rng.below(BROKEN.len() as u64) as usize];
                (format!("{text}# version {version}\n"), line)
            }
        };
        let before = runtime_config(server);
        overrides.write(&text);
        if version % 2 == 0 {
            server.signal_hangup();
        }
        match limit {
            Some(limit) => took.push(apply(server, version, limit)),
            None => {
                expect_refused(server, line, broken, &before);
                broken += 1;
            }
        }
    }
    eprintln!("{} valid versions, {broken} broken ones", took.len());
    took
}

#[test]
fn overrides_change_a_hundred_times_under_load() {
    let mut rng = Rng::announced();
    let overrides = Overrides::new("");
    let mut server = Server::start(overrides.options().allow("cannot reload a file"));
    let pid = server.pid();
    probe(&server, 0).expect(204, &[]);
    let mut writers = TENANTS.map(Writer::new);
    let (stop, refused) = (AtomicBool::new(false), [(); 3].map(|()| AtomicUsize::new(0)));
    let address = server.address;
    let mut took = std::thread::scope(|threads| {
        for (writer, refused) in writers.iter_mut().zip(&refused) {
            threads.spawn(|| writer.run(address, &stop, refused));
        }
        let _stop = SetOnDrop(&stop);
        change(&server, &overrides, &mut rng)
    });
    took.sort_unstable();
    // the median is checked, because other tests use the processors too
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    let refused = refused.map(AtomicUsize::into_inner);
    eprintln!("in effect after {median:?}, at most {slowest:?}; requests with refused series: {refused:?}");
    assert!(median < DEADLINE, "{median:?}");
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    assert!(server.is_running() && server.pid() == pid);
    writers.iter().for_each(|writer| writer.verify(&server));
    server.kill9();
    // the file must be valid for this, because a server does not start with a broken one
    overrides.write("");
    server.restart();
    writers.iter().for_each(|writer| writer.verify(&server));
}
