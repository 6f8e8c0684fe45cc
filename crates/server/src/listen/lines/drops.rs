//! Points that are not stored although they arrived: counts, [lines in the log](log), and examples for `/api/v1/refusals`.

mod log;

use self::log::{DropLog, Line};
use crate::http::recent_refusals::{RecentRefusals, Refused};
use crate::query_source;
use model::TenantId;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use stdx::telemetry::{Counter, Registry};

/// Why points are not stored. The names are label values of a metric, and ids in `/api/v1/refusals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A line, frame or point that cannot be read.
    Malformed,
    /// A line that is longer than any series can be, or a frame that is longer than any client sends.
    TooLong,
    /// The connection or datagram ended within a line or frame.
    Unfinished,
    /// The labels or the time cannot be stored.
    Invalid,
    /// The series does not exist yet, and no further points may wait for its creation.
    NewSeriesQueue,
    /// The series was not created, because a limit of the tenant is reached.
    NewSeriesLimit,
    /// The write path refused the points for good.
    Refused,
    /// The rules for the tenant take long, and no further points may wait for them.
    RulesQueue,
    /// Datagrams arrive faster than they can be stored.
    DatagramQueue,
    /// The server stopped before the points were durable.
    Stopping,
}

impl Reason {
    const ALL: [Self; 10] = [
        Self::Malformed,
        Self::TooLong,
        Self::Unfinished,
        Self::Invalid,
        Self::NewSeriesQueue,
        Self::NewSeriesLimit,
        Self::Refused,
        Self::RulesQueue,
        Self::DatagramQueue,
        Self::Stopping,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Unfinished => "unfinished",
            Self::Invalid => "invalid",
            Self::NewSeriesQueue => "new_series_queue",
            Self::NewSeriesLimit => "new_series_limit",
            Self::Refused => "refused",
            Self::RulesQueue => "rules_queue",
            Self::DatagramQueue => "datagram_queue",
            Self::Stopping => "stopping",
        }
    }
}

/// Points that were dropped together.
#[derive(Debug)]
pub(super) struct Drop<'a> {
    pub(super) reason: Reason,
    pub(super) tenant: &'a TenantId,
    pub(super) points: u64,
    /// Says what is wrong, with an excerpt of what cannot be read, or what would help. It is formatted only if it is kept or logged.
    pub(super) message: fmt::Arguments<'a>,
    /// Labels of one of the series, or empty.
    pub(super) series: &'a str,
    pub(super) sender: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Drops {
    reads: Arc<query_source::Context>,
    recent: Arc<RecentRefusals>,
    points: [Counter; Reason::ALL.len()],
    log: Mutex<DropLog>,
}

impl Drops {
    pub(super) fn new(reads: Arc<query_source::Context>, recent: Arc<RecentRefusals>, r: &Registry) -> Self {
        let counter = |reason: Reason| {
            let help = "Points received by Graphite's protocols that were not stored, by reason.";
            r.counter_with("floodmark_graphite_dropped_points_total", help, &[("reason", reason.name())])
        };
        Self { reads, recent, points: Reason::ALL.map(counter), log: Mutex::default() }
    }

    pub(super) fn add(&self, drop: &Drop<'_>) {
        let Drop { reason, tenant, points, message, series, sender } = *drop;
        self.points[reason as usize].add(points);
        let refused = Refused {
            tenant: Some(tenant.clone()),
            reason: reason.name(),
            status: None,
            message,
            metric: "", // each series has a name of its own
            series,
            address: sender,
            user_agent: "",
        };
        self.recent.add(&refused, || self.reads.has_data(tenant));
        let line = self.log.lock().add(drop, self.reads.clock.instant());
        line.into_iter().for_each(write);
    }

    /// Logs the drops that were only counted so far, if the time for their next line has come. Must be called now and then.
    pub(super) fn log_due(&self) {
        let due = self.log.lock().due(self.reads.clock.instant());
        due.into_iter().for_each(write);
    }

    /// Logs all drops that were only counted so far, because the server stops.
    pub(super) fn log_rest(&self) {
        let rest = self.log.lock().rest();
        rest.into_iter().for_each(write);
    }
}

fn write(Line { reason, tenant, points, example }: Line) {
    let (reason, series, why) = (reason.name(), &*example.series, &*example.message);
    let sender = example.sender.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    match tenant {
        Some(tenant) => {
            tracing::info!(reason, points, %tenant, sender, series, why, "points were dropped");
        }
        None => {
            tracing::info!(reason, points, sender, series, why, "points of further tenants were dropped");
        }
    }
}
