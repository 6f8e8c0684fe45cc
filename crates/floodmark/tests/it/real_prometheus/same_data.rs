//! Writes the same difficult data to Floodmark and to Prometheus by remote write, then compares their answers.

use super::compare;
use super::servers::Prometheus;
use crate::harness::read::{data, seconds};
use crate::harness::wire::{self, Series};
use crate::harness::{Reply, Request, Server, now_ms};
use model::STALE_NAN_BITS;
use serde_json::Value;
use std::collections::BTreeSet;
use stdx::rng::{Rng, mix};

const STEP_MS: i64 = 10_000;

const SAMPLES: i64 = 60;

/// Writes all series to both servers. Returns the time of the last sample.
pub(crate) fn write(server: &Server, prometheus: &Prometheus) -> i64 {
    let end_ms = now_ms() / 1000 * 1000 - 5_000;
    // Prometheus requires that samples arrive in the order of time
    let all = everything(end_ms);
    for part in 0..6 {
        let window = end_ms - (SAMPLES - part * 10) * STEP_MS..end_ms - (SAMPLES - part * 10 - 10) * STEP_MS;
        let share = |s: &Series| Series {
            samples: s.samples.iter().copied().filter(|(t, _)| window.contains(t)).collect(),
            ..s.clone()
        };
        let body = wire::v1(&all.iter().map(share).filter(|s| !s.samples.is_empty()).collect::<Vec<_>>());
        for reply in [server.send(&Request::write(&body)), prometheus.send(&Request::write(&body))] {
            assert!([200, 204].contains(&reply.status), "{} {}", reply.status, reply.text());
        }
    }
    end_ms
}

pub(crate) fn everything(end_ms: i64) -> Vec<Series> {
    let mut rng = Rng::new(7);
    let times = || (1..=SAMPLES).map(move |i| (i, end_ms - (SAMPLES - i) * STEP_MS - 1));
    let stale = f64::from_bits(STALE_NAN_BITS);
    let mut all = Vec::new();
    for (instance, zone) in [("a", "east"), ("b", "east"), ("c", "west"), ("d", "")] {
        let with = |name: &str| {
            Series::new(&[("__name__", name), ("instance", instance), ("job", "api"), ("zone", zone)])
        };
        // counters that are reset, and a counter that goes stale and comes back
        let mut total = 0.0;
        let resets = times().map(|(i, t)| {
            total = if i % 17 == 0 {
                f64::from(instance.as_bytes()[0])
            } else {
                total + (rng.below(1000) as f64) / 8.0
            };
            (t, total)
        });
        all.push(with("resets_total").samples(resets.collect::<Vec<_>>()));
        let gaps = times().filter(|(i, _)| !(20..30).contains(i));
        all.push(with("gaps").samples(gaps.map(|(i, t)| (t, if i == 19 { stale } else { (i * i) as f64 }))));
        // samples at irregular times, with values of very different magnitude
        let odd = times().map(|(i, t)| {
            let exponent = (i - 30) * 10;
            (t + (mix(i as u64) % 900) as i64, (i as f64 / 3.0) * 10f64.powi(exponent as i32))
        });
        all.push(with("odd").samples(odd));
        let special =
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324];
        all.push(with("special").samples(times().map(|(i, t)| (t, special[(i % 8) as usize]))));
        for (le, share) in [("0.1", 0.1), ("0.5", 0.35), ("1", 0.7), ("2.5", 0.9), ("+Inf", 1.0)] {
            let grow = times().map(|(i, t)| (t, (i as f64 * 13.0 * share).floor()));
            all.push(with("took_seconds_bucket").label("le", le).samples(grow));
        }
        all.push(with("took_seconds_count").samples(times().map(|(i, t)| (t, (i * 13) as f64))));
        all.push(with("took_seconds_sum").samples(times().map(|(i, t)| (t, i as f64 * 7.25))));
        let info = with("info").label("version", format!("v{}", instance.len()));
        all.push(info.samples(times().map(|(_, t)| (t, 1.0))));
    }
    for (code, text) in [("200", "ok"), ("404", "né\"w\\li\nne"), ("500", "日本")] {
        let series = Series::new(&[("__name__", "by_code"), ("code", code), ("text", text)]);
        all.push(series.samples(times().map(|(i, t)| (t, (mix(i as u64 ^ 99) % 100) as f64))));
    }
    let utf8 = Series::new(&[("__name__", "dotted.name"), ("a.b", "c d"), ("x", "1")]);
    all.push(utf8.samples(times().map(|(i, t)| (t, i as f64))));
    all
}

