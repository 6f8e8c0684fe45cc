//! Runs the scripts in `bench/` with small parameters. They must keep working, because figures in the
//! documents come from them.

use std::path::{Path, PathBuf};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_floodmark");

fn bench(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench").join(name)
}

#[track_caller]
fn run(script: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new("python3");
    command.arg(bench(script)).args(args).env("FLOODMARK", BINARY).env("PYTHONDONTWRITEBYTECODE", "1");
    let Ok(output) = command.output() else {
        stdx::skipped::for_want_of("python3");
        return None;
    };
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {printed}\n{said}");
    Some(printed)
}

#[track_caller]
fn check(script: &str, args: &[&str], expected: &[&str]) {
    let Some(printed) = run(script, args) else { return };
    for expected in expected {
        assert!(printed.contains(expected), "{script}: no {expected:?} in\n{printed}");
    }
}

#[test]
fn ingest() {
    let args = ["floodmark", BINARY, "--series", "8000", "--rounds", "2", "--settle", "0"];
    check("ingest.py", &args, &["new series: ", "known series: ", "bytes per series more than idle"]);
}

#[test]
fn queries() {
    let args = ["floodmark", BINARY, "--rounds", "2", "--repeat", "1", "--clients", "2", "--seconds", "0.1"];
    check("query.py", &args, &["sum_rate", "label_values", "2 clients: "]);
}

#[test]
fn data_at_rest_and_cold_queries_over_it() {
    let folder = tempfile::tempdir().expect("make a directory");
    let data = folder.path().to_str().expect("a plain path");
    let args = ["floodmark", BINARY, data, "--metrics", "20", "--targets", "2", "--rounds", "40"];
    let Some(printed) = run("fill.py", &args) else { return };
    assert!(printed.contains("bytes a sample, compacted"), "{printed}");
    let (_, cold) = printed.trim_end().rsplit_once("then: bench/cold.py ").expect("what to do next");
    let queries = bench("queries.txt");
    let cold = cold.replace("QUERIES", queries.to_str().expect("a plain path"));
    let cold: Vec<&str> = cold.split(' ').chain(["label_values", "sum_rate"]).collect();
    check("cold.py", &cold, &["label_values", "sum_rate"]);
}

#[test]
fn flushes() {
    let load = ["--series", "4000", "--rate", "4000", "--duration", "1"];
    let args = [&load[..], &["--every", "0.2s", "--compact-every", "1", "--memory", "256MiB"]].concat();
    check("flush.py", &args, &["{\"204\": ", "ratio of p99s", "peak memory"]);
}

#[test]
fn encryption() {
    if Command::new("openssl").arg("version").output().is_err() {
        return stdx::skipped::for_want_of("openssl");
    }
    check("tls.py", &["--series", "4000", "--rounds", "2", "--repeat", "1"], &["more CPU per sample"]);
}

#[test]
fn wrong_credentials() {
    if Command::new("openssl").arg("version").output().is_err() {
        return stdx::skipped::for_want_of("openssl");
    }
    let args = ["--series", "400", "--duration", "1", "--runs", "1", "--attempts", "700"];
    check("credentials.py", &args, &["medians: p99 ", "attempts per second"]);
}

#[test]
fn merges() {
    let args = ["--series", "4000", "--duration", "2", "--step", "1"];
    check("merging.py", &args, &["without writes", "merged bytes for each sealed: "]);
}

#[test]
fn replay_and_value_models() {
    check("replay.py", &["--series", "4000", "--rounds", "2"], &["8000 samples of 4000 series"]);
    let args = ["--metrics", "10", "--series", "4", "--rounds", "8", "--models", "walk"];
    check("lake.py", &args, &["| walk | 320 |"]);
}

#[test]
fn churn_with_kills() {
    let args = ["--seconds", "8", "--cgroup", "0", "--memory", "256MiB", "--ready", "60"];
    check("churn_kill.py", &args, &["good: ready after "]);
}

#[test]
fn graphite_protocols() {
    let size = ["--timers", "20", "--rounds", "2", "--bursts", "1"];
    let args = [&size[..], &["--protocol", "plaintext,pickle", "floodmark", BINARY]].concat();
    let expected = [
        "floodmark: pickle: known: 300 points, ",
        "p99 of commits at most ",
        "1 bursts of 300 new series",
        "\nmedians of 1 runs",
    ];
    check("graphite.py", &args, &expected);
}

