//! Rules on what is stored: which series are dropped, and which labels the others get.

use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::real_prometheus::servers::Prometheus;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

/// The directory of a file of rules.
struct Rules(TempDir);

impl Rules {
    fn new(text: &str) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        this.write(text);
        this
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("rules.yml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }

    fn options(&self) -> Options {
        Options::default().arg(&format!("--ingest-rules={}", self.path().display()))
    }
}

/// All series of a tenant, as text, with their newest values.
fn stored(server: &Server, tenant: &str) -> BTreeMap<String, String> {
    let data = server.query_as(Some(tenant), "{__name__=~\".+\"}", now_ms() + 1000);
    let rows = data["result"].as_array().unwrap().iter();
    rows.map(|row| {
        let labels: BTreeMap<_, _> = row["metric"].as_object().unwrap().iter().collect();
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
        (labels.join(","), row["value"][1].as_str().unwrap().to_owned())
    })
    .collect()
}

fn expect(server: &Server, tenant: &str, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect();
    assert_eq!(stored(server, tenant), expected, "tenant {tenant}");
}

fn dropped(server: &Server, tenant: &str, rule: &str) -> f64 {
    server.metric(&format!(
        "floodmark_ingest_rules_dropped_samples_total{{tenant=\"{tenant}\",rule=\"{rule}\"}}"
    ))
}

const BASIC: &str = "
- {source_labels: [__name__], regex: 'go_.*', action: drop}
- {source_labels: [path], regex: '/user/(\\d+)', target_label: path, replacement: /user/ID}
- {source_labels: [__name__], regex: 'old_(.*)', target_label: __name__, replacement: 'new_$1'}
- {regex: pod, action: labeldrop}
";

fn basic(value: f64) -> Vec<Series> {
    let at_ms = now_ms();
    [
        Series::named("go_goroutines"),
        Series::named("old_requests").label("path", "/user/17").label("pod", "a"),
        Series::named("up").label("job", "x"),
        // not sorted
        Series::new(&[("job", "x"), ("__name__", "old_down")]),
    ]
    .into_iter()
    .map(|series| series.sample(at_ms, value))
    .collect()
}

#[test]
fn series_are_dropped_and_renamed() {
    let rules = Rules::new(BASIC);
    let server = Server::start(rules.options());
    // the first request is decided by the rules, the others by what is remembered
    for round in 1..=3 {
        server.send(&Request::write(&wire::v1(&basic(f64::from(round)))).tenant("a")).expect(204, &[]);
        let value = round.to_string();
        expect(
            &server,
            "a",
            &[
                ("__name__=new_down,job=x", &value),
                ("__name__=new_requests,path=/user/ID", &value),
                ("__name__=up,job=x", &value),
            ],
        );
        assert_eq!(dropped(&server, "a", "default/1"), f64::from(round));
        assert_eq!(server.metric("floodmark_ingest_rules_applied_series_total"), 4.0);
    }
    // dropped samples count as written, because Prometheus would otherwise think that they are lost
    let reply = server.send(&Request::write_v2(&wire::v2(&basic(4.0))).tenant("a"));
    assert_eq!(reply.expect(204, &[]).header("x-prometheus-remote-write-samples-written"), Some("4"));
    let only_dropped = [Series::named("go_x").sample(now_ms(), 1.0)];
    let reply = server.send(&Request::write_v2(&wire::v2(&only_dropped)).tenant("a"));
    assert_eq!(reply.expect(204, &[]).header("x-prometheus-remote-write-samples-written"), Some("1"));
    assert_eq!(dropped(&server, "a", "default/1"), 5.0);
}

#[test]
fn series_that_exist_follow_the_rules_after_a_change() {
    let rules = Rules::new("[]");
    let mut server = Server::start(rules.options().allow("cannot reload a file"));
    let current = "floodmark_file_current{file=\"ingest_rules\"}";
    let send = |server: &Server, value: f64| {
        server.send(&Request::write(&wire::v1(&basic(value))).tenant("a")).expect(204, &[]);
        stored(server, "a")
    };
    assert_eq!(send(&server, 1.0).len(), 4);
    rules.write(BASIC);
    server.signal_hangup();
    let after = wait_for("the rules", || {
        let after = send(&server, 2.0);
        after.contains_key("__name__=new_requests,path=/user/ID").then_some(after)
    });
    // the series of before get no more samples
    assert_eq!(after["__name__=up,job=x"], "2");
    rules.write("- {source_labels: [__name__], regex: 'a(', action: drop}\n");
    server.signal_hangup();
    wait_for("the error", || (server.metric(current) == 0.0).then_some(()));
    assert_eq!(server.log_lines("rules.yml:1: expression").len(), 1);
    assert_eq!(send(&server, 3.0)["__name__=new_requests,path=/user/ID"], "3");
    rules.write("- {source_labels: [__name__], regex: up, action: drop}\n");
    server.signal_hangup();
    wait_for("the other rules", || {
        let now = send(&server, 4.0);
        (now.get("__name__=go_goroutines").is_some_and(|value| value == "4")).then_some(())
    });
    // until then, the earlier rules applied
    let now = send(&server, 5.0);
    let value = |now: &BTreeMap<String, String>, series: &str| now.get(series).cloned();
    assert_eq!(value(&now, "__name__=go_goroutines").as_deref(), Some("5"));
    assert_ne!(value(&now, "__name__=new_requests,path=/user/ID").as_deref(), Some("5"));
    assert_ne!(value(&now, "__name__=up,job=x").as_deref(), Some("5"));
    // after a restart, too, also for series that replay brings back
    server.kill9();
    server.restart();
    let now = send(&server, 6.0);
    assert_eq!(value(&now, "__name__=go_goroutines").as_deref(), Some("6"));
    assert_ne!(value(&now, "__name__=up,job=x").as_deref(), Some("6"));
}

#[test]
fn tenants_have_their_own_rules() {
    let rules = Rules::new(
        "
default:
  - {source_labels: [__name__], regex: go_.*, action: drop}
classes:
  - tenants: ['team-*']
    rules: [{target_label: env, replacement: lab}]
tenants:
  team-b:
  team-c: [{source_labels: [__name__], regex: up, action: keep}]
",
    );
    let server = Server::start(rules.options());
    for round in ["1", "2"] {
        for tenant in ["x", "team-a", "team-b", "team-c"] {
            let value = round.parse().unwrap();
            let series = [Series::named("up"), Series::named("go_x")].map(|s| s.sample(now_ms(), value));
            server.send(&Request::write(&wire::v1(&series)).tenant(tenant)).expect(204, &[]);
        }
        expect(&server, "x", &[("__name__=up", round)]);
        expect(&server, "team-a", &[("__name__=go_x,env=lab", round), ("__name__=up,env=lab", round)]);
        expect(&server, "team-b", &[("__name__=go_x", round), ("__name__=up", round)]);
        expect(&server, "team-c", &[("__name__=up", round)]);
    }
    assert_eq!(
        (dropped(&server, "x", "default/1"), dropped(&server, "team-c", "tenant team-c/1")),
        (2.0, 2.0)
    );
    let all = server.metric_sum("floodmark_ingest_rules_dropped_samples_total");
    assert_eq!(all, 4.0);
}

/// Two tenants have contradicting rules for the same series. The file is changed for one of them.
#[test]
fn a_change_for_one_tenant_forgets_nothing_of_another() {
    let file = |of_b: &str| {
        format!(
            "
tenants:
  b:
    - {of_b}
  a:
    - {{source_labels: [__name__], regex: up, action: drop}}
    - {{source_labels: [__name__], regex: go_x, target_label: __name__, replacement: go_a}}
"
        )
    };
    let rules = Rules::new(&file("{source_labels: [__name__], regex: go_x, action: drop}"));
    let server = Server::start(rules.options());
    let applied = || server.metric("floodmark_ingest_rules_applied_series_total");
    let at_ms = now_ms();
    let send = |tenant: &str, round: i64| {
        let series = [Series::named("up"), Series::named("go_x"), Series::named("same")];
        let series = series.map(|series| series.sample(at_ms + round, round as f64));
        server.send(&Request::write(&wire::v1(&series)).tenant(tenant)).expect(204, &[]);
    };
    for round in 1..=3 {
        ["a", "b"].iter().for_each(|tenant| send(tenant, round));
        let value = round.to_string();
        expect(&server, "a", &[("__name__=go_a", &value), ("__name__=same", &value)]);
        expect(&server, "b", &[("__name__=same", &value), ("__name__=up", &value)]);
    }
    assert_eq!(applied(), 6.0);
    rules.write(&file("{source_labels: [__name__], regex: same, action: drop}"));
    server.signal_hangup();
    let mut round = 4;
    wait_for("the other rules", || {
        send("b", round);
        round += 1;
        stored(&server, "b").contains_key("__name__=go_x").then_some(())
    });
    assert_eq!(applied(), 9.0, "the rules decided again on the three series of b");
    send("a", round);
    let value = round.to_string();
    expect(&server, "a", &[("__name__=go_a", &value), ("__name__=same", &value)]);
    assert_eq!(applied(), 9.0, "the rules decided again on series of a");
}

#[test]
fn rules_apply_to_every_protocol() {
    let rules = Rules::new(
        "
- {source_labels: [__name__], regex: 'bad.*', action: drop}
- {match: '*.cpu.*', name: cpu, labels: {host: $1, mode: $2}}
- {target_label: seen, replacement: 'yes'}
",
    );
    let server = Server::start(rules.options());
    for round in 1..=3 {
        let (ms, s) = (now_ms(), now_ms() / 1000);
        let ns = ms * 1_000_000;
        let otlp = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[
            {{"name":"good","gauge":{{"dataPoints":[{{"asDouble":{round},"timeUnixNano":"{ns}"}}]}}}},
            {{"name":"bad","gauge":{{"dataPoints":[{{"asDouble":{round},"timeUnixNano":"{ns}"}}]}}}}]}}]}}]}}"#
        );
        let post = |path: &str, body: String| Request::post(path, body.into_bytes());
        for (tenant, request) in [
            (
                "text",
                post(
                    "/api/v1/import/prometheus",
                    format!("good {round} {ms}\nbad {round} {ms}\nweb.cpu.user {round} {ms}\n"),
                ),
            ),
            (
                "json",
                post(
                    "/api/v1/import",
                    format!(
                        "{{\"metric\":{{\"__name__\":\"good\"}},\"values\":[{round}],\"timestamps\":[{ms}]}}\n\
                 {{\"metric\":{{\"__name__\":\"bad\"}},\"values\":[{round}],\"timestamps\":[{ms}]}}\n\
                 {{\"metric\":{{\"__name__\":\"web.cpu.user\"}},\"values\":[{round}],\"timestamps\":[{ms}]}}\n"
                    ),
                ),
            ),
            (
                "csv",
                post(
                    "/api/v1/import/csv?format=1:metric:good,2:metric:bad,3:metric:web.cpu.user,4:time:unix_ms",
                    format!("{round},{round},{round},{ms}\n"),
                ),
            ),
            (
                "influx",
                post(
                    "/api/v2/write?precision=ms",
                    format!("good value={round} {ms}\nbad value={round} {ms}\n"),
                ),
            ),
            (
                "graphite",
                post(
                    "/api/v1/graphite",
                    format!("good {round} {s}\nbad {round} {s}\nweb.cpu.user {round} {s}\n"),
                ),
            ),
            ("otlp", post("/v1/metrics", otlp).header("Content-Type", "application/json")),
        ] {
            let reply = server.send(&request.tenant(tenant));
            assert!((200..300).contains(&reply.status), "{tenant}: {} {}", reply.status, reply.text());
            let value = round.to_string();
            let found = stored(&server, tenant);
            assert!(found.values().all(|found| *found == value), "{tenant}: {found:?}");
            let names: Vec<_> = found.keys().map(String::as_str).collect();
            let good =
                if tenant == "influx" { "__name__=good_value,seen=yes" } else { "__name__=good,seen=yes" };
            let cpu = "__name__=cpu,host=web,mode=user,seen=yes";
            let expected = if matches!(tenant, "influx" | "otlp") { vec![good] } else { vec![cpu, good] };
            assert_eq!(names, expected, "{tenant}");
            assert_eq!(dropped(&server, tenant, "default/1"), f64::from(round), "{tenant}");
        }
        // The rules saw each series only once: three of most tenants, two of `influx`. Of `graphite` and `otlp`, they did not see
        // the dropped one, because tenants with the same list share what it says.
        assert_eq!(server.metric("floodmark_ingest_rules_applied_series_total"), 14.0);
    }
}

