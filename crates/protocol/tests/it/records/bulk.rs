//! Bulk requests of Elasticsearch.

use super::{ARRIVAL_US, described_rows};
use crate::plenty;
use model::{ErrorKind, StreamName};
use protocol::DecodeError;
use protocol::records::bulk::{Items, Options, decode};
use protocol::records::{DecodedStreams, LeftOut, Reason, STREAMS_MAX, StreamsRequest, Times};
use serde_json::{Value, json};
use std::sync::LazyLock;
use stdx::budget::Account;

fn request(body: &[u8]) -> StreamsRequest<'_> {
    static NONE: LazyLock<LeftOut> = LazyLock::new(LeftOut::new);
    StreamsRequest {
        body,
        arrival_us: ARRIVAL_US,
        times: Times::ANY,
        stream: None,
        left_out: &NONE,
        records_bytes_max: usize::MAX,
    }
}

fn read(index: Option<&str>, body: &[u8]) -> Result<(DecodedStreams, Items), DecodeError> {
    let options = Options { index: index.map(str::to_owned), is_brief: false };
    decode(&options, request(body), &mut plenty())
}

fn items(items: &Items) -> Value {
    let list = [b"[", &*items.json.concat(), b"]"].concat();
    serde_json::from_slice(&list)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&list)))
}

/// The streams, each with its records as text.
fn described(decoded: &DecodedStreams) -> Vec<(&str, Vec<String>)> {
    decoded.streams.iter().map(|(name, records)| (name.as_str(), described_rows(records))).collect()
}

fn created(kind: &str, index: &str) -> Value {
    json!({kind: {"_index": index, "_version": 1, "result": "created", "status": 201}})
}

#[test]
fn documents_become_records_of_their_index() {
    let body = concat!(
        "{\"index\":{\"_index\":\"app\"}}\n{\"@timestamp\":\"2026-11-21T18:00:00.5Z\",\"http\":{\"status\":200}}\n",
        "{ \"create\" : { \"_index\" : \"b\\u002dc\" , \"_id\" : \"7\", \"routing\": [1] } }\r\n{\"m\":\"x\"}\r\n\r\n",
        "{\"index\":{\"_index\":\"app\",\"_id\":5}}\n{\"n\":1}",
    );
    let (decoded, found) = read(None, body.as_bytes()).unwrap();
    let expected = vec![
        ("app", vec!["@timestamp=\"2026-11-21T18:00:00.5Z\" http.status=200".to_owned(), "n=1".to_owned()]),
        ("b-c", vec!["_id=\"7\" m=\"x\"".to_owned()]),
    ];
    assert_eq!(described(&decoded), expected);
    assert_eq!(decoded.streams[0].1.times_us, [1_795_284_000_500_000, ARRIVAL_US]);
    let mut second = created("create", "b-c");
    second["create"]["_id"] = json!("7");
    assert_eq!(items(&found), json!([created("index", "app"), second, created("index", "app")]));
    assert!(!found.has_errors);
}

#[test]
fn an_index_of_the_path_is_that_of_actions_without_one() {
    let body = b"{\"index\":{}}\n{\"a\":1}\n{\"create\":{\"_index\":\"other\"}}\n{\"a\":2}\n";
    let (decoded, _) = read(Some("app"), body).unwrap();
    assert_eq!(described(&decoded), [("app", vec!["a=1".into()]), ("other", vec!["a=2".into()])]);
    let stream = StreamName::parse("mine").unwrap();
    let named = StreamsRequest { stream: Some(&stream), ..request(body) };
    let (decoded, _) = decode(&Options::default(), named, &mut plenty()).unwrap();
    assert_eq!(described(&decoded), [("mine", vec!["a=1".into(), "a=2".into()])]);
}

