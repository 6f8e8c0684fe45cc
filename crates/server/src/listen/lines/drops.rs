//! Points that are not stored although they arrived, and those that wait: counts, lines in the log, and examples for
//! `/api/v1/refusals`.

use crate::http::App;
use crate::listen::unstored::{Line, Recorder, Unstored};
use crate::refusal::Refusal;
use model::TenantId;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use stdx::telemetry::Counter;

/// Time between two lines of the log for dropped points of the same tenant and reason.
const LOG_DROPS_EVERY: Duration = Duration::from_secs(10);

/// The same for points that wait. It is longer, because nothing is lost.
const LOG_PAUSES_EVERY: Duration = Duration::from_secs(60);

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
    points: [Counter; Reason::ALL.len()],
    dropped: Recorder,
    paused: Recorder,
}

impl Drops {
    pub(super) fn new(app: &App) -> Self {
        let counter = |reason: Reason| {
            let help = "Points received by Graphite's protocols that were not stored, by reason.";
            let labels = &[("reason", reason.name())];
            app.node.registry().counter_with("floodmark_graphite_dropped_points_total", help, labels)
        };
        Self {
            points: Reason::ALL.map(counter),
            dropped: Recorder::new(app, LOG_DROPS_EVERY, write_dropped),
            paused: Recorder::new(app, LOG_PAUSES_EVERY, write_paused),
        }
    }

    pub(super) fn add(&self, drop: &Drop<'_>) {
        let Drop { reason, tenant, points, message, series, sender } = *drop;
        self.points[reason as usize].add(points);
        let (reason, count) = (reason.name(), points);
        self.dropped.add(&Unstored { reason, tenant, count, message, series, sender });
    }

    /// Records that points of known series were refused, and are kept until they can be stored.
    pub(super) fn paused(&self, tenant: &TenantId, sender: Option<IpAddr>, refusal: &Refusal) {
        let (reason, series) = (refusal.reason, refusal.series.as_deref().unwrap_or_default());
        let message = format_args!("points wait: {}", refusal.cause());
        self.paused.add(&Unstored { reason, tenant, count: 1, message, series, sender });
    }

    /// Logs what was only counted so far, if the time for its next line has come. Must be called now and then.
    pub(super) fn log_due(&self) {
        self.dropped.log_due();
        self.paused.log_due();
    }

    /// Logs, when the server stops, what was only counted so far.
    pub(super) fn log_rest(&self) {
        self.dropped.log_rest();
        self.paused.log_rest();
    }
}

fn write_dropped(Line { reason, tenant, count: points, example }: Line) {
    let (series, why, sender) = (&*example.series, &*example.message, shown(example.sender));
    match tenant {
        Some(tenant) => {
            tracing::info!(reason, points, %tenant, sender, series, why, "points were dropped");
        }
        None => {
            tracing::info!(reason, points, sender, series, why, "points of further tenants were dropped");
        }
    }
}

fn write_paused(Line { reason, tenant, count: refusals, example }: Line) {
    let (series, why, sender) = (&*example.series, &*example.message, shown(example.sender));
    match tenant {
        Some(tenant) => {
            tracing::info!(reason, refusals, %tenant, sender, series, why, "points of known series wait");
        }
        None => {
            tracing::info!(
                reason,
                refusals,
                sender,
                series,
                why,
                "points of known series of further tenants wait"
            );
        }
    }
}

fn shown(sender: Option<IpAddr>) -> String {
    sender.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}
