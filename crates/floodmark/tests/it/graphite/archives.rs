//! Series of which earlier values are in coarser archives, compared with graphite-web over Whisper files.

use super::graphite_web::GraphiteWeb;
use super::lines;
use crate::harness::http::encoded;
use crate::harness::{Options, Request, Server};
use serde_json::{Value, json};
use stdx::rng::Rng;

/// 2026-01-05 00:00:00 UTC.
const DAY_S: i64 = 1_767_571_200;

/// Values before the clock, in seconds.
const PAST_S: i64 = 3 * 86_400;

const REQUESTS: usize = 150;

/// Names of schemas, and their archives: steps in seconds, and numbers of slots.
const SCHEMAS: &[(&str, &[(i64, i64)])] = &[
    ("fine", &[(60, 120), (300, 288), (3600, 240)]),
    ("flat", &[(60, 60 * 24 * 9)]),
    ("half", &[(30, 240), (600, 200), (3600, 240)]),
];

/// Names of metrics, and how their values are aggregated: method and xFilesFactor.
const METRICS: &[(&str, &str, f64)] =
    &[("avg", "average", 0.0), ("sum", "sum", 0.5), ("max", "max", 0.3), ("last", "last", 0.0)];

/// Functions of other times and of coarser steps, and functions inside of others.
const TARGETS: &[&str] = &[
    "web.*.*",
    "web.fine.{avg,max}",
    "movingAverage(web.fine.*,'10min')",
    "movingAverage(web.half.avg,10)",
    "movingMedian(web.fine.max,'1h')",
    "movingSum(web.half.sum,'30min')",
    "movingWindow(web.fine.avg,'2h','max',0.5)",
    "movingAverage(timeShift(web.fine.avg,'1h'),'10min')",
    "timeShift(web.fine.avg,'1h')",
    "timeShift(web.half.*,'1d')",
    "timeShift(web.half.max,'90min',false)",
    "timeStack(web.fine.avg,'6h',0,3)",
    "holtWintersForecast(web.fine.avg,'1d','6h')",
    "exponentialMovingAverage(web.half.avg,7)",
    "linearRegression(web.fine.avg)",
    "summarize(web.fine.sum,'1h','sum')",
    "summarize(web.half.max,'7min','max',true)",
    "smartSummarize(web.fine.avg,'1h','avg')",
    "hitcount(web.half.avg,'1h')",
    "integralByInterval(web.fine.sum,'1h')",
    "sumSeries(web.fine.*)",
    "sumSeries(asPercent(web.flat.*,100))",
    "scale(asPercent(web.fine.*),0.01)",
    "aliasByNode(asPercent(web.half.*,sumSeries(web.half.*)),1,2)",
    "absolute(stdev(web.flat.avg,5))",
    "sortByName(useSeriesAbove(web.flat.*,0,'avg','max'))",
    "scale(applyByNode(web.flat.*,1,'sumSeries(%.avg)'),2)",
    "diffSeries(web.fine.avg,timeShift(web.fine.avg,'2h'))",
    "divideSeries(web.fine.avg,web.fine.max)",
    "nonNegativeDerivative(web.half.sum)",
    "perSecond(web.fine.max)",
    "keepLastValue(web.half.sum)",
    "highestMax(web.*.*,3)",
    "consolidateBy(web.fine.avg,'max')",
    "aggregateLine(web.fine.avg,'max')",
    "delay(web.half.avg,3)",
];

fn rules_files(dir: &std::path::Path) -> [std::path::PathBuf; 2] {
    let schema = |(name, archives): &(&str, &[(i64, i64)])| {
        let archives: Vec<_> = archives.iter().map(|(step_s, slots)| format!("{step_s}:{slots}")).collect();
        format!("[{name}]\npattern = \\.{name}\\.\nretentions = {}\n", archives.join(","))
    };
    let aggregation = |(name, method, x_files_factor): &(&str, &str, f64)| {
        format!(
            "[{name}]\npattern = \\.{name}$\naggregationMethod = {method}\nxFilesFactor = {x_files_factor}\n"
        )
    };
    let texts: [String; 2] =
        [SCHEMAS.iter().map(schema).collect(), METRICS.iter().map(aggregation).collect()];
    let files = [dir.join("storage-schemas.conf"), dir.join("storage-aggregation.conf")];
    files.iter().zip(texts).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    files
}

