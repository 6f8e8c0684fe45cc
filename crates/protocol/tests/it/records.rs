//! Compares records with the texts that they were made from, and with the crate serde_json.

mod bulk;
pub(crate) mod loki;
mod otlp;

use model::caps::{ATTRIBUTE_PATH_BYTES_MAX, BATCH_ATTRIBUTES_MAX, REQUEST_RECORDS_MAX};
use model::{AttributeKind, AttributeValue, ErrorKind, Records};
use protocol::DecodeError;
use protocol::records::{Decoded, Format, Reason, Request, Times, csv, decode};
use std::collections::{BTreeMap, BTreeSet};
use stdx::budget::Account;
use stdx::damage::damage;
use stdx::rng::Rng;

const ARRIVAL_US: i64 = 1_795_284_000_000_000;

/// The values of a record, as text.
type Row = BTreeMap<(String, AttributeKind), String>;

fn read(format: Format, body: impl AsRef<[u8]>) -> Result<Decoded, DecodeError> {
    let request = Request { body: body.as_ref(), arrival_us: ARRIVAL_US, times: Times::ANY, first_line: 1 };
    decode(format, request, &mut crate::plenty())
}

fn rows(records: &Records) -> Vec<Row> {
    let mut rows = vec![Row::new(); records.len()];
    for attribute in &records.attributes {
        for (at, row) in attribute.rows.iter().enumerate() {
            let key = (attribute.path.to_string(), attribute.kind());
            rows[*row as usize].insert(key, shown(attribute.values.get(at)));
        }
    }
    rows
}

fn shown(value: AttributeValue<'_>) -> String {
    match value {
        AttributeValue::Bool(value) => value.to_string(),
        AttributeValue::Int(value) => value.to_string(),
        AttributeValue::Float(value) => format!("{:016x}", value.to_bits()),
        AttributeValue::Text(text) | AttributeValue::Json(text) => text.into(),
    }
}

/// The records of a body as text, such as `a=1 b.c="x"`, and the refusals.
fn described(format: Format, body: impl AsRef<[u8]>) -> (Vec<String>, Vec<String>) {
    let decoded = read(format, body).expect("the body is valid");
    let refused = decoded.refused.first.iter().map(ToString::to_string).collect();
    (described_rows(&decoded.records), refused)
}

