//! Prometheus' query API. Where clients depend on the format, answers are compared byte by byte.

use crate::harness::read::{data, matrix, seconds};
use crate::harness::wire::{self, Series};
use crate::harness::{Request, Server, now_ms};
use serde_json::{Value, json};

const PREFIXES: [&str; 3] = ["", "/prometheus", "/api/prom"];

/// Starts a server with four counters and a gauge that are sampled every 10 s. Also returns the time of the
/// newest sample, which is a whole second.
fn filled() -> (Server, i64) {
    let server = Server::new();
    let end = now_ms() / 1000 * 1000;
    let times = || (0..=30).map(move |i| (i, end - 300_000 + i * 10_000));
    let mut all = Vec::new();
    for (job, code) in [("api", "200"), ("api", "500"), ("web", "200"), ("web", "404")] {
        let series = Series::new(&[("__name__", "http_requests_total"), ("code", code), ("job", job)]);
        let speed = f64::from(code.parse::<u32>().unwrap());
        all.push(series.samples(times().map(|(i, t)| (t, i as f64 * speed))));
    }
    let warm = Series::new(&[("__name__", "room_celsius"), ("room", "é\"\\\n")]);
    all.push(warm.samples(times().map(|(i, t)| (t, 20.5 + i as f64 / 7.0))));
    server.send(&Request::write(&wire::v1(&all))).expect(204, &[]);
    (server, end)
}

#[test]
fn the_start_page_links_to_paths_that_exist() {
    let (server, _) = filled();
    let reply = server.send(&Request::get("/"));
    let page = reply.text();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.contains(concat!("<h1>Floodmark ", env!("CARGO_PKG_VERSION"), "</h1>")), "{page}");
    let links: Vec<_> = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.len() >= 5, "{links:?}");
    for link in links {
        assert_eq!(server.send(&Request::get(link)).status, 200, "{link}");
    }
}

#[test]
fn instant_queries() {
    let (server, end) = filled();
    let at = seconds(end);
    let now = end / 1000;
    let check = |query: &str, expected: &str| {
        let params = [("query", query), ("time", at.as_str())];
        for prefix in PREFIXES {
            let path = format!("{prefix}/api/v1/query");
            for request in [Request::ask(&path, &params), Request::form(&path, &params)] {
                let reply = server.send(&request);
                let whole = format!(r#"{{"status":"success","data":{expected}}}"#);
                assert_eq!((reply.status, reply.text()), (200, whole), "{query}");
                assert_eq!(reply.header("content-type"), Some("application/json"));
            }
        }
    };
    check("1+1", &format!(r#"{{"resultType":"scalar","result":[{now},"2"]}}"#));
    check("\"text\"", &format!(r#"{{"resultType":"string","result":[{now},"text"]}}"#));
    check("nothing", r#"{"resultType":"vector","result":[]}"#);
    check(
        "http_requests_total{job=\"api\",code=\"500\"}",
        &format!(
            r#"{{"resultType":"vector","result":[{{"metric":{{"__name__":"http_requests_total","code":"500","job":"api"}},"value":[{now},"15000"]}}]}}"#
        ),
    );
    check(
        "room_celsius[20s]",
        &format!(
            r#"{{"resultType":"matrix","result":[{{"metric":{{"__name__":"room_celsius","room":"é\"\\\n"}},"values":[[{},"24.642857142857142"],[{now},"24.785714285714285"]]}}]}}"#,
            now - 10
        ),
    );
    check(
        "sum(rate(http_requests_total[1m]))",
        &format!(r#"{{"resultType":"vector","result":[{{"metric":{{}},"value":[{now},"130.4"]}}]}}"#),
    );
    check(
        "vector(1) / 0",
        &format!(r#"{{"resultType":"vector","result":[{{"metric":{{}},"value":[{now},"+Inf"]}}]}}"#),
    );
}

#[test]
fn range_queries() {
    let (server, end) = filled();
    let now = end / 1000;
    let (start, stop) = (seconds(end - 20_500), seconds(end));
    let params =
        [("query", "sum by (job) (http_requests_total)"), ("start", &start), ("end", &stop), ("step", "10s")];
    let expected = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{"job":"api"}},"values":[[{a}.500,"18900"],[{b}.500,"19600"],[{c}.500,"20300"]]}},{{"metric":{{"job":"web"}},"values":[[{a}.500,"16308"],[{b}.500,"16912"],[{c}.500,"17516"]]}}]}}}}"#,
        a = now - 21,
        b = now - 11,
        c = now - 1
    );
    for prefix in PREFIXES {
        let path = format!("{prefix}/api/v1/query_range");
        for request in [Request::ask(&path, &params), Request::form(&path, &params)] {
            server.send(&request).expect(200, &[]);
            assert_eq!(server.send(&request).text(), expected);
        }
    }
    // in a range query, a scalar becomes a matrix with one series
    let params = [("query", "7"), ("start", stop.as_str()), ("end", stop.as_str()), ("step", "60")];
    let scalar = data(&server.send(&Request::ask("/api/v1/query_range", &params)));
    assert_eq!(scalar, json!({"resultType": "matrix", "result": [{"metric": {}, "values": [[now, "7"]]}]}));
    // the largest number of points that is allowed
    let params = [("query", "1"), ("start", "0"), ("end", "11000"), ("step", "1")];
    let reply = server.send(&Request::ask("/api/v1/query_range", &params));
    let points = matrix(&data(&reply)).pop_first().unwrap().1;
    assert_eq!(points.len(), 11_001);
}

