//! Decides when dropped points are logged.
//!
//! ```text
//!   the first drop of a tenant for a reason ─▶ a line at once
//!   its further drops ─▶ counted, with an example ─ ten seconds after the last line ─▶ a line with their number
//! ```
//!
//! So no drop is missing in the sum of the lines, and a flood has few of them.

use super::{Drop, Reason};
use model::TenantId;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time between two lines for the same tenant and reason.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Limit on the tenants and reasons with lines of their own within [`LOG_EVERY`]. Those beyond it have one line for each reason.
const KEPT_MAX: usize = 32;

const TEXT_BYTES_MAX: usize = 256;

/// A line of the log.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) reason: Reason,
    /// `None` for tenants beyond [`KEPT_MAX`].
    pub(super) tenant: Option<TenantId>,
    /// Points that were dropped, and are in no earlier line.
    pub(super) points: u64,
    pub(super) example: Example,
}

/// One of the drops of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Example {
    pub(super) message: Box<str>,
    pub(super) series: Box<str>,
    pub(super) sender: Option<IpAddr>,
}

impl Example {
    fn of(drop: &Drop<'_>) -> Self {
        let cut = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
        Self { message: cut(&drop.message.to_string()), series: cut(drop.series), sender: drop.sender }
    }
}

#[derive(Debug, Default)]
pub(super) struct DropLog {
    /// At most [`KEPT_MAX`], and one for the other tenants of each reason.
    kept: Vec<Kept>,
    /// True once the rest was logged, because the server stops.
    has_ended: bool,
}

/// Drops of a tenant for a reason.
#[derive(Debug)]
struct Kept {
    reason: Reason,
    /// `None` stands for all tenants that are not kept.
    tenant: Option<TenantId>,
    /// When the last line was logged. For the other tenants, whose first line waits too, when their first points were dropped.
    since: Instant,
    /// Points that were dropped since then.
    points: u64,
    /// One of these drops.
    example: Option<Example>,
}

impl Kept {
    fn take(&mut self, now: Instant) -> Option<Line> {
        self.since = now;
        let (reason, tenant, points) = (self.reason, self.tenant.clone(), std::mem::take(&mut self.points));
        self.example.take().map(|example| Line { reason, tenant, points, example })
    }
}

impl DropLog {
    /// Counts dropped points. Returns the line that is to be logged now.
    pub(super) fn add(&mut self, drop: &Drop<'_>, now: Instant) -> Option<Line> {
        let Self { kept, has_ended } = self;
        let of = |kept: &Kept, tenant: Option<&TenantId>| {
            kept.reason == drop.reason && kept.tenant.as_ref() == tenant
        };
        let own = kept.iter().position(|kept| of(kept, Some(drop.tenant)));
        let has_room = kept.iter().filter(|kept| kept.tenant.is_some()).count() < KEPT_MAX;
        let place = own.or_else(|| kept.iter().position(|kept| !has_room && of(kept, None)));
        let (place, is_first) = place.map_or_else(
            || {
                let tenant = has_room.then(|| drop.tenant.clone());
                kept.push(Kept { reason: drop.reason, tenant, since: now, points: 0, example: None });
                (kept.len() - 1, has_room)
            },
            |place| (place, false),
        );
        let kept = &mut kept[place];
        kept.points += drop.points;
        kept.example.get_or_insert_with(|| Example::of(drop));
        let is_due = now.saturating_duration_since(kept.since) >= LOG_EVERY;
        if is_first || is_due || *has_ended { kept.take(now) } else { None }
    }

