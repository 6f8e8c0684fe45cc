//! Push requests of Loki. Those in protobuf are encoded by prost.

use super::{ARRIVAL_US, described_rows};
use crate::plenty;
use model::{ErrorKind, StreamName};
use prost::Message;
use protocol::DecodeError;
use protocol::otlp::Media;
use protocol::records::loki::decode;
use protocol::records::{DecodedStreams, LeftOut, STREAMS_MAX, StreamsRequest, Times};
use serde_json::{Value, json};
use std::sync::LazyLock;
use stdx::budget::Account;

/// The time of entries in nanoseconds.
const NS: i64 = 1_795_284_000_123_456_789;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Push {
    #[prost(message, repeated, tag = "1")]
    pub streams: Vec<Stream>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stream {
    #[prost(bytes, tag = "1")]
    pub labels: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<Entry>,
    #[prost(uint64, tag = "3")]
    pub hash: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(message, optional, tag = "1")]
    pub time: Option<Time>,
    #[prost(bytes, tag = "2")]
    pub line: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<Pair>,
    #[prost(message, repeated, tag = "4")]
    pub parsed: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pair {
    #[prost(bytes, tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes, tag = "2")]
    pub value: Vec<u8>,
}

fn pair(name: &[u8], value: &[u8]) -> Pair {
    Pair { name: name.into(), value: value.into() }
}

fn entry(line: impl AsRef<[u8]>) -> Entry {
    let time = Time { seconds: NS / 1_000_000_000, nanos: (NS % 1_000_000_000) as i32 };
    Entry { time: Some(time), line: line.as_ref().into(), ..Entry::default() }
}

fn stream(labels: impl AsRef<[u8]>, entries: Vec<Entry>) -> Stream {
    Stream { labels: labels.as_ref().into(), entries, hash: 7 }
}

/// Requests with everything that a request may have, in both forms.
pub(crate) fn corpus() -> [Vec<u8>; 2] {
    let full = Entry {
        metadata: vec![pair(b"trace_id", b"7b"), pair(b"a", b"\xff"), pair(b"a", b"2")],
        parsed: vec![pair(b"ignored", b"x")],
        ..entry("größe\n")
    };
    let streams = vec![
        stream(r#"{app="shop", env="a\"b\\\n", zone='c\'', raw=`\n`,}"#, vec![full, entry("")]),
        stream("{job=\"x/y\"}", vec![Entry { time: None, ..entry("no time") }]),
        stream("", vec![entry(b"\xff")]),
        stream("{a=}", vec![entry("left out")]),
    ];
    let json = json!({"streams": [
        {"stream": {"app": "shop", "env": "a\"b\\\n"}, "values": [[NS.to_string(), "größe\n", {"trace_id": "7b", "a": "2"}], ["0", ""]]},
        {"values": [[NS.to_string(), "x"]], "stream": {"job": "x/y"}, "other": [1]},
        {"stream": {}, "values": []},
    ]});
    [Push { streams }.encode_to_vec(), json.to_string().into_bytes()]
}

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

fn read(media: Media, body: &[u8]) -> Result<DecodedStreams, DecodeError> {
    decode(media, request(body), &mut plenty())
}

fn push(streams: Vec<Stream>) -> DecodedStreams {
    read(Media::Protobuf, &Push { streams }.encode_to_vec()).unwrap()
}

/// The streams, each with the times of its records, and their attributes as text.
fn described(decoded: &DecodedStreams) -> Vec<(String, Vec<(i64, String)>)> {
    let of = |(name, records): &(StreamName, model::Records)| {
        let rows = described_rows(records);
        (name.to_string(), records.times_us.iter().copied().zip(rows).collect())
    };
    decoded.streams.iter().map(of).collect()
}

fn refusals(decoded: &DecodedStreams) -> Vec<String> {
    decoded.refused.first.iter().map(ToString::to_string).collect()
}

#[test]
fn entries_become_records_of_their_service() {
    let (ns, us) = (NS, NS / 1000);
    let [protobuf, json] = corpus();
    let decoded = read(Media::Protobuf, &protobuf).unwrap();
    let labels = r#"labels.app="shop" labels.env="a\"b\\\n" labels.raw="\\n" labels.zone="c'""#;
    let expected = vec![
        (
            "shop".to_owned(),
            vec![
                (
                    us,
                    format!(
                        r#"{labels} message="größe\n" metadata.a="2" metadata.trace_id="7b" time_unix_nano={ns}"#
                    ),
                ),
                (us, format!(r#"{labels} message="" time_unix_nano={ns}"#)),
            ],
        ),
        ("x_y".to_owned(), vec![(ARRIVAL_US, r#"labels.job="x/y" message="no time""#.to_owned())]),
        ("logs".to_owned(), vec![(us, format!("message=\"\u{fffd}\" time_unix_nano={ns}"))]),
    ];
    assert_eq!(described(&decoded), expected);
    assert_eq!(
        refusals(&decoded),
        ["record 5: the labels cannot be read at byte 3: expected a text in quotes"]
    );
    let decoded = read(Media::Json, &json).unwrap();
    let labels = r#"labels.app="shop" labels.env="a\"b\\\n""#;
    let expected = vec![
        (
            "shop".to_owned(),
            vec![
                (
                    us,
                    format!(
                        r#"{labels} message="größe\n" metadata.a="2" metadata.trace_id="7b" time_unix_nano={ns}"#
                    ),
                ),
                (0, format!(r#"{labels} message="" time_unix_nano=0"#)),
            ],
        ),
        ("x_y".to_owned(), vec![(us, format!(r#"labels.job="x/y" message="x" time_unix_nano={ns}"#))]),
    ];
    assert_eq!((described(&decoded), decoded.refused.count), (expected, 0));
}

#[test]
fn labels_have_the_syntax_of_prometheus() {
    let check = |labels: &[u8], expected: &str| {
        let decoded = push(vec![stream(labels, vec![entry("")])]);
        let row = &described(&decoded)[0].1[0].1;
        let expected = format!("{expected} message=\"\" time_unix_nano={NS}");
        assert_eq!(*row, expected.trim_start(), "{:?}", String::from_utf8_lossy(labels));
    };
    check(b"{}", "");
    check(b" \n", "");
    check(b" {\t_a1 = \"x\" ,\nB=\"y\" , } ", r#"labels.B="y" labels._a1="x""#);
    check(br#"{"a.b"="1",'c d'="2",`e\`="3"}"#, r#"labels.a.b="1" labels.c d="2" labels.e\="3""#);
    check(
        br#"{a="\a\b\f\n\r\t\v\\\"\x41\101\u00e9\U0001f600"}"#,
        "labels.a=\"\\u{7}\\u{8}\\u{c}\\n\\r\\t\\u{b}\\\\\\\"AAé😀\"",
    );
    check(b"{a=\"\\xc3\\251 \\xff\xff\"}", "labels.a=\"é \u{fffd}\u{fffd}\"");
    check(b"{a=`\\x\n'\"`}", r#"labels.a="\\x\n'\"""#);
    check(br#"{a="1",b="2",a="3"}"#, r#"labels.a="3" labels.b="2""#);
    check(br#"{a="",b="2",b=""}"#, r#"labels.b="2""#);
    check("{a=\"größe\"}".as_bytes(), r#"labels.a="größe""#);
}

#[test]
fn entries_with_wrong_labels_are_left_out() {
    let check = |labels: &[u8], at: usize, what: &str| {
        let decoded =
            push(vec![stream(labels, vec![entry("a"), entry("b")]), stream("{app=\"x\"}", vec![entry("c")])]);
        let what = format!("the labels cannot be read at byte {at}: {what}");
        assert_eq!(refusals(&decoded), [format!("record 1: {what}"), format!("record 2: {what}")]);
        assert_eq!(described(&decoded)[0].0, "x");
        assert_eq!(decoded.streams.len(), 1);
    };
    check(b"a", 0, "expected an opening brace");
    check(b"up{a=\"b\"}", 0, "expected an opening brace");
    check(b"{", 1, "expected the name of a label");
    check(b"{,}", 1, "expected the name of a label");
    check(b"{1=\"b\"}", 1, "expected the name of a label");
    check("{é=\"b\"}".as_bytes(), 1, "expected the name of a label");
    check(b"{a.b=\"b\"}", 2, "expected an equals sign");
    check(b"{\"a\"}", 4, "expected an equals sign");
    check(b"{a!=\"b\"}", 2, "expected an equals sign");
    check(b"{a=~\"b\"}", 3, "expected a text in quotes");
    check(b"{a=b}", 3, "expected a text in quotes");
    check(b"{a=\"b\" c=\"d\"}", 7, "expected a comma or a closing brace");
    check(b"{a=\"b\"", 6, "expected a comma or a closing brace");
    check(b"{a=\"b\"}}", 7, "expected the end");
    check(b"{a=\"b", 4, "the text in quotes does not end");
    check(b"{a=`b\\`c`}", 7, "expected a comma or a closing brace");
    check(b"{a=\"b\n\"}", 5, "line break in quotes");
    check(br#"{a="\'"}"#, 4, "unknown escape sequence");
    check(br#"{a="\"#, 4, "unknown escape sequence");
    check(br#"{a="\x4"}"#, 4, "escape sequence without its digits");
    check(br#"{a="\08"}"#, 4, "escape sequence without its digits");
    check(br#"{a="\400"}"#, 4, "escape sequence beyond 255");
    check(br#"{a="\ud800"}"#, 4, "escape sequence of no character");
    check(br#"{a="\U00110000"}"#, 4, "escape sequence of no character");
    check(br#"{a="\U"#, 4, "escape sequence without its digits");
}

#[test]
fn labels_are_limited() {
    let labels = |count: usize, name_bytes: usize| {
        let all: Vec<_> = (0..count).map(|n| format!("l{n:0>0$}=\"v\"", name_bytes - 1)).collect();
        format!("{{{}}}", all.join(","))
    };
    let json = |count: usize| {
        let all: serde_json::Map<_, _> = (0..count).map(|n| (format!("l{n}"), "v".into())).collect();
        let body = json!({"streams": [{"stream": all, "values": [["1", "x"]]}]});
        read(Media::Json, body.to_string().as_bytes()).unwrap()
    };
    for decoded in [push(vec![stream(labels(128, 5), vec![entry("")])]), json(128)] {
        assert_eq!((decoded.streams.len(), decoded.refused.count), (1, 0));
    }
    for decoded in [push(vec![stream(labels(129, 5), vec![entry("")])]), json(129)] {
        assert_eq!(refusals(&decoded), ["record 1: there are more than 128 labels"]);
    }
    let decoded = push(vec![stream(labels(1, 1_017), vec![entry("")])]);
    assert_eq!((decoded.streams.len(), decoded.refused.count), (1, 0));
    let decoded = push(vec![stream(labels(1, 1_018), vec![entry("")])]);
    assert!(refusals(&decoded)[0].contains("1025 bytes"), "{decoded:?}");
    let long = Entry { metadata: vec![pair(&[b'n'; 1_016], b"v")], ..entry("") };
    let decoded = push(vec![stream("", vec![long, entry("kept")])]);
    assert!(refusals(&decoded)[0].starts_with("record 1: the path of an attribute has 1025 bytes"));
    assert_eq!(decoded.streams[0].1.len(), 1);
}

/// JavaScript writes such texts when it cuts a line in the middle of a character, and Python when bytes are not UTF-8.
#[test]
fn half_of_a_character_is_replaced() {
    let body = r#"{"streams":[{"stream":{"app":"\udce9"},"x":"\ud83d","values":
        [["1","a\ud83d"],["2","\ud83d\u0041"],["3","\ude00\ud83d\ude00"],["4","\ud83d\ud83d\ude00"],["5","\ud83dx"]]}]}"#;
    let decoded = read(Media::Json, body.as_bytes()).unwrap();
    let rows = described(&decoded).remove(0).1;
    let messages: Vec<_> = rows.iter().map(|(_, row)| row.split("message=").nth(1).unwrap()).collect();
    let expected =
        ["a\u{fffd}", "\u{fffd}A", "\u{fffd}😀", "\u{fffd}😀", "\u{fffd}x"].map(|text| format!("{text:?}"));
    assert!(messages.iter().zip(&expected).all(|(message, text)| message.starts_with(text)), "{messages:?}");
    assert_eq!(decoded.refused.count, 0);
}

#[test]
fn streams_without_entries_are_limited() {
    let empty = b"\x0a\x00".repeat(model::caps::REQUEST_RECORDS_MAX + 1);
    let error = read(Media::Protobuf, &empty).unwrap_err().to_string();
    assert!(error.contains("streams"), "{error}");
}

#[test]
fn times_are_kept_in_nanoseconds() {
    let check = |seconds: i64, nanos: i32, expected: Option<(i64, &str)>| {
        let time = Some(Time { seconds, nanos });
        let decoded = push(vec![stream("", vec![Entry { time, ..entry("") }])]);
        match expected {
            Some((us, ns)) => {
                let row = (us, format!("message=\"\" time_unix_nano={ns}"));
                assert_eq!(described(&decoded), [("logs".to_owned(), vec![row])]);
            }
            None => {
                let refused = r#"record 1: the time in "timestamp" is before 1970 or after 9999"#;
                assert_eq!(refusals(&decoded), [refused]);
            }
        }
    };
    check(0, 0, Some((0, "0")));
    check(1, 999_999_999, Some((1_999_999, "1999999999")));
    check(0, -1, None);
    check(1, 1_000_000_000, None);
    check(-1, 999_999_999, None);
    check(i64::MIN, 0, None);
    check(i64::MAX, 999_999_999, None);
    check(9_223_372_036, 854_775_807, Some((9_223_372_036_854_775, "9223372036854775807")));
    // beyond 64 bits
    let last = "json 253402300799999999999";
    check(253_402_300_799, 999_999_999, Some((253_402_300_799_999_999, last)));
    check(253_402_300_800, 0, None);

    let read = |text: &str| {
        let body = json!({"streams": [{"values": [[text, "x"]]}]});
        read(Media::Json, body.to_string().as_bytes())
    };
    assert_eq!(read("1999").unwrap().streams[0].1.times_us, [1]);
    assert_eq!(read(&i64::MAX.to_string()).unwrap().streams[0].1.times_us, [9_223_372_036_854_775]);
    for text in ["-1", "9223372036854775808", "-9223372036854775809", &"9".repeat(1_000)] {
        assert_eq!(read(text).unwrap().refused.count, 1, "{text}");
    }
    for text in ["", "x", "1.5", "1e9", " 1", "2026-11-21T18:00:00Z"] {
        let error = read(text).unwrap_err();
        assert!(error.to_string().ends_with("expected a time in nanoseconds, in quotes"), "{text}: {error}");
    }
}

#[test]
fn services_are_found_in_a_fixed_order() {
    let check = |labels: Value, expected: &str| {
        let body = json!({"streams": [{"stream": labels, "values": [["1", "x"]]}]});
        let decoded = read(Media::Json, body.to_string().as_bytes()).unwrap();
        assert_eq!(decoded.streams[0].0.as_str(), expected, "{labels}");
    };
    check(json!({"job": "j", "container": "c", "app": "a", "service": "s", "service_name": "n"}), "n");
    check(json!({"job": "j", "container": "c", "app": "a", "service": "s", "service_name": ""}), "s");
    check(json!({"job": "j", "container": "c", "app": "a"}), "a");
    check(json!({"job": "j", "container": "c"}), "c");
    check(json!({"job": "ns/j", "host": "h"}), "ns_j");
    check(json!({"host": "h"}), "logs");
    check(json!({"app": "..."}), "logs");
    check(json!({}), "logs");
    let stream = StreamName::parse("mine").unwrap();
    for (media, body) in [Media::Protobuf, Media::Json].into_iter().zip(corpus()) {
        let named = StreamsRequest { stream: Some(&stream), ..request(&body) };
        let decoded = decode(media, named, &mut plenty()).unwrap();
        assert_eq!(decoded.streams.len(), 1);
        assert_eq!(decoded.streams[0].0, stream);
    }
    let streams = (0..STREAMS_MAX + 5).map(|n| self::stream(format!("{{app=\"a{n}\"}}"), vec![entry("")]));
    let decoded = push(streams.collect());
    assert_eq!((decoded.streams.len(), decoded.refused.count), (STREAMS_MAX, 0));
    let (name, records) = decoded.streams.last().unwrap();
    assert_eq!((name.as_str(), records.len()), ("logs", 6));
}

#[test]
fn bodies_of_other_forms_are_refused() {
    let check = |body: &str, what: &str| {
        let error = read(Media::Json, body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().ends_with(what), "{body}: {error}");
    };
    check("", "expected an object");
    check("[]", "expected an object");
    check(r#"{"streams":{}}"#, "expected a list");
    check(r#"{"streams":[[]]}"#, "expected an object");
    check(r#"{"streams":[{"stream":[]}]}"#, "expected an object");
    check(r#"{"streams":[{"stream":{"a":1}}]}"#, "expected a string");
    check(r#"{"streams":[{"stream":{},"stream":{}}]}"#, "a key is there twice");
    check(r#"{"streams":[{"values":[],"stream":{},"values":[]}]}"#, "a key is there twice");
    check(r#"{"streams":[{"values":{}}]}"#, "expected a list");
    check(r#"{"streams":[{"values":["1","x"]}]}"#, "expected a list");
    check(r#"{"streams":[{"values":[[]]}]}"#, "expected an entry with a time and a line");
    check(r#"{"streams":[{"values":[["1"]]}]}"#, "expected an entry with a time and a line");
    check(r#"{"streams":[{"values":[[["1"],"x"]]}]}"#, "expected a string");
    check(r#"{"streams":[{"values":[[1,"x"]]}]}"#, "expected a string");
    check(r#"{"streams":[{"values":[["1",{}]]}]}"#, "expected a string");
    check(r#"{"streams":[{"values":[["1","x",[]]]}]}"#, "expected an object");
    check(r#"{"streams":[{"values":[["1","x",{"a":1}]]}]}"#, "expected a string");
    check(r#"{"streams":[]}}"#, "trailing characters after the end");
    let deep = format!(r#"{{"streams":[{{"values":[["1","x",{{}},{}"#, "[".repeat(100_000));
    check(&deep, "nested too deeply");
    check(&format!(r#"{{"x":{}"#, "[".repeat(100_000)), "nested too deeply");

    let nothing =
        |media: Media, body: &[u8]| assert_eq!(read(media, body).unwrap(), DecodedStreams::default());
    nothing(Media::Json, br#"{}"#);
    nothing(Media::Json, br#"{"streams":null,"other":[1]}"#);
    nothing(Media::Json, br#"{"streams":[{"stream":{"app":"a"},"values":null},{"stream":{}},{}]}"#);
    nothing(Media::Protobuf, b"");
    nothing(Media::Protobuf, &Push { streams: vec![stream("{a", vec![])] }.encode_to_vec());
    // what is not UTF-8 is replaced
    let decoded = read(Media::Json, b"{\"streams\":[{\"values\":[[\"1\",\"a\xffb\"]]}]}").unwrap();
    assert_eq!(described(&decoded)[0].1[0].1, "message=\"a\u{fffd}b\" time_unix_nano=1");
    let decoded = read(Media::Json, br#"{"streams":[{"values":[["1","x",{"a":""},7,["y"]]]}]}"#).unwrap();
    assert_eq!(described(&decoded)[0].1[0].1, r#"message="x" metadata.a="" time_unix_nano=1"#);

    for body in [&b"\x0a\x05"[..], b"\x08\x01", b"\x0a\x02\x08\x01", b"\x0a\x04\x12\x02\x08\x01", b"\xff"] {
        assert!(matches!(read(Media::Protobuf, body), Err(DecodeError::Wire(_))), "{body:?}");
    }
}

/// A small body must not take much memory, and all memory is reserved.
#[test]
fn memory_is_reserved() {
    let labels = format!("{{a=\"{}\"}}", "v".repeat(10_000));
    let many = Push { streams: vec![stream(&labels, vec![Entry::default(); 5_000])] }.encode_to_vec();
    let json = json!({"streams": [{"stream": {"a": "v".repeat(10_000)}, "values": vec![["1", ""]; 5_000]}]});
    for (media, body) in [(Media::Protobuf, many), (Media::Json, json.to_string().into_bytes())] {
        let account = Account::new("test", 1 << 30);
        let mut memory = account.reserve(7).unwrap();
        let decoded = decode(media, request(&body), &mut memory).unwrap();
        let records: usize = decoded.streams.iter().map(|(_, records)| records.memory_bytes()).sum();
        assert_eq!(memory.bytes(), (7 + records) as u64);
        let limited = StreamsRequest { records_bytes_max: 16 << 20, ..request(&body) };
        let error = decode(media, limited, &mut plenty()).unwrap_err();
        assert_eq!(error.to_string(), "request has more than 16777216 bytes of records");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        drop(memory);
        let small = Account::new("test", (records / 2) as u64);
        let error = decode(media, request(&body), &mut small.reserve(0).unwrap()).unwrap_err();
        assert!(matches!(error, DecodeError::Memory(_)), "{error}");
    }
}
