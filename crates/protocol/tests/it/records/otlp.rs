//! OpenTelemetry's logs and traces. The messages in `logs.bin` and `traces.bin` were written by the Python package
//! opentelemetry-proto, and so were those in JSON.

use super::{ARRIVAL_US, described_rows};
use crate::plenty;
use model::caps::{BATCH_ATTRIBUTES_MAX, REQUEST_RECORDS_MAX};
use model::{ErrorKind, StreamName};
use protocol::DecodeError;
use protocol::otlp::Media;
use protocol::records::otlp::{Signal, decode};
use protocol::records::{DecodedStreams, LeftOut, STREAMS_MAX, StreamsRequest, Times};
use std::sync::LazyLock;
use stdx::budget::Account;

const LOGS: &[u8] = include_bytes!("logs.bin");
const LOGS_JSON: &[u8] = include_bytes!("logs.json");
const TRACES: &[u8] = include_bytes!("traces.bin");
const TRACES_JSON: &[u8] = include_bytes!("traces.json");

/// The time of the records in the files.
const TIME_US: i64 = 1_795_284_000_123_456;

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

fn read(signal: Signal, media: Media, body: &[u8]) -> Result<DecodedStreams, DecodeError> {
    decode(signal, media, request(body), &mut plenty())
}

/// The streams, each with its records as text and their times.
fn described(decoded: &DecodedStreams) -> Vec<(String, Vec<(i64, String)>)> {
    let of = |(name, records): &(StreamName, model::Records)| {
        let rows = described_rows(records);
        (name.to_string(), records.times_us.iter().copied().zip(rows).collect())
    };
    decoded.streams.iter().map(of).collect()
}