#[test]
fn times_can_be_written_in_many_ways() {
    let (server, end) = filled();
    let ask = |params: &[(&str, &str)]| {
        let data = data(&server.send(&Request::ask("/api/v1/query", params)));
        data["result"][0]["value"].clone()
    };
    let query = ("query", "sum(http_requests_total)");
    let expected = json!([end / 1000, "39120"]);
    assert_eq!(ask(&[query, ("time", &(end / 1000).to_string())]), expected);
    assert_eq!(ask(&[query, ("time", &seconds(end))]), expected);
    let rfc3339 = jiff::Timestamp::from_millisecond(end).unwrap().to_string();
    assert!(rfc3339.ends_with('Z'));
    assert_eq!(ask(&[query, ("time", &rfc3339)]), expected);
    let east = rfc3339.replace('Z', "+00:00");
    assert_eq!(ask(&[query, ("time", &east)]), expected);
    let exponent = format!("{:e}", end as f64 / 1000.0);
    assert_eq!(ask(&[query, ("time", &exponent)]), expected);
    let now = ask(&[query]);
    assert_eq!(now[1], "39120");
    assert!(now[0].as_f64().unwrap() >= (end / 1000) as f64);
    // `lookback_delta` sets how far back an instant query looks for a sample
    let late = seconds(end + 4_000);
    assert_eq!(ask(&[query, ("time", &late), ("lookback_delta", "5s")])[1], "39120");
    assert_eq!(ask(&[query, ("time", &late), ("lookback_delta", "3s")]), Value::Null);
}

