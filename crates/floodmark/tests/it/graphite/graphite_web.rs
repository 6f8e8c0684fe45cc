//! A real graphite-web over Whisper files of its own, in the program that the tests of the query engine use, too.

use crate::harness::programs::cache;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../query/tests/it/graphite/oracle.py");

pub(super) struct GraphiteWeb {
    process: Child,
    /// `None` once no more requests are sent.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    now_s: i64,
}

impl GraphiteWeb {
    /// Its clock stands at `now_s`. `None`, and a report that the test is skipped, if graphite-web is not installed.
    pub(super) fn start(now_s: i64) -> Option<Self> {
        let python = cache().join("graphite/bin/python");
        let modules = ["-W", "ignore", "-c", "import imp, django, graphite.version, whisper"];
        let check = Command::new(&python).args(modules).stderr(Stdio::null()).status();
        if !check.is_ok_and(|status| status.success()) {
            stdx::skipped::for_want_of("graphite-web (scripts/test-servers.sh)");
            return None;
        }
        let mut command = Command::new(python);
        command.args(["-W", "ignore", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("start graphite-web");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Some(Self { process, input, output, now_s })
    }

    /// Stores series: their names, their steps in seconds, the times of their first values, and their values.
    pub(super) fn load(&mut self, series: &[(&str, i64, i64, &[Option<f64>])]) {
        let stored = |(name, step_s, start_s, values): &(&str, i64, i64, &[Option<f64>])| json!({"name": name, "step": step_s, "points": 1440, "start": start_s, "values": values});
        self.load_objects(&series.iter().map(stored).collect::<Vec<_>>());
    }

    /// The status, type and text of the answer of `/render`.
    pub(super) fn render(&mut self, query: &str) -> (u64, String, String) {
        self.get(&format!("/render?{query}&now={}", self.now_s))
    }

    /// Stores series as objects of JSON: see the program.
    pub(super) fn load_objects(&mut self, series: &[Value]) {
        self.call(&json!({"load": {"now": self.now_s, "series": series}}));
    }

    /// Adds tagged series without files.
    pub(super) fn add_tagged(&mut self, names: &[String]) {
        self.call(&json!({"tag": names}));
    }

    /// Stores an event with tags, separated by spaces.
    pub(super) fn add_event(&mut self, when_s: i64, what: &str, tags: &str) {
        self.call(&json!({"event": {"when": when_s, "what": what, "tags": tags}}));
    }

    /// The status, type and text of an answer.
    pub(super) fn get(&mut self, path: &str) -> (u64, String, String) {
        let answer = self.call(&json!({"http": {"now": self.now_s, "path": path}}));
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        (answer["status"].as_u64().expect("a status"), text("type"), text("body"))
    }

    fn call(&mut self, request: &Value) -> Value {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{request}").expect("graphite-web reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("graphite-web answers");
        serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("graphite-web answered {answer:?}: {error}"))
    }
}

impl Drop for GraphiteWeb {
    fn drop(&mut self) {
        // the process ends with its input, and removes its files
        self.input = None;
        let _ = self.process.wait();
    }
}
