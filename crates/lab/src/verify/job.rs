//! The queries of a verification, and what is done if the target refuses one or if its answer lacks samples.
//!
//! ```text
//!   query ─▶ refused, too slow or too large ─▶ its parts
//!         └▶ answered ─▶ no sample lost ─▶ counted
//!                     └▶ lost after the patience ─▶ its parts; counted if it has none, or after many divisions in vain
//! ```

use super::check::Checker;
use super::promql::{self, Unanswered};
use super::queries::{Queries, Query};
use super::{Answers, PAGE_MAX, VerifyOptions, VerifyReport, render};
use crate::http::Client;
use crate::scenario::ReadApi;
use crate::show::progress::{Phase, Progress};
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Job {
    options: VerifyOptions,
    ledger: Ledger,
    queries: Queries,
    next: AtomicU64,
    /// How often queries must be split before the target answers, as far as is known. Later queries are split at once.
    splits: AtomicU32,
    /// Number of splits in vain: the answer to a query lacked samples, and those to its parts lacked at least as many.
    in_vain: AtomicU32,
    /// Number of splits in vain of queries whose answers, as the target said, may not be complete.
    in_vain_incomplete: AtomicU32,
    path: String,
    patient_until: Instant,
    report: Mutex<VerifyReport>,
}

const LATE_PAUSE: Duration = Duration::from_millis(200);

/// Later queries are split at once at most this often, so that a target that was short of memory for a while is not
/// asked for single series from then on.
const SPLITS_AT_ONCE_MAX: u32 = 6;

/// Queries whose answers lack samples are split in vain at most this often, so that it takes few queries to find out that
/// a target has lost a lot.
const IN_VAIN_MAX: u32 = 64;

/// The same for answers of which the target says that they may not be complete.
const IN_VAIN_INCOMPLETE_MAX: u32 = 10_000;

/// What a task keeps from one query to the next.
struct Reader {
    client: Client,
    checker: Checker,
    /// How many of the latest queries in a row were not answered in time.
    too_slow: u32,
}

/// A query, and what its answer has shown if it was asked.
struct Open {
    query: Query,
    /// How often a query was split to get this one.
    splits: u32,
    found: Option<VerifyReport>,
}

/// If this many queries in a row were not answered in time, the target is gone. The last of them is for at most a 32nd
/// of the samples of the first.
const TOO_SLOW_MAX: u32 = 6;

/// Added to the error of the last of these queries.
const NO_TIME: &str = "the target answers no query in time, although the lab has asked for less and less";

/// Added to the error if the target refuses a query that cannot be split again.
const NO_ROOM: &str =
    "the target refuses even the smallest query that the lab can ask, of one name and one interval";

impl Job {
    /// `path` is that of queries, and `patient_until` says until when missing samples may still appear.
    pub(super) fn new(
        options: &VerifyOptions,
        ledger: &Ledger,
        path: String,
        patient_until: Instant,
    ) -> Self {
        let page = options.page_samples.min(PAGE_MAX);
        Self {
            options: options.clone(),
            ledger: ledger.clone(),
            queries: Queries::new(&ledger.plan, ledger.rounds(), page, options.step_ms),
            next: AtomicU64::new(0),
            splits: AtomicU32::new(0),
            in_vain: AtomicU32::new(0),
            in_vain_incomplete: AtomicU32::new(0),
            path,
            patient_until,
            report: Mutex::default(),
        }
    }

    pub(super) fn take_report(&self) -> VerifyReport {
        std::mem::take(&mut *self.lock())
    }

    /// Fails if the slots of `/render` are not as far apart as expected. The answers to short queries cannot show that.
    pub(super) async fn check_step(&self, client: &mut Client) -> Result<()> {
        if self.options.read_api == ReadApi::Render {
            let form = render::step_query(&self.ledger.plan, self.ledger.rounds());
            let body = match promql::ask(client, &self.path, &form).await {
                Ok(body) => body,
                Err(Unanswered::Failed(why) | Unanswered::TooMuch { why, .. }) => return Err(why),
            };
            render::parse(&body, self.options.step_ms)?;
        }
        Ok(())
    }