#[test]
fn labels_and_their_values() {
    let (server, end) = filled();
    let (start, stop) = (seconds(end - 600_000), seconds(end));
    let check = |path: &str, params: &[(&str, &str)], expected: Value| {
        for prefix in PREFIXES {
            let full = format!("{prefix}{path}");
            assert_eq!(data(&server.send(&Request::ask(&full, params))), expected, "{path} {params:?}");
            if !path.ends_with("/values") {
                assert_eq!(data(&server.send(&Request::form(&full, params))), expected);
            }
        }
    };
    let window = [("start", start.as_str()), ("end", stop.as_str())];
    check("/api/v1/labels", &[], json!(["__name__", "code", "job", "room"]));
    check("/api/v1/labels", &window, json!(["__name__", "code", "job", "room"]));
    check("/api/v1/labels", &[("match[]", "room_celsius")], json!(["__name__", "room"]));
    check("/api/v1/labels", &[("match[]", "nothing")], json!([]));
    let both = [("match[]", "room_celsius"), ("match[]", "{job=\"api\"}")];
    check("/api/v1/labels", &both, json!(["__name__", "code", "job", "room"]));
    check("/api/v1/label/__name__/values", &[], json!(["http_requests_total", "room_celsius"]));
    check("/api/v1/label/code/values", &window, json!(["200", "404", "500"]));
    check("/api/v1/label/code/values", &[("match[]", "{job=\"api\"}")], json!(["200", "500"]));
    check("/api/v1/label/room/values", &[], json!(["é\"\\\n"]));
    check("/api/v1/label/nothing/values", &[], json!([]));
    // only labels whose series have samples in the given time range are returned
    let late = Series::named("late").label("room", "cellar").sample(end + 60_000, 1.0);
    server.send(&Request::write(&wire::v1(&[late]))).expect(204, &[]);
    check("/api/v1/labels", &window, json!(["__name__", "code", "job", "room"]));
    check("/api/v1/label/room/values", &window, json!(["é\"\\\n"]));
    let (from, to) = (seconds(end + 1), seconds(end + 60_000));
    let after = [("start", from.as_str()), ("end", to.as_str())];
    check("/api/v1/labels", &after, json!(["__name__", "room"]));
    check("/api/v1/label/room/values", &after, json!(["cellar"]));
    check("/api/v1/label/room/values", &after[..1], json!(["cellar"]));
    check("/api/v1/label/room/values", &after[1..], json!(["cellar", "é\"\\\n"]));
    let matching = [&after[..], &[("match[]", "{room!=\"\"}")]].concat();
    check("/api/v1/label/__name__/values", &matching, json!(["late"]));
    check("/api/v1/labels", &[("end", "1")], json!([]));
    let cut = server.send(&Request::ask("/api/v1/label/code/values", &[("limit", "2")])).json();
    assert_eq!(
        cut,
        json!({"status": "success", "data": ["200", "404"], "warnings": ["results truncated due to limit"]})
    );
    let cut = server.send(&Request::ask("/api/v1/labels", &[("limit", "4")])).json();
    assert_eq!(cut["warnings"], Value::Null, "a complete answer has a warning");
}

#[test]
fn series() {
    let (server, end) = filled();
    let of = |code: &str, job: &str| json!({"__name__": "http_requests_total", "code": code, "job": job});
    let check = |params: &[(&str, &str)], expected: Value| {
        for prefix in PREFIXES {
            let path = format!("{prefix}/api/v1/series");
            for request in [Request::ask(&path, params), Request::form(&path, params)] {
                let mut found = data(&server.send(&request));
                found.as_array_mut().unwrap().sort_by_key(Value::to_string);
                assert_eq!(found, expected, "{params:?}");
            }
        }
    };
    check(&[("match[]", "{job=\"api\"}")], json!([of("200", "api"), of("500", "api")]));
    check(
        &[("match[]", "{code=\"404\"}"), ("match[]", "{job=\"api\",code=~\"5..\"}")],
        json!([of("404", "web"), of("500", "api")]),
    );
    check(&[("match[]", "http_requests_total{code!=\"200\",job=\"web\"}")], json!([of("404", "web")]));
    check(&[("match[]", "nothing")], json!([]));
    // only series that have samples in the given time range are returned
    let (before, long_before) = (seconds(end - 301_000), seconds(end - 900_000));
    check(&[("match[]", "{code=\"404\"}"), ("start", &long_before), ("end", &before)], json!([]));
    let first = seconds(end - 300_000);
    check(
        &[("match[]", "{code=\"404\"}"), ("start", &long_before), ("end", &first)],
        json!([of("404", "web")]),
    );
    let cut =
        server.send(&Request::ask("/api/v1/series", &[("match[]", "http_requests_total"), ("limit", "3")]));
    let cut = cut.expect(200, &["results truncated due to limit"]).json();
    assert_eq!(cut["data"].as_array().unwrap().len(), 3);
}

#[test]
fn limits_cut_and_say_so() {
    let (server, end) = filled();
    let at = seconds(end);
    let params = [("query", "http_requests_total"), ("time", at.as_str()), ("limit", "2")];
    let cut = server.send(&Request::ask("/api/v1/query", &params)).json();
    assert_eq!(cut["data"]["result"].as_array().unwrap().len(), 2);
    assert_eq!(cut["warnings"], json!(["results truncated due to limit"]));
    let params =
        [("query", "http_requests_total"), ("start", &at), ("end", &at), ("step", "1"), ("limit", "4")];
    let whole = server.send(&Request::ask("/api/v1/query_range", &params)).json();
    assert_eq!(whole["data"]["result"].as_array().unwrap().len(), 4);
    assert_eq!(whole["warnings"], Value::Null);
}