#[test]
fn refused_actions_leave_the_others() {
    let long = "x".repeat(513);
    let body = [
        r#"{"index":{}}"#,
        r#"{"a":1}"#,
        r#"{"index":{"_index":"_x"}}"#,
        r#"{"a":1}"#,
        r#"{"delete":{"_index":"app","_id":"1"}}"#,
        r#"{"update":{"_index":"app","_id":"1"}}"#,
        r#"{"doc":{}}"#,
        r#"{"index":{"_index":"app"}}"#,
        "{",
        r#"{"index":{"_index":"app"}}"#,
        "",
        &format!(r#"{{"index":{{"_index":"app","_id":"{long}"}}}}"#),
        "{}",
        r#"{"index":{"_index":"app"}}"#,
        r#"{"time":"1969-12-31T23:59:55Z"}"#,
        r#"{"create":{"_index":"app"}}"#,
        r#"{"a":2}"#,
    ]
    .join("\n");
    let (decoded, found) = read(None, body.as_bytes()).unwrap();
    assert_eq!(described(&decoded), [("app", vec!["a=2".into()])]);
    assert!(found.has_errors);
    let expected = [
        ("index", 400, "illegal_argument_exception", "names no index"),
        ("index", 400, "invalid_index_name_exception", "begin with a letter"),
        ("delete", 400, "illegal_argument_exception", "can only be added"),
        ("update", 400, "illegal_argument_exception", "can only be added"),
        ("index", 400, "document_parsing_exception", "unexpected JSON at byte 1"),
        ("index", 400, "document_parsing_exception", "expected an object"),
        ("index", 400, "document_parsing_exception", "the ID has 513 bytes"),
        ("index", 400, "document_parsing_exception", "before 1970"),
    ];
    let found = items(&found);
    assert_eq!(found.as_array().unwrap().len(), 9);
    for (item, (kind, status, error, reason)) in found.as_array().unwrap().iter().zip(expected) {
        let item = &item[kind];
        assert_eq!((&item["status"], &item["error"]["type"]), (&json!(status), &json!(error)), "{item}");
        assert!(item["error"]["reason"].as_str().unwrap().contains(reason), "{item}");
    }
    assert_eq!(found[8], created("create", "app"));
    assert_eq!(decoded.refused.count, 8);
    assert_eq!(decoded.refused.first[4].to_string().split(':').next(), Some("line 8"));
}

/// If others are left out, the rest may have more days. The door must know which streams would have records only then.
#[test]
fn streams_that_have_no_records_because_of_their_days_are_named() {
    let mut lines = Vec::new();
    for stream in 0..4 {
        for day in 0..100 {
            let time_s = ARRIVAL_US / 1_000_000 - 86_400 * day;
            lines.push(format!("{{\"index\":{{\"_index\":\"s{stream}\"}}}}\n{{\"time\":{time_s}}}\n"));
        }
    }
    for (stream, document) in [("late", "{}"), ("wrong", "[]"), ("s0", r#"{"time":100000000}"#)] {
        lines.push(format!("{{\"index\":{{\"_index\":\"{stream}\"}}}}\n{document}\n"));
    }
    let body = lines.concat();
    let (decoded, _) = read(None, body.as_bytes()).unwrap();
    let names: Vec<_> = decoded.streams.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, decoded.refused.count), (vec!["s0", "s1", "s2", "s3"], 3));
    let late = StreamName::parse("late").unwrap();
    assert_eq!(decoded.without_days, std::slice::from_ref(&late));
    let left_out = LeftOut::from([(StreamName::parse("s1").unwrap(), Reason::TooManyStreams)]);
    let again = StreamsRequest { left_out: &left_out, ..request(body.as_bytes()) };
    let (again, _) = decode(&Options::default(), again, &mut plenty()).unwrap();
    assert!(again.streams.iter().any(|(name, _)| *name == late), "{again:?}");
}

#[test]
fn items_may_be_brief() {
    let body = b"{\"index\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{}\n{\"index\":{\"_index\":\"a\"}}\n1\n";
    let options = Options { index: None, is_brief: true };
    let (_, found) = decode(&options, request(body), &mut plenty()).unwrap();
    let found = items(&found);
    assert_eq!(found[0], json!({"index": {"status": 201}}));
    let keys: Vec<_> = found[1]["index"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["error", "status"]);
}

