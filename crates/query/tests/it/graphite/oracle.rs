//! A real graphite-web in a process of its own. It answers targets over the data that it was given
//! (`oracle.py` beside this file).

use super::data::{Event, Stored};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A series of an answer. NaN means that the value is missing.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) start_s: i64,
    pub(super) end_s: i64,
    pub(super) step_s: i64,
    pub(super) values: Vec<f64>,
    pub(super) tags: Vec<(String, String)>,
}

/// Name of a series, and its points: times in seconds and values.
pub(super) type Points = (String, Vec<(i64, f64)>);

#[derive(Debug)]
pub(super) enum Reply {
    Series(Vec<Line>),
    /// graphite-web would answer with status 400.
    Refused(String),
    /// graphite-web would answer with status 500.
    Crashed,
}

/// When and over which range a target is evaluated. All times are Unix seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) now_s: i64,
    pub(super) from_s: i64,
    pub(super) until_s: i64,
    pub(super) time_zone: &'static str,
}

/// The directory of the programs that `scripts/test-servers.sh` installs.
pub(super) fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/floodmark");
    std::env::var_os("FLOODMARK_CACHE").map_or_else(home, PathBuf::from)
}

pub(super) struct Oracle {
    process: Child,
    /// `None` once no more requests are sent.
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// None, and a report that the test is skipped, if graphite-web is not installed.
    pub(super) fn start() -> Option<Self> {
        let python = cache().join("graphite/bin/python");
        let modules = "import imp, django, graphite.version, whisper";
        let check =
            Command::new(&python).args(["-W", "ignore", "-c", modules]).stderr(Stdio::null()).status();
        if !check.is_ok_and(|status| status.success()) {
            stdx::skipped::for_want_of("graphite-web (scripts/test-servers.sh)");
            return None;
        }
        let mut process = Command::new(python)
            .args(["-W", "ignore"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/graphite/oracle.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start graphite-web");
        let input = Some(BufWriter::new(process.stdin.take().expect("BUG: stdin is a pipe")));
        let output = BufReader::new(process.stdout.take().expect("BUG: stdout is a pipe"));
        Some(Self { process, input, output })
    }

    pub(super) fn load(&mut self, now_s: i64, series: &[Stored]) {
        let series: Vec<_> = series
            .iter()
            .map(|s| {
                let values: Vec<Option<f64>> = s.values.iter().map(|v| (!v.is_nan()).then_some(*v)).collect();
                json!({"name": s.name, "step": s.step_s, "points": s.points, "start": s.start_s, "values": values})
            })
            .collect();
        self.call(&json!({"load": {"now": now_s, "series": series}}));
    }

    pub(super) fn event(&mut self, event: &Event) {
        self.call(&json!({"event": {"when": event.when_s, "what": "deploy", "tags": event.tags.join(" ")}}));
    }

    /// The answer to a target as JSON.
    pub(super) fn answer(&mut self, target: &str, range: Range, x_files_factor: Option<f64>) -> Value {
        self.answer_with(target, range, x_files_factor, &[])
    }

    fn answer_with(
        &mut self,
        target: &str,
        range: Range,
        x_files_factor: Option<f64>,
        variables: &[(String, String)],
    ) -> Value {
        let Range { now_s, from_s, until_s, time_zone } = range;
        let template: BTreeMap<_, _> = variables.iter().cloned().collect();
        self.call(&json!({"render": {
            "now": now_s, "from": from_s, "until": until_s, "target": target, "xFilesFactor": x_files_factor,
            "timeZone": time_zone, "template": template,
        }}))
    }

    pub(super) fn render(&mut self, target: &str, range: Range, x_files_factor: Option<f64>) -> Reply {
        self.render_with(target, range, x_files_factor, &[])
    }

    /// Like [`Self::render`], with values for the variables of templates.
    pub(super) fn render_with(
        &mut self,
        target: &str,
        range: Range,
        x_files_factor: Option<f64>,
        variables: &[(String, String)],
    ) -> Reply {
        let answer = self.answer_with(target, range, x_files_factor, variables);
        if let Some(error) = answer["error"].as_str() {
            let kind = answer["kind"].as_str().unwrap_or_default();
            return match kind {
                "InputParameterError" => Reply::Refused(error.into()),
                _ => Reply::Crashed,
            };
        }
        Reply::Series(lines(&answer["series"]))
    }

    /// The points of targets, as the whole application answers them over HTTP. `None` if it fails with status 500, as it does
    /// if it aligns the time of more points than a series has.
    pub(super) fn points(&mut self, targets: &[&str], range: Range, points_max: u64) -> Option<Vec<Points>> {
        let Range { now_s, from_s, until_s, .. } = range;
        let targets: String = targets.iter().map(|target| format!("target={target}&")).collect();
        let path = format!(
            "/render?{targets}format=json&now={now_s}&from={from_s}&until={until_s}&maxDataPoints={points_max}"
        );
        let answer = self.call(&json!({"http": {"now": now_s, "path": path}}));
        if answer["status"] == 500 {
            return None;
        }
        assert_eq!(
            (answer["status"].as_u64(), answer["type"].as_str()),
            (Some(200), Some("application/json"))
        );
        let body: Value = serde_json::from_str(answer["body"].as_str().expect("no body")).expect("not JSON");
        let point =
            |point: &Value| (point[1].as_i64().expect("no time"), point[0].as_f64().unwrap_or(f64::NAN));
        let series = |series: &Value| {
            let points = series["datapoints"].as_array().expect("no points");
            (series["target"].as_str().expect("no name").to_owned(), points.iter().map(point).collect())
        };
        Some(body.as_array().expect("no series").iter().map(series).collect())
    }

    /// What times in the style of `at` mean, in seconds since 1970, or `None` for those that are refused.
    pub(super) fn times(&mut self, texts: &[String], now_s: i64, time_zone: &str) -> Vec<Option<i64>> {
        let answer = self.call(&json!({"times": {"now": now_s, "timeZone": time_zone, "texts": texts}}));
        answer["times"].as_array().expect("no times").iter().map(Value::as_i64).collect()
    }

    /// graphite-web's functions: their names, groups and parameters.
    pub(super) fn functions(&mut self) -> Value {
        self.call(&json!({"functions": true}))["functions"].take()
    }

    /// Begins to serve the whole application over HTTP, and returns its port. Its clock is that of the request before.
    pub(super) fn serve(&mut self) -> u16 {
        let answer = self.call(&json!({"serve": true}));
        answer["port"].as_u64().and_then(|port| port.try_into().ok()).expect("no port")
    }

    fn call(&mut self, request: &Value) -> Value {
        let input = self.input.as_mut().expect("BUG: the input was closed");
        writeln!(input, "{request}").and_then(|()| input.flush()).expect("graphite-web has stopped");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("cannot read graphite-web's answer");
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("graphite-web answered {answer:?}: {e}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // the process ends with its input, and removes its files
        self.input = None;
        let _ = self.process.wait();
    }
}

/// Reads the series of an answer.
pub(super) fn lines(series: &Value) -> Vec<Line> {
    series.as_array().expect("no series").iter().map(line).collect()
}

fn line(series: &Value) -> Line {
    let int = |field: &str| series[field].as_f64().unwrap_or_else(|| panic!("no {field}: {series}")) as i64;
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_f64().unwrap_or(f64::NAN),
    };
    let tags = series["tags"].as_object().expect("no tags");
    Line {
        name: series["name"].as_str().expect("no name").into(),
        start_s: int("start"),
        end_s: int("end"),
        step_s: int("step"),
        values: series["values"].as_array().expect("no values").iter().map(number).collect(),
        tags: tags.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().into())).collect(),
    }
}