#[test]
fn searches_for_names() {
    let size =
        ["--names", "20000", "--memory", "512MiB", "--runs", "2", "--large-runs", "1", "--cancels", "1"];
    check(
        "find.py",
        &size,
        &["the racks ", "10^4, a hundredth ", "/metrics/find of everything: ", "/render of everything: "],
    );
}

#[test]
fn fairness() {
    let size = ["--memory", "0", "--duration", "2", "--rate", "500"];
    let args = [&size[..], &["floodmark", BINARY, "nothing", "label lists", "tiny requests"]].concat();
    let expected = ["nothing ", "label lists ", "tiny requests ", "flood answered: "];
    check("fairness.py", &args, &expected);
    let args = [&size[..], &["--interval", "2", "floodmark", BINARY, "queries that fit", "deletes"]].concat();
    check("fairness.py", &args, &["queries that fit ", "deletes ", "0/0/0"]);
}

#[test]
fn changes_of_overrides() {
    let args = ["--memory", "0", "--rate", "500", "--changes", "3"];
    check(
        "overrides.py",
        &args,
        &["broken versions that had an effect: 0", "p99 of the slowest tenant: ", "lost 0;"],
    );
}

#[test]
fn graphite_floods() {
    let size = ["--memory", "0", "--names-memory", "0", "--duration", "2", "--names", "2000"];
    let args = [&size[..], &["--connections", "200"]].concat();
    let expected = [
        "nothing",
        "datagrams",
        "malformed lines",
        "connections",
        "pickle bombs",
        "braces",
        "a million metrics",
    ];
    let expected = expected.map(|row| format!("\n{row} "));
    let expected = expected.each_ref().map(String::as_str);
    check("graphite_floods.py", &args, &expected);
}

/// The attacks themselves are not part of the repository.
#[test]
fn attacks() {
    const SCRIPT: &str = r#"
class Server:
    def __init__(self, url, pid):
        import urllib.parse
        at = urllib.parse.urlparse(url)
        self.host, self.port = at.hostname, at.port
    def ask(self, method, path, body=None, headers=None, timeout=30):
        import http.client
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read(), 0.0
class Canary:
    def __init__(self, server):
        self.before = self.peak = 0
    def start(self):
        pass
    def end(self):
        return {what: (1, 0, 0) for what in ["write", "healthy", "query"]}
def labels(server, options):
    print("labels:", server.ask("GET", "/api/v1/labels")[0], "budget:", server.metric("floodmark_budget_limit_bytes{account=\"head\"}") > 0)
    return lambda seen: True
def config(server, options):
    with server.open() as opened:
        opened.sendall(b"GET /config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        print("config:", opened.recv(12))
    return lambda seen: False
ATTACKS = {"labels": (labels, ""), "config": (config, "")}
"#;
    let folder = tempfile::tempdir().expect("make a directory");
    let script = folder.path().join("script.py");
    std::fs::write(&script, SCRIPT).expect("write a script");
    let script = script.to_str().expect("a plain path");
    let args = ["--script", script, "--memory", "0", "--rate", "500", "--turn", "1"];
    check(
        "attacks.py",
        &args,
        &[
            "labels: 200 budget: True",
            "config: b'HTTP/1.1 403'",
            "\nlabels                 True",
            "\nconfig                False",
        ],
    );
}

#[test]
fn cost_and_latency_of_protocols() {
    let args =
        ["floodmark", BINARY, "otlp-grpc", "graphite", "--kib", "10", "--seconds", "1", "--settle", "0.2"];
    check("protocols.py", &args, &["\notlp-grpc ", "\ngraphite "]);
    let args = ["floodmark", BINARY, "otlp-grpc", "text", "--kib", "10", "--seconds", "1"];
    check("protocol_latency.py", &args, &["floodmark at 75 % of the maximum", "\notlp-grpc ", "\ntext "]);
}

#[test]
fn kills_while_several_protocols_are_received() {
    let kills = ["--kills", "1", "--least", "4", "--most", "4", "--rate", "10k", "--readers", ""];
    let args = [&kills[..], &["--protocols", "1.0,otlp-grpc,statsd"]].concat();
    check("kill_loop.py", &args, &["every acknowledged sample is stored once: "]);
}
