//! Harmful texts for the doors of Influx' lines and of imports. An import stores what it can, and names the rest.

use super::{Attack, BAD, ROOM, gzip_of_zeros, zstd_of_zeros};
use crate::harness::Request;

/// Statuses that may answer a path with too many labels, or with wrong ones.
const BAD_PATH: &[u16] = &[400, 413, 414, 431, 503];

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    let influx = |body: Vec<u8>| Request::post("/write?precision=ms", body);
    let json = |body: Vec<u8>| Request::post("/api/v1/import", body);
    let text = |body: Vec<u8>| Request::post("/api/v1/import/prometheus", body);
    let csv = |body: Vec<u8>| Request::post("/api/v1/import/csv?format=1:metric:own,2:label:l", body);
    let open_metrics = |body: Vec<u8>| text(body).header("Content-Type", "application/openmetrics-text");
    let pushed = |path: &str, body: Vec<u8>| Request::post(path, body);
    let zstd = |request: Request| request.header("Content-Encoding", "zstd");
    let gzip = |request: Request| request.header("Content-Encoding", "gzip");
    let fields: String = (0..100_000).map(|i| format!(",f{i}=1")).collect();
    let tags: String = (0..100_000).map(|i| format!(",t{i}=v")).collect();
    let new: String = (0..100_000).map(|i| format!("flood,i={i} f=1 {now_ms}\n")).collect();
    super::attacks(vec![
        ("gzip of 300 MiB of Influx' lines", gzip(influx(gzip_of_zeros(300 << 20))), BAD),
        ("a million fields", influx(format!("own f=1{}", fields.repeat(10)).into_bytes()), BAD),
        ("a hundred thousand fields", influx(format!("own f=1{fields} {now_ms}").into_bytes()), ROOM),
        ("a hundred thousand tags", influx(format!("own{tags} f=1").into_bytes()), BAD),
        ("a hundred thousand series of Influx", influx(new.into_bytes()), ROOM),
        ("a string without an end", influx([&b"own f=\""[..], &vec![b'x'; 8 << 20]].concat()), BAD),
        ("quotes that open and close", influx(b"own f=\"\n".repeat(500_000)), BAD),
        ("backslashes", influx(vec![b'\\'; 8 << 20]), BAD),
        ("NUL in lines", influx(b"own\0,a=\0 f\0=1\n\0\n\0=\0".repeat(1_000)), BAD),
        ("invalid UTF-8 in lines", influx(b"own,a=\xff f=1\nown f\xfe=1\n".repeat(1_000)), BAD),
        ("gzip of 300 MiB to import", gzip(json(gzip_of_zeros(300 << 20))), BAD),
        ("nested JSON", json(b"[{".repeat(4 << 20)), BAD),
        ("JSON with a million keys", json(format!("{{{}}}", "\"k\":1,".repeat(1_000_000)).into_bytes()), BAD),
        (
            "JSON of huge numbers",
            json(
                br#"{"metric":{"__name__":"own"},"values":[1e999],"timestamps":[99999999999999999999]}"#
                    .to_vec(),
            ),
            BAD,
        ),
        ("labels without an end", text(b"own{a=\"".repeat(1 << 20)), BAD),
        ("text of NUL and no UTF-8", text(b"own{a=\"\xff\"} 1\n\0 1\n".repeat(10_000)), BAD),
        ("CSV quotes without an end", csv(b"1,\"x\n".repeat(100_000)), BAD),
        ("CSV of commas", csv(vec![b','; 8 << 20]), ROOM),
        ("zstd of 300 MiB to import text", zstd(text(zstd_of_zeros(300 << 20))), BAD),
        ("zstd of 300 MiB of CSV", zstd(csv(zstd_of_zeros(300 << 20))), BAD),
        (
            "JSON of NUL and no UTF-8",
            json(b"{\"metric\":{\"__name__\":\"own\xff\0\"},\"values\":[1]}\n\0\n".repeat(10_000)),
            BAD,
        ),
        ("CSV of NUL and no UTF-8", csv(b"1,\0\n2,\xff\n\0,a\n".repeat(10_000)), ROOM),
        ("CSV of huge numbers", csv(b"1e999,a\n-1e999999999,b\n0x1p9999,c\n".repeat(10_000)), ROOM),
        ("CSV with huge numbers of columns", csv([vec![b'1'; 1 << 20], b",a\n".to_vec()].concat()), ROOM),
        (
            "OpenMetrics without an end",
            open_metrics(b"# TYPE own counter\nown_total 1 # {a=\"".repeat(100_000)),
            ROOM,
        ),
        ("OpenMetrics of NUL and no UTF-8", open_metrics(b"own{a=\"\0\xff\"} 1\n# \0\n".repeat(10_000)), BAD),
        (
            "OpenMetrics of huge numbers",
            open_metrics(b"own 1e999 1e999\nown 1 99999999999999999999\n# EOF\n".to_vec()),
            ROOM,
        ),
        (
            "a job with 10,000 labels",
            pushed(&format!("/metrics/job/a{}", "/l/v".repeat(10_000)), b"own 1\n".to_vec()),
            BAD_PATH,
        ),
        ("a job that is no UTF-8", pushed("/metrics/job@base64/__79", b"own 1\n".to_vec()), BAD_PATH),
        ("labels without an end, pushed", pushed("/metrics/job/a", b"own{a=\"".repeat(1 << 20)), BAD),
    ])
}
