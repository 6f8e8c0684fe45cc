//! Writers whose values are computed from series and time. To know what was acknowledged, a test has to
//! remember only one number for each writer.

use super::http::{Connection, Reply, Request};
use super::now_ms;
use super::process::Server;
use super::read::{self, Matrix};
use super::wire::{self, Series};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stdx::rng::mix;

/// Number of series of a writer. Each request has samples of all of them.
const SERIES: u64 = 20;

/// Number of samples that a request has for each series.
const SAMPLES: u64 = 5;

const STEP_MS: i64 = 10;

/// Number of requests whose samples are read back with one query, so that the query needs little memory in
/// the server.
const PAGE: u64 = 500;

#[derive(Debug, Clone)]
pub(crate) struct Writer {
    /// `None` if requests have no tenant header.
    tenant: Option<String>,
    seed: u64,
    id: u64,
    base_ms: i64,
    /// How many requests were acknowledged. Each request is retried until it is acknowledged, and only then
    /// is the next one sent, so these are the first requests of the writer.
    pub(crate) acknowledged: u64,
    /// True if a request was sent but not acknowledged. Some of its samples may be stored, and they may be
    /// found by later queries.
    pub(crate) has_unacknowledged_request: bool,
    pub(crate) refused: u64,
}

impl Writer {
    pub(crate) fn new(seed: u64, id: u64) -> Self {
        // the first sample is so old that a run rarely has to wait until the time of the next sample has come
        let base_ms = now_ms() - 50 * 60_000;
        Self {
            tenant: None,
            seed,
            id,
            base_ms,
            acknowledged: 0,
            has_unacknowledged_request: false,
            refused: 0,
        }
    }

    pub(crate) fn of_tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    pub(crate) fn run(&mut self, address: SocketAddr, stop: &AtomicBool) {
        let _gone = self.try_run(address, |_| stop.load(Ordering::Relaxed), |_| {});
    }

    /// Writes until `requests` requests are acknowledged. After a refusal, waits as long as `Retry-After`
    /// says.
    pub(crate) fn catch_up(&mut self, address: SocketAddr, requests: u64) -> io::Result<()> {
        let wait = |reply: &Reply| {
            let seconds = reply.header("retry-after").and_then(|seconds| seconds.parse().ok());
            std::thread::sleep(Duration::from_secs(seconds.expect("a number of seconds")));
        };
        self.try_run(address, |writer| writer.acknowledged >= requests, wait)
    }