#[test]
fn metadata_and_exemplars_follow() {
    let rules = Rules::new(BASIC);
    let server = Server::start(rules.options());
    let at_ms = now_ms();
    let series = [
        Series::named("go_x").metadata(1, "gone", "").exemplar(&[("trace", "1")], at_ms, 1.0),
        Series::named("old_x").metadata(1, "kept", "").exemplar(&[("trace", "2")], at_ms, 2.0),
    ];
    for value in [1.0, 2.0] {
        let series = series.clone().map(|series| series.sample(at_ms + value as i64, value));
        server.send(&Request::write_v2(&wire::v2(&series))).expect(204, &[]);
    }
    let found = server.send(&Request::get("/api/v1/metadata")).expect(200, &[]).json();
    assert_eq!(
        found["data"],
        serde_json::json!({"new_x": [{"type": "counter", "help": "kept", "unit": ""}]})
    );
    let ask = |metric: &str| {
        let params =
            [("query", metric), ("start", "0"), ("end", &crate::harness::read::seconds(at_ms + 10_000))];
        let found = server.send(&Request::ask("/api/v1/query_exemplars", &params)).expect(200, &[]).json();
        found["data"].as_array().unwrap().len()
    };
    assert_eq!((ask("new_x"), ask("go_x"), ask("old_x")), (1, 0, 0));
}

