//! Decides when points that are not stored are logged.
//!
//! ```text
//!   the first points of a tenant for a reason ─▶ a line at once
//!   further ones ─▶ counted, with an example ─ some time after the last line ─▶ a line with their number
//! ```
//!
//! So nothing is missing in the sum of the lines, and a flood has few of them.

use super::{Example, Line, Unstored};
use model::TenantId;
use std::time::{Duration, Instant};

/// Limit on the tenants and reasons with lines of their own at a time. Those beyond it have one line for each reason.
const KEPT_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct UnstoredLog {
    /// Time between two lines for the same tenant and reason.
    every: Duration,
    /// At most [`KEPT_MAX`], and one for the other tenants of each reason.
    kept: Vec<Kept>,
    /// True once the rest was logged, because the server stops.
    has_ended: bool,
}

/// What was not stored of a tenant for a reason.
#[derive(Debug)]
struct Kept {
    reason: &'static str,
    /// `None` stands for all tenants that are not kept.
    tenant: Option<TenantId>,
    /// When the last line was logged. For the other tenants, whose first line waits too, when the first of them was counted.
    since: Instant,
    /// What was counted since then.
    count: u64,
    /// An example of it.
    example: Option<Example>,
}

impl Kept {
    fn take(&mut self, now: Instant) -> Option<Line> {
        self.since = now;
        let (reason, tenant, count) = (self.reason, self.tenant.clone(), std::mem::take(&mut self.count));
        self.example.take().map(|example| Line { reason, tenant, count, example })
    }
}

impl UnstoredLog {
    pub(super) const fn new(every: Duration) -> Self {
        Self { every, kept: Vec::new(), has_ended: false }
    }

    /// Counts what was not stored. Returns the line that is to be logged now.
    pub(super) fn add(&mut self, unstored: &Unstored<'_>, now: Instant) -> Option<Line> {
        let Self { every, kept, has_ended } = self;
        let Unstored { reason, tenant, count, .. } = *unstored;
        let of =
            |kept: &Kept, tenant: Option<&TenantId>| kept.reason == reason && kept.tenant.as_ref() == tenant;
        let own = kept.iter().position(|kept| of(kept, Some(tenant)));
        let has_room = kept.iter().filter(|kept| kept.tenant.is_some()).count() < KEPT_MAX;
        let place = own.or_else(|| kept.iter().position(|kept| !has_room && of(kept, None)));
        let (place, is_first) = place.map_or_else(
            || {
                let tenant = has_room.then(|| tenant.clone());
                kept.push(Kept { reason, tenant, since: now, count: 0, example: None });
                (kept.len() - 1, has_room)
            },
            |place| (place, false),
        );
        let kept = &mut kept[place];
        kept.count += count;
        kept.example.get_or_insert_with(|| Example::of(unstored));
        let is_due = now.saturating_duration_since(kept.since) >= *every;
        if is_first || is_due || *has_ended { kept.take(now) } else { None }
    }

    /// Returns the lines whose time has come, and forgets tenants of which nothing was counted since their last line.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let (due, others): (Vec<_>, _) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| now.saturating_duration_since(kept.since) >= self.every);
        self.kept = others;
        let mut lines = Vec::new();
        for mut kept in due {
            let Some(line) = kept.take(now) else { continue };
            lines.push(line);
            self.kept.extend(Some(kept).filter(|kept| kept.tenant.is_some()));
        }
        lines
    }

    /// Returns lines for all that was counted and is in no line yet. From now on, all that is counted has a line
    /// at once.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        self.has_ended = true;
        self.kept.drain(..).filter_map(|mut kept| kept.take(kept.since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::clock::{Clock, SystemClock};

    const EVERY: Duration = Duration::from_secs(10);

    fn tenant(number: usize) -> TenantId {
        TenantId::parse(&format!("t{number}")).unwrap()
    }

    fn add(
        log: &mut UnstoredLog,
        of: usize,
        reason: &'static str,
        points: u64,
        now: Instant,
    ) -> Option<Line> {
        let (tenant, series) = (tenant(of), format!("series.{points}"));
        let message = format_args!("why {points}");
        let (tenant, count, series) = (&tenant, points, &*series);
        log.add(&Unstored { reason, tenant, count, message, series, sender: None }, now)
    }

    /// Tenant, points and series of a line.
    fn shown(line: Line) -> (String, u64, String) {
        assert_eq!(line.example.message.replace("why", ""), line.example.series.replace("series.", " "));
        let tenant = line.tenant.map_or("others".to_owned(), |tenant| tenant.to_string());
        (tenant, line.count, line.example.series.into())
    }

    fn line(tenant: &str, points: u64, series: &str) -> (String, u64, String) {
        (tenant.to_owned(), points, series.to_owned())
    }

    #[test]
    fn each_tenant_has_lines_of_its_own_and_the_rest_is_logged_without_a_further_one() {
        let (mut log, began) = (UnstoredLog::new(EVERY), SystemClock.instant());
        let at = |seconds| began + Duration::from_secs(seconds);
        let first = add(&mut log, 1, "malformed", 1, at(0)).map(shown);
        assert_eq!(first, Some(line("t1", 1, "series.1")));
        assert_eq!(add(&mut log, 1, "malformed", 20, at(1)), None);
        assert_eq!(add(&mut log, 1, "malformed", 300, at(2)), None);
        assert_eq!(add(&mut log, 2, "malformed", 7, at(3)).map(shown), Some(line("t2", 7, "series.7")));
        assert_eq!(add(&mut log, 1, "invalid", 8, at(4)).map(shown), Some(line("t1", 8, "series.8")));
        assert_eq!(log.due(at(9)), []);
        let due: Vec<_> = log.due(at(10)).into_iter().map(shown).collect();
        assert_eq!(due, [line("t1", 320, "series.20")]);
        assert_eq!(add(&mut log, 1, "malformed", 4000, at(19)), None, "ten seconds after the line before");
        assert_eq!(log.due(at(19)), [], "nothing more of the others");
        // the time of the next line has come, but nobody has asked for it
        let next = add(&mut log, 1, "malformed", 50_000, at(21)).map(shown);
        assert_eq!(next, Some(line("t1", 54_000, "series.4000")));
        assert_eq!(add(&mut log, 2, "malformed", 9, at(22)).map(shown), Some(line("t2", 9, "series.9")));
        assert_eq!(add(&mut log, 2, "malformed", 3, at(23)), None);
        assert_eq!(log.rest().into_iter().map(shown).collect::<Vec<_>>(), [line("t2", 3, "series.3")]);
        assert_eq!(log.due(at(99)), []);
    }

    #[test]
    fn a_flood_of_tenants_has_few_lines_and_loses_no_point() {
        let (mut log, began) = (UnstoredLog::new(EVERY), SystemClock.instant());
        let (mut lines, mut points) = (Vec::new(), 0);
        for second in 0..30 {
            let now = began + Duration::from_secs(second);
            for number in 0..1000 {
                for reason in ["malformed", "invalid"] {
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
        assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), points);
    }
}