    fn try_run(
        &mut self,
        address: SocketAddr,
        is_over: impl Fn(&Self) -> bool,
        wait: impl Fn(&Reply),
    ) -> io::Result<()> {
        let mut connection = Connection::open(address)?;
        while !is_over(self) {
            if self.next_ms() > now_ms() {
                // the server refuses samples from the future
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            self.has_unacknowledged_request = true;
            let reply = connection.send(&self.next_request())?;
            match reply.status {
                204 => {
                    self.acknowledged += 1;
                    self.has_unacknowledged_request = false;
                }
                503 => {
                    assert!(
                        reply.header("retry-after").is_some(),
                        "503 without Retry-After: {}",
                        reply.text()
                    );
                    // part of the request may have been stored by another partition
                    self.refused += 1;
                    wait(&reply);
                }
                other => panic!("status {other}: {}", reply.text()),
            }
            if reply.header("connection") == Some("close") {
                connection = Connection::open(address)?;
            }
        }
        Ok(())
    }

    pub(crate) fn write_once(&mut self, server: &Server) -> Reply {
        let reply = server.send(&self.next_request());
        self.acknowledged += u64::from(reply.status == 204);
        self.has_unacknowledged_request = reply.status != 204;
        reply
    }

    fn next_ms(&self) -> i64 {
        self.base_ms + ((self.acknowledged + 1) * SAMPLES) as i64 * STEP_MS
    }

    fn next_request(&self) -> Request {
        let request = Request::write(&self.body(self.acknowledged));
        match &self.tenant {
            Some(tenant) => request.tenant(tenant),
            None => request,
        }
    }

    fn body(&self, number: u64) -> Vec<u8> {
        let one = |series: u64| {
            let name = series.to_string();
            let labels = [("__name__", "load"), ("series", name.as_str()), ("writer", &self.id.to_string())];
            Series::new(&labels).samples(self.samples_of(series, number))
        };
        wire::v1(&(0..SERIES).map(one).collect::<Vec<_>>())
    }

    fn samples_of(&self, series: u64, request: u64) -> impl Iterator<Item = (i64, f64)> + use<> {
        let (seed, id, base_ms) = (self.seed, self.id, self.base_ms);
        (request * SAMPLES..(request + 1) * SAMPLES).map(move |i| {
            let random = mix(seed ^ mix(id ^ mix(series ^ mix(i))));
            // some values are whole numbers, others have many decimals
            let value = match random % 3 {
                0 => (random >> 40) as f64,
                _ => (random >> 11) as f64 / (1u64 << 53) as f64 * 1e6,
            };
            (base_ms + i as i64 * STEP_MS, value)
        })
    }

    /// Checks the samples of all requests from number `from` on. Each acknowledged sample must be stored
    /// once, with the same bits. The only other samples that may be stored are those of the unacknowledged
    /// request.
    #[track_caller]
    pub(crate) fn verify(&self, server: &Server, from: u64) {
        let found = self.found(server, from);
        for series in 0..SERIES {
            let stored = self.of_series(&found, series);
            let expected = self.expected(series, from);
            let possibly_stored: Vec<_> = match self.has_unacknowledged_request {
                true => self.samples_of(series, self.acknowledged).map(|(t, v)| (t, v.to_bits())).collect(),
                false => Vec::new(),
            };
            let (certain, rest) = stored.split_at(expected.len().min(stored.len()));
            assert_eq!(certain, expected, "writer {} series {series}", self.id);
            assert!(
                rest.is_empty() || rest == possibly_stored,
                "writer {} series {series}: {} samples that were never sent, or an incomplete request: {rest:?}",
                self.id,
                rest.len()
            );
        }
    }

    /// Reads the stored samples while the writer is writing. Each series must have exactly the samples of the
    /// writer's first N requests, where N must not have decreased since the previous call. Returns N for each
    /// series, to be passed as `before` next time.
    #[track_caller]
    pub(crate) fn watch(&self, server: &Server, before: &[u64]) -> Vec<u64> {
        let everything = format!("load{{writer=\"{}\"}}[2h]", self.id);
        // later than all samples: once the writer has caught up with the present, a request may arrive while the query is on its
        // way, and only some of its samples may be older than the query
        let found = self.samples(server, &everything, now_ms() + 60_000);
        let requests_of = |series: u64| {
            let stored = self.of_series(&found, series);
            let requests = stored.len() as u64 / SAMPLES;
            assert_eq!(requests * SAMPLES, stored.len() as u64, "a request is stored incompletely");
            let sent = (0..requests).flat_map(|n| self.samples_of(series, n)).map(|(t, v)| (t, v.to_bits()));
            assert!(sent.eq(stored.iter().copied()), "series {series} is not a prefix of the samples sent");
            let least = before.get(series as usize).copied().unwrap_or(0);
            assert!(requests >= least, "series {series} has {requests} requests, but had {least} before");
            requests
        };
        (0..SERIES).map(requests_of).collect()
    }

    /// Counts the acknowledged samples that are missing. Panics if there is a sample that was not
    /// acknowledged, or one that is stored twice.
    #[track_caller]
    pub(crate) fn count_missing(&self, server: &Server) -> usize {
        let found = self.found(server, 0);
        let missing_of = |series| {
            let stored = self.of_series(&found, series);
            let expected = self.expected(series, 0);
            let wrong = stored.iter().find(|s| expected.binary_search(s).is_err());
            assert_eq!(wrong, None, "series {series} has a sample that was never sent");
            assert!(stored.is_sorted_by(|a, b| a.0 < b.0), "series {series} has a sample twice");
            expected.len() - stored.len()
        };
        (0..SERIES).map(missing_of).sum()
    }

    pub(crate) const fn sample_count(&self) -> u64 {
        self.acknowledged * SERIES * SAMPLES
    }

    /// Reads the stored samples of all requests from number `from` on, page by page.
    fn found(&self, server: &Server, from: u64) -> Matrix {
        // one more than was acknowledged, to find the samples of the unacknowledged request
        let to = self.acknowledged + 1;
        let mut all = Matrix::new();
        for first in (from..to).step_by(PAGE as usize) {
            let start_ms = |request: u64| self.base_ms + (request * SAMPLES) as i64 * STEP_MS;
            let (since_ms, until_ms) = (start_ms(first), start_ms(to.min(first + PAGE)));
            // a window excludes its start and includes its end
            let window_ms = until_ms - since_ms;
            let selector = format!("load{{writer=\"{}\"}}[{window_ms}ms]", self.id);
            for (series, samples) in self.samples(server, &selector, until_ms - 1) {
                all.entry(series).or_default().extend(samples);
            }
        }
        all
    }

    fn samples(&self, server: &Server, selector: &str, at_ms: i64) -> Matrix {
        read::matrix(&server.query_as(self.tenant.as_deref(), selector, at_ms))
    }

    fn of_series<'a>(&self, found: &'a Matrix, series: u64) -> &'a [(i64, u64)] {
        let name = format!(r#"{{"__name__":"load","series":"{series}","writer":"{}"}}"#, self.id);
        found.get(&name).map_or(&[], Vec::as_slice)
    }

    fn expected(&self, series: u64, from: u64) -> Vec<(i64, u64)> {
        let requests = from..self.acknowledged;
        requests.flat_map(|n| self.samples_of(series, n)).map(|(t, v)| (t, v.to_bits())).collect()
    }
}