#[test]
fn labels_that_become_invalid_are_refused_by_name() {
    let rules = Rules::new(
        "
- {source_labels: [kind], regex: nameless, target_label: __name__, replacement: ''}
- {source_labels: [kind], regex: long, target_label: long, replacement: '$0$0$0$0$0$0$0$0$0$0$0$0'}
- {source_labels: [long, long, long, long, long, long, long, long, long, long], target_label: long}
- {source_labels: [long, long, long, long, long, long, long, long, long, long], target_label: long}
- {source_labels: [long, long, long, long, long, long, long, long, long, long], target_label: long}
",
    );
    let server = Server::start(rules.options());
    for _ in 0..2 {
        let body = |kinds: &[&str]| {
            let series =
                kinds.iter().map(|kind| Series::named("m").label("kind", kind).sample(now_ms(), 1.0));
            wire::v1(&series.collect::<Vec<_>>())
        };
        let send = |kinds: &[&str]| server.send(&Request::write(&body(kinds)).tenant("a"));
        send(&["good", "nameless"]).expect(
            400,
            &["1 samples stored", "setting ingest_rules", "no metric name", "m{kind=\"nameless\"}"],
        );
        send(&["good", "long"])
            .expect(400, &["1 samples stored", "value of label \"long\"", "kind=\"long\""]);
    }
    let kinds: Vec<_> = stored(&server, "a").into_keys().collect();
    assert!(kinds.len() == 1 && kinds[0].contains("kind=good"), "{kinds:?}");
}

