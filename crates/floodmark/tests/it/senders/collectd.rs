//! collectd with the configuration of its page.

use super::page;
use crate::harness::pages::with;
use crate::harness::programs::{Running, find};
use crate::harness::{Options, Server, now_ms, wait_for};
use std::process::Command;

#[test]
fn collectd_writes_its_values() {
    let Some(collectd) = find(&["collectd", "/usr/sbin/collectd"]) else {
        return stdx::skipped::for_want_of("collectd (scripts/test-servers.sh)");
    };
    let (dir, page) = (tempfile::tempdir().unwrap(), page("collectd"));
    let server = Server::start(Options::default().arg("--graphite=127.0.0.1:0"));
    let port = server.logged_address("graphite").port();
    let block = with(page.block("Set-up", "apache"), &[("2003", port.to_string())]);
    let own = format!(
        "Hostname \"web1\"\nFQDNLookup false\nBaseDir \"{0}\"\nPIDFile \"{0}/pid\"\nInterval 1\n",
        dir.path().display()
    );
    let conf = dir.path().join("collectd.conf");
    std::fs::write(&conf, own + &block).unwrap();
    let mut command = Command::new(collectd);
    command.arg("-f").arg("-C").arg(&conf);
    let _collectd = Running::start(&mut command, 0, dir.path().join("collectd.log"));
    wait_for("collectd's load", || server.value(r#"{"collectd.web1.load.load.shortterm"}"#, now_ms()));
}
