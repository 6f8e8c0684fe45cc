//! Carbon-aggregator's rules: points arrive over TCP, and the series computed from them are read back.

use crate::graphite::lines::{all_durable, connect, options};
use crate::harness::{Options, Request, Server, SetOnDrop, now_ms, wait_for};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // a rename, so that the server never reads half of a file
    fs::write(dir.join("new"), text).unwrap();
    fs::rename(dir.join("new"), &path).unwrap();
    path
}

fn with_rules(dir: &Path, text: &str) -> Options {
    options()
        .arg(&format!("--graphite-aggregator-rules={}", file(dir, "aggregation-rules.conf", text).display()))
}

fn send(server: &Server, text: &str) {
    let stream = connect(server);
    (&stream).write_all(text.as_bytes()).unwrap();
    assert!(all_durable(&stream));
}

/// Samples of the untagged series with this name, with times in seconds.
fn samples(server: &Server, name: &str) -> Vec<(i64, f64)> {
    let all = server.samples_of_one(&format!("{{__name__=\"{name}\"}}[10m]"), now_ms() + 60_000);
    all.into_iter().map(|(ms, value)| (ms / 1000, value)).collect()
}

fn metric(server: &Server, name: &str) -> f64 {
    server.metric(&format!("floodmark_graphite_aggregator_{name}"))
}

#[test]
fn points_over_tcp_are_aggregated_and_read_by_render() {
    let dir = tempfile::tempdir().unwrap();
    let schemas = file(dir.path(), "schemas", "[all]\npattern = .*\nretentions = 1s:1h\n");
    let rewrite = file(dir.path(), "rewrite", "[pre]\n^old\\. = prod.\n[post]\n_sum$ =\n");
    let rules = "# requests of all hosts\n<env>.apps.<app>.all.requests_sum (1) = sum <env>.apps.<app>.*.requests\n\
                 <env>.slowest (1) = p99 <env>.apps.*.*.latency\n<env>.hosts (2) = count <env>.<<any>>\n";
    let options = with_rules(dir.path(), rules)
        .arg(&format!("--graphite-schemas={}", schemas.display()))
        .arg(&format!("--graphite-rewrite={}", rewrite.display()));
    let server = Server::start(options);
    // an interval that begins more than a second after the server did
    let at_s = (now_ms() / 1000 + 4) / 2 * 2;
    // points of a clock that is ahead would make it incomplete, because others may have come before the start
    wait_for("the interval", || (now_ms() > at_s * 1000).then_some(()));
    let mut text = String::new();
    for host in 1..=4 {
        text.push_str(&format!("prod.apps.web.www{host}.requests {host} {at_s}\n"));
        text.push_str(&format!("old.apps.web.www{host}.latency {}.5 {at_s}.25\n", 10 * host));
    }
    send(&server, &text);
    // one of the points comes by HTTP
    let line = format!("prod.apps.web.www5.requests 100 {at_s}\n");
    server.send(&Request::post("/api/v1/graphite", line.into())).expect(204, &[]);
    let read = |target: &str| {
        let path = format!("/render?format=json&target={target}&from={}&until={at_s}", at_s - 1);
        server.send(&Request::get(&path)).expect(200, &[]).json()[0]["datapoints"][0][0].as_f64()
    };
    let value = |target: &str| wait_for(target, || read(target));
    assert_eq!(value("prod.apps.web.all.requests"), 110.0);
    assert!((value("prod.slowest") - (40.5 * 0.97 + 30.5 * 0.03)).abs() < 1e-9);
    assert_eq!(value("prod.hosts"), 9.0);
    assert_eq!(value("prod.apps.web.www3.requests"), 3.0, "inputs are stored");
    // a late point changes what was computed
    send(&server, &format!("prod.apps.web.www6.requests 1000 {at_s}\n"));
    wait_for("the late point", || (read("prod.apps.web.all.requests") == Some(1110.0)).then_some(()));
    assert_eq!(metric(&server, "missed_total{reason=\"late\"}"), 0.0);
    assert!(metric(&server, "computed_points_total") >= 4.0);
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
}