#[test]
fn log_records_have_all_fields() {
    let rows = [
        (
            TIME_US,
            concat!(
                r#"attributes.bytes="AP8=" attributes.double=0.5 attributes.empty="" attributes.int=7 "#,
                r#"attributes.list=json [1,"a",null,[2.0]] attributes.map=json {"x":{"y":"\"\n\u0001"}} "#,
                r#"attributes.nan="NaN" attributes.text="größe" attributes.yes=true body="hello" "#,
                r#"dropped_attributes_count=3 event_name="ev" flags=1 observed_time_unix_nano=1795284000123456790 "#,
                r#"resource.host="h1" resource.n=-5 resource.service.name="shop" resource_schema_url="r" scope.a=true "#,
                r#"scope_name="lib" scope_schema_url="s" scope_version="1.2" severity_number=9 severity_text="INFO" "#,
                r#"span_id="0102030405060708" time_unix_nano=1795284000123456789 "#,
                r#"trace_id="000102030405060708090a0b0c0d0e0f""#,
            )
            .to_owned(),
        ),
        (
            TIME_US,
            concat!(
                r#"body=json {"a":[1]} observed_time_unix_nano=1795284000123456789 resource.host="h1" resource.n=-5 "#,
                r#"resource.service.name="shop" resource_schema_url="r" scope.a=true scope_name="lib" "#,
                r#"scope_schema_url="s" scope_version="1.2""#,
            )
            .to_owned(),
        ),
        (
            ARRIVAL_US,
            concat!(
                r#"body="" resource.host="h1" resource.n=-5 resource.service.name="shop" resource_schema_url="r" "#,
                r#"scope.a=true scope_name="lib" scope_schema_url="s" scope_version="1.2""#,
            )
            .to_owned(),
        ),
    ];
    let expected = vec![
        ("shop".to_owned(), rows.to_vec()),
        ("a_b".to_owned(), vec![(1, r#"body=5 resource.service.name="a b" time_unix_nano=1000"#.to_owned())]),
        ("logs".to_owned(), vec![(ARRIVAL_US, String::new())]),
    ];
    for (media, body) in [(Media::Protobuf, LOGS), (Media::Json, LOGS_JSON)] {
        let decoded = read(Signal::Logs, media, body).unwrap();
        assert_eq!(described(&decoded), expected, "{media:?}");
        assert_eq!(decoded.refused.count, 0);
    }
}

#[test]
fn spans_have_all_fields() {
    let first = concat!(
        r#"attributes.http.status=200 dropped_attributes_count=1 dropped_events_count=4 dropped_links_count=7 "#,
        r#"duration_nano=1500 end_time_unix_nano=1795284000123458289 "#,
        r#"events=json [{"time_unix_nano":1795284000123456794,"name":"e\"1","dropped_attributes_count":2,"#,
        r#""attributes":{"k":[1],"t":"x"}},{"name":"e2"}] flags=257 kind="server" "#,
        r#"links=json [{"trace_id":"000102030405060708090a0b0c0d0e0f","span_id":"0102030405060708","trace_state":"l","#,
        r#""dropped_attributes_count":5,"flags":6,"attributes":{"z":null}},{}] name="GET /" "#,
        r#"parent_span_id="0203040506070809" resource.host="h1" resource.n=-5 resource.service.name="shop" scope.a=true "#,
        r#"scope_name="lib" scope_version="1.2" span_id="0102030405060708" start_time_unix_nano=1795284000123456789 "#,
        r#"status_code="error" status_message="bad" trace_id="000102030405060708090a0b0c0d0e0f" trace_state="k=v""#,
    );
    let second = concat!(
        r#"kind=9 name="b" resource.host="h1" resource.n=-5 resource.service.name="shop" scope.a=true scope_name="lib" "#,
        r#"scope_version="1.2" status_code="ok""#,
    );
    let rows = vec![(TIME_US, first.to_owned()), (ARRIVAL_US, second.to_owned())];
    for (media, body) in [(Media::Protobuf, TRACES), (Media::Json, TRACES_JSON)] {
        let decoded = read(Signal::Traces, media, body).unwrap();
        assert_eq!(described(&decoded), [("traces".to_owned(), rows.clone())], "{media:?}");
    }
}

#[test]
fn the_client_may_name_the_stream() {
    let stream = StreamName::parse("mine").unwrap();
    let request = StreamsRequest { stream: Some(&stream), ..request(LOGS) };
    let decoded = decode(Signal::Logs, Media::Protobuf, request, &mut plenty()).unwrap();
    assert_eq!(decoded.streams.len(), 1);
    assert_eq!((decoded.streams[0].0.as_str(), decoded.streams[0].1.len()), ("mine", 5));
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = content.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    [out, content.to_vec()].concat()
}

/// A KeyValue message with a text.
fn attribute(key: &[u8], text: &[u8]) -> Vec<u8> {
    [field(1, key), field(2, &field(1, text))].concat()
}

fn logs(resource: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    let scope: Vec<_> = records.iter().flat_map(|record| field(2, record)).collect();
    field(1, &[field(1, resource), field(2, &scope)].concat())
}

fn reasons(decoded: &DecodedStreams) -> Vec<String> {
    decoded.refused.first.iter().map(ToString::to_string).collect()
}

#[test]
fn records_that_cannot_be_stored_are_left_out() {
    let list = |value: Vec<u8>| field(5, &field(1, &value));
    let deep = (0..17).fold(field(1, b"x"), |value, _| list(value));
    let fits = (0..16).fold(field(1, b"x"), |value, _| list(value));
    let records = [
        field(5, &field(1, b"a")),
        field(5, &deep),
        field(9, &[1; 33]),
        field(6, &attribute(&[b'k'; 1020], b"v")),
        field(5, &fits),
        field(5, &field(1, b"\xffz")),
    ];
    let decoded = read(Signal::Logs, Media::Protobuf, &logs(b"", &records)).unwrap();
    let found = described(&decoded);
    let bodies: Vec<_> = found[0].1.iter().map(|(_, row)| &**row).collect();
    let nested = format!("body=json {}\"x\"{}", "[".repeat(16), "]".repeat(16));
    assert_eq!(bodies, ["body=\"a\"", &*nested, "body=\"\u{fffd}z\""]);
    assert_eq!(
        reasons(&decoded),
        [
            "record 2: lists and maps of a value are nested too deeply",
            "record 3: the ID has 33 bytes",
            "record 4: the path of an attribute has 1031 bytes, the limit is 1024",
        ]
    );
    // the same in JSON
    let record = |id: String| {
        format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"traceId":"{id}"}},{{}}]}}]}}]}}"#)
    };
    let decoded = read(Signal::Logs, Media::Json, record("01".repeat(33)).as_bytes()).unwrap();
    assert_eq!(reasons(&decoded), ["record 1: the ID has 33 bytes"]);
    for id in ["012", "0x"] {
        read(Signal::Logs, Media::Json, record(id.to_owned()).as_bytes()).unwrap_err();
    }
    // a resource that no record can have, and one that is in order
    let many: Vec<_> = (0..=BATCH_ATTRIBUTES_MAX)
        .flat_map(|n| field(1, &attribute(n.to_string().as_bytes(), b"")))
        .collect();
    let body = [logs(&many, &records[..1]), logs(b"", &records[..1])].concat();
    let decoded = read(Signal::Logs, Media::Protobuf, &body).unwrap();
    assert_eq!(described(&decoded), [("logs".to_owned(), vec![(ARRIVAL_US, "body=\"a\"".to_owned())])]);
    assert_eq!(reasons(&decoded), ["record 1: more than 2000 different attributes in one request"]);
}

