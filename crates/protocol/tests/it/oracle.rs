//! Decodes damaged messages with our decoder and with prost. Ours must accept what prost accepts, and find
//! the same series.

use crate::fuzz::messages;
use crate::proto::{pack, v1, v2};
use model::{Batch, Labels, LabelsBuilder};
use prost::Message;
use protocol::labels::labels_of;
use protocol::remote_write::{Decoder, Version};
use protocol::{DecodeError, Decoder as _, Fault};
use stdx::damage::{damage, mutations};
use stdx::rng::Rng;

/// The series that have samples: their labels (`None` if invalid), and their timestamps and value bits.
type Request = Vec<(Option<Labels>, Vec<(i64, u64)>)>;

fn labels<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Option<Labels> {
    let mut builder = LabelsBuilder::new();
    pairs.for_each(|(name, value)| builder.push(name, value));
    builder.build_series().ok()
}

fn prost_v1(message: &[u8]) -> Option<Request> {
    let request = v1::WriteRequest::decode(message).ok()?;
    let series = request.timeseries.iter().filter(|s| !s.samples.is_empty());
    let series = series.map(|s| {
        let samples = s.samples.iter().map(|s| (s.timestamp, s.value.to_bits())).collect();
        (labels(s.labels.iter().map(|l| (&l.name, &l.value))), samples)
    });
    Some(series.collect())
}

/// Decodes with prost, and drops the series whose references are invalid.
fn prost_v2(message: &[u8]) -> Option<Request> {
    let request = v2::Request::decode(message).ok()?;
    let known = |r: &u32| (*r as usize) < request.symbols.len();
    let text = |r: &u32| *r == 0 || known(r);
    let good = |s: &&v2::TimeSeries| {
        let (help, unit) = s.metadata.as_ref().map_or((0, 0), |m| (m.help_ref, m.unit_ref));
        let labels = s.labels_refs.len().is_multiple_of(2) && s.labels_refs.iter().all(known);
        labels && text(&help) && text(&unit) && !s.samples.is_empty()
    };
    let symbol = |r: u32| &request.symbols[r as usize];
    let series = request.timeseries.iter().filter(good).map(|s| {
        let samples = s.samples.iter().map(|s| (s.timestamp, s.value.to_bits())).collect();
        let pairs = s.labels_refs.chunks_exact(2).map(|pair| (symbol(pair[0]), symbol(pair[1])));
        (labels(pairs), samples)
    });
    Some(series.collect())
}

fn ours(batch: &Batch) -> Request {
    let mut builder = LabelsBuilder::new();
    let series = batch.floats.series.iter().filter(|s| !s.samples.is_empty()).map(|s| {
        let samples = s.samples.clone().map(|i| i as usize);
        let samples =
            samples.map(|i| (batch.floats.timestamps[i], batch.floats.values[i].to_bits())).collect();
        (labels_of(batch.label_bytes(s), &mut builder).ok(), samples)
    });
    series.collect()
}

fn check(version: Version, message: &[u8], decoder: &mut Decoder, batch: &mut Batch) -> bool {
    let theirs = match version {
        Version::V1 => prost_v1(message),
        Version::V2 => prost_v2(message),
    };
    let Some(theirs) = theirs else { return false };
    match decoder.decode(crate::request(version, &pack(message)), batch, &mut crate::plenty()) {
        Ok(()) => assert_eq!(ours(batch), theirs, "{version:?} {message:x?}"),
        // prost skips groups, but our decoder refuses them
        Err(DecodeError::Wire(e)) if e.fault == Fault::WireType => {}
        // prost does not check this rule of the protocol
        Err(DecodeError::FirstSymbol(_)) => {}
        // prost accepts a message whose fields are all unknown, and finds no series in it
        Err(DecodeError::OtherMessage { .. }) => assert!(theirs.is_empty(), "{message:x?}"),
        Err(e) => panic!("only prost accepts it: {e}: {version:?} {message:x?}"),
    }
    true
}

#[test]
fn our_decoder_agrees_with_prost() {
    let mut rng = Rng::announced();
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    for version in [Version::V1, Version::V2] {
        let corpus = messages(version);
        let mut read = 0;
        let mutations = mutations(5000);
        for _ in 0..mutations {
            let mut message = corpus[rng.below(corpus.len() as u64) as usize].clone();
            damage(&mut message, &mut rng);
            read += usize::from(check(version, &message, &mut decoder, &mut batch));
        }
        println!("{version:?}: prost read {read} of {mutations}");
        assert!(read > 100, "prost accepts too few of the damaged messages");
    }
}