/// Uses every operator and every function at least once.
const QUERIES: &[&str] = &[
    "resets_total",
    "gaps",
    "odd",
    "special",
    "{\"dotted.name\"}",
    "{\"dotted.name\", \"a.b\"=~\"c.*\"}",
    "{__name__=~\".*_total|gaps\", instance!~\"a|b\"}",
    "resets_total{zone=\"\"}",
    "resets_total{zone!=\"\"}",
    "{zone!=\"\", job=\"api\", __name__=\"gaps\"}",
    "by_code{text=\"né\\\"w\\\\li\\nne\"}",
    "by_code{text='日本'}",
    "rate(resets_total[1m])",
    "rate(resets_total[95s])",
    "irate(resets_total[1m])",
    "increase(resets_total[5m])",
    "delta(gaps[2m])",
    "idelta(gaps[2m])",
    "deriv(odd[2m])",
    "predict_linear(gaps[3m], 600)",
    "resets(resets_total[5m])",
    "changes(special[2m])",
    "avg_over_time(gaps[90s])",
    "min_over_time(special[1m])",
    "max_over_time(special[1m])",
    "sum_over_time(special[1m])",
    "count_over_time(gaps[3m])",
    "quantile_over_time(0.3, gaps[3m])",
    "quantile_over_time(scalar(vector(0.5)), by_code[2m])",
    "stddev_over_time(by_code[2m])",
    "stdvar_over_time(by_code[2m])",
    "last_over_time(gaps[2m])",
    "present_over_time(gaps[30s])",
    "absent_over_time(gaps[30s])",
    "absent_over_time(gaps{instance=\"z\", zone=~\"q\"}[30s])",
    "mad_over_time(by_code[2m])",
    "absent(gaps{instance=\"z\"})",
    "absent(gaps)",
    "sum(by_code)",
    "sum by (zone) (resets_total)",
    "sum without (instance, zone) (resets_total)",
    "avg by (zone) (odd)",
    "min(special)",
    "max(special)",
    "count by (zone, job) (info)",
    "stddev by (job) (resets_total)",
    "stdvar(resets_total)",
    "group by (zone) (gaps)",
    "count_values(\"v\", by_code)",
    "count_values by (code) (\"v\", by_code)",
    "quantile(0.75, resets_total)",
    "quantile by (zone) (-1, resets_total)",
    "topk(2, resets_total)",
    "bottomk by (zone) (1, resets_total)",
    "topk(0, resets_total)",
    "topk(100, resets_total)",
    "histogram_quantile(0.5, took_seconds_bucket)",
    "histogram_quantile(0.95, sum by (le, zone) (rate(took_seconds_bucket[2m])))",
    "histogram_quantile(1.5, took_seconds_bucket)",
    "histogram_quantile(-0.5, took_seconds_bucket)",
    "histogram_quantile(NaN, took_seconds_bucket)",
    "rate(took_seconds_sum[2m]) / rate(took_seconds_count[2m])",
    "resets_total + 1",
    "1 - resets_total",
    "resets_total * resets_total",
    "resets_total / on (instance) group_left () info",
    "info * on (instance) group_right (version) resets_total",
    "resets_total * on (instance) group_left (version) info",
    "resets_total % 7",
    "-7 % 3",
    "2 ^ 3 ^ 2",
    "-2 ^ 2",
    "resets_total ^ 0.5",
    "resets_total atan2 gaps",
    "resets_total > 1000",
    "resets_total > bool 1000",
    "1000 < resets_total",
    "resets_total > gaps",
    "resets_total == on (instance) gaps",
    "special == special",
    "special != bool special",
    "resets_total and gaps",
    "resets_total and on (zone) by_code",
    "resets_total or gaps",
    "resets_total unless gaps",
    "resets_total unless on (instance) gaps{instance=\"a\"}",
    "sum(resets_total) / count(resets_total) - avg(resets_total)",
    "resets_total offset 1m",
    "resets_total offset -30s",
    "rate(resets_total[1m] offset 2m)",
    "resets_total @ start()",
    "resets_total @ end()",
    "sum_over_time(gaps[1m] @ end())",
    "max_over_time(rate(resets_total[1m])[5m:30s])",
    "avg_over_time(sum by (zone) (gaps)[3m:])",
    "sum_over_time(vector(1)[1m:10s])",
    "min_over_time((resets_total > 500)[2m:15s] offset 30s)",
    "abs(-resets_total)",
    "ceil(odd)",
    "floor(odd)",
    "round(resets_total)",
    "round(resets_total, 0.3)",
    "sgn(special)",
    "exp(by_code)",
    "ln(odd)",
    "log2(resets_total)",
    "log10(odd)",
    "sqrt(special)",
    "sin(by_code) + cos(by_code) + tan(by_code)",
    "asin(by_code / 100) + acos(by_code / 100) + atan(by_code)",
    "sinh(by_code / 50) + cosh(by_code / 50) + tanh(by_code)",
    "asinh(by_code) + acosh(by_code + 1) + atanh(by_code / 101)",
    "deg(by_code) - rad(by_code)",
    "pi()",
    "clamp(resets_total, 100, 1000)",
    "clamp(resets_total, 1000, 100)",
    "clamp_min(special, 0)",
    "clamp_max(special, 1)",
    "vector(time())",
    "scalar(by_code{code=\"200\"})",
    "scalar(by_code)",
    "timestamp(gaps)",
    "timestamp(gaps offset 1m)",
    "minute() + hour() * 60 + day_of_week() + day_of_month() + day_of_year() + days_in_month() + month() + year()",
    "day_of_week(vector(1e9))",
    "days_in_month(vector(1709164800))",
    "label_replace(info, \"v\", \"<$1>\", \"version\", \"v(.*)\")",
    "label_replace(info, \"version\", \"\", \"instance\", \"a\")",
    "label_replace(info, \"x\", \"$2$1\", \"job\", \"(.)(.*)\")",
    "label_join(info, \"both\", \"-\", \"job\", \"nothing\", \"instance\")",
    "sort(by_code)",
    "sort_desc(by_code)",
    "sort_by_label(info, \"instance\")",
    "sort_by_label_desc(info, \"instance\", \"zone\")",
    "double_exponential_smoothing(gaps[3m], 0.5, 0.4)",
    "sum by (instance) (rate(gaps[1m])) > on () group_left () vector(2)",
    "histogram_quantile(0.5, sum by (le) (by_code))",
    "histogram_quantile(0.5, label_replace(by_code, \"le\", \"$1\", \"code\", \"(.*)\"))",
    "rate(special[1m])",
    "quantile(2, by_code)",
    "sum(rate(resets_total[1m])) by (zone) > 0.5 or vector(0)",
    "(resets_total > 500) * 2",
    "sum(special)",
    "avg(special)",
    "NaN",
    "Inf + -Inf",
    "1e-7",
    "vector(1e-7) * 1e-200",
    "vector(1.5e300)",
    "-2e22",
    "0x1F",
    "\"a string\"",
    "5m",
    "1 / 0",
    "vector(0) / 0",
    "bool_of_nothing",
    "sum(nothing)",
    "rate(nothing[5m])",
    "by_code * 0 == 0",
    "gaps[2m]",
    "special[1m]",
    "{\"dotted.name\"}[45s]",
    "rate(resets_total[1m])[2m:20s]",
    "resets_total[1m] offset 1m",
    "resets_total[0s:1s]",
];

