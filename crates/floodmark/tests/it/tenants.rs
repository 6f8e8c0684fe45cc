//! Limits of tenants can be changed while the server runs.

use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::transfer::succeed;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// A file with overrides, which is always replaced atomically.
pub(crate) struct Overrides(TempDir);

impl Overrides {
    pub(crate) fn new(text: &str) -> Self {
        let overrides = Self(tempfile::tempdir().unwrap());
        overrides.write(text);
        overrides
    }

    pub(crate) fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    pub(crate) fn path(&self) -> Box<Path> {
        self.0.path().join("overrides.toml").into()
    }

    pub(crate) fn options(&self) -> Options {
        Options::default().arg("--overrides").arg(self.path().to_str().unwrap())
    }
}

fn series(tenant: &str, name: &str, count: usize) -> Request {
    let now_s = now_ms() / 1000;
    let lines: String = (0..count).map(|i| format!("{name};i={i} 1 {now_s}\n")).collect();
    Request::post("/api/v1/graphite", lines.into()).tenant(tenant)
}

#[test]
fn limits_change_while_the_server_runs() {
    let overrides = Overrides::new("[tenant.a]\nactive_series = 3\n");
    let server = Server::start(overrides.options());
    server.send(&series("a", "m", 5)).expect(429, &["3 active series", "active_series"]);
    server.send(&series("b", "m", 5)).expect(204, &[]);
    let limits = server.send(&Request::get("/api/v1/user_limits").tenant("a")).text();
    let active = limits.split("{\"name\":").find(|limit| limit.starts_with("\"active_series\""));
    let (active, from) = (active.expect(&limits), format!("{}:2", overrides.path().display()));
    let expected = format!(
        r#""active_series","value":3,"origin":"file","from":"{from}","bounds":"1 to 1099511627776","reason":"Limit on"#
    );
    assert!(active.starts_with(&expected) && active.ends_with(r#","used":3,"peak":3},"#), "{active}");
    let stats = server.send(&Request::get("/api/v1/user_stats").tenant("b")).text();
    assert!(stats.contains(r#""numSeries":5,"#), "{stats}");
    let diff = server.send(&Request::get("/runtime_config?mode=diff")).text();
    assert_eq!(diff, format!("tenant.a.active_series = 3  # file: {from}\n"));
    let tenants = server.send(&Request::get("/api/v1/admin/tenants")).text();
    assert!(tenants.contains(r#"{"tenant":"a","series":3,"seriesPeak":3,"#), "{tenants}");
    let stats = server.send(&Request::get("/distributor/all_user_stats")).json();
    let stats: Vec<_> =
        stats.as_array().unwrap().iter().map(|own| (&own["userID"], &own["numSeries"])).collect();
    let place = |name: &str, series: u64| stats.iter().position(|own| *own == (&name.into(), &series.into()));
    assert!(place("b", 5).is_some() && place("b", 5) < place("a", 3), "{stats:?}");
    overrides.write("[class.some]\ntenants = ['a*']\nactive_series = 5\n");
    wait_for("the new limit", || (server.send(&series("a", "m", 5)).status == 204).then_some(()));
    server.send(&series("a", "n", 1)).expect(429, &["5 active series"]);
    server.send(&series("ab", "m", 6)).expect(429, &["5 active series"]);
    // if the limit is below the current number of series, those that exist are still written, and none is
    // dropped
    overrides.write("active_series = 2\nlimit_status = '503'\n");
    wait_for("the other status", || (server.send(&series("a", "n", 1)).status == 503).then_some(()));
    server.send(&series("a", "m", 5)).expect(204, &[]);
    let at_ms = now_ms();
    let query = format!("/api/v1/query?query=count(m)&time={}", at_ms / 1000);
    let reply = server.send(&Request::get(query).tenant("a"));
    assert!(reply.text().contains("\"5\""), "{}", reply.text());
}

#[test]
fn the_configuration_is_listed_with_and_without_defaults() {
    let config = "retention = \"90d\"\npast_limit = \"2d\"\n[tenant.a]\nactive_series = 7\n";
    let server = Server::start(Options::default().config(config));
    let of = |path: &str| server.send(&Request::get(path)).expect(200, &[]).text();
    let (all, diff) = (of("/config"), of("/config?mode=diff"));
    let lines: Vec<_> = diff.lines().collect();
    assert!(lines.iter().all(|line| all.contains(line)), "{diff}\n{all}");
    let key = |line: &&str| line.split(" = ").next().unwrap().to_owned();
    let given: Vec<_> = lines.iter().filter(|line| line.contains("  # file: ")).map(key).collect();
    assert_eq!(given, ["retention", "past_limit", "tenant.a.active_series"], "{diff}");
    let origins = ["  # default", "  # derived"];
    assert!(!origins.iter().any(|origin| diff.contains(origin)), "{diff}");
    assert!(origins.iter().all(|origin| all.contains(origin)), "{all}");
    // a value derived from the machine is no difference
    assert!(all.contains("\nactive_series = ") && !diff.contains("\nactive_series = "), "{all}");
    server.send(&Request::get("/config?mode=defaults")).expect(400, &["mode", "must be diff"]);
    assert_eq!(of("/config?mode="), all, "an empty parameter counts as absent");
}

#[test]
fn a_broken_overrides_file_changes_nothing() {
    let overrides = Overrides::new("active_series = 3\n");
    let mut server = Server::start(overrides.options().allow("cannot reload a file"));
    overrides.write("active_series = 4\n\n[tenant.a]\nactive_series = \"many\"\n");
    wait_for("the error", || {
        (server.metric("floodmark_file_current{file=\"overrides\"}") == 0.0).then_some(())
    });
    let logged = server.log_lines("cannot reload a file");
    assert!(
        logged.len() == 1 && logged[0].contains("overrides.toml:4: tenant.a.active_series = many"),
        "{logged:?}"
    );
    server.send(&series("a", "m", 5)).expect(429, &["3 active series"]);
    // SIGHUP neither ends the server nor repeats the error
    server.signal_hangup();
    wait_for("the hangup", || server.log_lines("SIGHUP").first().cloned());
    overrides.write("active_series = 4\n");
    wait_for("the new file", || {
        (server.metric("floodmark_file_current{file=\"overrides\"}") == 1.0).then_some(())
    });
    server.send(&series("a", "m", 5)).expect(429, &["4 active series"]);
    assert!(server.is_running());
    assert_eq!(server.log_lines("cannot reload a file").len(), 1);
}

#[test]
fn recent_refusals_are_listed_for_their_tenant() {
    let server = Server::start(Options::default().arg("--active-series").arg("2"));
    for _ in 0..3 {
        server.send(&series("a", "m", 5)).expect(429, &["active_series"]);
    }
    server.send(&Request::get("/api/v1/query?query=(").tenant("a")).expect(400, &[]);
    server.send(&series("b", "secret", 5)).expect(429, &[]);
    server.send(&Request::get("/api/v1/labels").header("X-Scope-OrgID", "no/tenant")).expect(400, &[]);
    let listed = |request: &Request| {
        let answer: Value = serde_json::from_str(&server.send(request).text()).expect("JSON");
        answer["data"].as_array().expect("a list").clone()
    };
    let of_a = listed(&Request::get("/api/v1/refusals").tenant("a"));
    let [query, write] = of_a.as_slice() else { panic!("{of_a:?}") };
    assert_eq!((&query["reason"], &query["status"]), (&"bad_data".into(), &400.into()), "{query}");
    let of_write = (&write["reason"], &write["metric"], &write["count"], &write["sender"]);
    assert_eq!(of_write, (&"active_series".into(), &"m".into(), &3.into(), &"127.0.0.1".into()), "{write}");
    let (series, message) = (write["series"].as_str().unwrap(), write["message"].as_str().unwrap());
    assert!(series.starts_with("m{i=") && message.contains("setting active_series"), "{write}");
    let of_all = listed(&Request::get("/api/v1/admin/refusals"));
    let tenants: Vec<_> = of_all.iter().map(|group| group["tenant"].as_str().unwrap_or("none")).collect();
    assert_eq!(tenants, ["none", "b", "a", "a"]);
}

#[test]
fn series_of_one_metric_are_limited_apart_from_others() {
    let server = Server::start(Options::default().arg("--series-per-metric").arg("5"));
    server.send(&series("a", "m", 5)).expect(204, &[]);
    let reply = server.send(&series("a", "m", 9));
    reply.expect(
        429,
        &["5 active series of this metric name", "series_per_metric", "4 samples of 4 series refused"],
    );
    server.send(&series("a", "n", 5)).expect(204, &[]);
    server.send(&series("b", "m", 5)).expect(204, &[]);
    let count = |tenant: &str| {
        let query = format!("/api/v1/query?query=count(m)&time={}", now_ms() / 1000);
        server.send(&Request::get(query).tenant(tenant)).text()
    };
    assert!(count("a").contains("\"5\"") && count("b").contains("\"5\""), "{}", count("a"));
}

#[test]
fn a_query_is_limited_to_the_samples_and_the_memory_of_its_tenant() {
    let overrides = Overrides::new("[tenant.a]\nquery_samples = 100\n[tenant.b]\nquery_memory = '64KiB'\n");
    let server = Server::start(overrides.options());
    for tenant in ["a", "b", "c"] {
        server.send(&series(tenant, "m", 6000)).expect(204, &[]);
    }
    let query = |tenant: &str| {
        let query = format!("/api/v1/query?query=sort(m)&time={}", now_ms() / 1000);
        server.send(&Request::get(query).tenant(tenant))
    };
    query("a").expect(422, &["query_samples"]);
    query("b").expect(422, &["query_memory"]);
    query("c").expect(200, &[]);
}

/// All limits on something that is counted. The others limit time, or each thing for itself.
const COUNTED: [&str; 16] = [
    "active_series",
    "bytes_per_second",
    "concurrent_queries",
    "concurrent_writes",
    "disk_bytes",
    "events_bytes",
    "ha_clusters",
    "inflight_bytes",
    "new_series_per_second",
    "query_memory",
    "query_samples",
    "requests_per_second",
    "samples_per_second",
    "series_per_metric",
    "streams",
    "tenant_tables",
];

fn check_rows_of_node(rows: &std::collections::BTreeMap<String, Value>) {
    for counted in ["connections", "tenant_burst"] {
        assert!(rows[counted]["peak"].as_u64() > Some(0), "{rows:?}");
    }
    for (name, row) in rows {
        // the row of the burst shows the use
        let is_counted = name != "tenants_per_minute";
        assert_eq!((row["used"].is_u64(), row["peak"].is_u64()), (is_counted, is_counted), "{row}");
        assert!(row["peak"].as_u64() >= row["used"].as_u64(), "{row}");
        let origin = row["origin"].as_str().unwrap_or_default();
        assert!(["default", "derived", "fixed", "flag"].contains(&origin), "{row}");
        assert_eq!(row["from"].is_string(), ["derived", "flag"].contains(&origin), "{row}");
        // the number of deletes is a constant
        assert_eq!(row["bounds"].is_string(), name != "deletes", "{row}");
    }
}

#[test]
fn every_limit_is_explained_with_its_use() {
    let server = Server::start(Options::default().arg("--inflight-bytes").arg("8MiB"));
    server.send(&series("a", "m", 7)).expect(204, &[]);
    server.query_as(Some("a"), "sum(m)", now_ms());
    let record = [serde_json::json!({"n": 1})];
    crate::streams::stored(&server.send(&crate::streams::json_lines("app", &record).tenant("a")), 1, 0);
    let limits = |args: &[&str]| {
        let url = format!("http://{}", server.address);
        succeed(&[&["limits", "--target", &url], args].concat())
    };
    let rows = |all: &Value| -> std::collections::BTreeMap<String, Value> {
        let rows = all.as_array().expect("rows").iter();
        rows.map(|row| (row["name"].as_str().expect("a name").to_owned(), row.clone())).collect()
    };
    let json: Value = serde_json::from_str(&limits(&["--tenant", "a", "--json"])).expect("JSON");
    let (node, own) = (rows(&json["node"]), rows(&json["limits"]));
    assert!(node["memory of head"]["used"].as_u64() > Some(0), "{node:?}");
    check_rows_of_node(&node);
    assert!(
        node.values().all(|row| row["reason"].as_str().is_some_and(|reason| !reason.is_empty())),
        "{node:?}"
    );
    let total: u64 = node
        .iter()
        .filter(|(name, _)| name.starts_with("memory of"))
        .filter_map(|(_, row)| row["value"].as_u64())
        .sum();
    assert_eq!(total as f64, server.metric_sum("floodmark_budget_limit_bytes"));
    assert_eq!((&own["active_series"]["used"], &own["inflight_bytes"]["value"]), (&7.into(), &"8MiB".into()));
    assert!(own["inflight_bytes"]["peak"].as_u64() > Some(0), "{own:?}");
    assert_eq!(own["inflight_bytes"]["limit"], 8 << 20);
    assert_eq!(own["active_series"]["limit"], own["active_series"]["value"]);
    assert_eq!((&own["samples_per_second"]["limit"], own["retention"].get("limit")), (&Value::Null, None));
    assert_eq!(node["memory of head"]["limit"], node["memory of head"]["value"]);
    let without_limit: Vec<_> = COUNTED.iter().filter(|name| own[**name].get("limit").is_none()).collect();
    assert!(without_limit.is_empty(), "{without_limit:?}");
    // limits are what the node has, and the parts of it that bind first are rows of their own
    for (limit, used) in [
        ("active_series", true),
        ("concurrent_queries", false),
        ("concurrent_writes", false),
        ("new_series_per_second", false),
        ("query_samples", false),
    ] {
        let row = &own[limit];
        assert_eq!(row["origin"], "derived", "{row}");
        assert!(row["value"].as_u64() > Some(0) && row["from"].as_str() > Some(""), "{row}");
        assert!(row["peak"].as_u64() >= Some(u64::from(used)), "{row}");
    }
    for share in ["memory of inflight", "inflight_requests", "creating_requests", "exports"] {
        let row = &own[&format!("{share} (share)")];
        let whole = &node[share]["value"];
        let (value, whole) = (row["value"].as_u64().unwrap(), whole.as_u64().unwrap());
        assert!(0 < value && value < whole, "{share}: {value} of {whole}");
    }
    let of_head = &own["memory of head (share)"];
    assert!(
        of_head["used"].as_u64() > Some(0) && of_head["peak"].as_u64() >= of_head["used"].as_u64(),
        "{of_head}"
    );
    let counted = own.values().filter(|row| row["bounds"].is_string() && row["used"].is_u64());
    let without_peak: Vec<_> = counted.filter(|row| !row["peak"].is_u64()).collect();
    assert!(without_peak.is_empty(), "{without_peak:?}");
    let is_unknown = |row: &&Value| !(row["used"].is_u64() && row["peak"].is_u64());
    let of_shares =
        own.values().filter(|row| row["name"].as_str().is_some_and(|name| name.ends_with("(share)")));
    let unknown: Vec<_> =
        COUNTED.iter().map(|name| &own[*name]).chain(of_shares).filter(is_unknown).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let of_metric = &own["series_per_metric"];
    assert_eq!((&of_metric["used"], &of_metric["peak"]), (&7.into(), &7.into()), "{of_metric}");
    server.send(&Request::ask("/api/v1/export", &[("match[]", "m")]).tenant("a")).expect(200, &[]);
    // without its series, the metric has only a peak
    let delete = Request::form("/api/v1/admin/tsdb/delete_series", &[("match[]", "m")]).tenant("a");
    server.send(&delete).expect(204, &[]);
    let json: Value = serde_json::from_str(&limits(&["--tenant", "a", "--json"])).expect("JSON");
    let after = rows(&json["limits"]);
    for share in ["waiting and running queries", "exports", "deletes"] {
        assert_eq!(after[&format!("{share} (share)")]["peak"], 1, "{share}");
    }
    let of_metric = &after["series_per_metric"];
    assert_eq!((&of_metric["used"], &of_metric["peak"]), (&0.into(), &7.into()), "{of_metric}");
    let text = limits(&["--tenant", "a"]);
    assert!(
        ["memory of head", "Tenant a", "series_per_metric", "flag: --inflight-bytes"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}"
    );
}

#[test]
fn limits_of_all_tenants_are_listed_in_pages() {
    let overrides = Overrides::new("[tenant.b]\nactive_series = 9\ndisk_bytes = '64KiB'\n");
    let server = Server::start(overrides.options());
    for (tenant, count) in [("c", 3), ("a", 1), ("b", 2)] {
        server.send(&series(tenant, "m", count)).expect(204, &[]);
    }
    let ask = |parameters: &str| {
        let path = format!("/api/v1/admin/tenant_limits{parameters}");
        server.send(&Request::get(path)).expect(200, &[]).json()["data"].clone()
    };
    let names = |page: &Value| -> Vec<String> {
        let tenants = page["tenants"].as_array().expect("tenants").iter();
        tenants.map(|tenant| tenant["tenant"].as_str().expect("a name").to_owned()).collect()
    };
    let (all, first) = (ask(""), ask("?limit=2"));
    assert_eq!((names(&all), &all["next"]), (vec!["a".into(), "b".into(), "c".into()], &Value::Null));
    assert_eq!((names(&first), &first["next"]), (vec!["a".into(), "b".into()], &"b".into()));
    let last = ask("?limit=2&after=b");
    assert_eq!((names(&last), &last["next"]), (vec!["c".into()], &Value::Null));
    server.send(&Request::get("/api/v1/admin/tenant_limits?after=a/b")).expect(400, &["after"]);

    let url = format!("http://{}", server.address);
    let listed = |args: &[&str]| succeed(&[&["limits", "--target", &url, "--all"], args].concat());
    let json: Value = serde_json::from_str(&listed(&["--json"])).expect("JSON");
    assert_eq!(names(&json), ["a", "b", "c"]);
    let of_b = json["tenants"][1]["limits"].as_array().expect("limits");
    let limit = |name: &str| of_b.iter().find(|row| row["name"] == name).expect(name);
    let series = limit("active_series");
    assert_eq!((&series["limit"], &series["used"], &series["peak"]), (&9.into(), &2.into(), &2.into()));
    assert_eq!(limit("disk_bytes")["limit"], 64 << 10);
    assert_eq!(limit("requests_per_second")["limit"], Value::Null);
    assert!(limit("requests_per_second")["used"].is_u64() && of_b.len() == 8, "{of_b:?}");
    let text = listed(&[]);
    let row = text.lines().find(|line| line.trim_start().starts_with("b ")).unwrap_or_default();
    assert!(row.contains("2 / 9") && row.contains("/ 64.0 KiB"), "{text}");
}
