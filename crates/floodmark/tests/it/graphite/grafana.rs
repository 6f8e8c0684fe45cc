//! Requests of Grafana's Graphite data source, versions 9 to 12, written after its source code: those of its backend
//! (rendering, the query editor, alerting), and those of its browser part, which goes through Grafana's proxy.

use super::lines;
use crate::harness::{Reply, Request, Server, now_ms};
use expect_test::{Expect, expect};

/// A server as a data source at `http://host/graphite`, with values 1 to 3 of three minutes.
fn data_source() -> (Server, i64) {
    let server = Server::new();
    // a multiple of the interval into which points are consolidated below
    let end_s = now_ms() / 1000 / 240 * 240;
    let mut text = String::new();
    for (i, minute) in [3, 2, 1].into_iter().enumerate() {
        let (value, time_s) = (i + 1, end_s - 60 * minute);
        for host in ["web-1", "web-2"] {
            text.push_str(&format!("servers.{host}.requests {value} {time_s}\n"));
            text.push_str(&format!("requests;dc=eu;host={host} {value} {time_s}\n"));
        }
    }
    server.send(&lines(&text)).expect(204, &[]);
    (server, end_s)
}

/// A form as Grafana's backend sends it, with its parameters sorted.
fn form(server: &Server, path: &str, body: String) -> Reply {
    let request = Request::post(format!("/graphite{path}"), body.into_bytes())
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("Accept-Encoding", "gzip")
        .header("User-Agent", "Grafana/12.1.0");
    server.send(&request)
}

fn get(server: &Server, path: &str) -> Reply {
    server
        .send(&Request::get(format!("/graphite{path}")).header("Accept", "application/json, text/plain, */*"))
}

fn check(reply: &Reply, expected: &Expect) {
    expected.assert_eq(&reply.expect(200, &[]).text());
}

/// Replaces the times of points by their distance from the end of the data.
fn relative(reply: &Reply, end_s: i64) -> String {
    let mut json = reply.expect(200, &[]).json();
    for series in json.as_array_mut().unwrap() {
        for point in series["datapoints"].as_array_mut().unwrap() {
            point[1] = (point[1].as_i64().unwrap() - end_s).into();
        }
    }
    json.to_string()
}

