//! The server can store its own metrics as series of a tenant.

use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use serde_json::Value;

const TENANT: Option<&str> = Some("floodmark-system");

fn series(server: &Server, query: &str) -> Vec<Value> {
    server.query_as(TENANT, query, now_ms())["result"].as_array().expect("a vector").clone()
}

#[test]
fn by_default_a_server_stores_its_own_metrics() {
    let mut server = Server::start(Options::default().monitor_itself().allow("requests refused"));
    let up = wait_for("the first samples", || series(&server, "up").pop());
    assert_eq!(up["metric"]["job"], "floodmark");
    let instance = up["metric"]["instance"].as_str().expect("an instance");
    assert!(instance.ends_with(&format!(":{}", server.address.port())), "{instance}");
    let all = server.metric("floodmark_self_monitoring_series");
    assert!((200.0..1000.0).contains(&all), "docs/operating.md states another number of series than {all}");

    // other tenants do not see these series, and clients cannot write them
    assert_eq!(server.query("up", now_ms())["result"], Value::Array(vec![]));
    let own = Series::new(&[("__name__", "up")]).sample(now_ms(), 0.0);
    let write = Request::write(&wire::v1(&[own])).tenant("floodmark-system");
    server.send(&write).expect(403, &["floodmark-system", "self_monitoring_tenant"]);
    let line = Request::post("/api/v1/graphite", b"a 1 1".to_vec()).tenant("floodmark-system");
    server.send(&line).expect(403, &["floodmark-system", "self_monitoring_tenant"]);

    // the server's own samples must be as durable as all others
    let before = series(&server, "count_over_time(up[1h])");
    server.kill9();
    server.restart();
    let after = |server: &Server| {
        let query = format!("count_over_time(up{{instance=\"{instance}\"}}[1h])");
        series(server, &query).pop().map(|series| series["value"][1].clone())
    };
    assert_eq!(after(&server), before.first().map(|series| series["value"][1].clone()));
    let restarted = format!("up{{instance=~\".*:{}\"}}", server.address.port());
    wait_for("samples after the restart", || series(&server, &restarted).pop());
}

#[test]
fn never_means_that_nothing_is_stored() {
    let server = Server::new();
    assert_eq!(server.metric("floodmark_self_monitoring_samples_total"), 0.0);
    assert_eq!(series(&server, "up"), [Value::Null; 0]);
    assert_eq!(server.metric("floodmark_head_series"), 0.0);
}
