//! Starts the executable and talks to it.
//!
//! - [`http`]: a small blocking HTTP/1.1 client, which can also send what no client would
//! - [`process`]: the server as a process; its log is checked when a test ends
//! - [`service`]: a service that the server asks
//! - [`tls`]: clients that speak TLS
//! - [`wire`]: remote-write bodies built field by field, so that they can be wrong
//! - [`outside`]: programs of others
//! - [`read`]: what comes back over the query interface
//! - [`lab`]: `floodmark lab` as a process
//! - [`ledger`]: a load whose every sample can be told from its series and time

pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod ledger;
pub(crate) mod outside;
pub(crate) mod process;
pub(crate) mod read;
pub(crate) mod service;
pub(crate) mod tls;
pub(crate) mod wire;

pub(crate) use http::{Connection, Reply, Request};
pub(crate) use process::{Options, Server};
pub(crate) use service::Service;

use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};

/// The longest that anything is waited for before a test fails. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    SystemClock.now_ms()
}

/// Asks until there is an answer; fails the test after [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