#[test]
fn series_that_become_one_are_one() {
    let rules = Rules::new("- {regex: instance, action: labeldrop}\n");
    let server = Server::start(rules.options());
    let at_ms = now_ms() - 1000;
    for round in 0..3 {
        let series: Vec<_> = (0..10)
            .map(|i| {
                Series::named("m").label("instance", i.to_string()).sample(at_ms + i, (round * 10 + i) as f64)
            })
            .collect();
        server.send(&Request::write(&wire::v1(&series)).tenant("a")).expect(204, &[]);
    }
    expect(&server, "a", &[("__name__=m", "29")]);
}

#[test]
fn the_server_does_not_start_with_an_invalid_file() {
    let rules = Rules::new("default:\n  - {action: dropp}\n");
    let config = rules.0.path().join("floodmark.toml");
    std::fs::write(&config, format!("ingest_rules = {:?}\n", rules.path())).unwrap();
    let output =
        crate::harness::process::command(&["config", "check", &config.display().to_string()]).output();
    let text = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(
        text.contains("ingest_rules") && text.contains("rules.yml:2: unknown action \"dropp\""),
        "{text}"
    );
}

/// A Prometheus sends to two tenants: to one, it sends what its own rules leave, and to the other, it sends everything, to which
/// Floodmark applies the same rules.
#[test]
fn a_real_prometheus_applies_the_same_rules() {
    const RULES: &str = "
- {source_labels: [__name__], regex: 'go_(gc|memstats)_.*|net_.*', action: drop}
- {source_labels: [__name__, code], regex: 'prometheus_http_requests_total;(\\d)\\d\\d', target_label: class, replacement: '${1}xx'}
- {source_labels: [handler], regex: '/api/v1/([a-z_]+)(/.*)?', target_label: 'h_$1', replacement: 'x$2'}
- {source_labels: [handler], target_label: handler, action: uppercase}
- {source_labels: [__name__], separator: '', target_label: shard, modulus: 7, action: hashmod}
- {source_labels: [shard], regex: '[0-4]', action: keep}
- {regex: 'h(.*)', replacement: 'mapped_$1', action: labelmap}
- {regex: 'le|quantile', replacement: bound, action: labelmap}
- {source_labels: [job, instance], regex: '(?i)(P\\w+);(?P<host>[^:]+):.*', target_label: where, replacement: '${host}_$1-$$'}
- {source_labels: [__name__], regex: 'prometheus_(.*)_total', target_label: __name__, replacement: 'p_$1'}
- {source_labels: [job], target_label: job2, action: lowercase}
- {source_labels: [job], target_label: job2, action: keepequal}
- {source_labels: [job], target_label: role, action: dropequal}
- {regex: 'config|instance', action: labeldrop}
- {regex: '__name__|mapped_.*|[a-z_]*', action: labelkeep}
";
    let Some(prometheus) = Prometheus::find() else { return };
    // series that rules make one would depend on the order in which Prometheus sends them
    let rules = Rules::new(&format!("tenants:\n  ours:\n{}", RULES.replace("\n-", "\n    -")));
    let server = Server::start(rules.options());
    let prometheus = prometheus.start_relabelling(server.address, &RULES.replace("\n-", "\n    -"));
    let newest = |tenant: &str| stored(&server, tenant);
    let compared = wait_for("the same series from both", || {
        let at_ms = now_ms() - 3000;
        let ask = |tenant: &str| {
            let data = server.query_as(Some(tenant), "{__name__=~\".+\"}", at_ms);
            let rows = data["result"].as_array().unwrap().clone();
            let rows = rows.into_iter().map(|row| (row["metric"].to_string(), row["value"][1].to_string()));
            rows.collect::<BTreeMap<_, _>>()
        };
        let (ours, theirs) = (ask("ours"), ask("theirs"));
        (ours.len() > 100 && ours == theirs).then_some(ours.len())
    });
    assert!(newest("ours").len() >= compared / 2);
    let text = format!("{:?}", newest("ours"));
    for made in
        ["class=2xx", "mapped_", "bound=", "where=127.0.0.1_prometheus-$", "p_http_requests", "=/METRICS"]
    {
        assert!(text.contains(made), "{made}");
    }
    assert!(dropped(&server, "ours", "tenant ours/1") > 0.0);
    drop(prometheus);
}