/// Three points a second, until told to stop.
fn send_steadily(server: &Server, stop: &AtomicBool) {
    let stream = connect(server);
    let mut last_s = now_ms() / 1000;
    while !stop.load(Ordering::Relaxed) {
        let now_s = now_ms() / 1000;
        for at_s in last_s + 1..=now_s {
            let text: String = (0..3).map(|i| format!("in.host{i}.x 1 {at_s}\n")).collect();
            (&stream).write_all(text.as_bytes()).unwrap();
        }
        last_s = now_s;
        std::thread::sleep(Duration::from_millis(20)); // the rate of the load
    }
    assert!(all_durable(&stream));
}

#[test]
fn rules_change_under_load_and_no_value_is_of_a_part_of_the_points() {
    let dir = tempfile::tempdir().unwrap();
    let same = "same (1) = sum in.*.x\n";
    let server = Server::start(with_rules(dir.path(), same).allow("cannot reload a file"));
    let (stop, changes) = (AtomicBool::new(false), 4);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| send_steadily(&server, &stop));
        wait_for("the first sum", || (samples(&server, "same").len() > 1).then_some(()));
        for change in 0..changes {
            file(dir.path(), "aggregation-rules.conf", &format!("{same}new{change} (1) = count in.*.x\n"));
            server.signal_hangup();
            wait_for("the new rule", || (samples(&server, &format!("new{change}")).len() > 1).then_some(()));
        }
        // an invalid file changes nothing
        file(dir.path(), "aggregation-rules.conf", "same (1) = median in.*.x\n");
        server.signal_hangup();
        let current = "floodmark_file_current{file=\"graphite_rules\"}";
        wait_for("the error", || (server.metric(current) == 0.0).then_some(()));
        let before = samples(&server, "same").len();
        wait_for("further sums", || (samples(&server, "same").len() > before + 2).then_some(()));
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
    });
    let inputs = samples(&server, "in.host0.x");
    let (first_s, last_s) = (samples(&server, "same")[0].0, inputs.last().unwrap().0);
    // points that came late are in the value that is computed next
    wait_for("all sums", || {
        let expected: Vec<_> = (first_s..=last_s).map(|at_s| (at_s, 3.0)).collect();
        (samples(&server, "same") == expected).then_some(())
    });
    for change in 0..changes {
        let values = samples(&server, &format!("new{change}"));
        let seconds: Vec<_> = (values[0].0..).zip(&values).map(|(at_s, (_, value))| (at_s, *value)).collect();
        assert_eq!(values, seconds, "new{change} has a gap");
        assert!(values.iter().all(|(_, value)| *value == 3.0), "new{change}: {values:?}");
    }
    assert_eq!(server.log_lines("aggregation-rules.conf:1: unknown function").len(), 1);
}

#[test]
fn after_a_kill_an_interval_is_whole_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(with_rules(dir.path(), "all (3) = sum in.*.x\n"));
    for round in 0..3 {
        let before = samples(&server, "all").len();
        let (stop, server_ref) = (AtomicBool::new(false), &server);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| send_steadily(server_ref, &stop));
            wait_for("a sum", || (samples(server_ref, "all").len() > before).then_some(()));
            stop.store(true, Ordering::Relaxed);
            load.join().unwrap();
        });
        if round < 2 {
            server.kill9();
            server.restart();
        }
    }
    let values = samples(&server, "all");
    assert!(values.len() >= 3, "{values:?}");
    // the load pauses during a restart and at its beginning, so whole intervals have three points for each second in which
    // an input has one
    let inputs = samples(&server, "in.host0.x");
    wait_for("late points", || {
        let values = samples(&server, "all");
        let whole = |(at_s, value): &(i64, f64)| {
            let seconds = inputs.iter().filter(|(input_s, _)| (*at_s..at_s + 3).contains(input_s)).count();
            *value == 3.0 * seconds as f64
        };
        values.iter().all(whole).then_some(())
    });
}