    /// Returns the lines whose time has come, and forgets tenants without further drops since their last line.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let (due, others): (Vec<_>, _) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| now.saturating_duration_since(kept.since) >= LOG_EVERY);
        self.kept = others;
        let mut lines = Vec::new();
        for mut kept in due {
            let Some(line) = kept.take(now) else { continue };
            lines.push(line);
            self.kept.extend(Some(kept).filter(|kept| kept.tenant.is_some()));
        }
        lines
    }

    /// Returns lines for all that was counted and is in no line yet. From now on, each drop has a line.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        self.has_ended = true;
        self.kept.drain(..).filter_map(|mut kept| kept.take(kept.since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::clock::{Clock, SystemClock};

    fn tenant(number: usize) -> TenantId {
        TenantId::parse(&format!("t{number}")).unwrap()
    }

    fn add(log: &mut DropLog, of: usize, reason: Reason, points: u64, now: Instant) -> Option<Line> {
        let (tenant, series) = (tenant(of), format!("series.{points}"));
        let message = format_args!("why {points}");
        log.add(&Drop { reason, tenant: &tenant, points, message, series: &series, sender: None }, now)
    }

    /// Tenant, points and series of a line.
    fn shown(line: Line) -> (String, u64, String) {
        assert_eq!(line.example.message.replace("why", ""), line.example.series.replace("series.", " "));
        let tenant = line.tenant.map_or("others".to_owned(), |tenant| tenant.to_string());
        (tenant, line.points, line.example.series.into())
    }

    fn line(tenant: &str, points: u64, series: &str) -> (String, u64, String) {
        (tenant.to_owned(), points, series.to_owned())
    }

    #[test]
    fn each_tenant_has_lines_of_its_own_and_the_rest_is_logged_without_a_further_drop() {
        let (mut log, began) = (DropLog::default(), SystemClock.instant());
        let at = |seconds| began + Duration::from_secs(seconds);
        let first = add(&mut log, 1, Reason::Malformed, 1, at(0)).map(shown);
        assert_eq!(first, Some(line("t1", 1, "series.1")));
        assert_eq!(add(&mut log, 1, Reason::Malformed, 20, at(1)), None);
        assert_eq!(add(&mut log, 1, Reason::Malformed, 300, at(2)), None);
        assert_eq!(add(&mut log, 2, Reason::Malformed, 7, at(3)).map(shown), Some(line("t2", 7, "series.7")));
        assert_eq!(add(&mut log, 1, Reason::Invalid, 8, at(4)).map(shown), Some(line("t1", 8, "series.8")));
        assert_eq!(log.due(at(9)), []);
        let due: Vec<_> = log.due(at(10)).into_iter().map(shown).collect();
        assert_eq!(due, [line("t1", 320, "series.20")]);
        assert_eq!(
            add(&mut log, 1, Reason::Malformed, 4000, at(19)),
            None,
            "ten seconds after the line before"
        );
        assert_eq!(log.due(at(19)), [], "nothing more of the others");
        // the time of the next line has come, but nobody has asked for it
        let next = add(&mut log, 1, Reason::Malformed, 50_000, at(21)).map(shown);
        assert_eq!(next, Some(line("t1", 54_000, "series.4000")));
        assert_eq!(
            add(&mut log, 2, Reason::Malformed, 9, at(22)).map(shown),
            Some(line("t2", 9, "series.9"))
        );
        assert_eq!(add(&mut log, 2, Reason::Malformed, 3, at(23)), None);
        assert_eq!(log.rest().into_iter().map(shown).collect::<Vec<_>>(), [line("t2", 3, "series.3")]);
        assert_eq!(log.due(at(99)), []);
    }

    #[test]
    fn a_flood_of_tenants_has_few_lines_and_loses_no_point() {
        let (mut log, began) = (DropLog::default(), SystemClock.instant());
        let (mut lines, mut points) = (Vec::new(), 0);
        for second in 0..30 {
            let now = began + Duration::from_secs(second);
            for number in 0..1000 {
                for reason in [Reason::Malformed, Reason::Invalid] {
                    lines.extend(add(&mut log, number, reason, 1, now));
                    points += 1;
                }
            }
            lines.extend(log.due(now));
            assert!(log.kept.len() <= KEPT_MAX + 2);
        }
        assert!(lines.len() <= 3 * (KEPT_MAX + 2), "{} lines", lines.len());
        assert!(lines.iter().any(|line| line.tenant.is_none()));
        lines.extend(log.rest());
        assert_eq!(lines.iter().map(|line| line.points).sum::<u64>(), points);
    }
}