/// Sends every query as an instant query and as a range query. Returns how many were sent, and how the
/// answers differ.
pub(crate) fn ask(server: &Server, prometheus: &Prometheus, end_ms: i64) -> (usize, Vec<String>) {
    let start_ms = end_ms - SAMPLES * STEP_MS;
    let (mut asked, mut crashed) = (0, 0);
    let mut wrong = Vec::new();
    let mut both = |path: &str, params: &[(&str, &str)]| {
        let request = Request::form(path, params);
        let (ours, theirs) = (server.send(&request), prometheus.send(&request));
        asked += 1;
        if theirs.status == 422 && theirs.text().contains("unexpected error: runtime error") {
            // a query on which Prometheus panics cannot be compared
            crashed += 1;
            eprintln!("Prometheus crashed on {path} {params:?}: {}", theirs.text());
            assert_eq!(ours.status, 200, "{path} {params:?}: {}", ours.text());
            return;
        }
        let same = match theirs.status {
            200 if ours.status == 200 => {
                compare::same(&data(&ours), &data(&theirs)).and_then(|()| same_annotations(&ours, &theirs))
            }
            _ => match ours.status == theirs.status {
                true => Ok(()),
                false => Err(format!(
                    "{} {}\n    is not {} {}",
                    ours.status,
                    ours.text(),
                    theirs.status,
                    theirs.text()
                )),
            },
        };
        if let Err(why) = same {
            wrong.push(format!("{path} {params:?}\n    {why}"));
        }
    };
    // the times are at a sample, between two samples, in a gap, and after all series went stale
    let middle = start_ms + 25 * STEP_MS;
    for query in QUERIES {
        for at in [end_ms, end_ms - 1, end_ms - 4_321, middle, end_ms + 299_999, end_ms + 300_000] {
            both("/api/v1/query", &[("query", query), ("time", &seconds(at))]);
        }
        for (from, to, step) in [
            (start_ms, end_ms, "10s"),
            (start_ms - 60_000, end_ms + 60_000, "37s"),
            (middle, middle + 20_000, "0.5"),
        ] {
            both(
                "/api/v1/query_range",
                &[("query", query), ("start", &seconds(from)), ("end", &seconds(to)), ("step", step)],
            );
        }
    }
    assert!(crashed * 50 < asked, "Prometheus crashed on {crashed} of {asked} queries");
    (asked, wrong)
}

/// Reduces an annotation to the part that must be equal, without the metric's name and the position in the
/// query. Returns `None` for an annotation that Prometheus 3.5 does not have yet.
fn plain(text: &Value) -> Option<String> {
    let text = text.as_str()?;
    let end = [" (", " for metric name"].iter().filter_map(|t| text.find(t)).min().unwrap_or(text.len());
    (!text.contains("sort is ineffective")).then(|| text[..end].into())
}

fn same_annotations(ours: &Reply, theirs: &Reply) -> Result<(), String> {
    for kind in ["warnings", "infos"] {
        let of = |reply: &Reply| {
            let json = reply.json();
            let texts = json[kind].as_array().cloned().unwrap_or_default();
            texts.iter().filter_map(plain).collect::<BTreeSet<_>>()
        };
        if of(ours) != of(theirs) {
            return Err(format!("{kind} {:?} are not {:?}", of(ours), of(theirs)));
        }
    }
    Ok(())
}