#[test]
fn of_attributes_with_the_same_key_the_last_one_counts() {
    let repeated = |number| {
        [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("b", "5"), ("c", "6")]
            .iter()
            .flat_map(|(key, text)| field(number, &attribute(key.as_bytes(), text.as_bytes())))
            .collect::<Vec<u8>>()
    };
    let decoded = read(Signal::Logs, Media::Protobuf, &logs(&repeated(1), &[repeated(6)])).unwrap();
    let expected =
        r#"attributes.a="3" attributes.b="5" attributes.c="6" resource.a="3" resource.b="5" resource.c="6""#;
    assert_eq!(described(&decoded)[0].1[0].1, expected);
}

/// A resource is given to all of its records, so a small body could take any amount of memory, and of time.
#[test]
fn a_small_body_takes_no_more_than_it_may() {
    let empty = vec![Vec::new(); 200_000];
    let same = |times| field(1, &attribute(b"", b"")).repeat(times);
    let large = field(1, &attribute(b"x", &[b'x'; 100_000]));
    for (resource, most) in
        [(same(100_000), 40 << 20), (same(BATCH_ATTRIBUTES_MAX), 40 << 20), (large, 24 << 20)]
    {
        let body = logs(&resource, &empty);
        let account = Account::new("test", 1 << 30);
        let mut memory = account.reserve(0).unwrap();
        let request = StreamsRequest { records_bytes_max: 8 << 20, ..request(&body) };
        match decode(Signal::Logs, Media::Protobuf, request, &mut memory) {
            Ok(decoded) => {
                let records: usize = decoded.streams.iter().map(|(_, records)| records.len()).sum();
                assert_eq!(records + decoded.refused.count as usize, 200_000);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}"),
        }
        assert!(account.peak_bytes() < most, "{} bytes", account.peak_bytes());
    }
}

/// What is copied for a record counts also if the record is left out, here because it has one attribute too many.
#[test]
fn values_of_records_that_are_left_out_count() {
    let own: Vec<_> = (0..BATCH_ATTRIBUTES_MAX - 1)
        .flat_map(|n| field(6, &attribute(n.to_string().as_bytes(), b"")))
        .collect();
    let text =
        |bytes| [field(1, &attribute(b"a", &vec![b'x'; bytes])), field(1, &attribute(b"b", b""))].concat();
    let records = |count: usize| [vec![own.clone()], vec![Vec::new(); count]].concat();
    let read = |resource: &[u8], count| {
        let body = logs(resource, &records(count));
        let request = StreamsRequest { records_bytes_max: 16 << 20, ..request(&body) };
        decode(Signal::Logs, Media::Protobuf, request, &mut plenty())
    };
    let decoded = read(&text(1 << 10), 1_000).unwrap();
    assert_eq!(decoded.refused.count, 1_001);
    let error = read(&text(1 << 20), 1_000).unwrap_err();
    assert_eq!(error.to_string(), "request has more than 16777216 bytes of records");
    // long keys are copied once, but written for each record later
    let keys: Vec<_> =
        (0..1_990).flat_map(|n| field(1, &attribute(format!("{n:01000}").as_bytes(), b""))).collect();
    let error = read(&keys, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn logs_of_too_many_services_are_of_the_stream_logs() {
    let names: Vec<_> = (0..STREAMS_MAX + 1)
        .flat_map(|n| logs(&field(1, &attribute(b"service.name", format!("s{n}").as_bytes())), &[Vec::new()]))
        .collect();
    let decoded = read(Signal::Logs, Media::Protobuf, &names).unwrap();
    let of = |name: &str| decoded.streams.iter().find(|(other, _)| other.as_str() == name).unwrap().1.len();
    assert_eq!((decoded.streams.len(), of("s0"), of("logs")), (STREAMS_MAX, 1, 2));
}

/// Very many fit into a small body that is compressed.
#[test]
fn resources_and_scopes_without_records_are_limited() {
    let of = |service: &str| {
        let resource = field(1, &attribute(b"service.name", service.as_bytes()));
        field(1, &[field(1, &resource), field(2, b"")].concat())
    };
    for signal in [Signal::Logs, Signal::Traces] {
        let groups = |resources: usize| field(1, &field(2, b"")).repeat(resources);
        let decoded = read(signal, Media::Protobuf, &groups(REQUEST_RECORDS_MAX / 2)).unwrap();
        assert_eq!(decoded.streams, []);
        let error = read(signal, Media::Protobuf, &groups(REQUEST_RECORDS_MAX / 2 + 1)).unwrap_err();
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::TooLarge, "request has more than 1000000 resources and scopes")
        );
    }
    // they take no places of streams
    let mut body: Vec<_> = (0..2 * STREAMS_MAX).flat_map(|n| of(&format!("s{n}"))).collect();
    body.extend(logs(&field(1, &attribute(b"service.name", b"last")), &[Vec::new()]));
    let decoded = read(Signal::Logs, Media::Protobuf, &body).unwrap();
    assert_eq!(decoded.streams.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["last"]);
}

