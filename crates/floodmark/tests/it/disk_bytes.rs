//! The limit on the bytes of a tenant's tables, `disk_bytes`. Only sealed samples count.

use crate::harness::http::Reply;
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::tenants::Overrides;
use serde_json::Value;
use stdx::rng::Rng;

/// A request with one sample for each of 2,000 series. The values are random, so that they cannot be
/// compressed.
fn samples(tenant: &str, metric: &str, rng: &mut Rng) -> Request {
    let now_s = now_ms() / 1000;
    let value = |rng: &mut Rng| rng.next_u64() as f64 / u64::MAX as f64;
    let lines: String = (0..2000).map(|i| format!("{metric};i={i} {} {now_s}\n", value(rng))).collect();
    Request::post("/api/v1/graphite", lines.into()).tenant(tenant)
}

fn flush(server: &Server) {
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
}

/// Alternately writes and seals until a write is refused. Returns the refusal.
fn fill(server: &Server, tenant: &str, rng: &mut Rng) -> Reply {
    for _ in 0..50 {
        let reply = server.send(&samples(tenant, "m", rng));
        if reply.status != 204 {
            return reply;
        }
        flush(server);
    }
    panic!("50 writes fit into the limit");
}

fn limit(server: &Server, tenant: &str, name: &str) -> Value {
    let limits = server.send(&Request::get("/api/v1/user_limits").tenant(tenant)).json();
    let rows = limits["data"]["limits"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{limits}")).clone()
}

fn wait_for_status(server: &Server, tenant: &str, status: u16, rng: &mut Rng) {
    wait_for("the answer", || (server.send(&samples(tenant, "m", rng)).status == status).then_some(()));
}

const LIMITED: &str = "[tenant.a]\ndisk_bytes = '64KiB'\n";

#[test]
fn a_tenant_at_its_limit_writes_again_once_the_limit_is_raised() {
    let (overrides, mut rng) = (Overrides::new(LIMITED), Rng::announced());
    let mut server = Server::start(overrides.options());
    let refused = fill(&server, "a", &mut rng);
    refused.expect(429, &["disk_bytes", "64 KiB"]);
    let retry_after: u32 = refused.header("retry-after").expect("Retry-After").parse().expect("a number");
    assert!((10..=60).contains(&retry_after), "{retry_after}");
    server.send(&samples("a", "new", &mut rng)).expect(429, &["disk_bytes"]);
    server.send(&samples("b", "m", &mut rng)).expect(204, &[]);
    let query = format!("/api/v1/query?query=count(m)&time={}", now_ms() / 1000);
    server.send(&Request::get(query).tenant("a")).expect(200, &["\"2000\""]);
    let row = limit(&server, "a", "disk_bytes");
    assert!(row["value"] == "64KiB" && row["origin"] == "file", "{row}");
    assert!(row["used"].as_u64() >= Some(64 << 10) && row["peak"].as_u64() >= row["used"].as_u64(), "{row}");
    assert_eq!(limit(&server, "a", "tenant_tables")["used"], 1);
    let row = limit(&server, "b", "disk_bytes");
    assert!(
        row["origin"] == "derived" && row["from"].as_str().is_some_and(|from| from.contains("90 %")),
        "{row}"
    );
    // after a restart, the sizes of the tables must be determined again
    server.kill9();
    server.restart();
    wait_for_status(&server, "a", 429, &mut rng);
    overrides.write("[tenant.a]\ndisk_bytes = '1GiB'\n");
    wait_for_status(&server, "a", 204, &mut rng);
    // samples that were accepted are sealed even if the limit is exceeded
    overrides.write("disk_bytes = '64KiB'\nlimit_status = '503'\n");
    wait_for_status(&server, "a", 503, &mut rng);
    let before = limit(&server, "a", "disk_bytes")["used"].as_u64();
    flush(&server);
    assert!(limit(&server, "a", "disk_bytes")["used"].as_u64() > before);
    server.send(&samples("a", "m", &mut rng)).expect(503, &["disk_bytes"]);
}

#[test]
fn a_tenant_at_its_limit_writes_again_once_a_delete_has_made_room() {
    let (overrides, mut rng) = (Overrides::new(LIMITED), Rng::announced());
    let server = Server::start(overrides.options());
    fill(&server, "a", &mut rng).expect(429, &["disk_bytes"]);
    let params = [("match[]", "{__name__=~\".+\"}")];
    server.send(&Request::form("/api/v1/admin/tsdb/delete_series", &params).tenant("a")).expect(204, &[]);
    // compaction writes the files again without the deleted samples
    server.send(&Request::post("/api/v1/admin/compact", Vec::new())).expect(200, &["\"failures\":0"]);
    assert_eq!(limit(&server, "a", "disk_bytes")["used"], 0);
    server.send(&samples("a", "m", &mut rng)).expect(204, &[]);
}

#[test]
fn a_node_has_a_limit_by_default() {
    let server = Server::start(Options::default());
    let row = limit(&server, "a", "disk_bytes");
    assert!(row["origin"] == "derived" && row["value"] != "none", "{row}");
    let row = limit(&server, "a", "tenant_tables");
    assert!(row["value"] == 3 && row["bounds"] == "1 to 3", "{row}");
}
