//! Events, which dashboards show as annotations.

use crate::harness::{Options, Reply, Request, Server, http, now_ms, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[track_caller]
fn store(server: &Server, event: &Value) {
    let reply = server.send(&Request::post("/events/", event.to_string().into_bytes()));
    assert_eq!(reply.expect(200, &[]).text(), "");
}

fn list(server: &Server, params: &[(&str, &str)]) -> Reply {
    server.send(&Request::ask("/events/get_data", params))
}

/// What the listed events say, in their order.
#[track_caller]
fn whats(reply: &Reply) -> Vec<String> {
    let events = reply.expect(200, &[]).json();
    let what = |event: &Value| event["what"].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(what).collect()
}

#[test]
fn events_are_stored_and_found() {
    let server = Server::start(Options::default().config("graphite_jsonp = true"));
    assert_eq!(list(&server, &[]).expect(200, &[]).text(), "[]");
    let end_s = now_ms() / 1000 - 10;
    store(&server, &json!({"what": "second", "tags": "web  eu", "when": end_s, "data": {"build": 42}}));
    store(&server, &json!({"what": "first", "tags": ["web"], "when": end_s as f64 - 1.5, "data": "more"}));
    store(&server, &json!({"what": "now", "tags": ["db"]}));
    store(&server, &json!({"what": "later", "tags": null, "data": null, "when": end_s + 3600}));
    let events = list(&server, &[("until", &end_s.to_string())]).expect(200, &[]).text();
    let expected = format!(
        r#"[{{"when":{},"what":"first","data":"more","tags":["web"],"id":2}},{{"when":{end_s},"what":"second","data":"{{\"build\":42}}","tags":["web","eu"],"id":1}}]"#,
        end_s - 2
    );
    assert_eq!(events, expected);

    let check = |params: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(whats(&list(&server, params)), expected, "{params:?}");
        let form = server.send(&Request::form("/graphite/events/get_data/", params));
        assert_eq!(whats(&form), expected, "{params:?} as a form");
    };
    check(&[], &["first", "second", "now"]);
    check(&[("until", "now+2h")], &["first", "second", "now", "later"]);
    check(&[("from", &(end_s - 1).to_string())], &["second", "now"]);
    check(&[("from", "-1h"), ("until", &(end_s - 1).to_string())], &["first"]);
    check(&[("tags", "web")], &["first", "second"]);
    check(&[("tags", "web eu")], &["second"]);
    check(&[("tags", "web eu"), ("set", "intersection")], &["second"]);
    check(&[("tags", "eu db"), ("set", "union")], &["second", "now"]);
    check(&[("tags", "web none")], &[]);
    list(&server, &[("from", "yesterdayish")]).expect(400, &["from"]);

    let script = list(&server, &[("jsonp", "show"), ("tags", "none")]).expect(200, &[]).clone();
    assert_eq!(
        (script.text().as_str(), script.header("content-type")),
        ("show([])", Some("text/javascript"))
    );
    let first = server.send(&Request::get("/events/2/")).expect(200, &[]).json();
    assert_eq!((&first["what"], &first["tags"]), (&json!("first"), &json!(["web"])));
    let when = first["when"].as_str().unwrap();
    assert!(when.ends_with(".500Z") && when.len() == 24, "{when}");
    for id in ["99", "first", "-1"] {
        server.send(&Request::get(format!("/events/{id}"))).expect(404, &["no event has the id"]);
    }
}

