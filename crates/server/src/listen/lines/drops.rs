//! Points that are not stored although they arrived: counts, a line in the log now and then, and examples for
//! `/api/v1/refusals`.

use crate::http::recent_refusals::{RecentRefusals, Refused};
use crate::query_source;
use model::TenantId;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::telemetry::{Counter, Registry};

/// For each reason, at most one line is logged in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

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
    logged: Mutex<[Logged; Reason::ALL.len()]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Logged {
    at: Option<Instant>,
    /// Points dropped since the last line in the log.
    points: u64,
}

impl Drops {
    pub(super) fn new(reads: Arc<query_source::Context>, recent: Arc<RecentRefusals>, r: &Registry) -> Self {
        let counter = |reason: Reason| {
            let help = "Points received by Graphite's protocols that were not stored, by reason.";
            r.counter_with("floodmark_graphite_dropped_points_total", help, &[("reason", reason.name())])
        };
        Self { reads, recent, points: Reason::ALL.map(counter), logged: Mutex::default() }
    }

    pub(super) fn add(&self, drop: &Drop<'_>) {
        let Drop { reason, tenant, points, message, series, sender } = *drop;
        let number = reason as usize;
        self.points[number].add(points);
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
        let now = self.reads.clock.instant();
        let since_last = {
            let logged = &mut self.logged.lock()[number];
            logged.points += points;
            if logged.at.is_some_and(|at| now.saturating_duration_since(at) < LOG_EVERY) {
                return;
            }
            logged.at = Some(now);
            std::mem::take(&mut logged.points)
        };
        let sender = sender.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        let reason = reason.name();
        tracing::info!(reason, points = since_last, %tenant, sender, series, why = message.to_string(), "points were dropped");
    }
}
