//! Runs `floodmark lab` against targets of Graphite.

use super::lines::options;
use crate::harness::Server;
use crate::harness::lab::{good, lab};
use serde_json::Value;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};

/// Accepts one connection on a new port, and returns the port and what was received until the connection's end.
fn sink() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("the address").port().to_string();
    let receiving = std::thread::spawn(move || {
        let mut received = String::new();
        while received.is_empty() {
            // at first, the lab only looks whether the target listens
            let (mut stream, _) = listener.accept().expect("accept");
            stream.read_to_string(&mut received).expect("read");
        }
        received
    });
    (port, receiving)
}

/// Names of the points, in the order of the lines.
fn names(lines: &str) -> Vec<&str> {
    lines.lines().map(|line| line.split(' ').next().expect("a name")).collect()
}

#[test]
fn the_stresser_prints_what_it_would_send() {
    let printed = good(&lab(&["stresser", "--hosts", "2", "--timers", "3", "--debug"]));
    let all = names(&printed);
    assert_eq!(
        (all.len(), all[0], all[89]),
        (90, "STRESS.host-0.timer-0.count", "STRESS.host-1.timer-2.stddev")
    );

    let (port, receiving) = sink();
    let timers = ["--timers", "3", "--interval", "1s", "--duration", "2s"];
    let flags = ["--port", &port, "--prefix", "a.b", "--json", "--quiet"];
    let result = good(&lab(&[&["stresser"], timers.as_slice(), &flags].concat()));
    let result: Value = serde_json::from_str(&result).expect("read the result");
    assert_eq!(result["totals"]["samples_acknowledged"], 90, "{}", result["totals"]);
    let received = receiving.join().expect("receive");
    let sent = names(&received);
    assert_eq!((sent.len(), sent[0]), (90, "a.b.host-0.timer-0.count"));
    assert_eq!(sent[..45], sent[45..], "two reports of the same timers");
}

/// Runs the lab, and returns the result. Panics if a rule was broken, or nothing was owed.
fn kept(args: &[&str]) -> Value {
    let result: Value = serde_json::from_str(&good(&lab(args))).expect("read the result");
    let verify = &result["verify"];
    assert!(
        verify["acknowledged"].as_u64() > Some(0) && verify["read_back"] == verify["acknowledged"],
        "{verify}"
    );
    result
}

/// The lab reads back through both APIs what this server has got as lines.
#[test]
fn every_point_is_read_back() {
    let server = Server::start(options());
    let (write, read) =
        (format!("tcp://{}", server.logged_address("graphite")), format!("http://{}", server.address));
    let shape = ["--metrics", "20", "--series", "5", "--rounds", "6", "--verify", "--json", "--quiet"];
    let target = ["write", "--protocol", "graphite", "--target", &write, "--read-url", &read];
    let result = kept(&[target.as_slice(), &shape, &["--read-api", "promql", "--seed", "2"]].concat());
    assert_eq!(result["verify"]["acknowledged"], 4 * 20 * 5 * 6);
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains("not owed"), "{warnings}");

    // without rules, the server shows a value for each minute
    let port = server.logged_address("graphite").port().to_string();
    let timers = ["stresser", "--port", &port, "--timers", "3", "--interval", "1s", "--duration", "2s"];
    let flags = ["--read-url", &read, "--step", "60s", "--verify", "--json", "--quiet"];
    let result = kept(&[timers.as_slice(), &flags].concat());
    assert_eq!(result["verify"]["acknowledged"], 90);
}