#[test]
fn events_that_are_wrong_are_refused() {
    let server = Server::new();
    let check = |body: &str, status, mentions: &[&str]| {
        let reply = server.send(&Request::post("/events", body.into()));
        reply.expect(status, mentions);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"), "{body}");
    };
    check("", 400, &["invalid JSON"]);
    check("[]", 400, &["object"]);
    check(&"[".repeat(60_000), 400, &["invalid JSON"]);
    check(r#"{"tags":"a"}"#, 400, &["\"what\""]);
    check(r#"{"what":"a","tags":{}}"#, 400, &["\"tags\" must be an array"]);
    check(r#"{"what":"a","tags":["b",1]}"#, 400, &["\"tags\" must be an array"]);
    for when in ["\"now\"", "null", "-1", "1e300", "253402300800"] {
        check(&format!(r#"{{"what":"a","when":{when}}}"#), 400, &["\"when\""]);
    }
    check(&json!({"what": "a".repeat(70_000)}).to_string(), 413, &["65536"]);
    check(&json!({"what": "a", "tags": "b ".repeat(1001)}).to_string(), 400, &["1000 tags"]);
    check(&json!({"what": "a", "tags": vec!["b c"; 501]}).to_string(), 400, &["1000 tags"]);
    for set in ["union", "intersection"] {
        for tags in ["b ".repeat(1001), "b".repeat((64 << 10) + 1), "b ".repeat(500_000)] {
            let wanted = server.send(&Request::form("/events/get_data", &[("tags", &tags), ("set", set)]));
            wanted.expect(400, &["tags", "1000"]);
        }
    }
    let targets = vec!["'b'"; 1001].join(",");
    let render =
        [("target", format!("events({targets})")), ("from", "-1h".into()), ("format", "json".into())];
    let render = render.each_ref().map(|(name, value)| (*name, value.as_str()));
    server.send(&Request::form("/render", &render)).expect(422, &["1000 tags"]);
    assert_eq!(list(&server, &[]).expect(200, &[]).text(), "[]");
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        server.send(&Request::get("/events").method(method)).expect(405, &[]);
    }
    server.send(&Request::get("/events/1").method("DELETE")).expect(405, &[]);
}

#[test]
fn the_first_and_the_last_time_are_shown() {
    let server = Server::new();
    for when in [json!(0), json!(253_402_300_799_i64), json!(253_402_300_799.5)] {
        store(&server, &json!({"what": "x", "when": when}));
    }
    for (id, when) in
        [(1, "1970-01-01T00:00:00Z"), (2, "9999-12-31T23:59:59Z"), (3, "9999-12-31T23:59:59.500Z")]
    {
        let event = server.send(&Request::get(format!("/events/{id}"))).expect(200, &[]).json();
        assert_eq!(event["when"], when);
    }
}

#[test]
fn an_event_and_a_request_may_have_1000_tags() {
    let server = Server::new();
    let tags: Vec<_> = (0..1000).map(|number| format!("tag{number}")).collect();
    store(&server, &json!({"what": "x", "tags": tags}));
    for set in ["union", "intersection"] {
        let wanted = tags.join(" ");
        let found = server.send(&Request::form("/events/get_data", &[("tags", &wanted), ("set", set)]));
        assert_eq!(found.expect(200, &[]).json()[0]["tags"], json!(tags));
    }
}

/// The function counts events for each second.
#[test]
fn targets_count_events() {
    let server = Server::new();
    let end_s = now_ms() / 1000 - 10;
    for (what, tags, ago_s) in [("a", "web eu", 3), ("b", "web", 3), ("c", "db", 2), ("d", "web", 100)] {
        store(&server, &json!({"what": what, "tags": tags, "when": end_s - ago_s}));
    }
    let check = |target: &str, expected: &[Value]| {
        let (from, until) = ((end_s - 4).to_string(), end_s.to_string());
        let params = [("target", target), ("from", &from), ("until", &until), ("format", "json")];
        let series = server.send(&Request::ask("/render", &params)).expect(200, &[]).json();
        let points = series[0]["datapoints"].as_array().unwrap();
        let values: Vec<_> = points.iter().map(|point| point[0].clone()).collect();
        assert_eq!(values, expected, "{target}");
    };
    check("events('*')", &[json!(null), json!(2), json!(1), json!(null)]);
    check("events('web')", &[json!(null), json!(2), json!(null), json!(null)]);
    check("events('web', 'eu')", &[json!(null), json!(1), json!(null), json!(null)]);
    check("events('none')", &[json!(null), json!(null), json!(null), json!(null)]);
    check("transformNull(timeShift(events('web'), '96s'), 0)", &[json!(1), json!(0), json!(0), json!(0)]);
}

#[test]
fn acknowledged_events_survive_a_kill_and_the_torn_end_of_a_file() {
    let mut server = Server::new();
    for number in 0..20 {
        store(&server, &json!({"what": number.to_string(), "when": 1000 + number}));
    }
    server.kill9();
    let file = server.data_dir().join("events/anonymous.events");
    let mut bytes = std::fs::read(&file).unwrap();
    let torn = bytes[bytes.len() - 40..bytes.len() - 7].to_vec();
    bytes.extend(torn);
    std::fs::write(&file, &bytes).unwrap();
    server.restart();
    let numbers = |count: i32| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    assert_eq!(whats(&list(&server, &[])), numbers(20));
    store(&server, &json!({"what": "20", "when": 1020}));
    assert_eq!(whats(&list(&server, &[])), numbers(21));
    // a thread reads the log
    wait_for("the line of the log", || {
        (server.log_lines("whose write was interrupted").len() == 1).then_some(())
    });
    server.kill9();
    server.restart();
    assert_eq!(whats(&list(&server, &[])), numbers(21));
    assert_eq!(server.send(&Request::get("/events/21")).expect(200, &[]).json()["what"], "20");
}

#[test]
fn a_damaged_last_event_is_reported_and_its_id_is_not_used_again() {
    let mut server = Server::start(Options::default().allow("a file of events is damaged"));
    for number in 1..=3 {
        store(&server, &json!({"what": number.to_string(), "when": 1000 + number}));
    }
    server.kill9();
    let file = server.data_dir().join("events/anonymous.events");
    let mut bytes = std::fs::read(&file).unwrap();
    let place = bytes.len() - 5;
    bytes[place] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    server.restart();
    assert_eq!(whats(&list(&server, &[])), ["1", "2"]);
    store(&server, &json!({"what": "4", "when": 1004}));
    assert_eq!(whats(&list(&server, &[])), ["1", "2", "4"]);
    server.send(&Request::get("/events/3")).expect(404, &[]);
    wait_for("the line of the log", || {
        (server.log_lines("a file of events is damaged").len() == 1).then_some(())
    });
    assert_eq!(server.metric("floodmark_graphite_damaged_event_lines_total"), 1.0);
    let copies = std::fs::read_dir(server.data_dir().join("events/quarantine")).unwrap();
    let copies: Vec<_> = copies.map(|copy| std::fs::read(copy.unwrap().path()).unwrap()).collect();
    assert!(copies.len() == 1 && bytes.ends_with(&copies[0]), "{copies:?}");
}

/// The server is killed while several senders store events.
#[test]
fn every_acknowledged_event_survives_a_kill_under_load() {
    let mut server = Server::new();
    let (address, acknowledged) = (server.address, Arc::new(AtomicUsize::new(0)));
    let send = |sender: usize| {
        let acknowledged = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            let mut stored = Vec::new();
            loop {
                let what = format!("{sender}-{}", stored.len());
                let body = json!({"what": what, "when": 1000}).to_string().into_bytes();
                match http::once(address, &Request::post("/events/", body)) {
                    Ok(reply) if reply.status == 200 => stored.push(what),
                    _ => return stored,
                }
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let senders: Vec<_> = (0..4).map(send).collect();
    wait_for("events", || (acknowledged.load(Ordering::Relaxed) > 100).then_some(()));
    server.kill9();
    let stored: Vec<_> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    server.restart();
    let found: BTreeSet<_> = whats(&list(&server, &[])).into_iter().collect();
    assert!(stored.iter().all(|what| found.contains(what)), "{stored:?} in {found:?}");
    // each sender may have one request without an answer
    assert!(found.len() <= stored.len() + 4, "{} of {}", found.len(), stored.len());
    store(&server, &json!({"what": "after", "when": 1001}));
    assert_eq!(whats(&list(&server, &[])).last().unwrap(), "after");
}

#[test]
fn when_a_file_is_full_the_events_that_arrived_first_are_removed() {
    let server = Server::start(Options::default().config("events_bytes = '256KiB'"));
    let data = "x".repeat(5000);
    for number in 0..120 {
        // the times are in the opposite order
        store(&server, &json!({"what": number.to_string(), "when": 1000 - number, "data": data}));
    }
    let left = whats(&list(&server, &[]));
    assert!((30..=52).contains(&left.len()), "{} events", left.len());
    let newest = (0..120).rev().map(|number: i32| number.to_string());
    assert_eq!(left, newest.take(left.len()).collect::<Vec<_>>());
    let limits = server.send(&Request::get("/api/v1/user_limits")).expect(200, &["events_bytes"]).text();
    assert!(limits.contains("262144") || limits.contains("256KiB"), "{limits}");
    let bytes = std::fs::metadata(server.data_dir().join("events/anonymous.events")).unwrap().len();
    assert!(bytes <= 256 << 10, "{bytes} bytes");
}

#[test]
fn a_tenant_sees_and_loses_only_its_own_events() {
    let config = "retention_wait = '1ms'\n[tenant.short]\nretention = '1h'";
    let server = Server::start(Options::default().config(config).allow("requests refused"));
    let event = |what: &str| json!({"what": what}).to_string().into_bytes();
    for tenant in ["a", "b"] {
        server.send(&Request::post("/graphite/events/", event(tenant)).tenant(tenant)).expect(200, &[]);
    }
    let of = |tenant: &str| whats(&server.send(&Request::get("/events/get_data").tenant(tenant)));
    assert_eq!((of("a"), of("b"), of("c")), (vec!["a".to_owned()], vec!["b".to_owned()], vec![]));
    server.send(&Request::get("/events/get_data").tenant("a|b")).expect(400, &["only one"]);
    server.send(&Request::form("/api/v1/admin/delete_tenant", &[("tenant", "a")])).expect(200, &[]);
    assert_eq!((of("a"), of("b")), (vec![], vec!["b".to_owned()]));
    assert!(!server.data_dir().join("events/a.events").exists());
    server.send(&Request::post("/events", event("again")).tenant("a")).expect(200, &[]);
    assert_eq!(of("a"), ["again"]);
    server.send(&Request::get("/events/1").tenant("b")).expect(200, &["\"b\""]);

    let old = json!({"what": "old", "when": now_ms() / 1000 - 7200}).to_string().into_bytes();
    for tenant in ["a", "short"] {
        server.send(&Request::post("/events", old.clone()).tenant(tenant)).expect(200, &[]);
        server.send(&Request::post("/events", event("new")).tenant(tenant)).expect(200, &[]);
    }
    assert_eq!(
        (of("a"), of("short")),
        (vec!["old".to_owned(), "again".into(), "new".into()], vec!["new".to_owned()])
    );
    server.send(&Request::get("/events/1").tenant("short")).expect(404, &[]);
    let own = json!({"what": "refused"}).to_string().into_bytes();
    let refused = server.send(&Request::post("/events", own).tenant("floodmark-system"));
    refused.expect(403, &["self_monitoring_tenant"]);
}
