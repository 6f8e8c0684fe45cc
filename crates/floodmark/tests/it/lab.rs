//! Runs `floodmark lab run` as a process, with injected faults and targets that misbehave, and checks the
//! results.

use crate::disk_full::SmallDisk;
use crate::harness::lab::{Running, good, lab};
use crate::harness::{Request, Server, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// A load from two tenants with 100 series each, which are sampled ten times a second.
const LOAD: &str = "
[load]
tenants = 2
writers = 1
metrics = 20
series_per_metric = 5
interval = '100ms'
backoff_min = '5ms'
";

/// Writes a scenario file into `folder`. `rest` is appended to it, and can have further tables.
pub(crate) fn scenario(folder: &Path, duration: &str, rest: &str) -> String {
    let path = folder.join("scenario.toml");
    std::fs::write(&path, format!("name = 'test'\nduration = '{duration}'\n{LOAD}{rest}")).expect("write it");
    path.to_str().expect("a plain path").to_owned()
}

pub(crate) fn target(address: SocketAddr) -> String {
    format!("[target]\ntimeout = '1s'\nwrite = 'http://{address}/api/v1/write'\n")
}

pub(crate) fn events(result: &Value) -> String {
    let events = result["events"].as_array().expect("a list of events");
    events.iter().filter_map(|event| event["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Runs a scenario, and returns its result. Panics if the run fails or an acknowledged sample is not stored.
pub(crate) fn run(folder: &Path, duration: &str, rest: &str, more: &[&str]) -> Value {
    let path = scenario(folder, duration, rest);
    let printed = good(&lab(&[&["run", &path, "--json", "--quiet"], more].concat()));
    let result: Value = serde_json::from_str(&printed).expect("read the result");
    let verify = &result["verify"];
    assert_eq!((&verify["lost"], &verify["doubled"], &verify["wrong"]), (&0.into(), &0.into(), &0.into()));
    assert!(verify["read_back"].as_u64() > Some(0), "{verify}");
    assert_eq!(verify["read_back"], verify["acknowledged"]);
    result
}

#[test]
fn a_target_that_is_killed_comes_back_and_has_lost_nothing() {
    let folder = tempfile::tempdir().expect("make a directory");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let rest = format!(
        "{}start = '{} serve --http {address} --allow-unauthenticated true --data-dir {}'\nready = 'http://{address}/-/ready'\n\
         [[fault]]\nat = '1s'\ndo = 'kill'\nfor = '200ms'\n[verdict]\nrestarts = 0",
        target(address),
        env!("CARGO_BIN_EXE_floodmark"),
        folder.path().join("data").display()
    );
    let result = run(folder.path(), "3s", &rest, &[]);
    let events = events(&result);
    assert!(events.contains("kill -9") && events.contains("restarted and ready"), "{events}");
    assert!(TcpStream::connect(address).is_err(), "the target outlives the run that started it");
}

#[test]
fn a_search_gives_each_trial_a_fresh_directory_and_a_free_port() {
    let folder = tempfile::tempdir().expect("make a directory");
    let started = folder.path().join("started");
    let start = format!(
        "sh -c 'mkdir {{data}}/once && echo {{data}} {{port}} {{memory}} >> {}; exec {} serve --http 127.0.0.1:{{port}} \
         --data-dir {{data}}/floodmark --memory {{memory}}'",
        started.display(),
        env!("CARGO_BIN_EXE_floodmark"),
    );
    let rest = format!("[target]\nwrite = 'http://127.0.0.1:{{port}}/api/v1/write'\nstart = \"{start}\"\n");
    let path = scenario(folder.path(), "1s", &rest);
    let bounds = ["--min", "256MiB", "--max", "512MiB", "--precision", "4", "--quiet"];
    let printed = good(&lab(&[&["find-minimum", &path, "--resource", "memory"], bounds.as_slice()].concat()));
    assert!(
        printed.ends_with("memory: 256 MiB, which is the bound of the search: every trial passed\n"),
        "{printed}"
    );
    let started = std::fs::read_to_string(started).expect("what was started");
    let trials: Vec<Vec<&str>> = started.lines().map(|line| line.split(' ').collect()).collect();
    let memory: Vec<&str> = trials.iter().map(|trial| trial[2]).collect();
    assert_eq!(memory, ["536870912", "268435456", "268435456"], "the last trial does not confirm the result");
    for (at, trial) in trials.iter().enumerate() {
        assert!(!Path::new(trial[0]).exists(), "the directory of a trial still exists");
        assert!(trials[..at].iter().all(|other| other[0] != trial[0]), "{started}");
    }
}

#[test]
fn a_fault_that_would_outlast_the_load_is_taken_back_with_it() {
    let folder = tempfile::tempdir().expect("make a directory");
    let server = Server::new();
    let fault = |deed: &str| format!("pid = {}\n[[fault]]\nat = '500ms'\ndo = '{deed}'\n", server.pid());
    for lasts in ["300ms", "1h"] {
        let rest = format!("{}{}for = '{lasts}'", target(server.address), fault("pause"));
        // other series, so that the runs may overlap in time
        let seed = format!("seed={}", lasts.len());
        let events = events(&run(folder.path(), "1500ms", &rest, &["--set", &seed]));
        assert!(events.contains("paused") && events.contains("resumed"), "{events}");
    }
    // a target without a control group
    let rest = format!("{}{}", target(server.address), fault("slow-disk"));
    let events = events(&run(folder.path(), "1s", &rest, &["--set", "seed=9"]));
    assert!(events.contains("slow disk: skipped: the fault needs the key target.cgroup"), "{events}");
}

/// A network namespace that is connected to the current one. It is deleted when this is dropped.
struct Namespace(String);

impl Namespace {
    /// Returns `None` if this process is not permitted to create namespaces.
    fn new(ours: &str, theirs: &str) -> Option<Self> {
        let this = Self(format!("floodmark-{}", std::process::id()));
        let (near, far) = (format!("fma{}", std::process::id()), format!("fmb{}", std::process::id()));
        let name = this.0.as_str();
        let gateway = ours.split('/').next().expect("an address");
        let steps: [&[&str]; 7] = [
            &["netns", "add", name],
            &["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", name],
            &["addr", "add", ours, "dev", &near],
            &["link", "set", &near, "up"],
            &["-n", name, "addr", "add", theirs, "dev", &far],
            &["-n", name, "link", "set", &far, "up"],
            &["-n", name, "route", "add", "default", "via", gateway],
        ];
        for step in steps {
            let done = Command::new("ip").args(step).output();
            if !done.as_ref().is_ok_and(|done| done.status.success()) {
                eprintln!("ip {step:?}: {done:?}");
                stdx::skipped::for_want_of("right to make network namespaces (root, and iproute2)");
                return None;
            }
        }
        Some(this)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // this also deletes the link between the namespaces
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

#[test]
fn a_network_that_is_cut_delays_and_loses_nothing() {
    let Some(namespace) = Namespace::new("10.214.77.1/30", "10.214.77.2/30") else { return };
    let folder = tempfile::tempdir().expect("make a directory");
    let address = SocketAddr::from(([10, 214, 77, 2], 9009));
    let name = &namespace.0;
    let rest = format!(
        "{}start = 'ip netns exec {name} {} serve --http {address} --admin-listen http --allow-unauthenticated true --data-dir {}'\n\
         ready = 'http://{address}/-/ready'\nnamespace = '{name}'\n\
         [[fault]]\nat = '1s'\ndo = 'cut'\nfor = '700ms'",
        target(address),
        env!("CARGO_BIN_EXE_floodmark"),
        folder.path().join("data").display()
    );
    let events = events(&run(folder.path(), "3s", &rest, &["--allow-host", "10.214.77.2"]));
    assert!(events.contains("network cut") && events.contains("network restored"), "{events}");
    let routes = Command::new("ip").args(["-n", name, "route"]).output().expect("ask for routes");
    assert!(String::from_utf8_lossy(&routes.stdout).contains("default via 10.214.77.1"), "{routes:?}");
}

#[test]
fn ctrl_c_leaves_a_partial_report_that_says_so() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let server = Server::new();
    let path = scenario(folder.path(), "1h", &target(server.address));
    let (save, html) = (file("result.json"), file("report.html"));
    let args = ["lab", "run", &path, "--out", &save, "--html", &html];
    let running = Running::start(&args, "tenants, ");
    wait_for("the first samples", || {
        let tenant = Request::get("/api/v1/query?query=count(metric_1)").header("X-Scope-OrgID", "tenant-1");
        server.send(&tenant).text().contains("\"value\"").then_some(())
    });
    let (status, printed) = running.interrupt();
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("PARTIAL"), "{printed}");
    let result: Value = serde_json::from_slice(&std::fs::read(&save).expect("the result")).expect("JSON");
    assert_eq!((&result["partial"], &result["verify"]["lost"]), (&true.into(), &0.into()));
    assert!(
        result["verify"]["read_back"].as_u64() > Some(0),
        "the samples of an interrupted run are not read back"
    );
    let page = std::fs::read_to_string(&html).expect("the report");
    assert!(page.contains("PARTIAL"), "the report does not say PARTIAL");
}

#[test]
fn a_full_disk_costs_the_report_and_not_the_verdict() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let folder = tempfile::tempdir().expect("make a directory");
    let file = |name: &str| disk.path().join(name).to_str().expect("a plain path").to_owned();
    std::fs::write(file("report.html"), "an older one").expect("write");
    disk.fill();
    let server = Server::new();
    let path = scenario(folder.path(), "1s", &target(server.address));
    for flag in ["--html", "--out"] {
        let output = lab(&["run", &path, "--quiet", flag, &file("report.html")]);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{out}{err}");
        assert!(out.contains("PASS") && err.contains("report.html"), "{out}{err}");
    }
    assert_eq!(std::fs::read_to_string(file("report.html")).expect("the older one"), "an older one");
}

#[test]
fn presets_are_known_by_name_wherever_one_is() {
    assert_eq!(good(&lab(&["run", "cortex-110k", "--check"])), "cortex-110k: valid\n");
    let unknown = lab(&["run", "cortex-111k", "--check"]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        unknown.status.code() == Some(2) && said.contains("no preset") && said.contains("cortex-110k"),
        "{said}"
    );
}

/// Starts a server that lies: it acknowledges every write but stores nothing, and answers every query with an
/// empty result.
pub(crate) fn start_liar() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    address
}

fn answer(mut stream: &TcpStream) -> Option<()> {
    const NOTHING: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|n| *n > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    let answer = match first.contains("/query") {
        true => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{NOTHING}", NOTHING.len()),
        false => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    };
    stream.write_all(answer.as_bytes()).ok()
}

#[test]
fn an_unreachable_target_is_an_error_and_a_lying_one_fails() {
    let folder = tempfile::tempdir().expect("make a directory");
    let path = scenario(folder.path(), "1s", &target(SocketAddr::from(([127, 0, 0, 1], 1))));
    let output = lab(&["run", &path, "--quiet"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("127.0.0.1:1"), "{said}");

    let liar = start_liar();
    let path = scenario(folder.path(), "1s", &format!("{}[verify]\npatience = 0", target(liar)));
    let output = lab(&["run", &path, "--quiet", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).expect("read the result");
    assert!(result["verify"]["acknowledged"].as_u64() > Some(0));
    assert_eq!(result["verify"]["lost"], result["verify"]["acknowledged"]);
    assert_eq!(result["verify"]["examples"][0]["fault"], "lost");
}
