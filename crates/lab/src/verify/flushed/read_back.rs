//! Reads back the values owed by a target that stores them at times of its own.

use super::reader::Reader;
use super::{Flushed, Value, place, value_of};
use crate::http::{Client, Endpoint, headers};
use crate::show::progress::{Observer, Phase, Progress};
use crate::verify::check::{Example, Fault, Found, name_of};
use crate::verify::ledger::Ledger;
use crate::verify::queries::Query;
use crate::verify::{VerifyOptions, VerifyReport};
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Missing values are asked for again after this pause, as long as the patience lasts.
const LATE_PAUSE: Duration = Duration::from_millis(200);

/// Reads back all values that the target owes.
pub(in crate::verify) async fn verify(
    options: &VerifyOptions,
    ledger: &Ledger,
    flushed: &Flushed,
    observer: &dyn Observer,
) -> Result<VerifyReport> {
    let begin = Instant::now();
    let endpoint = Endpoint::resolve(&options.read_url, &options.access).await?;
    let path = endpoint.path().trim_end_matches('/').to_owned();
    let client = Client::new(endpoint, headers(&options.headers)?, options.timeout)
        .with_answers_of(options.answer_bytes_max);
    let plan = &ledger.plan;
    let mut reader = Reader::new(client, &path, plan, options.page_samples);
    let times = flushed.times();
    let mut report = VerifyReport {
        acknowledged: flushed.owed(),
        wrong: flushed.wrong,
        stale: flushed.stale,
        early: flushed.early,
        early_s: flushed.early_ms as f64 / 1e3,
        expected: flushed.expected,
        unknown: flushed.unknown,
        absent: flushed.absent,
        unnoted: flushed.unnoted,
        intervals: times.len() as u64,
        interval_s: interval_s(&times),
        looks: flushed.looks,
        looks_failed: flushed.looks_failed,
        look_error: flushed.look_error.clone(),
        ..VerifyReport::default()
    };
    for number in 0..reader.queries.len() {
        let Some(query) = reader.queries.get(plan, number) else { continue };
        let series = query.targets.len(plan) * query.metrics.len() as u64;
        let step = (options.page_samples / series.max(1)).max(1) as usize;
        for times in times.chunks(step) {
            let page = Page { ledger, flushed, query: &query, times, options };
            let mut found = page
                .read(&mut reader)
                .await
                .with_context(|| format!("cannot read back from {}", options.read_url))?;
            let lost_at_first = found.lost;
            while found.lost > 0 && begin.elapsed() < options.patience {
                tokio::time::sleep(LATE_PAUSE).await;
                found = page.read(&mut reader).await?;
            }
            report.late += lost_at_first.saturating_sub(found.lost);
            report.join(&found, options.examples_max);
        }
        observer.progress(&Progress {
            phase: Phase::Verifying,
            part: (number + 1) as f64 / reader.queries.len() as f64,
            elapsed: begin.elapsed(),
            samples: report.read_back,
            samples_per_s: report.read_back as f64 / begin.elapsed().as_secs_f64().max(1e-3),
            p99_s: None,
            refused: report.faults(),
            broken: 0,
        });
    }
    (report.queries, report.foreign_series) = (reader.asked, reader.foreign_series());
    report.wall_s = begin.elapsed().as_secs_f64();
    let checked = report.read_back + report.lost;
    assert_eq!(report.acknowledged, checked, "BUG: some owed values were never queried");
    Ok(report)
}

/// Mean distance of the times. 0 if there are fewer than two.
fn interval_s(times: &[i64]) -> f64 {
    match times {
        [first, .., last] => (last - first) as f64 / 1e3 / (times.len() - 1) as f64,
        _ => 0.0,
    }
}

/// Some series at some times.
struct Page<'a> {
    ledger: &'a Ledger,
    flushed: &'a Flushed,
    query: &'a Query,
    times: &'a [i64],
    options: &'a VerifyOptions,
}

impl Page<'_> {
    async fn read(&self, reader: &mut Reader) -> Result<VerifyReport> {
        let plan = &self.ledger.plan;
        let (Some(first_ms), Some(last_ms)) = (self.times.first(), self.times.last()) else {
            return Ok(VerifyReport::default());
        };
        let values = reader.read(plan, self.query.clone(), (*first_ms, *last_ms)).await?;
        let (mut report, mut seen) = (VerifyReport::default(), HashSet::new());
        for value in &values {
            if seen.insert((value.slot, value.index, value.at_ms)) {
                self.compare(*value, &mut report);
            } else {
                report.doubled += 1;
                let about = (Fault::Doubled, (value.slot, value.index), value.at_ms);
                self.example(&mut report, about, None, Some(value.value));
            }
        }
        for target in self.query.targets.iter(plan) {
            for metric in self.query.metrics.clone() {
                let place = place(plan, target, metric).expect("BUG: a target of the plan has a slot");
                for at_ms in self.times {
                    if let Some(round) = self.flushed.round_of(place, *at_ms)
                        && !seen.contains(&(place.0, place.1, *at_ms))
                    {
                        report.lost += 1;
                        let sent = self.value_of(place, round);
                        self.example(&mut report, (Fault::Lost, place, *at_ms), Some(sent), None);
                    }
                }
            }
        }
        Ok(report)
    }

    fn compare(&self, found: Value, report: &mut VerifyReport) {
        let place = (found.slot, found.index);
        let Some(round) = self.flushed.round_of(place, found.at_ms) else {
            // stored after the last query during the load, or wrong and counted then
            report.unacknowledged += 1;
            return;
        };
        report.read_back += 1;
        let sent = self.value_of(place, round);
        if sent.to_bits() == found.value.to_bits() {
            return;
        }
        if (found.value - sent).abs() <= sent.abs() * self.options.tolerance {
            report.rounded += 1;
        } else {
            report.wrong += 1;
            let about = (Fault::Wrong, place, found.at_ms);
            self.example(report, about, Some(sent), Some(found.value));
        }
    }

    fn value_of(&self, (slot, index): (usize, u32), round: u32) -> f64 {
        value_of(&self.ledger.plan, slot, index, round)
    }

    fn example(
        &self,
        report: &mut VerifyReport,
        (fault, (slot, index), timestamp_ms): (Fault, (usize, u32), i64),
        sent: Option<f64>,
        found: Option<f64>,
    ) {
        let alike = report.examples.iter().filter(|example| example.fault == fault).count();
        if alike < self.options.examples_max {
            let plan = &self.ledger.plan;
            let (target, metric) = plan.series_at(plan.slot(slot), index);
            let series = name_of(plan, Found { target, generation: 0, metric }, 0);
            report.examples.push(Example { fault, series, timestamp_ms, sent, found });
        }
    }
}
