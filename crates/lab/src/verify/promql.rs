//! Queries raw samples through PromQL, by an instant query for a range vector such as `up[5m]`.
//!
//! Every target with Prometheus' query API can answer such queries. They return values as the shortest decimals that
//! parse to the same bits.

use super::queries::Query;
use crate::generate::plan::Plan;
use crate::http::{Answer, Client, Failure, percent};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// If the target does not answer, a query is retried for this time, because the target may be restarting.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// If the target lacks memory for a query, it is retried for this time, and then split.
const ASK_FOR_LESS: Duration = Duration::from_secs(5);

const QUERY_SHOWN: usize = 160;

#[derive(Debug)]
pub(super) enum Unanswered {
    /// The answer is too large, or the target lacks memory for it. A part of the query may succeed. If `is_slow` is true,
    /// there was no answer in time, so that the target may also be gone.
    TooMuch { why: anyhow::Error, is_slow: bool },
    /// The target does not answer, or fails on this query.
    Failed(anyhow::Error),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Series<'a> {
    /// All labels including the metric name, sorted by their names.
    #[serde(borrow)]
    pub(crate) metric: BTreeMap<Text<'a>, Text<'a>>,
    /// Timestamps in seconds since 1970, and values as text.
    #[serde(borrow, default)]
    pub(crate) values: Vec<(f64, &'a str)>,
}

/// A JSON string. It is borrowed from the answer unless it contains escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(borrow, default)]
    error: Option<Text<'a>>,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(borrow)]
    result_type: Text<'a>,
    #[serde(borrow)]
    result: Vec<Series<'a>>,
}

/// Formats a query for all samples of `asked` as an HTML form. The field `nocache` makes VictoriaMetrics bypass its
/// cache.
pub(super) fn query(plan: &Plan, asked: &Query) -> String {
    let (first_ms, last_ms) = asked.times(plan);
    // Prometheus 3.0 excludes the left end of a range; older versions include it, and the checker ignores the
    // additional samples
    let query = format!("{}[{}ms]", asked.selector(plan), last_ms - first_ms + 1);
    let time = format!("{}.{:03}", last_ms / 1000, last_ms % 1000);
    format!("query={}&time={time}&nocache=1", percent(&query))
}

/// Queries are sent as forms, because they can be too long for a URL.
pub(super) const QUERY_TYPE: &str = "application/x-www-form-urlencoded";

/// Sends a query to `path`, and retries it while the target is unavailable.
pub(super) async fn ask(client: &mut Client, path: &str, query: &str) -> Result<Bytes, Unanswered> {
    let shown: String = query.chars().take(QUERY_SHOWN).collect();
    let ellipsis = if shown.len() < query.len() { "…" } else { "" };
    let error = |said: String| anyhow!("POST {path} {shown}{ellipsis}: {said}");
    let too_much = |why, is_slow| Unanswered::TooMuch { why, is_slow };
    let body = Bytes::copy_from_slice(query.as_bytes());
    let begin = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        let answer = client.send(Method::POST, path, body.clone()).await;
        let waited = begin.elapsed() + pause;
        match answer {
            Ok(answer) if answer.status.is_success() => return Ok(answer.body),
            Ok(answer) => {
                let said = error(format!("{} {}", answer.status, answer.text()));
                match answer.status {
                    StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                        return Err(too_much(said, false));
                    }
                    _ if is_final(&answer) => return Err(Unanswered::Failed(said)),
                    _ if waited >= ASK_FOR_LESS => return Err(too_much(said, false)),
                    _ => {}
                }
            }
            Err(failure @ Failure::TooLarge(_)) => {
                return Err(too_much(error(failure.to_string()), false));
            }
            Err(failure @ Failure::Timeout(_)) => {
                return Err(too_much(error(failure.to_string()), true));
            }
            Err(failure) if waited >= ASK_AGAIN => {
                return Err(Unanswered::Failed(error(failure.to_string())));
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

fn is_final(answer: &Answer) -> bool {
    answer.status.is_client_error() && answer.status != StatusCode::TOO_MANY_REQUESTS
}

pub(crate) fn parse(body: &[u8]) -> Result<Vec<Series<'_>>> {
    let reply: Reply<'_> = serde_json::from_slice(body).context("cannot parse the answer as JSON")?;
    if reply.status.0 != "success" {
        bail!(
            "status {:?}: {}",
            reply.status.0,
            reply.error.map_or(Cow::Borrowed("no reason given"), |e| e.0)
        );
    }
    let data = reply.data.context("the answer has no data")?;
    ensure!(data.result_type.0 == "matrix", "the answer is a {}, not a matrix", data.result_type.0);
    Ok(data.result)
}

/// The parts of an answer that say that it may not be complete. Prometheus and its relatives have warnings,
/// VictoriaMetrics has `isPartial`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Doubts<'a> {
    #[serde(borrow, default)]
    warnings: Vec<Text<'a>>,
    #[serde(default)]
    is_partial: bool,
}

const DOUBT_BYTES_MAX: usize = 300;

/// What an answer itself says about samples that it may lack.
pub(super) fn doubt(body: &[u8]) -> Option<String> {
    let doubts: Doubts<'_> = serde_json::from_slice(body).ok()?;
    let partial = doubts.is_partial.then(|| "isPartial".to_owned());
    let first = doubts.warnings.into_iter().next().map(|warning| warning.0.into_owned());
    partial.or(first).map(|said| said.chars().take(DOUBT_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;
    use crate::verify::queries::Queries;

    #[test]
    fn a_query_selects_exactly_its_series_and_time() {
        let plan = Plan { fleet: crate::generate::fleet::Fleet::default(), ..small() };
        let asked = Queries::new(&plan, 4, 1_000, 1).get(&plan, 0).unwrap();
        assert_eq!(
            query(&plan, &asked),
            "query=%7B__name__%3D~%22metric_0%7Cmetric_1%7Cmetric_2%7Cmetric_3%7Cmetric_4%22%7D%5B60000ms%5D\
             &time=1795284059.999&nocache=1"
        );
        let asked = Queries::new(&plan, 4, 21 * 4, 1).get(&plan, 3).unwrap();
        assert_eq!(query(&plan, &asked), "query=metric_3%5B60000ms%5D&time=1795284059.999&nocache=1");
    }

    #[test]
    fn answers_say_that_they_are_not_complete() {
        let said = |rest: &str| {
            let answer =
                format!(r#"{{"status":"success",{rest}"data":{{"resultType":"matrix","result":[]}}}}"#);
            assert!(parse(answer.as_bytes()).unwrap().is_empty());
            doubt(answer.as_bytes())
        };
        assert_eq!(said(""), None);
        assert_eq!(said(r#""isPartial":false,"warnings":[],"infos":["i"],"#), None);
        assert_eq!(said(r#""isPartial":true,"#).as_deref(), Some("isPartial"));
        assert_eq!(said(r#""warnings":["a \"b\"","c"],"#).as_deref(), Some("a \"b\""));
    }

    #[test]
    fn reads_answers() {
        let text = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"__name__":"up","a":"x\"y"},"values":[[1.5,"0.1"],[2,"+Inf"]]},
            {"metric":{},"histograms":[]}]}}"#;
        let series = parse(text.as_bytes()).unwrap();
        assert_eq!(series[0].metric[&Text("a".into())].0, "x\"y");
        assert_eq!(series[0].values, [(1.5, "0.1"), (2.0, "+Inf")]);
        assert!(series[1].values.is_empty());
        for bad in [
            "",
            "{}",
            r#"{"status":"error","error":"too many samples"}"#,
            r#"{"status":"success"}"#,
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
