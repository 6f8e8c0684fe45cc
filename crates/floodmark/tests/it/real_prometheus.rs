//! A real Prometheus scrapes a node exporter and itself. It writes to Floodmark with remote write 1.0 and
//! 2.0, while Floodmark is stopped and killed. In the end, both must give the same answers.
//!
//! The script `scripts/test-servers.sh` installs Prometheus and the node exporter. With `FLOODMARK_LONG=1`,
//! the test takes minutes.

mod blocks;
mod compare;
mod errors;
mod pairs;
mod refusals;
mod same_data;
pub(crate) mod servers;

use crate::harness::programs::free_port;
use crate::harness::tls::Client;
use crate::harness::{Options, Request, Server, now_ms, read, wait_for};
use crate::tls;
use servers::{NodeExporter, Prometheus, TENANTS};
use std::time::Duration;

struct Schedule {
    before: Duration,
    outage: Duration,
    between: Duration,
}

fn schedule() -> Schedule {
    let seconds = Duration::from_secs;
    match std::env::var_os("FLOODMARK_LONG") {
        Some(_) => Schedule { before: seconds(60), outage: seconds(30), between: seconds(60) },
        None => Schedule { before: seconds(6), outage: seconds(3), between: seconds(3) },
    }
}

#[test]
fn a_real_prometheus_and_floodmark_agree() {
    let (Some(prometheus), Some(exporter)) = (Prometheus::find(), NodeExporter::find()) else {
        stdx::skipped::for_want_of("Prometheus and a node exporter (scripts/test-servers.sh)");
        return;
    };
    let Schedule { before, outage, between } = schedule();
    // the only purpose of these sleeps is to give time for scrapes
    let let_pass = std::thread::sleep;

    let mut server = Server::start(Options::default().port(free_port()));
    let mut exporter = exporter.start();
    let mut prometheus = prometheus.start(server.address, exporter.address());
    let start_ms = now_ms();
    let_pass(before);

    assert!(server.terminate().success());
    let_pass(outage);
    server.restart();
    prometheus.wait_until_sent(now_ms());

    // staleness markers are written when a target disappears
    exporter.stop();
    let_pass(between);
    exporter.restart();
    let_pass(between);

    server.kill9();
    let_pass(outage);
    server.restart();
    let_pass(between);

    let end_ms = now_ms();
    prometheus.wait_until_sent(end_ms);
    let window = compare::Window { start_ms, end_ms };
    for tenant in TENANTS {
        eprintln!("tenant {tenant}, {} s", (end_ms - start_ms) / 1000);
        wait_for("all queues to be empty", || {
            compare::raw_samples(&server, &prometheus, tenant, window).ok()
        });
        compare::answers(&server, &prometheus, tenant, window);
        compare::catalogs(&server, &prometheus, tenant, window);
    }
    prometheus.assert_nothing_was_dropped();
}

#[test]
fn a_real_prometheus_is_known_by_its_certificate() {
    let Some(prometheus) = Prometheus::find() else { return };
    let Some((authority, dir)) = tls::authority() else { return };
    let options = tls::with_clients(&authority, dir.path(), "required");
    let server = Server::start(options.port(free_port()));
    let mut prometheus = prometheus.start_encrypted(server.address, &authority, "team-a");
    prometheus.wait_until_sent(now_ms());
    let query = Request::ask(
        "/api/v1/query",
        &[("query", "up{job=\"prometheus\"}"), ("time", &read::seconds(now_ms()))],
    );
    let client = Client::new(&[&authority], Some("team-a"));
    let reply = client.send(server.address, &query).unwrap();
    reply.expect(200, &["\"job\":\"prometheus\"", ",\"1\"]"]);
    let failed = prometheus.metric("prometheus_remote_storage_samples_failed_total");
    assert!(failed.iter().all(|count| *count == 0.0), "{failed:?}");
}

#[test]
fn bad_requests_fail_as_prometheus_fails_them() {
    let Some(prometheus) = Prometheus::find() else { return };
    let server = Server::new();
    let prometheus = prometheus.start_quiet();
    errors::are_alike(&server, &prometheus);
}

#[test]
fn the_same_data_gives_the_same_answers() {
    let Some(prometheus) = Prometheus::find() else { return };
    let mut server = Server::new();
    let prometheus = prometheus.start_quiet();
    let end_ms = same_data::write(&server, &prometheus);
    for _ in 0..2 {
        let (asked, wrong) = same_data::ask(&server, &prometheus, end_ms);
        eprintln!("{asked} questions");
        assert!(wrong.is_empty(), "{} of {asked} answers differ:\n{}", wrong.len(), wrong.join("\n"));
        // compare again after the journal was replayed
        server.kill9();
        server.restart();
    }
}
