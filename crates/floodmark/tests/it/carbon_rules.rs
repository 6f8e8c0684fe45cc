//! Carbon's rule files: they decide on names, steps and retention, and are reloaded.

use crate::harness::{Options, Request, Server, now_ms, wait_for};
use std::fs;

fn lines(text: &str) -> Request {
    Request::post("/api/v1/graphite", text.into())
}

/// The value of the untagged series with this name, or `None` if there is no such series.
fn value(server: &Server, name: &str) -> Option<String> {
    let selector = format!("{{__name__=\"{name}\"}}");
    let answer = server.send(&Request::ask("/api/v1/query", &[("query", &selector)])).expect(200, &[]).json();
    Some(answer["data"]["result"].get(0)?["value"][1].as_str()?.to_owned())
}

#[test]
fn names_are_allowed_denied_and_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        format!("--graphite-{name}={}", path.display())
    };
    let options = Options::default()
        .arg(&file("allow", "^(collectd|tmp|stats)\\.\n"))
        .arg(&file("deny", "# not these\n^tmp\\.\n"))
        .arg(&file("rewrite", "[pre]\n^collectd\\.([a-z0-9]+)\\. = \\1.system.\n[post]\n_sum$ =\n"));
    let server = Server::start(options);
    let now_s = now_ms() / 1000;
    for round in 0..3 {
        let at_s = now_s - 10 + round;
        let text = format!(
            "collectd.web1.cpu {round} {at_s}\ntmp.x 1 {at_s}\nstats.all_sum 5 {at_s}\nother.y 1 {at_s}\n\
             collectd.web2.disk;host=a {round}.5 {at_s}\n"
        );
        server.send(&lines(&text)).expect(204, &[]);
    }
    assert_eq!(value(&server, "web1.system.cpu").as_deref(), Some("2"));
    assert_eq!(value(&server, "web2.system.disk").as_deref(), Some("2.5"), "with its tag");
    assert_eq!(value(&server, "stats.all").as_deref(), Some("5"));
    for name in ["collectd.web1.cpu", "tmp.x", "other.y", "stats.all_sum"] {
        assert_eq!(value(&server, name), None, "{name}");
    }
    let denied =
        |list: &str| server.metric(&format!("floodmark_graphite_denied_points_total{{list=\"{list}\"}}"));
    assert_eq!((denied("deny"), denied("allow")), (3.0, 3.0));
    // after a change, what was denied is stored
    file("deny", "^never$\n");
    server.signal_hangup();
    wait_for("the new list", || {
        server.send(&lines(&format!("tmp.x 7 {now_s}\n"))).expect(204, &[]);
        value(&server, "tmp.x")
    });
    // and what was stored is denied
    file("deny", "^tmp\\.\n");
    server.signal_hangup();
    let before = denied("deny");
    wait_for("the list for a known series", || {
        server.send(&lines(&format!("tmp.x 8 {now_s}\n"))).expect(204, &[]);
        (denied("deny") > before).then_some(())
    });
    // or is stored under another name, and points that come later are not those of the first name any more
    file("deny", "^never$\n");
    file("rewrite", "[pre]\n^tmp\\. = scratch.\n");
    server.signal_hangup();
    file("allow", "");
    server.signal_hangup();
    wait_for("the new rewrite rule", || {
        server.send(&lines(&format!("tmp.x 9 {now_s}\n"))).expect(204, &[]);
        value(&server, "scratch.x")
    });
    server.send(&lines(&format!("tmp.x 10 {now_s}\n"))).expect(204, &[]);
    assert_eq!(value(&server, "scratch.x").as_deref(), Some("10"));
    assert_ne!(value(&server, "tmp.x").as_deref(), Some("10"));
}

#[test]
fn schemas_are_reloaded_and_a_bad_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("schemas.conf");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write("[load]\npattern = ^load\nretentions = 10s:1h,60s:1d\n");
    let options = Options::default().arg(&format!("--graphite-schemas={}", path.display()));
    let server = Server::start(options.allow("cannot reload a file"));
    let now_s = now_ms() / 1000;
    let text: String = (0..600).map(|i| format!("load {i} {}\n", now_s - 600 + i)).collect();
    server.send(&lines(&text)).expect(204, &[]);
    let step_s = |from_s: i64| {
        let query = format!("/render?format=json&target=load&from={from_s}&until={now_s}");
        let answer = server.send(&Request::get(&query)).expect(200, &[]).json();
        let times = answer[0]["datapoints"].as_array().unwrap().clone();
        times[1][1].as_i64().unwrap() - times[0][1].as_i64().unwrap()
    };
    assert_eq!((step_s(now_s - 300), step_s(now_s - 7200)), (10, 60));
    // older than the last archive of the rule: nothing is shown
    let old = format!("/render?format=json&target=load&from={}&until={}", now_s - 200_000, now_s - 100_000);
    assert_eq!(server.send(&Request::get(&old)).expect(200, &[]).json(), serde_json::json!([]));
    write("[load]\npattern = ^load\nretentions = 30s:1h\n");
    wait_for("the new step", || (step_s(now_s - 300) == 30).then_some(()));
    write("[load]\npattern = (\nretentions = 10s:1h\n");
    let current = "floodmark_file_current{file=\"graphite_rules\"}";
    wait_for("the error", || (server.metric(current) == 0.0).then_some(()));
    assert_eq!(step_s(now_s - 300), 30);
    let logged = server.log_lines("schemas.conf:2: expression");
    assert_eq!(logged.len(), 1, "the log names the file, the line and the reason once: {logged:?}");
    // a reload that somebody asks for later says so again
    wait_for("the error again", || {
        server.signal_hangup();
        (server.log_lines("schemas.conf:2: expression").len() >= 2).then_some(())
    });
}

/// With `graphite_retention`, the longest retention of the schemas deletes what is older, of all series of the tenant. It is
/// longer than the seven days of names without a schema.
#[test]
fn the_longest_retention_deletes_samples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("schemas.conf");
    fs::write(
        &path,
        "[short]\npattern = ^short\nretentions = 60s:1h\n[all]\npattern = .*\nretentions = 60s:9d\n",
    )
    .unwrap();
    let config = "retention_wait = '1ms'\n[tenant.deleted]\ngraphite_retention = true";
    let options = Options::default().arg(&format!("--graphite-schemas={}", path.display()));
    let mut server = Server::start(options.config(config));
    let (now_s, day_s) = (now_ms() / 1000, 86_400);
    let old_s = now_s - 12 * day_s;
    let points: String = ["short.x", "load"]
        .iter()
        .map(|name| format!("{name} 1 {old_s}\n{name} 2 {}\n{name} 3 {now_s}\n", now_s - 7200))
        .collect();
    for tenant in ["deleted", "kept"] {
        server.send(&lines(&points).tenant(tenant)).expect(204, &[]);
    }
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    let count = |server: &Server, tenant: &str, name: &str| {
        let query = format!("count_over_time({{\"{name}\"}}[20d])");
        let data = server.query_as(Some(tenant), &query, now_ms());
        data["result"][0]["value"][1].as_str().map_or(0, |count| count.parse::<u32>().unwrap())
    };
    let check = |server: &Server| {
        for name in ["short.x", "load"] {
            // the shorter retention of a rule deletes nothing
            assert_eq!((count(server, "deleted", name), count(server, "kept", name)), (2, 3), "{name}");
        }
    };
    wait_for("the deletion", || {
        ["short.x", "load"].iter().all(|name| count(&server, "deleted", name) == 2).then_some(())
    });
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}
