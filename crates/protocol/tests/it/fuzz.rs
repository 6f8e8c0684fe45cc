//! Runs the fuzz targets on damaged requests.

use model::{Exemplar, Labels, Metadata, MetricKind};
use protocol::Encoding;
use protocol::encode::{Extras, V1Encoder, V2Encoder};
use protocol::exposition::Dialect;
use protocol::fuzz;
use protocol::otlp::Media;
use protocol::records::Format;
use protocol::records::otlp::Signal;
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
fn influx_bodies() {
    let text = concat!(
        "cpu,cpu=cpu0,host=web1 usage_user=1.5,usage_idle=98i,up=t 1795284000000000000\n",
        "a\\,b\\ c,t\\=1=x\\\\ f\\ g=1e-3,s=\"x \\\" ,\n=\",u=7u -1\r\n# a comment\n\nb c=1\n",
    );
    each_damaged(&[text.as_bytes().to_vec(), text.repeat(9).into_bytes()], MUTATIONS, fuzz::influx_body);
}

#[test]
fn json_lines() {
    let text = concat!(
        r#"{"metric":{"__name__":"up","job":"a\"\u00e9"},"values":[1,2.5e-3,null,"Infinity"],"timestamps":[1,2,3,4]}"#,
        "\n\n",
        r#"{"values":[1],"timestamps":[1795284000000],"metric":{"__name__":"x"},"more":[{}]}"#,
    );
    each_damaged(&[text.as_bytes().to_vec(), text.repeat(5).into_bytes()], MUTATIONS, fuzz::json_lines);
}

#[test]
fn text_lines() {
    let text = concat!(
        "# HELP up Up.\nup 1\nup{job=\"a\\\"b\",le=\"+Inf\"} -2.5e3 1795284000123 # {t=\"x\"} 1\n",
        "{\"a name\",\"a b\"=\"}\"} NaN 1.5\n# EOF\n",
    );
    for dialect in [Dialect::Prometheus, Dialect::OpenMetrics] {
        each_damaged(&[text.as_bytes().to_vec()], MUTATIONS, |bytes| fuzz::text_lines(dialect, bytes));
    }
}

#[test]
fn csv_rows() {
    let text = concat!(
        "1:label:ticker,2:metric:ask,3:metric:bid,5:time:rfc3339\n",
        "GOOG,1.5,2,x,2026-11-21T18:00:00Z\n\"A, \"\"B\"\"\",,-1e3,,2026-11-21T18:00:00.5+01:00\r\n",
    );
    each_damaged(&[text.as_bytes().to_vec()], MUTATIONS, fuzz::csv_rows);
}

#[test]
fn records() {
    let record = concat!(
        r#"{"@timestamp":"2026-11-21T18:00:00.5+01:00","a":{"b":[1,{"c":"\u00e9\ud83d\ude00"}],"d":{}},"e":-1.5e3,"f":null,"#,
        r#""g":true,"time":1795284000,"h\n":99999999999999999999,"i":1e400}"#,
    );
    let lines = format!("{record}\n\n{{}}\r\n[]\n{record}\n");
    let list = format!("[{record}, {{}},1,{record} ]");
    let table = "time,a,\"b \"\"c\"\"\",\n1795284000,1,\"x\ny\",true\r\n2026-11-21T18:00:00Z,1.5,,99999999999999999999\n";
    let bodies = [lines.into_bytes(), list.into_bytes(), table.as_bytes().to_vec()];
    for format in [Format::Json, Format::Csv, Format::Lines] {
        each_damaged(&bodies, MUTATIONS, |bytes| fuzz::records(format, bytes));
    }
}

#[test]
fn records_of_opentelemetry() {
    let files: [(Signal, [&[u8]; 2]); 2] = [
        (Signal::Logs, [include_bytes!("records/logs.bin"), include_bytes!("records/logs.json")]),
        (Signal::Traces, [include_bytes!("records/traces.bin"), include_bytes!("records/traces.json")]),
    ];
    for (signal, bodies) in files {
        for (media, body) in [Media::Protobuf, Media::Json].into_iter().zip(bodies) {
            each_damaged(&[body.to_vec()], MUTATIONS, |bytes| fuzz::otlp_records(signal, media, bytes));
        }
    }
}

