//! Runs the scripts in `bench/` with small parameters. They must keep working, because figures in the
//! documents come from them.

use crate::harness::wait_for;
use rustix::process::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_floodmark");

fn bench(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench").join(name)
}

fn start(script: &str, args: &[&str]) -> Option<Child> {
    let mut command = Command::new("python3");
    command.arg(bench(script)).args(args).env("FLOODMARK", BINARY).env("PYTHONDONTWRITEBYTECODE", "1");
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    started.map_err(|_| stdx::skipped::for_want_of("python3")).ok()
}

/// Waits for the end of a script, and returns what it has printed.
#[track_caller]
fn finish(script: &str, started: Child) -> String {
    let output = started.wait_with_output().expect("read what the script prints");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {printed}\n{said}");
    printed
}

#[track_caller]
fn run(script: &str, args: &[&str]) -> Option<String> {
    Some(finish(script, start(script, args)?))
}

/// The processes that a process has started and that still run, with their command lines.
fn children_of(parent: u32) -> Vec<(Pid, String)> {
    let of_process = |name: &str| {
        let pid: i32 = name.parse().ok()?;
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let (status, command) = (read("status")?, read("cmdline")?.replace('\0', " "));
        let is_child = status.lines().any(|line| line == format!("PPid:\t{parent}"));
        Pid::from_raw(pid).filter(|_| is_child).map(|pid| (pid, command))
    };
    let names = std::fs::read_dir("/proc").expect("list processes").flatten().map(|entry| entry.file_name());
    names.filter_map(|name| of_process(name.to_str()?)).collect()
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
fn floods() {
    let size = ["--memory", "0", "--part", "500", "--rate", "500"];
    let args = [&size[..], &["floodmark", BINARY, "1,000 tenants", "new tenants"]].concat();
    let Some(printed) = run("floods.py", &args) else { return };
    let rows: Vec<_> = printed.lines().skip(1).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.ends_with(" stored")), "{printed}");
}

/// A flood of so many series that it takes minutes.
const LONG_FLOOD: [&str; 7] = ["--memory", "0", "--rate", "500", "floodmark", BINARY, "one tenant"];

#[test]
fn a_flood_that_takes_too_long() {
    let args = [&["--longest", "2"][..], &LONG_FLOOD].concat();
    check("floods.py", &args, &["too long after ", "\none tenant ", " too long\n"]);
}

/// The script does not go on sending, and says what was acknowledged until then.
#[test]
fn a_flood_whose_server_is_killed() {
    let args = [&["--longest", "120"][..], &LONG_FLOOD].concat(); // it must not go on if this test fails
    let Some(script) = start("floods.py", &args) else { return };
    let server = wait_for("the flood", || {
        let children = children_of(script.id());
        let child = |argument: &str| children.iter().find(|(_, command)| command.contains(argument));
        child(" X-Scope-OrgID: d ").and(child(" serve ")).map(|(pid, _)| *pid)
    });
    rustix::process::kill_process(server, rustix::process::Signal::KILL).expect("kill the server");
    let printed = finish("floods.py", script);
    assert!(printed.contains("the senders are stopped") && printed.ends_with(" killed\n"), "{printed}");
}

#[test]
fn deletes() {
    let size = ["--memory", "0", "--metrics", "20", "--series", "5", "--rounds", "10"];
    let args = [&size[..], &["--rate", "500", "--turn", "2", "floodmark", BINARY]].concat();
    check(
        "deletes.py",
        &args,
        &[
            "before: 100 samples of deleted metrics, 100 of 100 of others",
            "at once: 0 samples of deleted metrics, 100 of 100 of others",
            "\nrewritten: 0 samples of deleted metrics, 100 of 100 of others",
            "written again: 100 samples of deleted metrics, 200 of 200 of others",
            "after SIGKILL: 0 samples of deleted metrics, 200 of 200 of others",
            "rewritten after SIGKILL: 0 samples of deleted metrics, 200 of 200 of others",
        ],
    );
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