fn described_rows(records: &Records) -> Vec<String> {
    let describe = |row: &Row| {
        let value = |((path, kind), value): (&(String, AttributeKind), &String)| match kind {
            AttributeKind::Float => {
                let bits = u64::from_str_radix(value, 16).expect("hex digits");
                format!("{path}={:?}", f64::from_bits(bits))
            }
            AttributeKind::Text => format!("{path}={value:?}"),
            AttributeKind::Json => format!("{path}=json {value}"),
            _ => format!("{path}={value}"),
        };
        row.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    rows(records).iter().map(describe).collect()
}

fn check(format: Format, body: impl AsRef<[u8]>, records: &[&str], refused: &[&str]) {
    let body = body.as_ref();
    let found = described(format, body);
    let expected = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(found, (expected(records), expected(refused)), "{:?}", String::from_utf8_lossy(body));
}

#[test]
fn json_of_all_forms() {
    let check = |body: &str, records: &[&str], refused: &[&str]| check(Format::Json, body, records, refused);
    check(r#"{"a":1}"#, &["a=1"], &[]);
    check("{\n  \"a\": {\n    \"b\": true\n  },\n  \"c\": [1,\n 2]\n}\n", &["a.b=true c=json [1,\n 2]"], &[]);
    check(r#" [ {"a":1} , {"a":"x"},{} ] "#, &["a=1", "a=\"x\"", ""], &[]);
    check("[]", &[], &[]);
    check("", &[], &[]);
    check("\n \r\n", &[], &[]);
    check("\u{feff}{\"a\":1}\r\n\r\n{\"b\":2}", &["a=1", "b=2"], &[]);
    check(
        r#"{"a":{"b":{"c":1},"d":{}},"e":[],"f":null,"":{"":2}}"#,
        &[".=2 a.b.c=1 a.d=json {} e=json []"],
        &[],
    );
    check(
        r#"{"a":1.0,"b":1e2,"c":-0.5,"d":123456789012345678901,"e":1e999}"#,
        &["a=1.0 b=100.0 c=-0.5 d=json 123456789012345678901 e=json 1e999"],
        &[],
    );
    check(r#"{"a":1,"a":2,"b":1,"b":"x","c.d":1,"c":{"d":2}}"#, &["a=2 b=1 b=\"x\" c.d=2"], &[]);
    check(r#"{"\u0061\n":"\ud83d\ude00\u0000\"\/\\"}"#, &["a\n=\"😀\\0\\\"/\\\\\""], &[]);
    check(r#"{"a":{"\u0062":{"c\"":1,"d":"\t"}}}"#, &["a.b.c\"=1 a.b.d=\"\\t\""], &[]);
}

#[test]
fn wrong_lines_are_left_out() {
    let body = concat!(
        "{\"a\":1}\n",
        "{\"a\":\n",
        "{\"a\":01}\n",
        "[1]\n\n",
        "{\"a\":\"\\ud800\"}\n",
        "{\"a\":2} x\n",
        "{\"a\":3}\n",
        "{\"b\":1,\"time\":\"1969-12-31T23:59:55Z\"}\n",
        "text\n",
    );
    check(
        Format::Json,
        body,
        &["a=1", "a=3"],
        &[
            "line 2: unexpected JSON at byte 5: expected a value",
            "line 3: unexpected JSON at byte 5: expected a number",
            "line 4: unexpected JSON at byte 0: expected an object",
            "line 6: unexpected JSON at byte 12: unpaired surrogate",
            "line 7: unexpected JSON at byte 8: trailing characters after the end",
            "line 9: the time in \"time\" is before 1970 or after 9999",
            "line 10: unexpected JSON at byte 0: expected an object",
        ],
    );
    check(
        Format::Json,
        b"{\"a\":1}\n{\"a\":\"\xff\"}\n{\"a\":2}\n",
        &["a=1", "a=2"],
        &["line 2: the text is not UTF-8"],
    );
    // the first line is no whole object, but neither is the body
    check(
        Format::Json,
        "{\"a\":1,\n{\"a\":2}",
        &["a=2"],
        &["line 1: unexpected JSON at byte 7: expected a string"],
    );
    let many = read(Format::Json, "{,\n".repeat(100) + "{\"a\":1}").unwrap();
    assert_eq!((many.refused.count, many.refused.first.len(), many.records.len()), (100, 10, 1));
}

#[test]
fn a_wrong_list_is_refused() {
    let check_error = |body: &[u8], expected: &str| {
        let error = read(Format::Json, body).expect_err("the body is wrong");
        assert_eq!((error.to_string().as_str(), error.kind()), (expected, ErrorKind::Invalid));
    };
    check_error(br#"[{"a":1},{"a":]"#, "unexpected JSON at byte 14: expected a value");
    check_error(br#"[{"a":1}"#, "unexpected JSON at byte 8: expected a comma or the end of the list");
    check_error(br#"[{"a":1}]x"#, "unexpected JSON at byte 9: trailing characters after the end");
    check_error(b"[{\"a\":\"\xff\"}]", "unexpected JSON at byte 7: not UTF-8");
    check_error(b"{\n\"a\": 1,\n}\n", "unexpected JSON at byte 10: expected a string");
    let elements = r#"[{"a":1},[2],{"a":2,"time":"1969-12-31T23:59:59Z"},"x",{"a":{"b":3}}]"#;
    check(
        Format::Json,
        elements,
        &["a=1", "a.b=3"],
        &[
            "record 2: the record is not an object",
            "record 3: the time in \"time\" is before 1970 or after 9999",
            "record 4: the record is not an object",
        ],
    );
}

#[test]
fn json_is_limited() {
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert_eq!(read(Format::Json, nested(64)).unwrap().records.len(), 1);
    assert!(described(Format::Json, nested(65)).1[0].contains("nested too deeply"));
    let list = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(read(Format::Json, list(63)).unwrap().records.len(), 1);
    assert!(described(Format::Json, list(64)).1[0].contains("nested too deeply"));
    assert!(described(Format::Json, list(1 << 20)).1[0].contains("nested too deeply"));

    let path = |bytes: usize| format!(r#"{{"a":{{"{}":1}}}}"#, "x".repeat(bytes - 2));
    assert_eq!(read(Format::Json, path(ATTRIBUTE_PATH_BYTES_MAX)).unwrap().records.len(), 1);
    let refused = read(Format::Json, path(ATTRIBUTE_PATH_BYTES_MAX + 1)).unwrap().refused;
    assert_eq!(refused.first[0].reason, Reason::PathTooLong(ATTRIBUTE_PATH_BYTES_MAX + 1));

    let attributes: Vec<String> = (0..BATCH_ATTRIBUTES_MAX).map(|n| format!("\"a{n}\":1")).collect();
    let body = format!("{{{}}}\n{{\"more\":1}}\n{{\"a0\":2}}", attributes.join(","));
    let decoded = read(Format::Json, body).unwrap();
    assert_eq!((decoded.records.len(), decoded.refused.count), (2, 1));
    assert!(matches!(decoded.refused.first[0].reason, Reason::TooManyAttributes(_)));

    for body in ["{}\n", "x\n"] {
        assert!(read(Format::Json, body.repeat(REQUEST_RECORDS_MAX)).is_ok());
        let error = read(Format::Json, body.repeat(REQUEST_RECORDS_MAX + 1)).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::TooLarge, "request has more than 1000000 records")
        );
    }
}

#[test]
fn the_time_of_a_record_is_found() {
    let check = |record: &str, expected: i64| {
        let decoded = read(Format::Json, record).unwrap();
        assert_eq!(
            (decoded.records.times_us.as_slice(), decoded.refused.count),
            (&[expected][..], 0),
            "{record}"
        );
    };
    check(r#"{"a":1}"#, ARRIVAL_US);
    check(r#"{"time":1000000001}"#, 1_000_000_001_000_000);
    check(
        r#"{"_time":1000000001,"ts":1000000002,"time":1000000003,"timestamp":1000000004,"@timestamp":1000000005}"#,
        1_000_000_005_000_000,
    );
    check(
        r#"{"@timestamp":1000000005,"timestamp":1000000004,"time":1000000003,"ts":1000000002,"_time":1000000001}"#,
        1_000_000_005_000_000,
    );
    check(
        r#"{"@timestamp":"yesterday","timestamp":null,"time":0.25,"ts":-5,"_time":"1970-01-01T00:00:02.000001Z"}"#,
        2_000_001,
    );
    check(r#"{"time":[],"ts":true}"#, ARRIVAL_US);
    check(r#"{"a":{"time":1000000001}}"#, ARRIVAL_US);
    check(r#"{"time":1000000001,"time":1000000002}"#, 1_000_000_002_000_000);
    check(r#"{"@timestamp":1795284000123}"#, 1_795_284_000_123_000);
    check(r#"{"ts":1795284000.25}"#, 1_795_284_000_250_000);
    check(r#"{"ts":0}"#, ARRIVAL_US);
    // the time of a refused record is not that of the next one
    let decoded = read(
        Format::Json,
        "{\"time\":1000000001,\"a\":}\n{\"a\":1}\n[\n{\"time\":\"1969-12-31T23:59:59Z\"}\n{\"b\":1}",
    )
    .unwrap();
    assert_eq!((decoded.records.times_us.as_slice(), decoded.refused.count), (&[ARRIVAL_US; 2][..], 3));
}

/// The rule that finds the time must not take another one instead.
#[test]
fn times_far_from_that_of_arrival_are_refused() {
    const ARRIVED_US: i64 = 700_000_000_000_000;
    let times = Times { earliest_us: 500_000_000_000_000, latest_us: 900_000_000_000_000 };
    let (old, new) =
        ("the time is too far before that of arrival", "the time is too far after that of arrival");
    let check = |format, body: &str, expected: &[i64], refused: &[&str]| {
        let request = Request { body: body.as_bytes(), arrival_us: ARRIVED_US, times, first_line: 1 };
        let decoded = decode(format, request, &mut crate::plenty()).unwrap();
        assert_eq!(decoded.records.times_us, expected, "{body}");
        let reasons: Vec<_> = decoded.refused.first.iter().map(|first| first.reason.to_string()).collect();
        assert!(reasons.iter().zip(refused).all(|(found, part)| found.contains(part)), "{reasons:?}");
        assert_eq!(reasons.len(), refused.len(), "{reasons:?}");
    };
    check(
        Format::Json,
        r#"[{"time":500000000},{"time":900000000},{}]"#,
        &[500_000_000_000_000, 900_000_000_000_000, ARRIVED_US],
        &[],
    );
    check(
        Format::Json,
        r#"[{"time":499999999.999,"ts":700000000},{"@timestamp":900000000.001,"time":700000000}]"#,
        &[],
        &[old, new],
    );
    check(Format::Json, r#"{"time":"1969-12-31T23:59:59Z"}"#, &[], &["before 1970"]);
    check(
        Format::Csv,
        "time,a\n400000000,1\n600000000,2\n1000000000,3\n",
        &[600_000_000_000_000],
        &[old, new],
    );
    check(Format::Lines, "time 1", &[ARRIVED_US], &[]);
}

#[test]
fn raw_lines_are_messages() {
    let body = b"first line\n\n  \r\n second \xc3\xa9\r\nnot \xff\nlast";
    check(
        Format::Lines,
        body,
        &["message=\"first line\"", "message=\" second é\"", "message=\"last\""],
        &["line 5: the text is not UTF-8"],
    );
}

#[test]
fn tables_of_all_forms() {
    let check = |body: &str, records: &[&str], refused: &[&str]| check(Format::Csv, body, records, refused);
    check("a,b\n1,x\n", &["a=1 b=\"x\""], &[]);
    check(
        "\u{feff}a,\"b \"\"c\"\"\"\r\n\r\n1.5,true\r\n-2,false",
        &["a=1.5 b \"c\"=true", "a=-2 b \"c\"=false"],
        &[],
    );
    check("a,b,c\n,\"\",\"1\"\n007,+1, 1\n", &["b=\"\" c=\"1\"", "a=\"007\" b=\"+1\" c=\" 1\""], &[]);
    check(
        "a,b\n\"x\ny\",\"p\"\"q,\"\n1\n\"x\n\",2,3\n99999999999999999999,1e999\n",
        &["a=\"x\\ny\" b=\"p\\\"q,\"", "a=json 99999999999999999999 b=json 1e999"],
        &[
            "line 4: the row has 1 columns, but the header has 2",
            "line 5: the row has 3 columns, but the header has 2",
        ],
    );
    check(
        "a,b\n1,\"x\" y\n2,\"open\n3,4\n",
        &["a=3 b=4"],
        &[
            "line 2: column 2 has more text behind its quoted text",
            "line 3: the quoted text of column 2 does not end",
        ],
    );
    check("a\n", &[], &[]);
    check("", &[], &[]);
    check("a\nx\"y\n\n\"\"\n", &["a=\"x\\\"y\"", "a=\"\""], &[]);
    let times = read(
        Format::Csv,
        "a,time,@timestamp\n1,1000000002,\n1,2,2026-11-21T18:00:00Z\n1,1969-12-31T23:59:58Z,\n1,,\n",
    )
    .unwrap();
    assert_eq!(times.records.times_us, [1_000_000_002_000_000, ARRIVAL_US, ARRIVAL_US]);
    assert_eq!(times.refused.count, 1);
}

#[test]
fn wrong_tables_are_refused() {
    let check_error = |body: &[u8], expected: &str| {
        let error = read(Format::Csv, body).expect_err("the body is wrong");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), format!("the header of the table cannot be read: {expected}"));
    };
    check_error(b"a,\"b\n1,2\n", "the quoted text of column 2 does not end");
    check_error(b"a,b,a\n", "more than one column has the name \"a\"");
    check_error(b"a,\xff\n", "the text is not UTF-8");
    let columns: Vec<String> = (0..=BATCH_ATTRIBUTES_MAX).map(|n| n.to_string()).collect();
    check_error(columns.join(",").as_bytes(), "2001 columns, the limit is 2000");
    check(Format::Csv, b"a\n1\n\xff\n2\n", &["a=1", "a=2"], &["line 3: the text is not UTF-8"]);
    // each of these quotes is searched for its end in all of the rest
    let open = format!("a\n{}{}", "\"x\n\"\"\n".repeat(3), "1\n".repeat(10));
    read(Format::Csv, open).unwrap();
}

#[test]
fn tables_are_decoded_in_pieces() {
    let table = "\n a ,time\n1,\"x\n\ny\"\n\n2,\"3\"\"\n\"\r\n4,\"x\" y\n5,6\n7";
    let mut memory = crate::plenty();
    let whole = read(Format::Csv, table).unwrap();
    assert_eq!((whole.records.len(), whole.refused.count), (3, 2));
    for step in 1..table.len() {
        let request =
            Request { body: table.as_bytes(), arrival_us: ARRIVAL_US, times: Times::ANY, first_line: 1 };
        let (header, mut rest) = csv::split_header(request, &mut memory).unwrap().expect("a header");
        let (mut found, mut refused, mut taken) = (Vec::new(), Vec::new(), step);
        while !rest.body.is_empty() {
            let piece = &rest.body[..taken.min(rest.body.len())];
            let mut complete = csv::complete_rows(piece, &mut memory).unwrap();
            if complete == 0 {
                taken += step; // not enough for a row
                if piece.len() < rest.body.len() {
                    continue;
                }
                complete = piece.len();
            }
            let decoded =
                csv::decode_rows(&header, Request { body: &piece[..complete], ..rest }, &mut memory);
            let decoded = decoded.unwrap();
            found.extend(rows(&decoded.records));
            refused.extend(decoded.refused.first);
            rest.first_line += piece[..complete].iter().filter(|byte| **byte == b'\n').count();
            (rest.body, taken) = (&rest.body[complete..], step);
        }
        assert_eq!(
            (found, refused),
            (rows(&whole.records), whole.refused.first.clone()),
            "{step} bytes at once"
        );
    }
}

#[test]
fn tables_are_what_was_written() {
    let mut rng = Rng::announced();
    for _ in 0..300 {
        let columns = 1 + rng.below(5);
        let header: Vec<String> = (0..columns).map(|n| format!("k{n}")).collect();
        let (mut text, mut expected) = (header.join(",") + "\n", Vec::new());
        for _ in 0..rng.below(20) {
            let mut row = Row::new();
            for column in 0..columns {
                text += if column == 0 { "" } else { "," };
                let mut put = |kind, value: String| row.insert((format!("k{column}"), kind), value);
                match rng.below(4) {
                    0 if column > 0 => {}
                    1 => {
                        let value = (rng.next_u64() >> rng.below(64)) as i64;
                        put(AttributeKind::Int, value.to_string());
                        text += &value.to_string();
                    }
                    2 => {
                        put(AttributeKind::Bool, "true".into());
                        text += "true";
                    }
                    _ => {
                        let value = any_text(&mut rng);
                        text += &format!("\"{}\"", value.replace('"', "\"\""));
                        put(AttributeKind::Text, value);
                    }
                }
            }
            text += ["\n", "\r\n", "\n\n"][rng.below(3) as usize];
            expected.push(row);
        }
        let decoded = read(Format::Csv, &text).unwrap();
        assert_eq!((rows(&decoded.records), decoded.refused.count), (expected, 0), "{text:?}");
    }
}

/// Bodies whose records take much more memory than the bodies themselves.
fn amplifiers() -> Vec<(&'static str, Format, String)> {
    let (path, cells) = ("x".repeat(1000), vec!["1"; 1000].join(","));
    let names: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let attributes: Vec<String> = (0..BATCH_ATTRIBUTES_MAX).map(|n| format!("\"{n}\":1")).collect();
    vec![
        ("empty objects", Format::Json, "{}\n".repeat(900_000)),
        ("numbers", Format::Json, "{\"\":1}\n".repeat(500_000)),
        ("long paths", Format::Json, format!("{{\"{path}\":{{{}}}}}\n", attributes.join(","))),
        ("escapes", Format::Json, format!("[{{\"a\":\"{}\"}}]", "\\n".repeat(4 << 20))),
        ("raw lists", Format::Json, "{\"a\":[],\"b\":{}}\n".repeat(300_000)),
        ("a row", Format::Lines, "x".repeat(10 << 20)),
        ("short rows", Format::Lines, "x\n".repeat(900_000)),
        ("cells", Format::Csv, names.join(",") + "\n" + &(cells + "\n").repeat(2000)),
        ("quoted rows", Format::Csv, "a\n".to_owned() + &"\"\"\"\"\n".repeat(300_000)),
        ("quotes", Format::Csv, format!("a\n\"{}\"\n", "\"\"".repeat(6 << 20))),
    ]
}

#[test]
fn memory_is_reserved_before_it_is_used() {
    for (what, format, body) in amplifiers() {
        let request =
            Request { body: body.as_bytes(), arrival_us: ARRIVAL_US, times: Times::ANY, first_line: 1 };
        let account = Account::new("test", 4 << 20);
        let full = decode(format, request, &mut account.reserve(0).unwrap()).expect_err(what);
        assert_eq!(full.kind(), ErrorKind::TooLarge, "{what}: {full}");
        assert_eq!(account.used_bytes(), 0, "{what}");

        let account = Account::new("test", 1 << 40);
        let mut memory = account.reserve(5).unwrap();
        let decoded = decode(format, request, &mut memory).unwrap();
        let kept = decoded.records.memory_bytes() as u64;
        assert!(kept > 4 << 20, "{what}: {kept} bytes are no amplification");
        assert_eq!((decoded.refused.count, memory.bytes()), (0, 5 + kept), "{what}");
        assert!(
            account.peak_bytes() >= kept && account.peak_bytes() < 3 * kept,
            "{what}: {}",
            account.peak_bytes()
        );
    }
}

/// Writes a value with random white space. Adds the attributes that it has to `row`.
fn put_value(text: &mut String, path: &str, depth: u64, row: &mut Row, rng: &mut Rng) {
    let mut put = |kind: AttributeKind, value: String| row.insert((path.into(), kind), value);
    match rng.below(9 + depth) {
        0 => text.push_str("null"),
        1 => {
            let value = rng.below(2) == 0;
            put(AttributeKind::Bool, value.to_string());
            *text += &value.to_string();
        }
        2 => {
            let value = (rng.next_u64() >> rng.below(64)) as i64;
            put(AttributeKind::Int, value.to_string());
            *text += &value.to_string();
        }
        3 => {
            let value = f64::from_bits(rng.next_u64());
            let value = if value.is_finite() { value } else { 0.1 };
            put(AttributeKind::Float, shown(AttributeValue::Float(value)));
            *text += &if rng.below(2) == 0 { format!("{value:?}") } else { format!("{value:e}") };
        }
        4 | 5 => {
            let value = any_text(rng);
            put_string(text, &value, rng);
            put(AttributeKind::Text, value);
        }
        6 => {
            let mut raw = String::from("[");
            for n in 0..rng.below(3) {
                raw += if n == 0 { "" } else { "," };
                put_value(&mut raw, "", 9, &mut Row::new(), rng);
            }
            raw.push(']');
            *text += &raw;
            put(AttributeKind::Json, raw);
        }
        7 if rng.below(3) == 0 => {
            put(AttributeKind::Json, "{}".into());
            *text += "{}";
        }
        _ if depth < 8 => put_object(text, &format!("{path}."), depth, row, rng),
        _ => {
            let value = format!("{}{}", 1 + rng.below(9), u64::MAX);
            *text += &value;
            put(AttributeKind::Json, value);
        }
    }
}

fn put_object(text: &mut String, prefix: &str, depth: u64, row: &mut Row, rng: &mut Rng) {
    let spaces = |text: &mut String, rng: &mut Rng| *text += ["", "", "", " ", "\t"][rng.below(5) as usize];
    text.push('{');
    // an empty object inside of a record is an attribute
    let count = rng.below(6) + u64::from(!prefix.is_empty());
    for n in 0..count {
        *text += if n == 0 { "" } else { "," };
        spaces(text, rng);
        let key = if rng.below(8) == 0 { any_text(rng) } else { format!("k{n}") };
        put_string(text, &key, rng);
        spaces(text, rng);
        text.push(':');
        spaces(text, rng);
        put_value(text, &format!("{prefix}{key}"), depth + 1, row, rng);
        spaces(text, rng);
    }
    text.push('}');
}

fn any_text(rng: &mut Rng) -> String {
    let chars = ['a', 'b', '"', '\\', '/', '\n', '\0', '\u{7f}', 'é', '€', '😀', '.'];
    (0..rng.below(24)).map(|_| chars[rng.below(chars.len() as u64) as usize]).collect()
}

/// Writes a string, with some escape sequences that are not necessary.
fn put_string(text: &mut String, value: &str, rng: &mut Rng) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if (c as u32) < 0x20 || rng.below(6) == 0 => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    *text += &format!("\\u{unit:04x}");
                }
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[test]
fn records_are_what_was_written() {
    let mut rng = Rng::announced();
    for _ in 0..300 {
        let (mut lines, mut elements, mut expected) = (String::new(), Vec::new(), Vec::new());
        for _ in 0..rng.below(12) {
            let (mut text, mut row) = (String::new(), Row::new());
            put_object(&mut text, "", 0, &mut row, &mut rng);
            lines += &format!("{text}{}", ["\n", "\r\n", "\n\n"][rng.below(3) as usize]);
            elements.push(text);
            expected.push(row);
        }
        // few bodies have more attributes than a request may have
        let paths: BTreeSet<_> = expected.iter().flat_map(Row::keys).collect();
        if paths.len() > BATCH_ATTRIBUTES_MAX {
            continue;
        }
        for body in [lines, format!("[{}]", elements.join(", "))] {
            let decoded = read(Format::Json, &body).unwrap_or_else(|error| panic!("{body}: {error}"));
            assert_eq!(decoded.refused.first, [], "{body}");
            assert_eq!(rows(&decoded.records), expected, "{body}");
        }
    }
}

#[test]
fn json_is_valid_if_serde_json_says_so() {
    let mut rng = Rng::announced();
    let (mut valid, mut invalid) = (0, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        put_object(&mut text, "", 0, &mut Row::new(), &mut rng);
        let mut bytes = text.into_bytes();
        for _ in 0..rng.below(2) {
            damage(&mut bytes, &mut rng);
        }
        bytes.retain(|byte| *byte != b'\n');
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let found = read(Format::Json, [b"{}\n", &bytes[..]].concat()).unwrap();
        let context = || format!("{:?}: {:?}", String::from_utf8_lossy(&bytes), found.refused.first);
        match serde_json::from_slice::<serde_json::Value>(&bytes) {
            Ok(value) if value.is_object() => {
                assert_eq!(found.records.len(), 2, "{}", context());
                valid += 1;
            }
            // serde_json refuses numbers that are too large for a float
            Err(error) if error.to_string().contains("out of range") => {}
            _ => {
                assert_eq!(found.records.len(), 1, "{}", context());
                invalid += 1;
            }
        }
    }
    assert!(valid > 3000 && invalid > 3000, "{valid} valid, {invalid} invalid");
}