#[test]
fn queries_accepted_by_prometheus_are_accepted() {
    let (server, end) = filled();
    let at = seconds(end);
    let count = |query: &str| {
        let params = [("query", query), ("time", at.as_str())];
        data(&server.send(&Request::ask("/api/v1/query", &params)))["result"].as_array().unwrap().len()
    };
    assert_eq!(count("{room!=\"\"}"), 1);
    assert_eq!(count("{code!~\".*\"}"), 0);
    assert_eq!(count("{code!~\"2..|\"}"), 2);
    let series = server.send(&Request::ask("/api/v1/series", &[("match[]", "{room!=\"\"}")]));
    assert_eq!(data(&series).as_array().unwrap().len(), 1);
    let value = |query: &str| server.query(query, end)["result"][0]["value"][1].clone();
    assert_eq!(server.query("1_000 + 0x1F", end)["result"][1], "1031");
    assert_eq!(value("clamp_max(vector(-0), 0)"), "-0");
    assert_eq!(value("clamp_min(vector(-0), 0)"), "0");
}

#[test]
fn exemplars_of_whole_expressions() {
    let (server, end) = filled();
    let series = |name: &str| {
        let labels = [("trace_id", name)];
        Series::named(name).sample(end, 1.0).exemplar(&labels, end - 1000, 0.5)
    };
    server.send(&Request::write(&wire::v1(&["a", "b", "c"].map(series)))).expect(204, &[]);
    let found = |params: &[(&str, &str)]| -> Vec<String> {
        let found = data(&server.send(&Request::ask("/api/v1/query_exemplars", params)));
        let name = |one: &Value| one["exemplars"][0]["labels"]["trace_id"].as_str().unwrap().to_owned();
        found.as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(found(&[("query", "a")]), ["a"]);
    assert_eq!(found(&[("query", "histogram_quantile(0.9, rate(a[5m])) / on() sum(b)")]), ["a", "b"]);
    assert_eq!(found(&[("query", "c"), ("start", &seconds(end - 1000))]), ["c"]);
    assert_eq!(found(&[("query", "c"), ("start", &seconds(end - 999))]), [""; 0]);
    assert_eq!(found(&[("query", "c"), ("end", &seconds(end - 1001))]), [""; 0]);
    assert_eq!(found(&[("query", "1 + 1")]), [""; 0]);
}

#[test]
fn the_tsdb_status_has_prometheus_shape() {
    let (server, _) = filled();
    let list = |counts: &[(&str, u64)]| {
        counts.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()
    };
    let check = |params: &[(&str, &str)], count: usize| {
        let status = data(&server.send(&Request::ask("/api/v1/status/tsdb", params)));
        let check = |name: &str, expected: &[(&str, u64)]| {
            assert_eq!(status[name], json!(list(&expected[..count.min(expected.len())])), "{name}");
        };
        // the pairs are 2 metrics, 3 codes, 2 jobs and 1 room
        assert_eq!(status["headStats"], json!({"numSeries": 5, "numLabelPairs": 8}));
        check("seriesCountByMetricName", &[("http_requests_total", 4), ("room_celsius", 1)]);
        check("labelValueCountByLabelName", &[("code", 3), ("__name__", 2), ("job", 2), ("room", 1)]);
        check(
            "seriesCountByLabelValuePair",
            &[
                ("__name__=http_requests_total", 4),
                ("code=200", 2),
                ("job=api", 2),
                ("job=web", 2),
                ("__name__=room_celsius", 1),
                ("code=404", 1),
                ("code=500", 1),
                ("room=é\"\\\n", 1),
            ],
        );
        assert_eq!(status["memoryInBytesByLabelName"].as_array().unwrap().len(), count.min(4));
    };
    check(&[], 10);
    check(&[("limit", "2")], 2);
    let other = server.send(&Request::get("/api/v1/status/tsdb").tenant("other"));
    assert_eq!(data(&other)["headStats"], json!({"numSeries": 0, "numLabelPairs": 0}));
    for limit in ["0", "-1", "x", "10001"] {
        let reply = server.send(&Request::ask("/api/v1/status/tsdb", &[("limit", limit)]));
        reply.expect(400, &["limit must be a number from 1 to 10000"]);
    }
}

#[test]
fn cardinality_has_mimirs_shape() {
    let (server, _) = filled();
    let check = |path: &str, params: &[(&str, &str)], expected: Value| {
        for prefix in PREFIXES {
            let path = format!("{prefix}/api/v1/cardinality/{path}");
            for request in [Request::ask(&path, params), Request::form(&path, params)] {
                let reply = server.send(&request);
                assert_eq!((reply.status, reply.json()), (200, expected.clone()), "{path} {params:?}");
            }
        }
    };
    let values = |name: &str, count: u64| json!({"label_name": name, "label_values_count": count});
    let all = [values("code", 3), values("__name__", 2), values("job", 2), values("room", 1)];
    let names = |count: usize| json!({"label_values_count_total": 8, "label_names_count": 4, "cardinality": all[..count]});
    check("label_names", &[], names(4));
    check("label_names", &[("limit", "2"), ("count_method", "inmemory")], names(2));
    let series = |value: &str, count: u64| json!({"label_value": value, "series_count": count});
    let codes = json!({
        "label_name": "code", "label_values_count": 3, "series_count": 4,
        "cardinality": [series("200", 2), series("404", 1), series("500", 1)],
    });
    let nothing = json!({"label_name": "no", "label_values_count": 0, "series_count": 0, "cardinality": []});
    let asked = [("label_names[]", "code"), ("label_names[]", "no")];
    check("label_values", &asked, json!({"series_count_total": 5, "labels": [codes, nothing]}));
    let of = |code: &str, job: &str| json!({"__name__": "http_requests_total", "code": code, "job": job});
    let active = json!({"data": [of("200", "api"), of("500", "api")]});
    check("active_series", &[("selector", "{job=\"api\"}")], active);
    check("active_series", &[("selector", "nothing")], json!({"data": []}));
    for (path, name, value) in [
        ("label_names", "limit", "501"),
        ("label_names", "selector", "{job=\"api\"}"),
        ("label_names", "count_method", "active"),
        ("label_values", "limit", "3"),
        ("active_series", "limit", "3"),
        ("active_series", "selector", "{"),
    ] {
        let path = format!("/api/v1/cardinality/{path}");
        server.send(&Request::ask(&path, &[(name, value)])).expect(400, &["bad_data"]);
    }
}

#[test]
fn a_timeout_can_be_asked_for() {
    let (server, end) = filled();
    let at = seconds(end);
    for timeout in ["10s", "10", "0.5", "1h"] {
        let params = [("query", "http_requests_total"), ("time", at.as_str()), ("timeout", timeout)];
        server.send(&Request::ask("/api/v1/query", &params)).expect(200, &[]);
    }
    let slow = "max_over_time(sum(http_requests_total)[1h:1ms])";
    let params = [("query", slow), ("time", at.as_str()), ("timeout", "1ms")];
    let reply = server.send(&Request::ask("/api/v1/query", &params));
    reply.expect(503, &["\"timeout\"", "query timed out in "]);
    assert!(reply.header("retry-after").is_some());
    let range = [("start", at.as_str()), ("end", at.as_str()), ("step", "1")];
    let reply = server
        .send(&Request::form("/api/v1/query_range", &[&range[..], &params[..1], &params[2..]].concat()));
    reply.expect(503, &["\"timeout\"", "query timed out in "]);
}

#[test]
fn annotations_are_sent_along() {
    let (server, end) = filled();
    let params = [("query", "rate(room_celsius[1m])"), ("time", &seconds(end))];
    let reply = server.send(&Request::ask("/api/v1/query", &params)).json();
    assert!(reply["infos"][0].as_str().is_some_and(|i| i.contains("room_celsius")), "{reply}");
    let params = [("query", "quantile(7, http_requests_total)"), ("time", &seconds(end))];
    let reply = server.send(&Request::ask("/api/v1/query", &params)).json();
    assert!(reply["warnings"][0].as_str().is_some_and(|w| w.contains("quantile")), "{reply}");
}

/// The requests that Grafana sends on "Save & test" and while a user edits a query.
#[test]
fn grafana_is_served() {
    let (server, end) = filled();
    for prefix in PREFIXES {
        let health = Request::form(&format!("{prefix}/api/v1/query"), &[("query", "1+1"), ("time", "4")]);
        let answer = data(&server.send(&health));
        assert_eq!(answer, json!({"resultType": "scalar", "result": [4, "2"]}));
        let build = data(&server.send(&Request::get(format!("{prefix}/api/v1/status/buildinfo"))));
        for key in ["version", "revision", "branch", "buildUser", "buildDate", "goVersion"] {
            assert!(build[key].is_string(), "{key} in {build}");
        }
        let version = build["version"].as_str().unwrap();
        assert!(
            version.starts_with(|c: char| c.is_ascii_digit()),
            "Grafana cannot read the semantic version: {version}"
        );
        let window = [("start", (end / 1000 - 3600).to_string()), ("end", (end / 1000).to_string())];
        let window: Vec<_> = window.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let with = |more: &[(&'static str, &'static str)]| [&window[..], more].concat();
        let get = |path: &str, params: &[(&str, &str)]| {
            data(&server.send(&Request::ask(&format!("{prefix}{path}"), params)))
        };
        assert_eq!(
            get("/api/v1/label/__name__/values", &with(&[("limit", "40000")])).as_array().unwrap().len(),
            2
        );
        let values = get(
            "/api/v1/label/job/values",
            &with(&[("match[]", "{__name__=\"http_requests_total\",code=\"404\"}")]),
        );
        assert_eq!(values, json!(["web"]));
        assert!(get("/api/v1/metadata", &[("limit", "40000")]).is_object());
        let params = [
            ("query", "sum by (job) (rate(http_requests_total[1m]))"),
            ("start", &(end / 1000 - 60).to_string()),
            ("end", &(end / 1000).to_string()),
            ("step", "15"),
        ];
        let range =
            Request::form(&format!("{prefix}/api/v1/query_range"), &params).header("X-Grafana-Org-Id", "1");
        assert_eq!(matrix(&data(&server.send(&range))).len(), 2);
    }
}

#[test]
fn tenants_never_see_each_other() {
    let mut server = Server::new();
    let now = now_ms();
    let tenants = [None, Some("a"), Some("b")];
    for (i, tenant) in (1..).zip(tenants) {
        let mine = format!("only_{}", tenant.unwrap_or("anonymous"));
        let series = [
            Series::named("shared").label("t", "x").sample(now, f64::from(i)),
            Series::named(&mine).sample(now, 1.0),
        ];
        let request = Request::write(&wire::v1(&series));
        server.send(&tenant.map_or(request.clone(), |t| request.tenant(t))).expect(204, &[]);
    }
    let check = |server: &Server| {
        for (i, tenant) in (1..).zip(tenants) {
            let mine = format!("only_{}", tenant.unwrap_or("anonymous"));
            let get = |path: &str, params: &[(&str, &str)]| {
                let request = Request::ask(path, params);
                data(&server.send(&tenant.map_or(request.clone(), |t| request.tenant(t))))
            };
            assert_eq!(get("/api/v1/label/__name__/values", &[]), json!([mine, "shared"]));
            let all = get("/api/v1/series", &[("match[]", "{__name__=~\".+\"}")]);
            assert_eq!(all.as_array().unwrap().len(), 2);
            let sum =
                get("/api/v1/query", &[("query", "sum({__name__=~\".*shared\"})"), ("time", &seconds(now))]);
            assert_eq!(sum["result"][0]["value"][1], i.to_string());
        }
        let nobody = server.query_as(Some("nobody"), "shared", now);
        assert_eq!(nobody["result"], json!([]));
    };
    check(&server);
    // requests without a tenant belong to the tenant `anonymous`
    assert_eq!(server.query_as(Some("anonymous"), "sum(shared)", now)["result"][0]["value"][1], "1");
    server.kill9();
    server.restart();
    check(&server);
}

#[test]
fn health_paths_and_metrics() {
    let server = Server::new();
    for path in ["/-/healthy", "/-/ready", "/ready", "/health"] {
        server.send(&Request::get(path)).expect(200, &["Floodmark is"]);
    }
    let body = wire::v1(&[Series::named("m").sample(now_ms(), 1.0)]);
    server.send(&Request::write(&body)).expect(204, &[]);
    server.send(&Request::write(&body)).expect(204, &[]);
    assert_eq!(server.metric("floodmark_head_series"), 1.0);
    assert_eq!(server.metric("floodmark_write_samples_total"), 2.0);
    assert_eq!(server.metric("floodmark_head_duplicate_samples_total"), 1.0);
    let text = server.send(&Request::get("/metrics")).text();
    for line in text.lines() {
        let name = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
        let fine = name.starts_with("floodmark_") || name.starts_with("process_");
        assert!(fine, "{line}");
        if !line.starts_with('#') {
            line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }
}

#[test]
fn growth_names_what_was_created() {
    let server = Server::new();
    let new = |i: i32| {
        let labels = [("__name__", if i < 7 { "a" } else { "b" }), ("id", &i.to_string()), ("job", "x")];
        Series::new(&labels).sample(now_ms(), 1.0)
    };
    server.send(&Request::write(&wire::v1(&(0..10).map(new).collect::<Vec<_>>()))).expect(204, &[]);
    for prefix in ["", "/prometheus"] {
        let path = format!("{prefix}/api/v1/cardinality/growth?limit=2");
        let answer = server.send(&Request::get(path)).json();
        let data = &answer["data"];
        assert_eq!((&answer["status"], &data["created"]), (&json!("success"), &json!(10)));
        let grown = |name: &str, count: u64| json!({"name": name, "createdAtLeast": count, "createdAtMost": count, "series": count});
        assert_eq!(data["metrics"], json!([grown("a", 7), grown("b", 3)]));
        assert_eq!(data["labelPairs"], json!([grown("job=x", 10), grown("id=0", 1)]));
        assert_eq!((&data["metricsOthersAtMost"], &data["labelPairsOthersAtMost"]), (&json!(0), &json!(0)));
        assert!(data["seconds"].as_u64().is_some_and(|seconds| seconds < 3_600), "{data}");
    }
    for wrong in ["limit=0", "limit=501", "selector=a"] {
        server.send(&Request::get(format!("/api/v1/cardinality/growth?{wrong}"))).expect(400, &[]);
    }
    let others = server.send(&Request::get("/api/v1/cardinality/growth").tenant("other")).json();
    assert_eq!(others["data"]["created"], 0);
}

#[test]
fn unqueried_names_what_no_query_selects() {
    let (server, end) = filled();
    let check = |tenant: &str, within: &str, series: u64, expected: Value| {
        let path = format!("/api/v1/cardinality/unqueried?{within}");
        let answer = server.send(&Request::get(path).tenant(tenant)).json();
        let data = &answer["data"];
        assert_eq!((&data["complete"], &data["series"]), (&json!(true), &json!(series)), "{answer}");
        assert_eq!(data["metrics"], expected);
        assert!(data["withinSeconds"].as_u64() <= data["trackedSeconds"].as_u64(), "{answer}");
    };
    let counters = json!({"name": "http_requests_total", "series": 4});
    let gauge = json!({"name": "room_celsius", "series": 1});
    check("anonymous", "", 5, json!([counters, gauge]));
    server.query("count({room=~\".+\"})", end);
    check("anonymous", "", 4, json!([counters]));
    server.send(&Request::get("/api/v1/series?match[]=http_requests_total")).expect(200, &[]);
    check("anonymous", "within=7d", 4, json!([counters]));
    server.query("rate(http_requests_total[1m])", end);
    check("anonymous", "within=1h", 0, json!([]));
    check("other", "", 0, json!([]));
    for wrong in ["within=0", "within=x", "limit=0", "selector=a"] {
        server
            .send(&Request::get(format!("/api/v1/cardinality/unqueried?{wrong}")))
            .expect(400, &["bad_data"]);
    }
}