    pub(super) async fn work(&self, client: Client) -> Result<()> {
        let mut reader = Reader { client, checker: Checker::new(), too_slow: 0 };
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(query) = self.queries.get(&self.ledger.plan, number) else { return Ok(()) };
            if query.metrics.is_empty() {
                continue;
            }
            let mut open = vec![Open { query, splits: 0, found: None }];
            while let Some(next) = open.pop() {
                open.extend(self.answer(&mut reader, next).await?);
            }
        }
    }

    /// Asks a query and counts what its answer shows, or returns its parts.
    async fn answer(&self, reader: &mut Reader, open: Open) -> Result<Vec<Open>> {
        let Open { query, splits, found } = open;
        if found.is_none() && splits < self.splits.load(Ordering::Relaxed) {
            let parts = self.parts(&query, splits);
            if !parts.is_empty() {
                return Ok(parts);
            }
        }
        let found = match found {
            Some(found) => found,
            None => match self.settle(reader, &query).await {
                Ok(found) => found,
                Err(Unanswered::Failed(why)) => return Err(why),
                Err(Unanswered::TooMuch { why, is_slow }) => {
                    reader.too_slow = if is_slow { reader.too_slow + 1 } else { 0 };
                    let parts = self.parts(&query, splits);
                    return match reader.too_slow < TOO_SLOW_MAX {
                        false => Err(why.context(NO_TIME)),
                        true if parts.is_empty() => Err(why.context(NO_ROOM)),
                        true => {
                            self.split_at_once(splits + 1);
                            Ok(parts)
                        }
                    };
                }
            },
        };
        reader.too_slow = 0;
        let parts = if self.may_be_cut_short(&found) { self.parts(&query, splits) } else { Vec::new() };
        if parts.is_empty() {
            self.lock().join(&found, self.options.examples_max);
            return Ok(parts);
        }
        self.ask_for_parts(reader, &found, parts).await
    }

    /// Parts of a query, of which the first comes last. Empty if it cannot be split.
    fn parts(&self, query: &Query, splits: u32) -> Vec<Open> {
        let parts = query.split(&self.ledger.plan).into_iter().rev();
        parts.map(|query| Open { query, splits: splits + 1, found: None }).collect()
    }

    /// Later queries are split at least this often before they are asked.
    fn split_at_once(&self, splits: u32) {
        self.splits.fetch_max(splits.min(SPLITS_AT_ONCE_MAX), Ordering::Relaxed);
    }

    /// True if queries for less may return samples that this answer lacks. Some servers cut an answer short without
    /// saying so.
    fn may_be_cut_short(&self, found: &VerifyReport) -> bool {
        let (in_vain, most) = self.in_vain(found);
        found.lost > 0 && in_vain.load(Ordering::Relaxed) < most
    }

    fn in_vain(&self, found: &VerifyReport) -> (&AtomicU32, u32) {
        match found.incomplete {
            0 => (&self.in_vain, IN_VAIN_MAX),
            _ => (&self.in_vain_incomplete, IN_VAIN_INCOMPLETE_MAX),
        }
    }

    /// Asks for the parts of a query whose answer lacked samples. A part that the target refuses is left open.
    async fn ask_for_parts(
        &self,
        reader: &mut Reader,
        whole: &VerifyReport,
        mut parts: Vec<Open>,
    ) -> Result<Vec<Open>> {
        let mut lost = 0;
        for part in &mut parts {
            match self.ask(reader, &part.query).await {
                Ok(found) => {
                    lost += found.lost;
                    part.found = Some(found);
                }
                Err(Unanswered::TooMuch { .. }) => {}
                Err(Unanswered::Failed(why)) => return Err(why),
            }
        }
        let is_asked = parts.iter().all(|part| part.found.is_some());
        if is_asked && lost >= whole.lost {
            self.in_vain(whole).0.fetch_add(1, Ordering::Relaxed);
        }
        if is_asked && lost < whole.lost {
            self.split_at_once(parts[0].splits);
        }
        let mut report = self.lock();
        if is_asked {
            report.cut_short += whole.lost.saturating_sub(lost);
        }
        report.incomplete += whole.incomplete;
        report.said = report.said.take().or_else(|| whole.said.clone());
        drop(report);
        Ok(parts)
    }

    /// Repeats a query until it returns all its samples or the time for late samples is over.
    async fn settle(&self, reader: &mut Reader, query: &Query) -> Result<VerifyReport, Unanswered> {
        let mut found = self.ask(reader, query).await?;
        let lost_at_first = found.lost;
        while found.lost > 0 && Instant::now() < self.patient_until {
            tokio::time::sleep(LATE_PAUSE).await;
            found = self.ask(reader, query).await?;
        }
        self.lock().late += lost_at_first.saturating_sub(found.lost);
        Ok(found)
    }

    async fn ask(&self, reader: &mut Reader, query: &Query) -> Result<VerifyReport, Unanswered> {
        self.lock().queries += 1;
        let plan = &self.ledger.plan;
        let form = match self.options.read_api {
            ReadApi::Promql => promql::query(plan, query),
            ReadApi::Render => render::query(plan, query),
        };
        let body = promql::ask(&mut reader.client, &self.path, &form).await?;
        let answers = Answers { api: self.options.read_api, step_ms: self.options.step_ms };
        let about = || format!("the answer to {form:.160}");
        let series = answers.parse(&body).with_context(about).map_err(Unanswered::Failed)?;
        let mut found = reader.checker.check(&self.ledger, query, &series, &self.options);
        if found.lost > 0 && self.options.read_api == ReadApi::Promql {
            found.said = promql::doubt(&body);
            found.incomplete = u64::from(found.said.is_some());
        }
        Ok(found)
    }

    pub(super) fn progress(&self, begin: Instant) -> Progress {
        let report = self.lock();
        let elapsed = begin.elapsed();
        Progress {
            phase: Phase::Verifying,
            part: self.next.load(Ordering::Relaxed) as f64 / self.queries.len().max(1) as f64,
            elapsed,
            samples: report.read_back,
            samples_per_s: report.read_back as f64 / elapsed.as_secs_f64().max(1e-3),
            p99_s: None,
            refused: report.faults(),
            broken: 0,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VerifyReport> {
        self.report.lock().expect("BUG: a reader panicked while counting")
    }
}
