//! The audit log.
//!
//! ```text
//!   an administrative request ─▶ Operation: what it asks for ─▶ a line when it has ended
//!   refused requests ─▶ refused: at most a line a second for each sender and reason, which add up to all of them
//! ```
//!
//! Parameters whose names suggest a secret are left out. The log escapes control characters.

mod operation;
mod refused;

pub(crate) use operation::Operation;

use self::refused::{Example, Kind, Line, RefusedLog};
use crate::refusal::Refusal;
use axum::http::{Method, StatusCode, Uri};
use operation::Asked;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use stdx::clock::Clock;
use tokio::time::{MissedTickBehavior, interval};

const TEXT_BYTES_MAX: usize = 1 << 10;

/// Limits on the texts of refused requests. The path of administration has parameters.
const PATH_BYTES_MAX: usize = 512;
const OPERATION_BYTES_MAX: usize = 4 << 10;
const TENANT_BYTES_MAX: usize = 256;

/// Reason of a refused handshake.
const CERTIFICATE: &str = "certificate";

#[derive(Debug)]
pub(crate) struct Audit {
    clock: Arc<dyn Clock>,
    refused: Mutex<RefusedLog>,
    /// Refused requests for administration. They are kept apart, so that other refusals do not hide them.
    refused_operations: Mutex<RefusedLog>,
}

impl Audit {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, refused: Mutex::default(), refused_operations: Mutex::default() }
    }

    pub(crate) fn served(
        &self,
        caller: &str,
        client: SocketAddr,
        (method, uri): (&Method, &Uri),
        operation: &Operation,
        status: Option<StatusCode>,
    ) {
        let Asked { tenant, parameters, dry_run } = operation.asked(uri);
        let (path, status) = (beginning(uri.path(), TEXT_BYTES_MAX), status.map(|status| status.as_u16()));
        let tenant = tenant.as_deref();
        tracing::info!(target: "audit", caller, %client, %method, path, tenant, parameters, dry_run, status, "operation");
    }

    pub(crate) fn refused(&self, sender: IpAddr, path: &str, refusal: &Refusal) {
        let path = beginning(path, PATH_BYTES_MAX);
        self.count(&self.refused, Kind::of(sender, refusal), || {
            Example::of(sender, refusal.reason, path, refusal.cause())
        });
    }

    /// Like [`Self::refused`], for an administrative request. `tenant` is what it named as its tenant.
    pub(crate) fn refused_operation(
        &self,
        sender: IpAddr,
        (method, uri, operation): &(Method, Uri, Operation),
        tenant: Option<&[u8]>,
        refusal: &Refusal,
    ) {
        let example = || {
            let Asked { parameters, .. } = operation.asked(uri);
            let mark = if parameters.is_empty() { "" } else { "?" };
            let path = format!("{method} {}{mark}{parameters}", uri.path());
            let path = beginning(&path, OPERATION_BYTES_MAX);
            let tenant =
                tenant.map(|tenant| beginning(&String::from_utf8_lossy(tenant), TENANT_BYTES_MAX).into());
            Example { tenant, ..Example::of(sender, refusal.reason, path, refusal.cause()) }
        };
        self.count(&self.refused_operations, Kind::of(sender, refusal), example);
    }

    pub(crate) fn refused_handshake(&self, sender: IpAddr, why: &str) {
        let kind = Kind { sender, reason: CERTIFICATE, caller: 0 };
        self.count(&self.refused, kind, || Example::of(sender, CERTIFICATE, "", why));
    }

    fn count(&self, log: &Mutex<RefusedLog>, kind: Kind, example: impl FnOnce() -> Example) {
        let lines = log.lock().add(kind, example, self.clock.instant());
        lines.into_iter().for_each(write);
    }

    /// Logs the refusals that were only counted so far when the time for their next line has come, until it is dropped.
    pub(crate) async fn log_due(&self) -> std::convert::Infallible {
        let mut ticks = interval(refused::EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            for log in [&self.refused, &self.refused_operations] {
                let due = log.lock().due(self.clock.instant());
                due.into_iter().for_each(write);
            }
        }
    }

    /// Logs all refusals that were only counted so far, because the server stops.
    pub(crate) fn log_rest(&self) {
        for log in [&self.refused, &self.refused_operations] {
            let rest = log.lock().rest();
            rest.into_iter().for_each(write);
        }
    }
}

fn write(Line { is_of_one, count, example }: Line) {
    let Example { sender, reason, path, tenant, why } = &example;
    let (path, tenant, why) = (&**path, tenant.as_deref(), &**why);
    match (is_of_one, *reason == CERTIFICATE) {
        (true, false) => {
            tracing::warn!(target: "audit", %sender, reason, path, tenant, count, why, "requests refused");
        }
        (true, true) => {
            tracing::warn!(target: "audit", %sender, reason, count, why, "handshakes refused");
        }
        (false, _) => {
            tracing::warn!(target: "audit", %sender, reason, path, tenant, count, why, "requests refused of further senders");
        }
    }
}

fn beginning(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
