//! Clients of statsd, with the programs of their page.

use super::page;
use crate::harness::pages::{run, shell, with};
use crate::harness::programs::{cache, find};
use crate::harness::{Options, Server, now_ms, wait_for};

fn server() -> Server {
    Server::start(Options::default().arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=200ms"))
}

#[track_caller]
fn wait_for_values(server: &Server, expected: &[(&str, f64)]) {
    for (query, expected) in expected {
        wait_for(query, || (server.value(query, now_ms()) == Some(*expected)).then_some(()));
    }
}

/// Runs the program of the page below a heading. Returns false if `module` is missing.
fn python(server: &Server, heading: &str, module: &str) -> bool {
    let (page, dir) = (page("statsd"), tempfile::tempdir().unwrap());
    let installed = cache().join("py/bin/python").is_file()
        && shell(&format!("python -c 'import {module}'"), dir.path())
            .output()
            .is_ok_and(|o| o.status.success());
    if !installed {
        stdx::skipped::for_want_of(&format!("the Python package {module} (scripts/test-servers.sh)"));
        return false;
    }
    let port = server.logged_address("statsd").port();
    let program = with(page.block(heading, "python"), &[("8125", port.to_string())]);
    std::fs::write(dir.path().join("program.py"), program).unwrap();
    run("python -B program.py", dir.path());
    true
}

#[test]
fn a_client_for_python_sends_to_statsd() {
    let server = server();
    if python(&server, "Python", "statsd") {
        let users = r#"max_over_time({"app.users"}[1m])"#;
        let rest = [(r#"{"app.jobs"}"#, 3.0), (r#"{"app.load"}"#, 0.75), (r#"{"app.duration_sum"}"#, 250.0)];
        wait_for_values(&server, &[&rest[..], &[(users, 1.0)]].concat());
    }
}

#[test]
fn a_client_of_dogstatsd_for_python_sends_tags() {
    let server = server();
    if python(&server, "Python, with tags", "datadog") {
        let tags = r#"{country="de"}"#;
        let series = |name: &str| format!("{name}{tags}");
        let names = ["orders", "pool", "latency_count", "latency_sum"].map(series);
        let expected: Vec<_> = names.iter().map(String::as_str).zip([2.0, 7.0, 1.0, 12.0]).collect();
        wait_for_values(&server, &expected);
    }
}

#[test]
fn a_client_for_node_sends_tags() {
    let modules = cache().join("hot-shots/node_modules");
    if find(&["node"]).is_none() || !modules.join("hot-shots").is_dir() {
        return stdx::skipped::for_want_of("hot-shots (install Node.js, then run scripts/test-servers.sh)");
    }
    let (server, page, dir) = (server(), page("statsd"), tempfile::tempdir().unwrap());
    let port = server.logged_address("statsd").port();
    let program = with(page.block("Node.js", "js"), &[("8125", port.to_string())]);
    std::fs::write(dir.path().join("program.js"), program).unwrap();
    run(&format!("NODE_PATH='{}' node program.js", modules.display()), dir.path());
    let expected = [
        (r#"visits{country="fr"}"#, 2.0),
        (r#"render_sum{country="fr"}"#, 40.0),
        (r#"max_over_time(visitors{country="fr"}[1m])"#, 1.0),
    ];
    wait_for_values(&server, &expected);
}

#[test]
fn netcat_sends_to_statsd() {
    if find(&["nc"]).is_none() {
        return stdx::skipped::for_want_of("nc (apt-get install netcat-openbsd)");
    }
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let port = server.logged_address("statsd").port();
    let pages = [page("statsd"), crate::harness::pages::Page::read("docs/statsd.md")];
    let blocks: Vec<_> =
        pages.iter().flat_map(|page| page.all("sh")).filter(|b| b.contains("nc -u")).collect();
    for (number, block) in blocks.iter().enumerate() {
        run(&with(block, &[("8125", port.to_string())]), dir.path());
        wait_for_values(&server, &[(r#"requests{code="200"}"#, (number + 1) as f64)]);
    }
    assert_eq!(blocks.len(), 2);
}