/// Series with few gaps, in the two servers.
fn written(rng: &mut Rng, graphite_web: &mut GraphiteWeb, now_s: i64, server: &Server) {
    let mut series = Vec::new();
    for (schema, archives) in SCHEMAS {
        for (metric, method, x_files_factor) in METRICS {
            let (name, step_s) = (format!("web.{schema}.{metric}"), archives[0].0);
            let start_s = (now_s - PAST_S) / 3600 * 3600;
            let (level, gaps) = (50.0 * rng.unit(), if rng.below(3) == 0 { 20 } else { u64::MAX });
            let mut value = |time_s: i64| {
                let swing = 20.0 * (time_s as f64 / 7000.0).sin();
                (rng.below(gaps) != 0).then(|| level + swing + 5.0 * rng.unit())
            };
            let mut values: Vec<_> = (start_s..=now_s).step_by(step_s as usize).map(&mut value).collect();
            *values.last_mut().unwrap() = Some(1.0);
            let points = values.iter().enumerate().filter_map(|(i, value)| Some((i as i64, (*value)?)));
            let text: String =
                points.map(|(i, value)| format!("{name} {value} {}\n", start_s + i * step_s)).collect();
            server.send(&lines(&text)).expect(204, &[]);
            series.push(json!({
                "name": name, "step": step_s, "start": start_s, "values": values, "archives": archives, "method": method,
                "xFilesFactor": x_files_factor,
            }));
        }
    }
    graphite_web.load_objects(&series);
}

/// Why two answers differ.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    let [ours, theirs] = [ours, theirs].map(|answer| answer.as_array().expect("a list of series"));
    let names = |all: &[Value]| all.iter().map(|series| series["target"].to_string()).collect::<Vec<_>>();
    if names(ours) != names(theirs) {
        return Some(format!("names: {:?}, {:?}", names(ours), names(theirs)));
    }
    for (our, their) in ours.iter().zip(theirs) {
        if our["tags"] != their["tags"] {
            return Some(format!("tags: {}, {}", our["tags"], their["tags"]));
        }
        let [our_points, their_points] =
            [our, their].map(|series| series["datapoints"].as_array().expect("a list of points"));
        if our_points.len() != their_points.len() {
            return Some(format!("{}: {}, {} points", our["target"], our_points.len(), their_points.len()));
        }
        let mut pairs = our_points.iter().zip(their_points);
        let is_same = |(our, their): &(&Value, &Value)| {
            let is_close = match (our[0].as_f64(), their[0].as_f64()) {
                (Some(our), Some(their)) => (our - their).abs() <= 1e-9 * our.abs().max(their.abs()) + 1e-11,
                (our, their) => our.is_none() && their.is_none(),
            };
            is_close && our[1] == their[1]
        };
        if let Some((ours, theirs)) = pairs.find(|pair| !is_same(pair)) {
            return Some(format!("{}: {ours}, {theirs}", our["target"]));
        }
    }
    None
}

#[test]
fn earlier_values_come_from_coarser_archives_as_in_graphite_web() {
    let mut rng = Rng::announced();
    let now_s = DAY_S + rng.below(86_400) as i64 / 60 * 60;
    let Some(mut graphite_web) = GraphiteWeb::start(now_s) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [schemas, aggregation] = rules_files(dir.path());
    let options = Options::default().arg("--graphite-schemas").arg(schemas.to_str().unwrap());
    let server = Server::start(options.arg("--graphite-aggregation").arg(aggregation.to_str().unwrap()));
    written(&mut rng, &mut graphite_web, now_s, &server);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for i in 0..REQUESTS {
        let from_s = now_s - [1800, 5400, 6 * 3600, 20 * 3600, PAST_S][rng.below(5) as usize];
        let until_s = now_s - [0, 600, 777][rng.below(3) as usize];
        let (from, until, now) = (from_s.to_string(), until_s.to_string(), now_s.to_string());
        let target = TARGETS[i % TARGETS.len()];
        let mut params = vec![
            ("target", target),
            ("from", &*from),
            ("until", &*until),
            ("format", "json"),
            ("now", &*now),
        ];
        if rng.below(5) == 0 {
            params.push(("maxDataPoints", "37"));
        }
        let path = format!("/render?{}", encoded(&params));
        let (status, _, theirs) = graphite_web.get(&format!("{path}&noCache=1"));
        // where graphite-web fails, there is nothing to compare with
        if status == 500 {
            continue;
        }
        let ours = server.send(&Request::get(path.clone()));
        assert_eq!((u64::from(ours.status), status), (200, 200), "{path}: {}", ours.text());
        let theirs = serde_json::from_str(&theirs).expect("JSON");
        if let Some(why) = difference(&ours.json(), &theirs) {
            wrong.push(format!("{path}\n  {why}"));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{} of {compared} different:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > REQUESTS / 2, "graphite-web answered only {compared} requests");
}
