//! Deletes samples as an HTTP client does, which repeats its request until it is answered.

use super::{BEGIN_MS, Driver};
use crate::check;
use crate::fleet::{Fleet, METRICS};
use crate::importer::DAYS_BACK;
use crate::model::{Begun, Key};
use ::model::TimeRange;
use query::{MatchOp, Matcher};
use server::sim::{Flush, FlushAnswer};
use stdx::clock::Clock;
use tables::{DAY_MS, Delete};

/// Without faults, a delete must be answered within this many turns.
const TURNS_MAX: usize = 200;

#[derive(Debug)]
pub(super) struct Deleting {
    tenant: usize,
    delete: Delete,
    /// `None` if the request was not sent yet, or has failed.
    request: Option<Request>,
}

#[derive(Debug)]
struct Request {
    /// The samples that had been acknowledged when the request began.
    begun: Begun,
    /// The flush that the request waits for.
    flush: Flush,
    is_committed: bool,
}

impl Deleting {
    /// The client gets no answer, so it will repeat the request.
    pub(super) fn lose_connection(&mut self) {
        self.request = None;
    }

    fn selects(&self, fleet: &Fleet, (tenant, series, timestamp_ms): Key) -> bool {
        tenant == self.tenant
            && self.delete.range.contains(timestamp_ms)
            && self.delete.selects(fleet.series[series].as_ref())
    }
}

impl Driver {
    pub(super) fn delete(&mut self) -> Result<(), String> {
        if self.delete.is_none() {
            self.delete = Some(self.draw_delete());
        }
        let deleting = self.delete.as_ref().expect("BUG: no delete was drawn");
        match deleting.request {
            None => {
                self.begin_delete();
                Ok(())
            }
            Some(_) => self.advance_delete(),
        }
    }

    fn draw_delete(&self) -> Deleting {
        let tenant = self.below(self.plan.tenants as u64) as usize;
        let metric = METRICS[self.below(METRICS.len() as u64) as usize];
        let series = format!("s[{}-{}]", self.below(5), 5 + self.below(5));
        let matcher =
            |name: &str, op, value: &str| Matcher::new(name, op, value).expect("BUG: the matcher is invalid");
        let selectors = match self.below(5) {
            4 => Delete::everything().selectors,
            0 => vec![vec![matcher("__name__", MatchOp::Equal, metric)]],
            1 => vec![vec![matcher("series", MatchOp::Regex, &series)]],
            2 => vec![vec![
                matcher("__name__", MatchOp::NotEqual, metric),
                matcher("series", MatchOp::NotEqual, "s1"),
            ]],
            _ => vec![
                vec![matcher("__name__", MatchOp::Equal, metric), matcher("series", MatchOp::Regex, &series)],
                vec![matcher("series", MatchOp::Equal, "s0")],
            ],
        };
        let now_ms = self.clock.now_ms();
        let span_ms = self.plan.load.span_ms + 10_000;
        let range = match self.below(5) {
            0 | 1 => TimeRange::ALL,
            2 => TimeRange::new(i64::MIN, now_ms - self.below(span_ms) as i64),
            3 => {
                let start_ms = now_ms - self.below(span_ms) as i64;
                TimeRange::new(start_ms, start_ms + self.below(5000) as i64)
            }
            // a few hours of a day to which only importers write
            _ => {
                let day = BEGIN_MS / DAY_MS - DAYS_BACK + self.below(check::ROLLED_DAYS as u64) as i64;
                let start_ms = day * DAY_MS + self.below(DAY_MS as u64) as i64;
                TimeRange::new(start_ms, start_ms + self.below(6 * 3_600_000) as i64)
            }
        };
        Deleting { tenant, delete: Delete { selectors, range }, request: None }
    }

    fn begin_delete(&mut self) {
        let Some(mut deleting) = self.delete.take() else { return };
        self.trace(format!("delete of {}: {}", deleting.tenant, deleting.delete));
        let begun = self.traffic.borrow().model.begin_delete();
        let tenant = self.fleet.tenants[deleting.tenant].clone();
        let flush = self.node_mut().flush_tenant(&tenant);
        deleting.request = Some(Request { begun, flush, is_committed: false });
        self.delete = Some(deleting);
    }

    fn advance_delete(&mut self) -> Result<(), String> {
        let Some(mut deleting) = self.delete.take() else { return Ok(()) };
        let mut request = deleting.request.take().expect("BUG: the delete was not begun");
        match request.flush.answer() {
            None => deleting.request = Some(request),
            Some(FlushAnswer { blocked, .. }) if blocked > 0 => self.trace("delete: the tenant is blocked"),
            Some(_) if request.is_committed => return self.answer_delete(&deleting, &request.begun),
            Some(_) => {
                self.trace("delete: commit");
                let tenant = self.fleet.tenants[deleting.tenant].clone();
                let done = self.node().delete(&tenant, &deleting.delete);
                let is_selected = |key| deleting.selects(&self.fleet, key);
                self.traffic.borrow_mut().model.doubt_delete(is_selected);
                match done {
                    // frozen samples may be in the table and deleted, but queries still find them in the heads
                    Ok(()) if self.node().is_frozen(&tenant) => {
                        self.note("samples are frozen");
                        let flush = self.node_mut().flush_tenant(&tenant);
                        deleting.request = Some(Request { flush, is_committed: true, ..request });
                    }
                    Ok(()) => return self.answer_delete(&deleting, &request.begun),
                    Err(refusal) => self.note(refusal),
                }
            }
        }
        self.delete = Some(deleting);
        Ok(())
    }

    fn answer_delete(&self, deleting: &Deleting, begun: &Begun) -> Result<(), String> {
        let mut traffic = self.traffic.borrow_mut();
        let last = traffic.last_request();
        traffic.model.end_delete(begun, |key| deleting.selects(&self.fleet, key), last);
        drop(traffic);
        self.note("deleted");
        self.see_deleted()
    }

    fn see_deleted(&self) -> Result<(), String> {
        if self.power.is_off() {
            return Ok(());
        }
        let faults = self.quiet();
        let compared = self.traffic.borrow_mut().compare(self.node(), &self.fleet);
        self.store.set_faults(faults);
        compared
    }

    pub(super) fn end_delete(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if self.delete.is_none() {
                return Ok(());
            }
            self.delete()?;
            self.clock.next_step();
            self.clock.advance(1000);
            self.seal()?;
            self.turn_all()?;
        }
        Err("a delete is not answered, although no faults are injected".into())
    }

    pub(super) fn check_deleted(&self) -> Result<(), String> {
        if self.plan.weights.weight(crate::plan::Step::Delete) == 0 {
            return Ok(());
        }
        check::deleted(self.node(), &self.fleet, &self.traffic.borrow().model)
    }
}