/// Carbon's rules on names see the name that was sent, whatever series the tenant has.
#[test]
fn renamed_series_stay_renamed_when_a_series_has_their_name() {
    let rules = Rules::new("- {source_labels: [__name__], regex: 'x\\..*', action: drop}\n");
    let rewrites = rules.0.path().join("rewrite.conf");
    std::fs::write(&rewrites, "[pre]\n^old\\. = x.\n").unwrap();
    let server = Server::start(rules.options().arg(&format!("--graphite-rewrite={}", rewrites.display())));
    let applied = || server.metric("floodmark_ingest_rules_applied_series_total");
    let graphite = |tenant: &str, value: u32| {
        let line = format!("old.a {value} {}\n", now_ms() / 1000);
        let reply = server.send(&Request::post("/api/v1/graphite", line.into_bytes()).tenant(tenant));
        assert!((200..300).contains(&reply.status), "{} {}", reply.status, reply.text());
    };
    for round in 1..=2 {
        graphite("a", round);
        graphite("b", round);
        expect(&server, "a", &[]);
        assert_eq!(dropped(&server, "a", "default/1"), f64::from(round));
    }
    assert_eq!(applied(), 1.0, "tenants share what both kinds of rules say about a series");
    let series = Series::named("old.a").sample(now_ms() - 10_000, 7.0);
    server.send(&Request::write(&wire::v1(&[series])).tenant("a")).expect(204, &[]);
    for round in 3..=4 {
        graphite("a", round);
        graphite("b", round);
        expect(&server, "a", &[("__name__=old.a", "7")]);
        expect(&server, "b", &[]);
    }
    assert_eq!(dropped(&server, "a", "default/1"), 4.0);
    assert_eq!(dropped(&server, "b", "default/1"), 4.0);
}

