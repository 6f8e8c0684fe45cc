//! vmagent with the command of its page. It scrapes the server.

use super::{HTTP, TEAM, have, page, value_of};
use crate::harness::pages::{shell, with};
use crate::harness::programs::{Running, free_port};
use crate::harness::{Server, wait_for};

#[test]
fn vmagent_scrapes_and_sends() {
    if !have("vmagent", "Go") {
        return;
    }
    let (dir, server, port) = (tempfile::tempdir().unwrap(), Server::new(), free_port());
    let page = page("vmagent");
    let address = [(HTTP, server.address.to_string())];
    let scrapes = with(page.block("Set-up", "yaml"), &address);
    let scrapes = format!("global: {{ scrape_interval: 500ms }}\n{scrapes}");
    std::fs::write(dir.path().join("scrape.yml"), scrapes).unwrap();
    let command = with(page.block("Set-up", "sh"), &address);
    let script = format!(
        "exec {} -httpListenAddr=127.0.0.1:{port} -remoteWrite.flushInterval=200ms",
        command.trim_end()
    );
    let _vmagent = Running::start(&mut shell(&script, dir.path()), port, dir.path().join("log"));
    let instance = server.address;
    for (series, expected) in [
        (format!(r#"up{{job="floodmark",instance="{instance}"}}"#), 1.0),
        ("floodmark_build_info".into(), 1.0),
    ] {
        wait_for(&series, || value_of(&server, TEAM, &series).filter(|value| *value == expected));
    }
}
