//! The fuzz targets on requests that were damaged at random; the same bodies run under cargo-fuzz.

use model::{Exemplar, Labels, Metadata, MetricKind};
use protocol::encode::{Extras, V1Encoder, V2Encoder};
use protocol::fuzz;
use protocol::remote_write::Version;
use stdx::rng::Rng;

/// `usual`, unless `FUZZ_MUTATIONS` asks for more.
pub(crate) fn mutations(usual: usize) -> usize {
    std::env::var("FUZZ_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Messages that hold some of everything.
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

/// Some damage: bytes changed, taken out, put in, repeated; the end cut off.
pub(crate) fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let interesting = [0x00, 0x01, 0x0a, 0x0b, 0x12, 0x1a, 0x22, 0x2a, 0x7f, 0x80, 0xff];
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let byte = match rng.below(2) {
            0 => interesting[rng.below(interesting.len() as u64) as usize],
            _ => rng.next_u64() as u8,
        };
        match rng.below(5) {
            0 => bytes.insert(at, byte),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => _ = bytes.remove(at),
            3 => {
                let end = (at + rng.below(40) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ if at < bytes.len() => bytes[at] = byte,
            _ => {}
        }
    }
}

fn run(target: impl Fn(&[u8]), corpus: &[Vec<u8>]) {
    let seed = Rng::fresh_seed();
    let mutations = mutations(4000);
    println!("seed {seed}, {mutations} mutations");
    let mut rng = Rng::new(seed);
    corpus.iter().for_each(|bytes| target(bytes));
    for _ in 0..mutations {
        let mut bytes = corpus[rng.below(corpus.len() as u64) as usize].clone();
        damage(&mut bytes, &mut rng);
        target(&bytes);
    }
}

pub(crate) fn messages(version: Version) -> Vec<Vec<u8>> {
    let unpack = |body: &Vec<u8>| snap::raw::Decoder::new().decompress_vec(body).expect("made here");
    corpus(version).iter().map(unpack).collect()
}

#[test]
fn bodies() {
    for version in [Version::V1, Version::V2] {
        run(|bytes| fuzz::remote_write_body(version, bytes), &corpus(version));
    }
}

#[test]
fn v1_messages() {
    run(|bytes| fuzz::remote_write_message(Version::V1, bytes), &messages(Version::V1));
}

#[test]
fn v2_messages() {
    run(|bytes| fuzz::remote_write_message(Version::V2, bytes), &messages(Version::V2));
}

#[test]
fn labels() {
    let up = Labels::from_pairs(&[("__name__", "up"), ("instance", "a:9100"), ("job", "node")]);
    let long = Labels::from_pairs(&[("__name__", "up"), ("l", &"x".repeat(300))]);
    run(fuzz::series_labels, &[up.as_bytes().to_vec(), long.as_bytes().to_vec()]);
}

#[test]
fn snappy() {
    let mut bodies = corpus(Version::V1);
    bodies.extend(corpus(Version::V2));
    run(fuzz::snappy_block, &bodies);
}