#[test]
fn lines_that_are_no_actions_refuse_the_body() {
    let check = |body: &[u8], what: &str| {
        let error = read(Some("a"), body).unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Invalid, what));
    };
    check(
        b"{\"index\":{}}\n{}\n{}\n",
        "malformed action in line 3: unexpected JSON at byte 2: expected an action",
    );
    check(b"x\n", "malformed action in line 1: unexpected JSON at byte 0: expected an object");
    check(
        b"{\"index\":{}}\n",
        "malformed action in line 1: unexpected JSON at byte 12: expected a line with a document behind the action",
    );
    check(
        b"{\"get\":{}}\n{}\n",
        "malformed action in line 1: unexpected JSON at byte 6: expected one of the actions index, create, update and delete",
    );
    check(
        b"{\"index\":{},\"create\":{}}\n{}\n",
        "malformed action in line 1: unexpected JSON at byte 12: expected the end of the action",
    );
    check(b"\xff\n", "malformed action in line 1: unexpected JSON at byte 0: not UTF-8");
    let (decoded, found) = read(Some("a"), b"\n\r\n").unwrap();
    assert!(decoded.streams.is_empty() && items(&found) == json!([]));
}

/// Records and items take memory that is reserved, and actions are limited.
#[test]
fn memory_is_reserved() {
    for document in ["{}", "", "{\"a\":1}"] {
        let body = format!("{{\"index\":{{}}}}\n{document}\n").repeat(100_000);
        let account = Account::new("test", 1 << 30);
        let mut memory = account.reserve(7).unwrap();
        let options = Options { index: Some("a\"\\".into()), is_brief: false };
        let (decoded, found) = decode(&options, request(body.as_bytes()), &mut memory).unwrap();
        let records: usize = decoded.streams.iter().map(|(_, records)| records.memory_bytes()).sum();
        let items: usize = found.json.iter().map(Vec::capacity).sum();
        assert_eq!(memory.bytes(), (7 + records + items) as u64);
        drop(memory);
        let small = Account::new("test", (items / 2) as u64);
        let error = decode(&options, request(body.as_bytes()), &mut small.reserve(0).unwrap()).unwrap_err();
        assert!(matches!(error, DecodeError::Memory(_)), "{error}");
        let error = read(Some("a"), format!("{body}{{\"index\":{{}}}}\n{{}}").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "request has more than 100000 actions");
    }
}

/// The streams that a request has are the same if some are left out.
#[test]
fn indexes_that_a_request_cannot_have_are_refused_by_themselves() {
    let body: String =
        (0..STREAMS_MAX + 2).map(|n| format!("{{\"index\":{{\"_index\":\"i{n}\"}}}}\n{{}}\n")).collect();
    let left_out = |names: &[(&str, Reason)]| -> LeftOut {
        names.iter().map(|(name, reason)| (StreamName::parse(name).unwrap(), *reason)).collect()
    };
    for (left_out, expected) in [
        (left_out(&[]), vec![(200, 429), (201, 429)]),
        (
            left_out(&[("i1", Reason::TooManyStreams), ("i3", Reason::StreamCase)]),
            vec![(1, 429), (3, 400), (200, 429), (201, 429)],
        ),
    ] {
        let request = StreamsRequest { left_out: &left_out, ..request(body.as_bytes()) };
        let (decoded, found) = decode(&Options::default(), request, &mut plenty()).unwrap();
        assert_eq!(decoded.streams.len(), STREAMS_MAX - left_out.len());
        let items = items(&found);
        let statuses = items.as_array().unwrap().iter().map(|item| item["index"]["status"].as_u64().unwrap());
        let refused: Vec<_> = (0..).zip(statuses).filter(|(_, status)| *status != 201).collect();
        assert_eq!(refused, expected);
    }
}
