//! Limits on concurrent write requests.

use crate::limits::gate::{Gate, Pass};
use crate::settings::Settings;
use admission::Refused;
use std::sync::Arc;
use stdx::telemetry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Divisor of the write requests' memory that gives the part for requests that create series: known series never wait for
/// them.
const CREATING_PART: u64 = 2;

/// The gates of the write path.
#[derive(Debug)]
pub(crate) struct Gates {
    /// Requests in progress, except those that create series.
    known: Gate,
    /// Requests that create series, and their memory.
    creating: Gate,
    /// Permits to decode large bodies: one for each core.
    decoding: Arc<Semaphore>,
}

impl Gates {
    pub(crate) fn new(settings: &Settings, r: &Registry) -> Self {
        let known = Gate::new(settings.inflight_requests_max);
        let creating =
            Gate::with_bytes(settings.creating_requests_max, settings.budget.inflight_bytes / CREATING_PART);
        let gauge = |name, help, gate: &Gate, value: fn(&Gate) -> usize| {
            let gate = gate.clone();
            r.gauge_fn(name, help, &[], move || value(&gate) as f64);
        };
        gauge(
            "floodmark_write_creating_requests",
            "Write requests that wait for their new series.",
            &creating,
            Gate::inside,
        );
        gauge("floodmark_write_inflight_requests", "Write requests being worked on.", &known, Gate::inside);
        gauge(
            "floodmark_write_inflight_requests_peak",
            "The most write requests that were ever worked on at once.",
            &known,
            Gate::peak,
        );
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { known, creating, decoding: Arc::new(Semaphore::new(cores)) }
    }

    /// Enters as a request that is assumed to be of known series.
    pub(super) fn enter(&self) -> Result<Pass, Refused> {
        self.known.enter().ok_or_else(|| Refused::InflightRequests { limit: self.known.limit() })
    }

    /// Enters as a request that creates series and holds `bytes` of memory until it is answered.
    pub(super) fn enter_creating(&self, bytes: u64) -> Result<Pass, Refused> {
        let pass = self.creating.enter_with(bytes);
        pass.ok_or_else(|| Refused::CreatingRequests { limit: self.creating.limit() })
    }

    /// Waits until a large body may be decoded on a thread of its own.
    pub(super) async fn decoding_permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.decoding).acquire_owned().await.expect("BUG: the semaphore is never closed")
    }

    /// Numbers of requests inside: of known series, and creating series.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> (usize, usize) {
        (self.known.inside(), self.creating.inside())
    }
}
