//! The test harness. It starts the executable, sends requests to it, and reads back what it stored.
//!
//! - [`http`]: a small blocking HTTP/1.1 client, which can also send malformed requests
//! - [`process`]: the server as a process; its log is checked when a test ends
//! - [`service`]: a service to which the server sends requests
//! - [`tls`]: clients that speak TLS
//! - [`wire`]: remote-write bodies built field by field, so that they can be malformed
//! - [`programs`]: programs other than Floodmark
//! - [`pages`]: code blocks of the documentation
//! - [`read`]: reads samples back by queries
//! - [`lab`]: `floodmark lab` as a process
//! - [`ledger`]: a load whose every sample can be computed from its series and time

pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod ledger;
pub(crate) mod pages;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod read;
pub(crate) mod service;
pub(crate) mod tls;
pub(crate) mod wire;

pub(crate) use http::{Connection, Reply, Request};
pub(crate) use process::{Options, Server};
pub(crate) use service::Service;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};

/// The longest time that a test waits for anything before it fails. It is generous because the machine may be
/// busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn now_ms() -> i64 {
    SystemClock.now_ms()
}

/// Repeats `ask` until it returns an answer. Fails the test after [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "no result within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sets a flag when it is dropped, so that threads which wait for the flag end even after a panic.
pub(crate) struct SetOnDrop<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
