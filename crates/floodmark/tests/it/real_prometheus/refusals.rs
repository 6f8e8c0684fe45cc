//! A real Prometheus is refused for a while. It must not send more requests than before, and lose nothing.

use super::servers::{NodeExporter, Prometheus, TENANTS};
use crate::harness::{Server, now_ms, wait_for};
use crate::tenants::Overrides;
use std::time::{Duration, Instant};

/// Far fewer samples than are scraped. After each accepted request, the next ones are refused for some seconds.
const REFUSE: &str = "samples_per_second = 300\nrate_burst = \"1s\"\nlimit_status = \"503\"\n";

/// The number of requests that Prometheus has sent, whatever their answers were.
fn attempts(prometheus: &Prometheus) -> f64 {
    prometheus.metric("prometheus_remote_storage_sent_batch_duration_seconds_count").iter().sum()
}

/// Requests per second during this time.
fn rate(prometheus: &Prometheus, lasts: Duration) -> f64 {
    let (began, before) = (Instant::now(), attempts(prometheus));
    // the purpose of this sleep is to give time for scrapes and for retries
    std::thread::sleep(lasts);
    (attempts(prometheus) - before) / began.elapsed().as_secs_f64()
}

#[test]
fn a_real_prometheus_does_not_send_more_when_it_is_refused() {
    let (Some(prometheus), Some(exporter)) = (Prometheus::find(), NodeExporter::find()) else { return };
    let lasts = Duration::from_secs(if std::env::var_os("FLOODMARK_LONG").is_some() { 60 } else { 8 });
    let overrides = Overrides::new("");
    let server = Server::start(overrides.options().allow("has no settings"));
    let exporter = exporter.start();
    let mut prometheus = prometheus.start(server.address, exporter.address());
    prometheus.wait_until_sent(now_ms());
    let accepted = rate(&prometheus, lasts);
    assert!(
        accepted >= TENANTS.len() as f64 / 2.0,
        "{accepted:.1} requests per second are too few to compare"
    );

    overrides.write(REFUSE);
    let refusals = || server.metric("floodmark_refusals_total{reason=\"samples_rate\"}");
    wait_for("the first refusals", || (refusals() > 0.0).then_some(()));
    let refused = rate(&prometheus, lasts);
    eprintln!(
        "{accepted:.1} requests per second while they are accepted, {refused:.1} while they are refused"
    );
    assert!(refused <= accepted, "{refused:.1} requests per second while refused, {accepted:.1} before");

    overrides.write("");
    prometheus.wait_until_sent(now_ms());
    prometheus.assert_nothing_was_dropped();
}
