//! Prometheus with the configurations of its page. It scrapes itself.

use super::{HTTP, TEAM, page, value_of};
use crate::harness::Server;
use crate::harness::pages::{shell, with};
use crate::harness::programs::{Running, free_port};
use crate::harness::wait_for;
use crate::real_prometheus::servers::Prometheus;

fn writes(heading: &str, tenant: &str) {
    // remote write 2.0 needs Prometheus 3
    if Prometheus::find().is_none() {
        return;
    }
    let (dir, server, port) = (tempfile::tempdir().unwrap(), Server::new(), free_port());
    let page = page("prometheus");
    let own = format!("127.0.0.1:{port}");
    let config = with(
        page.block(heading, "yaml"),
        &[(HTTP, server.address.to_string()), ("127.0.0.1:9090", own.clone())],
    );
    let config = format!("global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\n{config}");
    std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let script = format!("exec prometheus --config.file=prometheus.yml --web.listen-address={own}");
    let _prometheus = Running::start(&mut shell(&script, dir.path()), port, dir.path().join("log"));
    let up = format!(r#"up{{job="prometheus",instance="{own}"}}"#);
    wait_for(&up, || value_of(&server, tenant, &up).filter(|up| *up == 1.0));
    wait_for("a counter", || {
        let query = r#"increase(prometheus_tsdb_head_samples_appended_total{type="float"}[1m])"#;
        value_of(&server, tenant, query).filter(|samples| *samples > 0.0)
    });
}

#[test]
fn prometheus_sends_remote_write_1() {
    writes("Remote write 1.0", "anonymous");
}

#[test]
fn prometheus_sends_remote_write_2() {
    writes("Remote write 2.0", TEAM);
}