/// Keeping the last of two attributes of a scope must not take time for those of the resource.
#[test]
fn of_a_scope_the_last_attribute_with_a_key_counts() {
    let resource =
        [("a", "1"), ("b", "2")].map(|(key, text)| field(1, &attribute(key.as_bytes(), text.as_bytes())));
    let scope = [("c", "3"), ("d", "4"), ("c", "5"), ("e", "6")]
        .map(|(key, text)| field(3, &attribute(key.as_bytes(), text.as_bytes())));
    let scopes = [field(1, &scope.concat()), field(2, b"")].concat();
    let other = field(2, b"");
    let body = field(1, &[field(1, &resource.concat()), field(2, &scopes), field(2, &other)].concat());
    let decoded = read(Signal::Logs, Media::Protobuf, &body).unwrap();
    let rows: Vec<_> = described(&decoded)[0].1.iter().map(|(_, row)| row.clone()).collect();
    let of_resource = r#"resource.a="1" resource.b="2""#;
    assert_eq!(rows, [&*format!(r#"{of_resource} scope.c="5" scope.d="4" scope.e="6""#), of_resource]);
}

#[test]
fn records_with_a_time_far_from_that_of_arrival_are_refused() {
    let day_us = 86_400_000_000;
    for (shift_us, refused) in [(0, 0), (day_us, 0), (-day_us, 0), (day_us + 1000, 1), (-day_us - 1000, 1)] {
        for (signal, tag) in [(Signal::Logs, 0x09), (Signal::Traces, 0x39)] {
            let time_ns = (ARRIVAL_US + shift_us) as u64 * 1000;
            let record = [&[tag][..], &time_ns.to_le_bytes()].concat();
            let body = logs(b"", &[record]);
            let times = Times { earliest_us: ARRIVAL_US - day_us, latest_us: ARRIVAL_US + day_us };
            let request = StreamsRequest { times, ..request(&body) };
            let decoded = decode(signal, Media::Protobuf, request, &mut plenty()).unwrap();
            assert_eq!(decoded.refused.count, refused, "{signal:?} {shift_us}");
        }
    }
}

#[test]
fn malformed_messages_fail() {
    for end in 1..LOGS.len() {
        let _ = read(Signal::Logs, Media::Protobuf, &LOGS[..end]); // some prefixes are messages
    }
    let check = |body: &[u8], what: &str| {
        let error = read(Signal::Logs, Media::Protobuf, body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(what), "{error}");
    };
    check(b"\x08\x01", "wrong wire type");
    check(b"\x0a\x7f", "beyond the end");
    check(&logs(b"", &[b"\x41\0\0\0\0\0\0\0\0".to_vec()]), "wrong wire type");
    check(&logs(b"", &[b"\x45\0".to_vec()]), "truncated fixed-size number");
    let error = read(
        Signal::Traces,
        Media::Json,
        br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":"x"}]}]}]}"#,
    );
    assert!(error.unwrap_err().to_string().contains("enumeration"));
}
