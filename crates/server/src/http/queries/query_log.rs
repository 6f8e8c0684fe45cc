//! Logs finished queries: slow queries in the server's log, and all queries in a file if one is configured.
//!
//! ```text
//!   query ends ─▶ Ending ─ slow? ─▶ server's log
//!                    └─ line ─▶ buffer ─▶ thread ─▶ file
//! ```
//!
//! A query never waits for the file. Lines that do not fit into the buffer are dropped and counted.

mod file;

use super::running_queries::RunningQuery;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::settings::Settings;
use file::LogFile;
use std::sync::Arc;
use std::time::Duration;
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};

#[derive(Debug)]
pub(crate) struct QueryLog {
    clock: Arc<dyn Clock>,
    /// A query of this duration or longer is also written to the server's log.
    slow: Option<Duration>,
    slow_queries: Counter,
    file: Option<LogFile>,
}

impl QueryLog {
    pub(crate) fn new(settings: &Settings, clock: Arc<dyn Clock>, r: &Registry) -> Self {
        let slow_queries =
            r.counter("floodmark_query_slow_total", "Queries that took at least as long as slow_query.");
        let lost = r.counter(
            "floodmark_query_log_lost_lines_total",
            "Lines left out of the query log because its disk was slow or failed.",
        );
        let file = settings.query_log.as_ref();
        let file = file.map(|path| LogFile::start(path.clone(), settings.query_log_bytes, lost));
        Self { clock, slow: settings.slow_query, slow_queries, file }
    }

    fn add(&self, query: &RunningQuery, outcome: &Outcome) {
        let took = self.clock.instant().saturating_duration_since(query.began);
        if !query.description.is_export() && self.slow.is_some_and(|slow| took >= slow) {
            self.slow_queries.inc();
            log_slow(query, took, outcome);
        }
        if let Some(file) = &self.file {
            file.append(&line(query, self.clock.now_ms(), took, outcome));
        }
    }
}

fn log_slow(query: &RunningQuery, took: Duration, outcome: &Outcome) {
    let description = &query.description;
    tracing::info!(
        tenant = %description.tenants,
        client = %description.peer.0,
        path = description.path,
        query = ?description.short_text(), // escaped, so that a line of the query cannot pass for a line of the log
        seconds = took.as_secs_f64(),
        waited_seconds = query.waited().as_secs_f64(),
        samples = query.usage.samples(),
        peak_memory_bytes = query.usage.peak_memory_bytes(),
        outcome = outcome.word,
        "slow query"
    );
}

/// Formats a query as a line of JSON for the log file. docs/reference/http.md describes the format.
fn line(query: &RunningQuery, now_ms: i64, took: Duration, outcome: &Outcome) -> Vec<u8> {
    let mut json = Json::new();
    let time =
        jiff::Timestamp::from_millisecond(now_ms).map_or_else(|_| String::new(), |time| time.to_string());
    for (begin, text) in [(r#"{"time":"#, time), (r#","id":"#, query.id.to_string())] {
        json.raw(begin);
        json.string(&text);
    }
    json.raw(",");
    query.description.write(&mut json);
    json.raw(r#","outcome":"#);
    json.string(outcome.word);
    if let Some(error) = &outcome.error {
        json.raw(r#","error":"#);
        json.string(error);
    }
    let (seconds, waited) = (took.as_secs_f64(), query.waited().as_secs_f64());
    let (samples, bytes) = (query.usage.samples(), query.usage.peak_memory_bytes());
    json.raw(&format!(
        ",\"seconds\":{seconds:.6},\"waited_seconds\":{waited:.6},\"samples\":{samples},\"peak_memory_bytes\":{bytes}}}\n"
    ));
    json.into_bytes()
}

#[derive(Debug)]
struct Outcome {
    /// `success`, `canceled`, or why the query failed.
    word: &'static str,
    error: Option<String>,
}

/// Dropping this logs the query. Unless [`Self::with`] was called, the request ended early, and the query
/// counts as canceled.
#[derive(Debug)]
pub(crate) struct Ending {
    log: Arc<QueryLog>,
    query: Arc<RunningQuery>,
    outcome: Outcome,
}

impl Ending {
    pub(crate) fn of(log: &Arc<QueryLog>, query: &Arc<RunningQuery>) -> Self {
        let outcome = Outcome { word: "canceled", error: None };
        Self { log: Arc::clone(log), query: Arc::clone(query), outcome }
    }

    pub(crate) fn with(mut self, error: Option<&ApiError>) {
        self.outcome = match error {
            None => Outcome { word: "success", error: None },
            Some(error) => Outcome { word: error.reason(), error: Some(error.to_string()) },
        };
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.log.add(&self.query, &self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::queries::description::Description;
    use crate::http::queries::running_queries::RunningQueries;
    use expect_test::expect;
    use stdx::clock::ManualClock;

    #[test]
    fn a_line_says_who_asked_what_and_how_it_ended() {
        let clock = Arc::new(ManualClock::at(1_795_284_000_000));
        let list = RunningQueries::new(Arc::clone(&clock) as _);
        let query = list.begin(Description::for_test());
        query.run(Duration::from_millis(250));
        query.usage.read(40);
        let check = |outcome: &Outcome, expected: expect_test::Expect| {
            let line = line(&query, clock.now_ms(), Duration::from_millis(1_500), outcome);
            expected.assert_eq(std::str::from_utf8(&line).unwrap());
        };
        check(
            &Outcome { word: "success", error: None },
            expect![[r#"
                {"time":"2026-11-21T18:00:00Z","id":"1a1ff43dd0000000","tenant":"anonymous","client":"0.0.0.0:0","path":"/api/v1/query","query":"up","start":1.500,"end":1.500,"outcome":"success","seconds":1.500000,"waited_seconds":0.250000,"samples":40,"peak_memory_bytes":0}
            "#]],
        );
        check(
            &Outcome { word: "timeout", error: Some("after\n2 s".into()) },
            expect![[r#"
                {"time":"2026-11-21T18:00:00Z","id":"1a1ff43dd0000000","tenant":"anonymous","client":"0.0.0.0:0","path":"/api/v1/query","query":"up","start":1.500,"end":1.500,"outcome":"timeout","error":"after\n2 s","seconds":1.500000,"waited_seconds":0.250000,"samples":40,"peak_memory_bytes":0}
            "#]],
        );
    }
}