#[test]
fn save_and_test() {
    let (server, end_s) = data_source();
    // since version 12, the backend renders a line
    let body = format!(
        "format=json&from={}&maxDataPoints=100&target=constantLine%28100%29&until={end_s}",
        end_s - 3600
    );
    let line = form(&server, "/render", body).expect(200, &[]).json();
    assert_eq!((&line[0]["target"], &line[0]["datapoints"][0][0]), (&"100.0".into(), &100.into()));
    // before, the browser asked for the first level
    check(
        &get(&server, "/metrics/find?query=*"),
        &expect![[r#"[{"text":"servers","id":"servers","allowChildren":1,"expandable":1,"leaf":0}]"#]],
    );
    check(&get(&server, "/version"), &expect!["1.1.10"]);
}

#[test]
fn the_query_editor() {
    let (server, end_s) = data_source();
    let range = format!("from={}&until={end_s}", end_s - 3600);
    let functions = get(&server, "/functions").expect(200, &[]).text();
    for part in [
        r#""name":"alias""#,
        r#""group":"Alias""#,
        r#""params":[{"name":"seriesList","type":"seriesList","required":true}"#,
    ] {
        assert!(functions.contains(part), "{part} is missing");
    }
    let find = |query: &str| form(&server, &format!("/metrics/find?{range}"), format!("query={query}"));
    check(
        &find("servers.%2A"),
        &expect![[
            r#"[{"text":"web-1","id":"servers.web-1","allowChildren":1,"expandable":1,"leaf":0},{"text":"web-2","id":"servers.web-2","allowChildren":1,"expandable":1,"leaf":0}]"#
        ]],
    );
    check(
        &find("servers.%7Bweb-1%2Cweb-2%7D.%2A"),
        &expect![[
            r#"[{"text":"requests","id":"servers.{web-1,web-2}.requests","allowChildren":0,"expandable":0,"leaf":1}]"#
        ]],
    );
    check(&find("servers.none.%2A"), &expect!["[]"]);
    check(
        &get(&server, &format!("/tags/autoComplete/tags?{range}&limit=5000")),
        &expect![[r#"["dc","host","name"]"#]],
    );
    check(
        &get(&server, &format!("/tags/autoComplete/tags?expr=dc%3Deu&tagPrefix=h&{range}&limit=5000")),
        &expect![[r#"["host"]"#]],
    );
    check(
        &get(
            &server,
            &format!("/tags/autoComplete/values?expr=dc%3Deu&tag=host&valuePrefix=web&{range}&limit=5000"),
        ),
        &expect![[r#"["web-1","web-2"]"#]],
    );
}

#[test]
fn template_variables() {
    let (server, end_s) = data_source();
    // `servers.*`, `expand(servers.*.requests)`, `tags(dc=eu)` and `tag_values(host, dc=eu)`
    check(
        &get(&server, "/metrics/find?query=servers.*"),
        &expect![[
            r#"[{"text":"web-1","id":"servers.web-1","allowChildren":1,"expandable":1,"leaf":0},{"text":"web-2","id":"servers.web-2","allowChildren":1,"expandable":1,"leaf":0}]"#
        ]],
    );
    let from_s = end_s - 3600;
    check(
        &get(&server, &format!("/metrics/expand?from={from_s}&query=servers.%2A.requests&until={end_s}")),
        &expect![[r#"{"results":["servers.web-1.requests","servers.web-2.requests"]}"#]],
    );
    check(
        &get(&server, "/tags/autoComplete/tags?expr=dc%3Deu&limit=10000"),
        &expect![[r#"["host","name"]"#]],
    );
    check(
        &get(&server, "/tags/autoComplete/values?expr=dc%3Deu&tag=host&limit=10000"),
        &expect![[r#"["web-1","web-2"]"#]],
    );
}

/// Panels, alerts and annotations of a metric all render. Annotations by tags ask for events.
#[test]
fn panels_alerts_and_annotations() {
    let (server, end_s) = data_source();
    let render = |target: &str, points: &str| {
        let range = format!("from={}&maxDataPoints={points}", end_s - 241);
        form(&server, "/render", format!("format=json&{range}&target={target}&until={}", end_s - 1))
    };
    expect![[r#"[{"datapoints":[[null,-240],[10,-180],[20,-120],[30,-60]],"tags":{"name":"servers.web-1.requests","scale":"10.0"},"target":"scale(servers.web-1.requests,10)"},{"datapoints":[[null,-240],[10,-180],[20,-120],[30,-60]],"tags":{"name":"servers.web-2.requests","scale":"10.0"},"target":"scale(servers.web-2.requests,10)"}]"#]].assert_eq(&relative(&render("scale%28servers.%2A.requests%2C+10%29", "1024"), end_s));
    expect![[r#"[{"datapoints":[[null,-240],[1,-180],[2,-120],[3,-60]],"tags":{"dc":"eu","host":"web-1","name":"requests"},"target":"requests;dc=eu;host=web-1"},{"datapoints":[[null,-240],[1,-180],[2,-120],[3,-60]],"tags":{"dc":"eu","host":"web-2","name":"requests"},"target":"requests;dc=eu;host=web-2"}]"#]]
        .assert_eq(&relative(&render("seriesByTag%28%27dc%3Deu%27%2C+%27host%3D~web%27%29", "1024"), end_s));
    // with few points, as a small panel asks
    expect![[r#"[{"datapoints":[[3,-120],[6,0]],"tags":{"aggregatedBy":"sum","name":"sumSeries(servers.*.requests)"},"target":"sumSeries(servers.*.requests)"}]"#]].assert_eq(&relative(&render("sumSeries%28servers.%2A.requests%29", "2"), end_s));
    expect![[r#"[]"#]].assert_eq(&relative(&render("servers.none.%2A", "1024"), end_s));
    // Grafana shows the text of an error as it is
    let wrong = render("noSuchFunction%28servers.%2A%29", "1024");
    wrong.expect(400, &["noSuchFunction"]);
    assert_eq!(wrong.header("content-type"), Some("text/plain; charset=utf-8"));
    // Relative times of older versions
    let body = "target=servers.web-1.requests&from=-1h&until=now&format=json&maxDataPoints=836".to_owned();
    let series = form(&server, "/render", body).expect(200, &[]).json();
    let values =
        series[0]["datapoints"].as_array().unwrap().iter().filter(|point| !point[0].is_null()).count();
    assert_eq!(values, 3);
    for (what, tags, time_s) in [("deploy", "web eu", end_s - 60), ("incident", "db", end_s - 120)] {
        let event = serde_json::json!({"what": what, "tags": tags, "data": "details", "when": time_s});
        let request = Request::post("/events/", event.to_string().into_bytes());
        server.send(&request.header("Content-Type", "application/json")).expect(200, &[]);
    }
    let annotations = |range: &str| get(&server, &format!("/events/get_data?{range}"));
    let deploy =
        format!(r#"{{"when":{},"what":"deploy","data":"details","tags":["web","eu"],"id":1}}"#, end_s - 60);
    let range = format!("from={}&until={end_s}", end_s - 3600);
    assert_eq!(annotations(&format!("{range}&tags=web%20eu")).expect(200, &[]).text(), format!("[{deploy}]"));
    assert_eq!(annotations("from=-2h&until=now&tags=web").expect(200, &[]).text(), format!("[{deploy}]"));
    assert_eq!(annotations(&range).expect(200, &[]).json().as_array().unwrap().len(), 2);
    assert_eq!(annotations(&format!("{range}&tags=none")).expect(200, &[]).text(), "[]");
}
