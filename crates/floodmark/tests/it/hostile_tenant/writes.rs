//! Harmful write requests.

use super::{Attack, BAD, ROOM, Row, gzip_of_zeros, zstd_of_zeros};
use crate::harness::Request;
use crate::harness::wire::{self, Series};

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    super::attacks([bombs(), broken(), large(now_ms), many(now_ms)].concat())
}

fn graphite(body: Vec<u8>, encoding: &str) -> Request {
    Request::post("/api/v1/graphite", body).header("Content-Encoding", encoding)
}

fn bombs() -> Vec<Row> {
    let mut declared = Vec::new();
    wire::varint(&mut declared, u64::from(u32::MAX));
    declared.extend([0; 100]);
    vec![
        ("snappy that declares 4 GiB", Request::write(&declared), BAD),
        ("snappy of 60 MiB of zeros", Request::write(&wire::snappy(&vec![0; 60 << 20])), BAD),
        ("snappy of 300 MiB of zeros", Request::write(&wire::snappy(&vec![0; 300 << 20])), BAD),
        (
            "zstd of 300 MiB of zeros",
            Request::write(&zstd_of_zeros(300 << 20)).header("Content-Encoding", "zstd"),
            BAD,
        ),
        ("zstd of 300 MiB of text", graphite(zstd_of_zeros(300 << 20), "zstd"), BAD),
        ("gzip of 300 MiB of text", graphite(gzip_of_zeros(300 << 20), "gzip"), BAD),
        (
            "gzip in gzip's place",
            Request::write(&gzip_of_zeros(1 << 20)).header("Content-Encoding", "gzip"),
            &[415],
        ),
    ]
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