/// Points of new series wait in a queue of the server. Rules that would change their names a second time show that they are not
/// applied to what comes from there. Carbon's rules on names come before.
#[test]
fn points_from_sockets_pass_the_rules_once() {
    let rules = Rules::new(
        "
- {source_labels: [__name__], regex: '(x.*)', target_label: __name__, replacement: 'x_$1'}
- {source_labels: [__name__], regex: 'bad.*', action: drop}
",
    );
    let rewrites = rules.0.path().join("rewrite.conf");
    std::fs::write(&rewrites, "[pre]\n^old\\. = x.\n").unwrap();
    let options = rules.options().arg(&format!("--graphite-rewrite={}", rewrites.display()));
    let server = Server::start(
        options.arg("--graphite=127.0.0.1:0").arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=1s"),
    );
    let mut lines = std::net::TcpStream::connect(server.logged_address("graphite")).unwrap();
    let statsd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 1..=3 {
        let s = now_ms() / 1000 + round;
        write!(lines, "x.a {round} {s}\nbad.a {round} {s}\nold.b {round} {s}\n").unwrap();
        let value = round.to_string();
        wait_for("the points", || {
            // datagrams may be lost
            statsd.send_to(b"xs:7|g\nbads:7|g\n", server.logged_address("statsd")).unwrap();
            let data = server.query_as(None, "{__name__=~\".+\",job!=\"floodmark\"}", now_ms() + 10_000);
            let rows = data["result"].as_array().unwrap().iter();
            let found: BTreeMap<_, _> =
                rows.map(|row| (row["metric"]["__name__"].as_str().unwrap(), &row["value"][1])).collect();
            let expected = BTreeMap::from([("x_x.a", &*value), ("x_x.b", &*value), ("x_xs", "7")]);
            let names: Vec<_> = found.keys().filter(|name| !name.starts_with("carbon.")).collect();
            assert!(names.iter().all(|name| expected.contains_key(**name)), "{names:?}");
            expected
                .iter()
                .all(|(name, value)| found.get(name).is_some_and(|found| **found == **value))
                .then_some(())
        });
    }
    assert!(dropped(&server, "anonymous", "default/2") >= 4.0);
}

/// The rules for a series of tenant `slow` take several milliseconds. Its points, on the connection of a relay and in a request, must not make
/// those of others wait.
#[test]
fn slow_rules_of_one_tenant_do_not_delay_the_others() {
    const SERIES: usize = 1000;
    let rule = "  - {source_labels: [__name__, a], regex: '(.*)([0-9]+);(.*)', target_label: b, replacement: '$2$1'}\n";
    let rules = Rules::new(&format!("tenants:\n  slow:\n{}", rule.repeat(1000)));
    let config = "graphite_tenant_from_path = true\n";
    let server = Server::start(rules.options().arg("--graphite=127.0.0.1:0").config(config));
    let connect = || std::net::TcpStream::connect(server.logged_address("graphite")).unwrap();
    let at_s = now_ms() / 1000;
    let applied = || server.metric("floodmark_ingest_rules_applied_series_total");
    let value = |tenant: &str, name: &str| {
        let data = server.query_as(Some(tenant), name, now_ms() + 1000);
        data["result"][0]["value"][1].as_str().map(str::to_owned)
    };

    let (mut relay, mut other) = (connect(), connect());
    let slow: String = (0..SERIES).map(|i| format!("slow.graphite{i} 1 {at_s}\n")).collect();
    relay.write_all(slow.as_bytes()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let series: Vec<_> =
                (0..SERIES).map(|i| Series::named(&format!("request{i}")).sample(now_ms(), 1.0)).collect();
            server.send(&Request::write(&wire::v1(&series)).tenant("slow")).expect(204, &[]);
        });
        wait_for("the rules", || (applied() > 0.0).then_some(()));
        for round in 1..=20 {
            // points of the slow tenant that follow wait for those before them
            write!(relay, "slow.graphite0 {round} {}\nfast.a {round} {at_s}\n", at_s + 1).unwrap();
            writeln!(other, "fast.b {round} {at_s}").unwrap();
            let value_of_round = Some(round.to_string());
            wait_for("the fast points", || {
                (value("fast", "a") == value_of_round && value("fast", "b") == value_of_round).then_some(())
            });
        }
        let of_fast = applied();
        assert!(of_fast < 2.0 * SERIES as f64, "the slow tenant is done: this test shows nothing");
    });
    let count = || value("slow", "count({__name__=~\".+\"})");
    let all = Some((2 * SERIES).to_string());
    wait_for("the slow points", || (count() == all).then_some(()));
    wait_for("the last of the slow points", || {
        (value("slow", "graphite0") == Some("20".into())).then_some(())
    });
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
    assert_eq!(server.metric_sum("floodmark_ingest_rules_waiting_requests"), 0.0);
    assert!(server.metric("floodmark_ingest_rules_seconds_total{tenant=\"slow\"}") > 0.0);
}
