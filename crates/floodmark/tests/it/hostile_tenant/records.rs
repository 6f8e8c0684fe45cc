//! Harmful requests for the doors of records.

use super::{Attack, BAD, Row, gzip_of_zeros, zstd_of_zeros};
use crate::harness::Request;

/// Statuses that may answer a request of which some records may be stored.
const PARTLY: &[u16] = &[200, 204, 400, 413, 503];

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    super::attacks([streams(now_ms), others()].concat())
}

fn json(body: Vec<u8>) -> Request {
    Request::post("/api/v1/streams/own", body).header("Content-Type", "application/json")
}

fn csv(body: Vec<u8>) -> Request {
    Request::post("/api/v1/streams/own", body).header("Content-Type", "text/csv")
}

fn streams(now_ms: i64) -> Vec<Row> {
    let now_s = now_ms / 1000;
    let keys: String = (0..60_000).map(|i| format!("\"k{i}\":1,")).collect();
    let paths = |key: usize| (0..200).map(|i| format!("\"k{key}-{i}\":1,")).collect::<String>();
    let wide: String = (0..400).map(|i| format!("{{{}\"a\":1}}\n", paths(i))).collect();
    let flips = (0..50_000).map(|i| match i % 4 {
        0 => "{\"own\":1}\n",
        1 => "{\"own\":\"x\"}\n",
        2 => "{\"own\":{\"a\":[]}}\n",
        _ => "{\"own\":1e300}\n",
    });
    let days: String = (0..5_000).map(|day| format!("{{\"time\":{}}}\n", now_s - 86_400 * day)).collect();
    vec![
        ("records: nested objects", json(b"{\"a\":".repeat(200_000)), BAD),
        ("records: nested lists", json(b"[".repeat(1 << 20)), BAD),
        ("records: 60,000 keys", json(format!("{{{keys}\"a\":1}}").into_bytes()), PARTLY),
        ("records: 80,000 keys in all", json(wide.into_bytes()), PARTLY),
        ("records: types that flip", json(flips.collect::<String>().into_bytes()), PARTLY),
        (
            "records: a text of 1 MiB",
            json(format!("{{\"own\":\"{}\"}}", "x".repeat(1 << 20)).into_bytes()),
            PARTLY,
        ),
        (
            "records: escapes",
            json(format!("{{\"own\":\"{}\"}}", "\\u0000".repeat(1 << 20)).into_bytes()),
            PARTLY,
        ),
        ("records: NUL and no UTF-8", json(b"{\"own\":\"\0\"}\n{\"\xff\":1}\n\0\n".repeat(10_000)), BAD),
        ("records: times of the year 9999", json(br#"{"time":"9999-12-31T23:59:59.999999Z"}"#.to_vec()), BAD),
        ("records: a huge time", json(br#"{"time":1e300}"#.to_vec()), BAD),
        ("records: thousands of days", json(days.into_bytes()), PARTLY),
        ("records: nothing, 400,000 times", json(b"{}\n".repeat(400_000)), PARTLY),
        (
            "records: CSV quotes without an end",
            csv([&b"a,b\n"[..], &b"1,\"x\n".repeat(1 << 17)].concat()),
            BAD,
        ),
        ("records: CSV with a million columns", csv(vec![b','; 1 << 20]), BAD),
        (
            "records: CSV of NUL and no UTF-8",
            csv([&b"a,b\n"[..], &b"\0,\xff\n".repeat(100_000)].concat()),
            BAD,
        ),
        ("records: gzip of 300 MiB", json(gzip_of_zeros(300 << 20)).header("Content-Encoding", "gzip"), BAD),
        ("records: zstd of 300 MiB", json(zstd_of_zeros(300 << 20)).header("Content-Encoding", "zstd"), BAD),
    ]
}

/// Elasticsearch's and Loki's doors.
fn others() -> Vec<Row> {
    // without this header, the sender could be rsyslog, which is answered differently
    let bulk = |body: Vec<u8>| {
        Request::post("/_bulk", body)
            .header("Content-Type", "application/x-ndjson")
            .header("User-Agent", "hostile")
    };
    let loki =
        |body: Vec<u8>| Request::post("/loki/api/v1/push", body).header("Content-Type", "application/json");
    let names: String =
        (0..15_000).map(|i| format!("{{\"create\":{{\"_index\":\"own-{i}\"}}}}\n{{\"a\":1}}\n")).collect();
    let action = b"{\"create\":{\"_index\":\"own\"}}\n";
    vec![
        ("bulk: 15,000 streams", bulk(names.into_bytes()), PARTLY),
        ("bulk: nested documents", bulk([&action[..], &b"{\"a\":".repeat(1 << 17), b"\n"].concat()), PARTLY),
        ("bulk: actions alone", bulk(action.repeat(30_000)), PARTLY),
        ("bulk: gzip of 300 MiB", bulk(gzip_of_zeros(300 << 20)).header("Content-Encoding", "gzip"), BAD),
        ("Loki: nested JSON", loki(br#"{"streams":["#.repeat(80_000)), BAD),
        (
            "Loki: 300,000 streams of nothing",
            loki(format!(r#"{{"streams":[{}]}}"#, vec!["{}"; 300_000].join(",")).into_bytes()),
            PARTLY,
        ),
        ("Loki: no UTF-8", loki(b"{\"streams\":\"\xff\"}".to_vec()), BAD),
        (
            "Loki: snappy that declares 4 GiB",
            Request::post("/loki/api/v1/push", [&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0; 100]].concat())
                .header("Content-Type", "application/x-protobuf"),
            BAD,
        ),
        ("Loki: gzip of 300 MiB", loki(gzip_of_zeros(300 << 20)).header("Content-Encoding", "gzip"), BAD),
    ]
}