/// While the tenant is at its limit of series, a request with a new one is refused in part, however often it is sent.
#[test]
fn a_request_that_is_refused_in_part_makes_a_gap_and_loses_no_point() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "out.count (2) = count in.*\nr.<m> (2) = sum r.<<m>>\n";
    let limits = "active_series = 4\ncarbon_metrics_interval = \"never\"\n";
    let server = Server::start(with_rules(dir.path(), rules).config(limits));
    let post = |names: &[&str], at_s: i64| {
        let text: String = names.iter().map(|name| format!("{name} 7 {at_s}\n")).collect();
        server.send(&Request::post("/api/v1/graphite", text.into()))
    };
    // too late to count
    post(&["in.a", "in.b", "r.a", "out.count"], now_ms() / 1000 - 60).expect(204, &[]);
    // an interval that begins more than a second after the server did
    let at_s = (now_ms() / 1000 + 4) / 2 * 2;
    wait_for("the interval", || (now_ms() > at_s * 1000).then_some(()));
    for _ in 0..2 {
        let report = "partial write: 3 samples stored; 1 samples of 1 series refused";
        post(&["in.a", "in.b", "r.a", "new"], at_s).expect(429, &[report]);
    }
    assert_eq!(samples(&server, "r.a").last(), Some(&(at_s, 7.0)));
    let next_s = at_s + 2;
    wait_for("the next interval", || (now_ms() > next_s * 1000).then_some(()));
    post(&["in.a", "in.b", "r.a"], next_s).expect(204, &[]);
    for (name, value) in [("out.count", 2.0), ("r.a", 7.0)] {
        wait_for(name, || (samples(&server, name).last() == Some(&(next_s, value))).then_some(()));
    }
    let counts = samples(&server, "out.count");
    assert!(counts.iter().all(|(start_s, _)| *start_s != at_s), "{counts:?}");
    assert!(metric(&server, "incomplete_total") >= 2.0);
    assert_eq!(metric(&server, "missed_total{reason=\"refused\"}"), 6.0);
}

#[test]
fn a_flood_of_outputs_is_bounded_and_known_ones_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "all.<x> (5) = sum in.<x>\np.<x> (3600) = p50 flood.<x>\n";
    let server = Server::start(with_rules(dir.path(), rules).arg("--memory=64MiB"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let over = SetOnDrop(&is_over);
        // an output without points for some intervals is closed, and would have to find memory again
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let stream = connect(&server);
                (&stream).write_all(format!("in.known 1 {}\n", now_ms() / 1000).as_bytes()).unwrap();
                all_durable(&stream); // this also paces the points
            }
        });
        wait_for("the known output", || (!samples(&server, "all.known").is_empty()).then_some(()));
        for flood in 0..20 {
            let now_s = now_ms() / 1000;
            let text: String = (0..1000).map(|i| format!("flood.x{flood}-{i} 1 {now_s}\n")).collect();
            let stream = connect(&server);
            (&stream).write_all(text.as_bytes()).unwrap();
            all_durable(&stream);
        }
        let part = |what: &str| {
            let part = "{account=\"head\",part=\"aggregator\"}";
            server.metric(&format!("floodmark_budget_part_{what}_bytes{part}"))
        };
        assert!(part("used") <= part("limit"), "{} of {}", part("used"), part("limit"));
        assert!(metric(&server, "missed_total{reason=\"memory\"}") > 0.0);
        let ended_s = now_ms() / 1000;
        let goes_on = || samples(&server, "all.known").iter().any(|(at_s, _)| *at_s >= ended_s);
        wait_for("the known output after the flood", || goes_on().then_some(()));
        drop(over);
    });
}