#[test]
fn bulk_requests() {
    let body = concat!(
        "{\"index\":{\"_index\":\"app\",\"_id\":\"7\\u0001\"}}\n{\"@timestamp\":\"2026-11-21T18:00:00Z\",\"a\":{\"b\":[1]}}\n",
        "{\"create\":{}}\r\n{\"m\":\"x\"}\r\n\n{\"delete\":{\"_index\":\"\\n/\",\"_id\":5}}\n{\"update\":{\"_index\":\"b\"}}\n{}\n",
        "{\"index\":{\"_index\":\"_b\"}}\n{\n",
    );
    each_damaged(&[body.as_bytes().to_vec()], MUTATIONS, fuzz::bulk_records);
}

#[test]
fn records_of_loki() {
    for (media, body) in [Media::Protobuf, Media::Json].into_iter().zip(crate::records::loki::corpus()) {
        each_damaged(&[body], MUTATIONS, |bytes| fuzz::loki_records(media, bytes));
    }
}

#[test]
fn bodies_in_pieces() {
    use std::io::Write as _;
    let text: Vec<u8> = (0..40_000u32).flat_map(|i| (i % 251).to_le_bytes()).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    stream.write_all(&text).unwrap();
    let zstd = [zstd::bulk::compress(&text, 1).unwrap(), stream.finish().unwrap()];
    for (encoding, bodies) in [
        (Encoding::Identity, vec![text]),
        (Encoding::Gzip, vec![gzip.clone(), gzip.repeat(2)]),
        (Encoding::Zstd, zstd.to_vec()),
    ] {
        bodies.iter().for_each(|body| fuzz::pieces_of_body(encoding, body));
        each_damaged(&bodies, MUTATIONS / 20, |bytes| fuzz::pieces_of_body(encoding, bytes));
    }
}

#[test]
fn graphite_pickles() {
    let pickles: [&[u8]; 3] = [
        b"(lp0\n(Vservers.web1.load\np1\n(I1795284000\nF0.7\ntp2\ntp3\na(S'a;b=\\x41'\np4\n(L17952840010L\nS'12'\ntp5\ntp6\na.",
        b"\x80\x02]q\x00(X\x05\x00\x00\x00web.aq\x01J \xdc\x01kG?\xe6ffffff\x86q\x02\x86q\x03h\x01M\x01\x02K\x0c\x86q\x05\x86q\x06h\x06e.",
        b"\x80\x04\x95\x25\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x05web.a\x94\x8a\x05\x01\x02\x03\x04\x05G?\xe6ffffff\x86\x94\x86\x94h\x00e.",
    ];
    let frame = |pickle: &[u8]| [&(pickle.len() as u32).to_be_bytes()[..], pickle].concat();
    each_damaged(&pickles.map(<[u8]>::to_vec), MUTATIONS, |bytes| fuzz::graphite_pickle(false, bytes));
    let frames = pickles.map(frame).concat();
    each_damaged(&[frames.clone(), frames.repeat(3)], MUTATIONS, |bytes| fuzz::graphite_pickle(true, bytes));
}

#[test]
fn graphite_payloads() {
    let point = b"\x12\x0f\x08\xa0\xb8\x87\xd8\x06\x11\0\0\0\0\0\0\xf8\x3f";
    let metric = [&b"\x0a\x05a.b.c"[..], point, point].concat();
    let payload = [&[0x0a, metric.len() as u8][..], &metric, &[0x0a, metric.len() as u8], &metric].concat();
    let frame = [&(payload.len() as u32).to_be_bytes()[..], &payload].concat();
    each_damaged(&[payload], MUTATIONS, |bytes| fuzz::graphite_protobuf(false, bytes));
    each_damaged(&[frame.repeat(3)], MUTATIONS, |bytes| fuzz::graphite_protobuf(true, bytes));
}

#[test]
fn otlp() {
    let requests = crate::otlp::corpus();
    let messages: Vec<_> = requests.iter().map(prost::Message::encode_to_vec).collect();
    each_damaged(&messages, MUTATIONS, |bytes| fuzz::otlp(Media::Protobuf, bytes));
    let json = |request| crate::otlp::json::request(request, false).into_bytes();
    each_damaged(&requests.iter().map(json).collect::<Vec<_>>(), MUTATIONS, |bytes| {
        fuzz::otlp(Media::Json, bytes)
    });
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
