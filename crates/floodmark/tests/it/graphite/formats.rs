//! Formats of `/render`.

use super::lines;
use crate::harness::{Request, Server};
use expect_test::{Expect, expect};

/// 2026-01-01 00:00:00 UTC.
const START_S: i64 = 1_767_225_600;

fn server() -> Server {
    let server = Server::new();
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

#[test]
fn pictures_are_refused_with_a_hint() {
    let server = server();
    for format in [&[("format", "png")][..], &[("format", "svg")], &[("format", "pdf")], &[]] {
        server.send(&ask(format)).expect(400, &["pictures", "Grafana"]);
    }
    server.send(&ask(&[("format", "xml")])).expect(400, &["xml", "carbonapi_v3_pb"]);
    server.send(&ask(&[("format", "json"), ("jsonp", "a;b")])).expect(400, &["jsonp"]);
}