/// After a kill, the server owes the points of known series that are older than its commit interval.
#[test]
fn a_kill_loses_no_point_that_is_older_than_the_commit_interval() {
    let folder = tempfile::tempdir().expect("make a directory");
    let [http, lines] = [(); 2].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        SocketAddr::from(([127, 0, 0, 1], listener.local_addr().expect("the address").port()))
    });
    let text = format!(
        "name = 'kill'\nduration = '6s'\n\
         [target]\nprotocol = 'graphite'\nwrite = 'tcp://{lines}'\nread = 'http://{http}'\nread_api = 'promql'\n\
         commit_interval = '1s'\nready = 'http://{http}/-/ready'\n\
         start = '{} serve --http {http} --graphite {lines} --allow-unauthenticated true --data-dir {}'\n\
         [load]\nmetrics = 20\nseries_per_metric = 5\nwriters = 2\nbatch = 10\ninterval = '1s'\n\
         [[fault]]\nat = '3s'\ndo = 'kill'\nfor = '200ms'\n[verdict]\nrestarts = 0\n[verify]\nprobes_per_s = 0",
        env!("CARGO_BIN_EXE_floodmark"),
        folder.path().join("data").display()
    );
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).expect("write the scenario");
    let result = kept(&["run", path.to_str().expect("a plain path"), "--json", "--quiet"]);
    let (owed, all) = (&result["verify"]["acknowledged"], 2 * 20 * 5 * 6);
    assert!(owed.as_u64() < Some(all), "{owed} of {all}: points were sent in the second before the kill");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("are not owed"), "{warnings}");
}

#[test]
fn a_step_that_does_not_fit_is_refused() {
    let server = Server::start(options());
    let folder = tempfile::tempdir().expect("make a directory");
    let ledger = folder.path().join("ledger.json");
    let ledger = ledger.to_str().expect("a plain path");
    let (write, read) =
        (format!("tcp://{}", server.logged_address("graphite")), format!("http://{}", server.address));
    let shape = ["--metrics", "2", "--series", "2", "--rounds", "3", "--interval", "20s", "--ledger", ledger];
    let target = ["write", "--protocol", "graphite", "--target", &write, "--read-url", &read, "--quiet"];
    good(&lab(&[target.as_slice(), &shape].concat()));
    let verify = ["verify", ledger, "--quiet"];
    for (flags, why) in [
        (&["--step", "15s"][..], "neither is the step of 15000 ms a multiple"),
        (&["--step", "500ms"], "whole seconds"),
        (&["--step", "60s", "--read-api", "promql"], "only render has steps"),
    ] {
        let output = lab(&[&verify, flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{flags:?}: {said}");
    }
    good(&lab(&[&verify[..], &["--step", "60s"]].concat()));
    let output =
        lab(&["write", "--protocol", "graphite", "--interval", "7s", "--step", "60s", "--verify", "--quiet"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let why = "--step: neither is the step of 60000 ms a multiple of the interval of 7000 ms";
    assert!(said.contains(why) && said.contains("(--interval)") && !said.contains("line"), "{said}");
}

/// The whole load would be in vain.
#[test]
fn a_target_with_a_wrong_address_is_refused_before_the_load() {
    let server = Server::start(options());
    let lines = server.logged_address("graphite");
    let (write, read) = (format!("tcp://{lines}"), format!("http://{}", server.address));
    let check = |args: &[&str], expected: &[&str]| {
        let output = lab(&[args, &["--duration", "1h", "--quiet"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in expected {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    };
    let (nobody, other) = ("tcp://127.0.0.1:1", "http://127.0.0.1:1");
    let shape = ["write", "--protocol", "graphite", "--verify", "--interval", "60s"];
    check(&[&shape[..], &["--target", &write, "--read-url", other]].concat(), &[other, "--read-url"]);
    check(&[&shape[..], &["--target", nobody, "--read-url", &read]].concat(), &[nobody, "--target"]);
    // a port at which somebody listens, but not by HTTP; and another path
    let not_http = format!("http://{lines}");
    check(
        &[&shape[..], &["--target", &write, "--read-url", &not_http]].concat(),
        &[&not_http, "cannot read back"],
    );
    let path = format!("{read}/nowhere");
    let promql = ["--read-api", "promql", "--target", &write, "--read-url", &path];
    check(&[&shape[..], &promql].concat(), &[&path, "404"]);
    check(&["stresser", "--port", "1"], &["tcp://127.0.0.1:1", "--port", "refused"]);
    check(&["run", "stresser", "--target", nobody, "--read-url", &read], &[nobody, "target.write"]);
}

#[test]
fn other_machines_must_be_allowed() {
    let output = lab(&["stresser", "--host", "192.0.2.1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("--allow-host 192.0.2.1"), "{said}");
}
