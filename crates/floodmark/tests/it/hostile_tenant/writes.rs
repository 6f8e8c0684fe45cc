//! Harmful write requests.

use super::Attack;
use crate::harness::Request;
use crate::harness::wire::{self, Series};

/// Statuses that may answer an invalid body. With 503, the server asks to retry later, because other bodies
/// of the tenant hold the memory.
const BAD: &[u16] = &[400, 413, 503];

/// Statuses that may answer a valid body. The server stores all or part of it, or refuses it because there is
/// no room.
const ROOM: &[u16] = &[204, 400, 413, 503];

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    let all = [bombs(), broken(), large(now_ms), many(now_ms), texts(now_ms)];
    all.into_iter().flatten().map(|(name, request, allowed)| Attack::new(name, request, allowed)).collect()
}

type Row = (&'static str, Request, &'static [u16]);

fn graphite(body: Vec<u8>, encoding: &str) -> Request {
    Request::post("/api/v1/graphite", body).header("Content-Encoding", encoding)
}

fn bombs() -> Vec<Row> {
    let zstd = |bytes: usize| zstd::bulk::compress(&vec![0; bytes], 3).unwrap();
    let mut declared = Vec::new();
    wire::varint(&mut declared, u64::from(u32::MAX));
    declared.extend([0; 100]);
    vec![
        ("snappy that declares 4 GiB", Request::write(&declared), BAD),
        ("snappy of 60 MiB of zeros", Request::write(&wire::snappy(&vec![0; 60 << 20])), BAD),
        ("snappy of 300 MiB of zeros", Request::write(&wire::snappy(&vec![0; 300 << 20])), BAD),
        (
            "zstd of 300 MiB of zeros",
            Request::write(&zstd(300 << 20)).header("Content-Encoding", "zstd"),
            BAD,
        ),
        ("zstd of 300 MiB of text", graphite(zstd(300 << 20), "zstd"), BAD),
        ("gzip of 300 MiB of text", graphite(gzip_of_zeros(300 << 20), "gzip"), BAD),
        (
            "gzip in gzip's place",
            Request::write(&gzip_of_zeros(1 << 20)).header("Content-Encoding", "gzip"),
            &[415],
        ),
    ]
}

/// Compresses at least `bytes` zeros to a gzip member whose end is missing. 258 zeros take only 13 bits (RFC
/// 1951, fixed codes).
fn gzip_of_zeros(bytes: usize) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut bits, mut count) = (0u32, 0);
    let mut put = |value: u32, length: u32| {
        bits |= value << count;
        count += length;
        while count >= 8 {
            out.push(bits as u8);
            (bits, count) = (bits >> 8, count - 8);
        }
    };
    put(0b011, 3); // the last block, with fixed codes
    put(0b0000_1100, 8); // the literal 0 is 00110000, from its first bit
    // the code for a length of 258 is 11000101, the code for a distance of 1 is 00000
    (0..bytes / 258).for_each(|_| put(0b1010_0011, 13));
    put(0, 14); // the end of the block, and the rest of a byte
    out
}

fn broken() -> Vec<Row> {
    let mut endless = Vec::new();
    wire::varint(&mut endless, 1 << 3 | 2);
    wire::varint(&mut endless, u64::MAX);
    let nested = (0..2_000).fold(Vec::new(), |inner, _| {
        let mut outer = Vec::new();
        wire::put_bytes(&mut outer, 1, &inner);
        outer
    });
    let write = |message: &[u8]| Request::write(&wire::snappy(message));
    vec![
        ("a field without end", write(&endless), BAD),
        ("a varint without end", write(&[0xff; 100]), BAD),
        ("fields in fields", write(&nested), ROOM),
        ("a million series of nothing", write(&[0x0a, 0].repeat(1_000_000)), BAD),
        ("references to nothing", Request::write_v2(&wire::v2_with_refs(&["", "a"], &[7, 1 << 60], 0)), BAD),
        ("nothing but a symbol", Request::write_v2(&wire::v2_with_refs(&["a"], &[], 0)), BAD),
        (
            "lines without a path",
            graphite(b"\n 1 1\n;;; 1 1\n\xff\xfe 1 1\n".repeat(1_000), "identity"),
            &[400, 415],
        ),
        ("a line without end", Request::post("/api/v1/graphite", vec![b'x'; 1 << 20]), BAD),
    ]
}

