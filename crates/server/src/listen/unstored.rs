//! Points of protocols without answers that are not stored, or not yet: [lines in the log](log), and examples for
//! `/api/v1/refusals`.

mod log;

use self::log::UnstoredLog;
use crate::http::App;
use crate::http::recent_refusals::{RecentRefusals, Refused};
use crate::query_source;
use model::TenantId;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const TEXT_BYTES_MAX: usize = 256;

/// Points of a tenant that were not stored, all for the same reason.
#[derive(Debug)]
pub(super) struct Unstored<'a> {
    /// An id in `/api/v1/refusals`.
    pub(super) reason: &'static str,
    pub(super) tenant: &'a TenantId,
    /// Added to the number in the next log line.
    pub(super) count: u64,
    /// It is formatted only if it is kept or logged.
    pub(super) message: fmt::Arguments<'a>,
    /// Labels of one of the series, or empty.
    pub(super) series: &'a str,
    pub(super) sender: Option<IpAddr>,
}

/// A line of the log.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) reason: &'static str,
    /// `None` for the tenants that have no lines of their own, because there are too many.
    pub(super) tenant: Option<TenantId>,
    /// Sum of what is in no earlier line.
    pub(super) count: u64,
    pub(super) example: Example,
}

/// What one of the counts of a line stands for, with texts cut to [`TEXT_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Example {
    pub(super) message: Box<str>,
    pub(super) series: Box<str>,
    pub(super) sender: Option<IpAddr>,
}

impl Example {
    fn of(unstored: &Unstored<'_>) -> Self {
        let cut = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
        let Unstored { message, series, sender, .. } = unstored;
        Self { message: cut(&message.to_string()), series: cut(series), sender: *sender }
    }
}

/// Lists and logs what is not stored.
#[derive(Debug)]
pub(super) struct Recorder {
    reads: Arc<query_source::Context>,
    recent: Arc<RecentRefusals>,
    log: Mutex<UnstoredLog>,
    write: fn(Line),
}

impl Recorder {
    /// `write` logs a line. For a tenant and a reason, there is at most one line in `every`.
    pub(super) fn new(app: &App, every: Duration, write: fn(Line)) -> Self {
        let (reads, recent) = (Arc::clone(app.node.reads()), Arc::clone(&app.recent_refusals));
        Self { reads, recent, log: Mutex::new(UnstoredLog::new(every)), write }
    }

    pub(super) fn add(&self, unstored: &Unstored<'_>) {
        let Unstored { reason, tenant, message, series, sender, .. } = *unstored;
        let refused = Refused {
            tenant: Some(tenant.clone()),
            reason,
            status: None,
            message,
            metric: "", // each series has a name of its own
            series,
            address: sender,
            user_agent: "",
        };
        self.recent.add(&refused, || self.reads.has_data(tenant));
        let line = self.log.lock().add(unstored, self.reads.clock.instant());
        line.into_iter().for_each(self.write);
    }

    /// Logs what was only counted so far, if the time for the next line has come. Must be called now and then.
    pub(super) fn log_due(&self) {
        let due = self.log.lock().due(self.reads.clock.instant());
        due.into_iter().for_each(self.write);
    }

    /// Logs all that was only counted so far, because the server stops.
    pub(super) fn log_rest(&self) {
        let rest = self.log.lock().rest();
        rest.into_iter().for_each(self.write);
    }
}
