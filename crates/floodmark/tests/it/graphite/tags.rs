//! Tags, series by tags, and the list of functions.

use super::lines;
use crate::harness::wire::{self, Series};
use crate::harness::{Request, Server, now_ms};
use expect_test::{Expect, expect};

fn server_with(names: &[&str]) -> Server {
    let server = Server::new();
    let now_s = now_ms() / 1000;
    let text: String = names.iter().map(|name| format!("{name} 1 {now_s}\n")).collect();
    server.send(&lines(&text)).expect(204, &[]);
    server
}

fn check(server: &Server, path: &str, params: &[(&str, &str)], expected: &Expect) {
    let reply = server.send(&Request::ask(path, params));
    expected.assert_eq(&reply.expect(200, &[]).text());
    let form = server.send(&Request::form(path, params));
    if form.status != 405 {
        assert_eq!(form.text(), reply.text(), "{path} as a form");
    }
}

#[test]
fn tags_are_listed_and_completed() {
    let server = server_with(&[
        "disk.used;dc=a;host=web-1",
        "disk.used;dc=a;host=web-2",
        "disk.free;dc=b;host=db.1;rack=7",
        "cpu;dc=b",
        "untagged.path",
    ]);
    let check =
        |path: &str, params: &[(&str, &str)], expected: &Expect| check(&server, path, params, expected);
    check("/tags", &[], &expect![[r#"[{"tag":"dc"},{"tag":"host"},{"tag":"name"},{"tag":"rack"}]"#]]);
    check("/tags", &[("filter", "(r|h)"), ("limit", "1")], &expect![[r#"[{"tag":"host"}]"#]]);
    check(
        "/tags/dc",
        &[],
        &expect![[r#"{"tag":"dc","values":[{"value":"a","count":2},{"value":"b","count":2}]}"#]],
    );
    check(
        "/tags/host",
        &[("filter", "web")],
        &expect![[r#"{"tag":"host","values":[{"value":"web-1","count":1},{"value":"web-2","count":1}]}"#]],
    );
    check(
        "/tags/name",
        &[("limit", "2")],
        &expect![[r#"{"tag":"name","values":[{"value":"cpu","count":1},{"value":"disk.free","count":1}]}"#]],
    );
    check("/tags/none", &[], &expect!["null"]);
    check("/tags/autoComplete/values", &[("tag", "host"), ("expr", "dc!=a")], &expect![[r#"["db.1"]"#]]);
    let find = |exprs: &[&str], expected: &Expect| {
        let params: Vec<_> = exprs.iter().map(|expr| ("expr", *expr)).collect();
        check("/tags/findSeries", &params, expected);
    };
    find(&["dc=a"], &expect![[r#"["disk.used;dc=a;host=web-1","disk.used;dc=a;host=web-2"]"#]]);
    find(
        &["name=~disk", "host!=web-1"],
        &expect![[r#"["disk.free;dc=b;host=db.1;rack=7","disk.used;dc=a;host=web-2"]"#]],
    );
    find(
        &["name=~.", "rack="],
        &expect![[r#"["cpu;dc=b","disk.used;dc=a;host=web-1","disk.used;dc=a;host=web-2"]"#]],
    );
    find(&["name!=", "host!=~web-[0-9]"], &expect![[r#"["cpu;dc=b","disk.free;dc=b;host=db.1;rack=7"]"#]]);
    find(&["name=untagged.path"], &expect!["[]"]);
    let tags = "/tags/autoComplete/tags";
    check(tags, &[], &expect![[r#"["dc","host","name","rack"]"#]]);
    check(tags, &[("expr", "dc=b"), ("expr", "name=cpu")], &expect!["[]"]);
    check(tags, &[("expr[]", "dc=b")], &expect![[r#"["host","name","rack"]"#]]);
    check(tags, &[("expr", "dc=b"), ("tagPrefix", "h"), ("limit", "5")], &expect![[r#"["host"]"#]]);
    let values = "/tags/autoComplete/values";
    check(values, &[("tag", "host")], &expect![[r#"["db.1","web-1","web-2"]"#]]);
    check(values, &[("tag", "host"), ("expr", "dc=a"), ("limit", "1")], &expect![[r#"["web-1"]"#]]);
    check(values, &[("tag", "host"), ("valuePrefix", "db.")], &expect![[r#"["db.1"]"#]]);
    check(values, &[("tag", "host"), ("valuePrefix", "d.")], &expect!["[]"]);
    check(values, &[("tag", "name")], &expect![[r#"["cpu","disk.free","disk.used"]"#]]);
    check(
        values,
        &[("tag", "name"), ("valuePrefix", "disk"), ("expr", "dc=b")],
        &expect![[r#"["disk.free"]"#]],
    );
}

#[test]
fn tag_requests_that_make_no_sense_are_refused() {
    let server = Server::new();
    let check = |path: &str, params: &[(&str, &str)], mentions: &[&str]| {
        server.send(&Request::ask(path, params)).expect(400, mentions);
    };
    check("/tags/findSeries", &[], &["no tag expressions specified"]);
    check("/tags/findSeries", &[("expr", "dc")], &["dc"]);
    check("/tags/findSeries", &[("expr", "dc=~(")], &["dc=~("]);
    check("/tags/findSeries", &[("expr", "dc!=a")], &["require"]);
    check("/tags/autoComplete/values", &[], &["no tag specified"]);
    check("/tags", &[("limit", "many")], &["limit"]);
    check("/tags", &[("filter", "(")], &["filter"]);
    let post = |path: &str, params: &[(&str, &str)]| server.send(&Request::form(path, params));
    let name = post("/tags/tagSeries", &[("path", "disk;z=1;a=2")]);
    assert_eq!(name.expect(200, &[]).text(), r#""disk;a=2;z=1""#);
    let names = post("/tags/tagMultiSeries", &[("path", "b;z=1;a=2"), ("path", "a")]);
    assert_eq!(names.expect(200, &[]).text(), r#"["b;a=2;z=1","a"]"#);
    post("/tags/tagSeries", &[]).expect(400, &["no path"]);
    post("/tags/tagMultiSeries", &[("path", "a;b")]).expect(400, &["a;b"]);
    post("/tags/delSeries", &[]).expect(400, &["no path"]);
    post("/tags/delSeries", &[("path", "a"), ("path", "a;b")]).expect(400, &["a;b"]);
    let long: Vec<_> = (0..900).map(|i| ("path", format!("a.long.name.{i}"))).collect();
    let long: Vec<_> = long.iter().map(|(name, path)| (*name, path.as_str())).collect();
    post("/tags/delSeries", &long).expect(413, &["the selectors of a delete"]);
    server.send(&Request::get("/tags/delSeries?path=a")).expect(405, &[]);
}

/// Deletes exactly the series that are named, and not those with more tags.
#[test]
fn series_are_deleted_by_their_names() {
    let server =
        server_with(&["disk;dc=a", "disk;dc=a;host=x", "disk;dc=a;host=y", "disk", "disk;dc=b", "cpu"]);
    let names = |server: &Server| {
        let ask = [("target", "seriesByTag('name=disk')"), ("target", "{disk,cpu}"), ("format", "json")];
        let series = server.send(&Request::ask("/render", &ask)).expect(200, &[]).json();
        let name = |series: &serde_json::Value| series["target"].as_str().unwrap().to_owned();
        let mut names: Vec<_> = series.as_array().unwrap().iter().map(name).collect();
        names.sort();
        names.join(" ")
    };
    let delete = |server: &Server, paths: &[&str]| {
        let params: Vec<_> = paths.iter().map(|path| ("path", *path)).collect();
        let answer = server.send(&Request::form("/tags/delSeries", &params));
        assert_eq!(answer.expect(200, &[]).text(), "true");
    };
    assert_eq!(names(&server), "cpu disk disk;dc=a disk;dc=a;host=x disk;dc=a;host=y disk;dc=b");
    delete(&server, &["disk;dc=a"]);
    assert_eq!(names(&server), "cpu disk disk;dc=a;host=x disk;dc=a;host=y disk;dc=b");
    delete(&server, &["disk", "disk;host=y;dc=a", "none", "none;dc=a"]);
    assert_eq!(names(&server), "cpu disk;dc=a;host=x disk;dc=b");
    // what is sent again is stored
    server.send(&lines(&format!("disk;dc=a 2 {}\n", now_ms() / 1000))).expect(204, &[]);
    assert_eq!(names(&server), "cpu disk;dc=a disk;dc=a;host=x disk;dc=b");
    let answer = server.send(&Request::form("/graphite/tags/delSeries/", &[("path[]", "disk;dc=b")]));
    assert_eq!(answer.expect(200, &[]).text(), "true");
    assert_eq!(names(&server), "cpu disk;dc=a disk;dc=a;host=x");
}

/// Each path gets a matcher for each label of the selected series, so few paths can mean many matchers.
#[test]
fn a_delete_of_series_with_many_labels_has_few_paths() {
    let tags: String = (0..30).map(|i| format!(";l{i:02}=x")).collect();
    let server = server_with(&[&format!("wide{tags}"), "narrow"]);
    let delete = |paths: &[String]| {
        let params: Vec<_> = paths.iter().map(|path| ("path", path.as_str())).collect();
        server.send(&Request::form("/tags/delSeries", &params))
    };
    let others = (0..60).map(|i| format!("p{i}"));
    let many: Vec<_> = others.chain(["wide".to_owned()]).collect();
    delete(&many).expect(413, &["one for each path and each label", "name fewer paths"]);
    assert_eq!(delete(&many[..60]).expect(200, &[]).text(), "true", "no series passes");
    // a path that is repeated counts once
    let repeated: Vec<_> = (0..900).map(|i| ["wide", "narrow"][i % 2].to_owned()).collect();
    assert_eq!(delete(&repeated).expect(200, &[]).text(), "true");
}

#[test]
fn functions_are_described() {
    let server = Server::new();
    check(
        &server,
        "/functions/scale",
        &[],
        &expect![[
            r#"{"name":"scale","function":"scale(seriesList, factor)","description":"Multiplies each value by a factor.","module":"graphite.render.functions","group":"Transform","params":[{"name":"seriesList","type":"seriesList","required":true},{"name":"factor","type":"float","required":true}]}"#
        ]],
    );
    // names that a type accepts are options, too
    let window = server.send(&Request::get("/functions/movingWindow")).expect(200, &[]).json();
    let options = window["params"][2]["options"].as_array().unwrap();
    assert!(["avg", "median", "stddev"].iter().all(|name| options.contains(&(*name).into())), "{window}");
    // an infinite default is written as in graphite-web, which not every parser accepts
    let all = server.send(&Request::get("/graphite/functions/")).text().replace("1e9999", "1e99");
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let all = all.as_object().unwrap();
    assert!(all.len() > 100, "{}", all.len());
    assert_eq!(all["avg"]["name"], "avg");
    let grouped = server.send(&Request::get("/functions?grouped=1&group=Combine")).json();
    assert!(grouped["Combine"]["sumSeries"]["params"][0]["multiple"].as_bool().unwrap());
    assert_eq!(grouped.as_object().unwrap().len(), 1);
    assert_eq!(server.send(&Request::get("/functions?type=pie")).text(), "{}");
    server.send(&Request::get("/functions/noSuch")).expect(404, &["noSuch"]);
}

/// Labels of Prometheus are tags.
#[test]
fn series_of_remote_write_are_found_by_tags() {
    let server = Server::new();
    let now_ms = now_ms() / 60_000 * 60_000;
    let series = |method: &str, value: f64| {
        let series = Series::named("http_requests_total").label("job", "api").label("method", method);
        series.sample(now_ms - 60_000, value).sample(now_ms, value + 5.0)
    };
    let untagged = Series::named("untagged").sample(now_ms, 1.0);
    let body = wire::v1(&[series("GET", 10.0), series("POST", 20.0), untagged]);
    server.send(&Request::write(&body)).expect(204, &[]);
    let (from, until) = ((now_ms / 1000 - 61).to_string(), (now_ms / 1000).to_string());
    let render = |target: &str| {
        let params = [("target", target), ("from", &from), ("until", &until), ("format", "json")];
        let answer = server.send(&Request::ask("/render", &params)).expect(200, &[]).json();
        let name = |series: &serde_json::Value| series["target"].as_str().unwrap().to_owned();
        let values = |series: &serde_json::Value| {
            let points = series["datapoints"].as_array().unwrap().iter();
            points.map(|point| point[0].as_f64()).collect::<Vec<_>>()
        };
        answer.as_array().unwrap().iter().map(|series| (name(series), values(series))).collect::<Vec<_>>()
    };
    let get = "http_requests_total;job=api;method=GET";
    let first = |name: &str, a: f64| (name.to_owned(), vec![Some(a), Some(a + 5.0)]);
    assert_eq!(render("seriesByTag('job=api','method=GET')"), [first(get, 10.0)]);
    assert_eq!(render("seriesByTag('name=http_requests_total','method=~P')")[0].1, [Some(20.0), Some(25.0)]);
    assert_eq!(render("seriesByTag('job=api')").len(), 2);
    assert_eq!(render(get), [first(get, 10.0)]);
    let increase = "aliasByTags(perSecond(seriesByTag('job=api','method=GET')),'method')";
    assert_eq!(render(increase), [("GET".to_owned(), vec![None, Some(0.083_333)])]);
    // a metric without labels is a path
    assert_eq!(render("untagged"), [("untagged".to_owned(), vec![None, Some(1.0)])]);
    assert_eq!(render("seriesByTag('name=untagged')"), []);
    let found = server.send(&Request::ask("/tags/findSeries", &[("expr", "method=GET")]));
    assert_eq!(found.expect(200, &[]).json(), serde_json::json!([get]));
}
