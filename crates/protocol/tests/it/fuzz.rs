//! Runs the fuzz targets on damaged requests.

use model::{Exemplar, Labels, Metadata, MetricKind};
use protocol::encode::{Extras, V1Encoder, V2Encoder};
use protocol::fuzz;
use protocol::remote_write::Version;
use stdx::damage::each_damaged;

fn corpus(version: Version) -> Vec<Vec<u8>> {
    let series = |i: usize| {
        let (job, le) = (format!("job-{}", i / 3), format!("{i}"));
        Labels::from_pairs(&[("__name__", "requests_total"), ("job", &job), ("le", &le)])
    };
    let exemplars = [Exemplar {
        labels: Labels::from_pairs(&[("trace_id", "4bf92f3577b34da6")]),
        timestamp_ms: 1_795_276_800_123,
        value: 0.25,
    }];
    let metadata = Metadata {
        metric: "requests_total".into(),
        kind: MetricKind::Counter,
        help: "Requests.".into(),
        unit: "requests".into(),
    };
    let extras = Extras { exemplars: &exemplars, metadata: Some(&metadata), start_ms: 1_795_276_000_000 };
    let (mut v1, mut v2) = (V1Encoder::new(), V2Encoder::new());
    let mut bodies = Vec::new();
    for n in [0, 1, 7] {
        for i in 0..n {
            let extras = if i % 2 == 0 { extras } else { Extras::default() };
            let times = [1_795_276_800_000, -1, 0];
            let values = [1.5, f64::from_bits(model::STALE_NAN_BITS), 0.0];
            let count = 1 + i % 3;
            v1.series_with(series(i).as_ref(), &times[..count], &values[..count], extras);
            v2.series_with(series(i).as_ref(), &times[..count], &values[..count], extras);
        }
        v1.metadata(&metadata);
        bodies.push(if version == Version::V1 { v1.finish().to_vec() } else { v2.finish().to_vec() });
        (v1, v2) = (V1Encoder::new(), V2Encoder::new());
    }
    bodies
}

const MUTATIONS: usize = 4000;

pub(crate) fn messages(version: Version) -> Vec<Vec<u8>> {
    let unpack = |body: &Vec<u8>| snap::raw::Decoder::new().decompress_vec(body).expect("a snappy block");
    corpus(version).iter().map(unpack).collect()
}

#[test]
fn bodies() {
    for version in [Version::V1, Version::V2] {
        each_damaged(&corpus(version), MUTATIONS, |bytes| fuzz::remote_write_body(version, bytes));
    }
}

#[test]
fn graphite_bodies() {
    let text =
        "load.web1 0.5 1795284000\ndisk.used;rack=b;host=web1 42 1795284000.5\r\n\n a\t-1e3 -1 \na;x= 1\n";
    each_damaged(&[text.as_bytes().to_vec(), text.repeat(9).into_bytes()], MUTATIONS, fuzz::graphite_body);
}

#[test]
fn v1_messages() {
    each_damaged(&messages(Version::V1), MUTATIONS, |bytes| fuzz::remote_write_message(Version::V1, bytes));
}

#[test]
fn v2_messages() {
    each_damaged(&messages(Version::V2), MUTATIONS, |bytes| fuzz::remote_write_message(Version::V2, bytes));
}

#[test]
fn labels() {
    let up = Labels::from_pairs(&[("__name__", "up"), ("instance", "a:9100"), ("job", "node")]);
    let long = Labels::from_pairs(&[("__name__", "up"), ("l", &"x".repeat(300))]);
    each_damaged(&[up.as_bytes().to_vec(), long.as_bytes().to_vec()], MUTATIONS, fuzz::series_labels);
}

#[test]
fn snappy() {
    let mut bodies = corpus(Version::V1);
    bodies.extend(corpus(Version::V2));
    each_damaged(&bodies, MUTATIONS, fuzz::snappy_block);
}
