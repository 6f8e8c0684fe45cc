//! Deduplication of the samples of replicas.

use crate::harness::read::data;
use crate::harness::wire::{self, Series};
use crate::harness::{Reply, Request, Server, now_ms, wait_for};
use crate::tenants::Overrides;
use serde_json::json;

fn series(cluster: &str, replica: &str, now_ms: i64) -> Series {
    let labels = [("__name__", "m"), ("__replica__", replica), ("cluster", cluster)];
    Series::new(&labels).sample(now_ms, 1.0).exemplar(&[("trace", "x")], now_ms, 1.0)
}

fn written(reply: &Reply) -> [Option<&str>; 2] {
    ["samples", "exemplars"].map(|what| reply.header(&format!("x-prometheus-remote-write-{what}-written")))
}

#[test]
fn replicas_are_deduplicated_once_the_overrides_enable_it() {
    let overrides = Overrides::new("[tenant.b]\nha_dedup = true\n");
    let server = Server::start(overrides.options());
    let send = |tenant: &str, cluster: &str, replica: &str| {
        let body = wire::v1(&[series(cluster, replica, now_ms())]);
        server.send(&Request::write(&body).tenant(tenant))
    };
    let labels = |tenant: &str| {
        let names = data(&server.send(&Request::get("/api/v1/labels").tenant(tenant)));
        names.as_array().unwrap().iter().any(|name| name == "__replica__")
    };
    let tracker = |tenant: &str| data(&server.send(&Request::get("/api/v1/ha_tracker").tenant(tenant)));
    send("a", "c", "one").expect(204, &[]);
    assert!(labels("a"), "replicas are de-duplicated although ha_dedup is not set");
    assert_eq!(tracker("a"), json!({"enabled": false, "truncated": false, "clusters": []}));
    send("b", "c", "one").expect(204, &[]);
    send("b", "c", "two").expect(204, &[]);
    assert!(!labels("b"));

    overrides.write("[class.all]\ntenants = ['*']\nha_dedup = true\nha_failover = '1h'\nha_clusters = 1\n");
    wait_for("the overrides", || (tracker("a")["enabled"] == true).then_some(()));
    send("a", "c", "one").expect(204, &[]);
    // for Prometheus, a 2.0 answer that reports no written samples would mean a failure
    let request = Request::write_v2(&wire::v2(&[series("c", "two", now_ms())])).tenant("a");
    let reply = server.send(&request);
    reply.expect(204, &[]);
    assert_eq!(written(&reply), [Some("1"), Some("1")]);
    let state = tracker("a");
    let cluster = &state["clusters"][0];
    assert_eq!([&cluster["cluster"], &cluster["replica"]], ["c", "one"], "{state}");
    assert_eq!(cluster["failovers"], 0);
    // with Cortex' names, of all tenants
    let all = server.send(&Request::get("/distributor/ha_tracker")).json();
    let own = all["elected"].as_array().unwrap().iter().find(|one| one["userID"] == "a").unwrap();
    assert_eq!([&own["cluster"], &own["replica"]], ["c", "one"], "{all}");
    assert!(own["failoverDuration"].as_u64() <= Some(3_600_000_000_000), "{all}");
    assert!(own["electedAt"].as_str() <= all["now"].as_str() && own["updateDuration"].is_u64(), "{all}");
    assert!(cluster["heardSecondsAgo"].as_f64() <= cluster["electedSecondsAgo"].as_f64(), "{state}");
    assert!(server.metric("floodmark_ha_deduplicated_samples_total") >= 2.0);
    send("a", "d", "one").expect(429, &["1 clusters of replicas", "ha_clusters", "m{"]);
    assert_eq!(server.metric("floodmark_refusals_total{reason=\"ha_clusters\"}"), 1.0);
    let limits = server.send(&Request::get("/api/v1/user_limits").tenant("a")).text();
    let clusters = limits.split("{\"name\":").find(|limit| limit.starts_with("\"ha_clusters\""));
    assert!(clusters.is_some_and(|limit| limit.contains("\"used\":1,\"peak\":1}")), "{limits}");

    overrides.write("ha_dedup = true\nha_failover = '1ms'\n");
    wait_for("the failover", || {
        send("a", "c", "two").expect(204, &[]);
        (tracker("a")["clusters"][0]["replica"] == "two").then_some(())
    });
    assert_eq!(server.metric("floodmark_ha_clusters"), 2.0);
}
