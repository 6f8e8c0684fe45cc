//! Queries through Graphite's `/render`.

use crate::harness::{Options, Request, Server, now_ms};

/// A node that has these lines.
fn server_with(lines: &str) -> Server {
    let server = Server::new();
    server.send(&Request::post("/api/v1/graphite", lines.into())).expect(204, &[]);
    server
}

fn render(server: &Server, parameters: &str) -> String {
    let answer = server.send(&Request::get(format!("/render?format=json&{parameters}")));
    answer.expect(200, &[]);
    answer.text()
}

#[test]
fn render_answers_values_at_equal_steps() {
    let minute = now_ms() / 60_000 * 60 - 600;
    let server = server_with(&format!(
        "a.one 1 {minute}\na.one 2 {}\na.one 3 {}\na.two 10 {}\na.b.c 5 {minute}\na.one;k=v 7 {minute}\n",
        minute + 5,
        minute + 60,
        minute + 119,
    ));
    let range = format!("from={}&until={}", minute - 1, minute + 120);
    let (m0, m1, m2) = (minute, minute + 60, minute + 120);
    let one = format!(
        r#"{{"target":"a.one","tags":{{"name":"a.one"}},"datapoints":[[2,{m0}],[3,{m1}],[null,{m2}]]}}"#
    );
    let two = format!(
        r#"{{"target":"a.two","tags":{{"name":"a.two"}},"datapoints":[[null,{m0}],[10,{m1}],[null,{m2}]]}}"#
    );
    let tagged = format!(
        r#"{{"target":"a.one;k=v","tags":{{"k":"v","name":"a.one"}},"datapoints":[[7,{m0}],[null,{m1}],[null,{m2}]]}}"#
    );
    let check = |target: &str, expected: &[&String]| {
        let expected: Vec<_> = expected.iter().map(|text| text.as_str()).collect();
        assert_eq!(render(&server, &format!("{range}&target={target}")), format!("[{}]", expected.join(",")));
    };
    check("a.*", &[&one, &two]);
    check("a.{two,none}", &[&two]);
    check("a.one%3Bk=v", &[&tagged]);
    check("seriesByTag('k=v')", &[&tagged]);
    check("none", &[]);
    check("a.two&target=a.one", &[&two, &one]);
    let sum = render(&server, &format!("{range}&target=sumSeries(a.*)&noNullPoints=true"));
    assert!(sum.contains(r#""target":"sumSeries(a.*)""#), "{sum}");
    assert!(sum.contains(&format!(r#""datapoints":[[2,{m0}],[13,{m1}]]"#)), "{sum}");
    let form = Request::post("/graphite/render", format!("{range}&target=a.two&format=json").into_bytes())
        .header("Content-Type", "application/x-www-form-urlencoded");
    let answer = server.send(&form);
    answer.expect(200, &[&two]);
}

/// Alerts on silent metrics make numbers of nulls. Whether a metric is in memory or only in the table makes no difference.
#[test]
fn metrics_without_values_in_the_range_are_nulls() {
    let minute = now_ms() / 60_000 * 60 - 600;
    let mut server =
        server_with(&format!("a.one 1 {minute}\na.two 2 {minute}\na.b.c 3 {minute}\na.one;k=v 7 {minute}\n"));
    for is_in_memory in [true, false] {
        if !is_in_memory {
            server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
            assert!(server.terminate().success());
            server.restart();
        }
        for first in [minute - 86_400, minute + 120] {
            let (m0, m1) = (first, first + 60);
            let range = format!("from={}&until={m1}", first - 1);
            let line = |name: &str, tags: &str, value: &str| {
                format!(r#"{{"target":"{name}","tags":{tags},"datapoints":[[{value},{m0}],[{value},{m1}]]}}"#)
            };
            let named = |name: &str, path: &str, value| line(name, &format!(r#"{{"name":"{path}"}}"#), value);
            let (one, two) = (named("a.one", "a.one", "null"), named("a.two", "a.two", "null"));
            let check = |target: &str, expected: &[&str]| {
                let found = render(&server, &format!("{range}&target={target}"));
                assert_eq!(found, format!("[{}]", expected.join(",")), "{target}, in memory: {is_in_memory}");
            };
            check("a.two", &[&two]); // the first query after the start
            check("a.*", &[&one, &two]);
            check("a.{two,none}", &[&two]);
            check("a.none", &[]);
            check("removeEmptySeries(a.*)", &[]);
            check(
                "transformNull(a.one,-1)",
                &[&line("transformNull(a.one,-1)", r#"{"name":"a.one","transformNull":"-1.0"}"#, "-1")],
            );
            let shift = format!("{:+}", minute - first).replace('+', "%2B");
            for target in ["a.one", "seriesByTag('k=v')"] {
                let shifted = render(&server, &format!("{range}&target=timeShift({target},'{shift}s')"));
                let value = if target == "a.one" { 1 } else { 7 };
                assert!(
                    shifted.contains(&format!(r#""datapoints":[[{value},{m0}],[null,{m1}]]"#)),
                    "{target}: {shifted}"
                );
            }
            let counted = render(&server, &format!("{range}&target=countSeries(a.*)"));
            assert!(counted.contains(&format!(r#""datapoints":[[2,{m0}],[2,{m1}]]"#)), "{counted}");
        }
    }
}

/// Metrics that have fallen silent do not cause a query of others to fail, whatever the order of the targets. A count has all of
/// them, or fails.
#[test]
fn silent_metrics_leave_memory_to_others() {
    let until = now_ms() / 60_000 * 60 - 300;
    let from = until - 1_000 * 60;
    check_silent_metrics(from, until, from - 600);
    // values that are read because schemas with longer steps would need them
    check_silent_metrics(from, until, until + 100);
}

fn check_silent_metrics(from: i64, until: i64, written: i64) {
    let dead = (0..8).map(|i| format!("dead.{i} 1 {written}\n"));
    let lines: String = dead.chain((0..2).map(|i| format!("live.{i} 1 {until}\n"))).collect();
    // a metric takes about 520 samples of 16 bytes: 1,000 values, and its names
    let server = Server::start(Options::default().config("query_samples = 6000"));
    server.send(&Request::post("/api/v1/graphite", lines.into())).expect(204, &[]);
    let ask = |targets: &str| {
        let path = format!("/render?format=json&from={from}&until={until}&{targets}");
        server.send(&Request::get(path))
    };
    let counted = "target=countSeries(sortByName(dead.*))";
    for [one, other] in [["target=dead.*", "target=live.*"], ["target=dead.*", counted]] {
        for targets in [format!("{one}&{other}"), format!("{other}&{one}")] {
            let answer = ask(&targets);
            let wanted = if other == counted { ["countSeries", "[8,"] } else { ["live.0", "live.1"] };
            answer.expect(200, &wanted);
            let warning = answer.header("x-floodmark-warning").unwrap_or_default();
            assert!(
                warning.contains("left out") && warning.contains("query_samples"),
                "{targets}: {warning}"
            );
        }
    }
    for target in ["target=countSeries(dead.*)", counted] {
        let answer = ask(target);
        answer.expect(200, &["[8,"]);
        assert_eq!(answer.header("x-floodmark-warning"), None, "{target}");
    }
    ask("target=countSeries(sortByName(group(dead.*,dead.*)))")
        .expect(422, &["metrics without values", "query_samples"]);
}

/// Dashboards set the variables of templates in the request.
#[test]
fn templates_are_filled_by_the_request() {
    let minute = now_ms() / 60_000 * 60 - 600;
    let server = server_with(&format!("web.a.load 1 {minute}\nweb.b.load 2 {minute}\n"));
    let names = |parameters: &str| -> Vec<String> {
        let answer: serde_json::Value =
            serde_json::from_str(&render(&server, &format!("from=-1h&{parameters}"))).unwrap();
        answer.as_array().unwrap().iter().map(|series| series["target"].as_str().unwrap().into()).collect()
    };
    let template = "target=template(scale(web.$host.load,$factor),host='a',factor=3)";
    assert_eq!(names(template), ["scale(web.a.load,3)"]);
    assert_eq!(names(&format!("{template}&template[host]=b")), ["scale(web.b.load,3)"]);
    assert_eq!(names(&format!("{template}&template%5Bhost%5D=*&template[factor]=2")).len(), 2);
    assert_eq!(names(&format!("{template}&template[host]=none")), Vec::<String>::new());
    let form = format!("from=-1h&format=json&{template}&template%5Bhost%5D=b");
    let form = Request::post("/render", form.into_bytes())
        .header("Content-Type", "application/x-www-form-urlencoded");
    server.send(&form).expect(200, &["scale(web.b.load,3)"]);
    // outside of a template, a variable is part of a name
    assert_eq!(names("target=web.$host.load&template[host]=a"), Vec::<String>::new());
}

#[test]
fn render_says_in_plain_text_what_is_wrong() {
    let server = Server::new();
    let check = |parameters: &str, parts: &[&str]| {
        let answer = server.send(&Request::get(format!("/render?{parameters}")));
        answer.expect(400, parts);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{parameters}");
    };
    check("format=json&target=scale(a", &["invalid target", "closing bracket", "character 8"]);
    check("format=json&target=nothing(a)", &["no function \"nothing\"", "character 1"]);
    check(
        "format=json&target=scale(a,b)",
        &["\"factor\" of function \"scale\" must be a number; texts need quotes"],
    );
    check("format=json&target=a&from=soon", &["parameter \"from\"", "\"soon\" is not a day"]);
    check("format=json&target=a&from=-1h&until=-1h", &["same time"]);
    check("format=json&target=a&tz=Moon/Sea", &["no time zone"]);
    check("format=svg&target=a", &["pictures are not drawn", "format=json"]);
    check("target=a", &["pictures are not drawn"]);
    check("format=words&target=a", &["\"words\" is not supported"]);
    assert_eq!(render(&server, "from=-1h"), "[]");
}