fn large(now_ms: i64) -> Vec<Row> {
    let write = |series: Series| Request::write(&wire::v1(&[series.sample(now_ms, 1.0)]));
    let labels = |count: usize| {
        (0..count).fold(Series::named("own"), |series, i| series.label(&format!("l{i:06}"), "v"))
    };
    let wide = |i: usize| {
        let series = Series::named("own").label("i", format!("wide-{i}"));
        (0..4)
            .fold(series, |series, l| series.label(&format!("l{l}"), "v".repeat(15 << 10)))
            .sample(now_ms, 1.0)
    };
    let times = (0..200_000).map(|i| (now_ms - 3_000_000 + (i * 7_919) % 3_000_000, i as f64));
    vec![
        ("100,000 labels", write(labels(100_000)), BAD),
        ("as many labels as possible", write(labels(127)), ROOM),
        ("a value of 1 MiB", write(Series::named("own").label("v", "v".repeat(1 << 20))), BAD),
        ("a name of 1 MiB", write(Series::named(&"n".repeat(1 << 20))), BAD),
        ("a label twice", write(Series::named("own").label("a", "1").label("a", "2")), BAD),
        (
            "labels as long as possible",
            Request::write(&wire::v1(&(0..150).map(wide).collect::<Vec<_>>())),
            ROOM,
        ),
        ("samples in any order", Request::write(&wire::v1(&[Series::named("late").samples(times)])), ROOM),
        (
            "times beyond all times",
            Request::write(&wire::v1(&[
                Series::named("own").samples([(i64::MIN, 1.0), (i64::MAX, f64::NAN)])
            ])),
            BAD,
        ),
    ]
}

fn many(now_ms: i64) -> Vec<Row> {
    let new = |count: usize, tag: &str| {
        let one = |i: usize| Series::named("flood").label("i", format!("{tag}-{i}")).sample(now_ms, 1.0);
        wire::v1(&(0..count).map(one).collect::<Vec<_>>())
    };
    let exemplars = (0..50_000).fold(Series::named("own").sample(now_ms, 1.0), |series, i| {
        series.exemplar(&[("trace", &format!("{i:090}"))], now_ms, 1.0)
    });
    let metadata: Vec<u8> = (0..20_000)
        .flat_map(|i| wire::v1_metadata(1, &format!("own_{i}"), &"help ".repeat(100), "bytes"))
        .collect();
    let lines: String = (0..300_000).map(|i| format!("m{i} 1 1\n")).collect();
    vec![
        ("50,000 new series", Request::write(&new(50_000, "once")), ROOM),
        ("300,000 new series", Request::write(&new(300_000, "more")), BAD),
        ("exemplars", Request::write(&wire::v1(&[exemplars])), ROOM),
        ("metadata", Request::write(&wire::snappy(&metadata)), ROOM),
        ("lines", Request::post("/api/v1/graphite", lines.into_bytes()), BAD),
        ("another tenant", Request::write(&new(1, "foreign")).tenant("a"), &[403]),
        ("histograms", Request::write(&wire::v1(&[Series::named("own").histograms(100_000)])), ROOM),
    ]
}

/// Texts of the doors for Influx' lines and for imports. An import stores what it can, and names the rest.
fn texts(now_ms: i64) -> Vec<Row> {
    let influx = |body: Vec<u8>| Request::post("/write?precision=ms", body);
    let json = |body: Vec<u8>| Request::post("/api/v1/import", body);
    let text = |body: Vec<u8>| Request::post("/api/v1/import/prometheus", body);
    let csv = |body: Vec<u8>| Request::post("/api/v1/import/csv?format=1:metric:own,2:label:l", body);
    let gzip = |request: Request| request.header("Content-Encoding", "gzip");
    let fields: String = (0..100_000).map(|i| format!(",f{i}=1")).collect();
    let tags: String = (0..100_000).map(|i| format!(",t{i}=v")).collect();
    let new: String = (0..100_000).map(|i| format!("flood,i={i} f=1 {now_ms}\n")).collect();
    vec![
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
    ]
}
