//! Formats of `/render`.

use super::graphite_web::GraphiteWeb;
use super::lines;
use crate::harness::http::{Connection, encoded};
use crate::harness::{Options, Request, Server};
use expect_test::{Expect, expect};
use serde_json::Value;
use stdx::rng::Rng;

/// 2026-01-01 00:00:00 UTC.
const START_S: i64 = 1_767_225_600;

fn server() -> Server {
    let server = Server::start(Options::default().config("graphite_jsonp = true"));
    let text: String = [(60, "1"), (120, "2.5"), (240, "-3e-9")]
        .map(|(after_s, value)| format!("a.b {value} {}\n", START_S + after_s))
        .concat();
    server.send(&lines(&text)).expect(204, &[]);
    server
}

fn ask(format: &[(&str, &str)]) -> Request {
    let (from, until) = (START_S.to_string(), (START_S + 240).to_string());
    let times = [("target", "alias(a.b,'x,\"y\"')"), ("from", &from), ("until", &until)];
    Request::ask("/render", &[&times[..], format].concat())
}

#[test]
fn series_are_written_in_all_formats() {
    let server = server();
    let check = |format: &[(&str, &str)], content_type: &str, expected: &Expect| {
        let reply = server.send(&ask(format));
        let text: String = reply.expect(200, &[]).body.escape_ascii().to_string();
        expected.assert_eq(&text);
        assert_eq!(reply.header("content-type"), Some(content_type));
    };
    check(
        &[("format", "json"), ("jsonp", "show")],
        "text/javascript",
        &expect![[
            r#"show([{\"target\":\"x,\\\"y\\\"\",\"tags\":{\"name\":\"a.b\"},\"datapoints\":[[1,1767225660],[2.5,1767225720],[null,1767225780],[-3e-9,1767225840]]}])"#
        ]],
    );
    check(
        &[("rawData", "1")],
        "text/plain; charset=utf-8",
        &expect![[r#"x,\"y\",1767225660,1767225900,60|1.0,2.5,None,-3e-09\n"#]],
    );
    check(
        &[("format", "csv")],
        "text/csv",
        &expect![[
            r#"\"x,\"\"y\"\"\",2026-01-01 00:01:00,1.0\r\n\"x,\"\"y\"\"\",2026-01-01 00:02:00,2.5\r\n\"x,\"\"y\"\"\",2026-01-01 00:03:00,\r\n\"x,\"\"y\"\"\",2026-01-01 00:04:00,-3e-09\r\n"#
        ]],
    );
    check(
        &[("format", "csv"), ("tz", "Asia/Tokyo")],
        "text/csv",
        &expect![[
            r#"\"x,\"\"y\"\"\",2026-01-01 09:01:00,1.0\r\n\"x,\"\"y\"\"\",2026-01-01 09:02:00,2.5\r\n\"x,\"\"y\"\"\",2026-01-01 09:03:00,\r\n\"x,\"\"y\"\"\",2026-01-01 09:04:00,-3e-09\r\n"#
        ]],
    );
    check(
        &[("format", "dygraph")],
        "application/json",
        &expect![[
            r#"{\"labels\":[\"Time\",\"x,\\\"y\\\"\"],\"data\":[[1767225660000,1],[1767225720000,2.5],[1767225780000,null],[1767225840000,-3e-9]]}"#
        ]],
    );
    check(
        &[("format", "rickshaw"), ("jsonp", "f")],
        "text/javascript",
        &expect![[
            r#"f([{\"target\":\"x,\\\"y\\\"\",\"datapoints\":[{\"x\":1767225660,\"y\":1},{\"x\":1767225720,\"y\":2.5},{\"x\":1767225780,\"y\":null},{\"x\":1767225840,\"y\":-3e-9}]}])"#
        ]],
    );
    check(
        &[("format", "pickle")],
        "application/pickle",
        &expect![[
            r#"\x80\x02](}(X\x04\x00\x00\x00nameX\x05\x00\x00\x00x,\"y\"X\x05\x00\x00\x00startJ<\xb9UiX\x03\x00\x00\x00endJ,\xbaUiX\x04\x00\x00\x00stepJ<\x00\x00\x00X\x06\x00\x00\x00values](G?\xf0\x00\x00\x00\x00\x00\x00G@\x04\x00\x00\x00\x00\x00\x00NG\xbe)\xc5\x11\xdc:A\xdfeX\x0e\x00\x00\x00pathExpressionX\x03\x00\x00\x00a.bX\x0e\x00\x00\x00valuesPerPointJ\x01\x00\x00\x00X\x11\x00\x00\x00consolidationFuncX\x07\x00\x00\x00averageX\x0c\x00\x00\x00xFilesFactorG\x00\x00\x00\x00\x00\x00\x00\x00ue."#
        ]],
    );
    check(
        &[("format", "msgpack")],
        "application/x-msgpack",
        &expect![[
            r#"\xdd\x00\x00\x00\x01\x89\xa4name\xa5x,\"y\"\xa5start\xd3\x00\x00\x00\x00iU\xb9<\xa3end\xd3\x00\x00\x00\x00iU\xba,\xa4step\xd3\x00\x00\x00\x00\x00\x00\x00<\xa6values\xdd\x00\x00\x00\x04\xcb?\xf0\x00\x00\x00\x00\x00\x00\xcb@\x04\x00\x00\x00\x00\x00\x00\xc0\xcb\xbe)\xc5\x11\xdc:A\xdf\xaepathExpression\xa3a.b\xaevaluesPerPoint\xd3\x00\x00\x00\x00\x00\x00\x00\x01\xb1consolidationFunc\xa7average\xacxFilesFactor\xcb\x00\x00\x00\x00\x00\x00\x00\x00"#
        ]],
    );
    check(
        &[("format", "carbonapi_v2_pb")],
        "application/x-protobuf",
        &expect![[
            r#"\n=\n\x05x,\"y\"\x10\xbc\xf2\xd6\xca\x06\x18\xac\xf4\xd6\xca\x06 <* \x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x04@\x00\x00\x00\x00\x00\x00\x00\x00\xdfA:\xdc\x11\xc5)\xbe2\x04\x00\x00\x01\x00"#
        ]],
    );
    check(
        &[("format", "carbonapi_v3_pb")],
        "application/x-protobuf",
        &expect![[
            r#"\nV\n\x05x,\"y\"\x12\x03a.b\x1a\x07average \xbc\xf2\xd6\xca\x06(\xac\xf4\xd6\xca\x060<=\x00\x00\x00\x00J \x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x04@\x00\x00\x00\x00\x00\x00\xf8\x7f\xdfA:\xdc\x11\xc5)\xbeX\x80\xf2\xd6\xca\x06`\xf0\xf3\xd6\xca\x06"#
        ]],
    );
}

/// Series of random values with gaps, in the two servers. Sums of those below `exact` need no rounding, so that the order does
/// not matter.
fn written(graphite_web: &mut GraphiteWeb) -> Server {
    let mut rng = Rng::announced();
    let (mut text, mut series) = (String::new(), Vec::new());
    for name in ["a.b", "a.c-1", "a.é", "a.t;dc=east;host=b,1", "exact.x"] {
        let mut value = || match rng.below(8) {
            0 => None,
            _ if name.starts_with("exact") => Some(f64::from(rng.below(8000) as u32) / 8.0),
            1 => Some(f64::from(rng.below(1000) as u32)),
            2 => Some(-1e30 * rng.unit()),
            3 => Some(1e-7 * rng.unit()),
            _ => Some(rng.unit()),
        };
        let mut values: Vec<_> = (0..60).map(|_| value()).collect();
        values[59] = Some(1.0);
        for (minute, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            text.push_str(&format!("{name} {value} {}\n", START_S + 60 * minute as i64));
        }
        series.push((name, values));
    }
    let stored: Vec<_> = series.iter().map(|(name, values)| (*name, 60, START_S, &values[..])).collect();
    graphite_web.load(&stored);
    let server = Server::start(Options::default().config("graphite_jsonp = true"));
    server.send(&lines(&text)).expect(204, &[]);
    server
}

/// Reads JSON with its numbers as texts, the same one for each number however it is written. `serde_json` would not read all their
/// digits.
fn exact_json(text: &str) -> Value {
    let mut exact = String::new();
    let (mut rest, mut is_text) = (text, false);
    while let Some(c) = rest.chars().next() {
        let mut len = c.len_utf8();
        match c {
            '\\' => len = 2,
            '"' => is_text = !is_text,
            '-' | '0'..='9' if !is_text => {
                len = rest.find(|c: char| !"+-.eE".contains(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
                let number: f64 = rest[..len].parse().expect("a number");
                exact.push_str(&format!("\"{number:?}\""));
                rest = &rest[len..];
                continue;
            }
            _ => {}
        }
        exact.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    serde_json::from_str(&exact).expect(text)
}

#[test]
fn formats_are_those_of_graphite_web() {
    let Some(mut graphite_web) = GraphiteWeb::start(START_S + 3600) else { return };
    let server = written(&mut graphite_web);
    let (from, until) = ((START_S + 600).to_string(), (START_S + 3540).to_string());
    let range = [("from", &*from), ("until", &*until)];
    let all: &[&[(&str, &str)]] = &[
        &[("target", "alias(a.b,'x,\"y\"')")],
        &[("target", "a.*")],
        &[("target", "a.*"), ("tz", "Asia/Kolkata")],
        &[("target", "a.*"), ("noNullPoints", "true")],
        &[("target", "exact.*"), ("maxDataPoints", "7")],
        &[("target", "scale(a.c-1,0.1)"), ("target", "perSecond(exact.x)")],
        &[("target", "seriesByTag('name=a.t')")],
        &[("target", "nothing.such")],
    ];
    for params in all {
        for format in ["json", "csv", "raw", "dygraph", "rickshaw"] {
            let query = encoded(&[&range[..], params, &[("format", format)]].concat());
            let ours = server.send(&Request::get(format!("/render?{query}")));
            let ours = String::from_utf8(ours.expect(200, &[]).body.clone()).expect("text");
            let (status, kind, theirs) = graphite_web.render(&query);
            assert_eq!(status, 200, "{query}");
            match kind.contains("json") {
                true => assert_eq!(exact_json(&ours), exact_json(&theirs), "{query}"),
                false => assert_eq!(ours, theirs, "{query}"),
            }
        }
    }
}

#[test]
fn pictures_are_refused_with_a_hint() {
    let server = server();
    for format in [&[("format", "png")][..], &[("format", "svg")], &[("format", "pdf")], &[]] {
        server.send(&ask(format)).expect(400, &["pictures", "Grafana"]);
    }
    server.send(&ask(&[("format", "png"), ("format", "json")])).expect(200, &["[["]);
    server.send(&ask(&[("format", "xml")])).expect(400, &["xml", "carbonapi_v3_pb"]);
    server.send(&ask(&[("format", "json"), ("jsonp", "a;b")])).expect(400, &["jsonp"]);
}

/// curl sends quotation marks as they are, and other servers accept them. Bodies stay as they are.
#[test]
fn targets_need_not_be_escaped() {
    let server = server();
    let mut connection = Connection::open(server.address).unwrap();
    let times = format!("from={START_S}&until={}", START_S + 240);
    let query = Request::get(format!("/render?target=alias(a.b,\"<c>\")&format=csv&{times}"));
    // longer than what is read at once, so that a part without the head is read, too
    let data = format!("{}<", "x".repeat(99)).repeat(400);
    let event = format!("{{\"what\": \"a <b>\",\n\"tags\": \"t\",\n\"data\": \"{data}\"}}\n");
    let event = Request::post("/events/", event.into_bytes());
    for _ in 0..2 {
        connection.send(&event).unwrap().expect(200, &[]);
        connection.send(&query).unwrap().expect(200, &["<c>,2026-01-01 00:01:00,1.0"]);
    }
    let events = connection.send(&Request::get("/events/get_data")).unwrap();
    events.expect(200, &[r#""what":"a <b>""#, &data]);
}
