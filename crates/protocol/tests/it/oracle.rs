//! Damaged messages: whatever prost still reads, we read, and find the same samples in it.

use crate::fuzz::{damage, messages};
use crate::proto::{pack, v1, v2};
use model::Batch;
use prost::Message;
use protocol::Fault;
use protocol::remote_write::{DecodeError, Decoder, Version};
use stdx::rng::Rng;

/// Times and values of all series that have any.
type Samples = Vec<(i64, u64)>;

fn prost_v1(message: &[u8]) -> Option<Samples> {
    let request = v1::WriteRequest::decode(message).ok()?;
    let samples = request.timeseries.iter().flat_map(|s| &s.samples);
    Some(samples.map(|s| (s.timestamp, s.value.to_bits())).collect())
}

/// Without those of series that are refused for themselves.
fn prost_v2(message: &[u8]) -> Option<Samples> {
    let request = v2::Request::decode(message).ok()?;
    let known = |r: &u32| (*r as usize) < request.symbols.len();
    let text = |r: &u32| *r == 0 || known(r);
    let good = |s: &&v2::TimeSeries| {
        let (help, unit) = s.metadata.as_ref().map_or((0, 0), |m| (m.help_ref, m.unit_ref));
        let labels = s.labels_refs.len().is_multiple_of(2) && s.labels_refs.iter().all(known);
        labels && text(&help) && text(&unit)
    };
    let samples = request.timeseries.iter().filter(good).flat_map(|s| &s.samples);
    Some(samples.map(|s| (s.timestamp, s.value.to_bits())).collect())
}

fn check(version: Version, message: &[u8], decoder: &mut Decoder, batch: &mut Batch) -> bool {
    let theirs = match version {
        Version::V1 => prost_v1(message),
        Version::V2 => prost_v2(message),
    };
    let Some(theirs) = theirs else { return false };
    match decoder.decode(version, &pack(message), batch) {
        Ok(()) => {
            let ours = batch.timestamps.iter().zip(&batch.values).map(|(t, v)| (*t, v.to_bits()));
            assert_eq!(ours.collect::<Samples>(), theirs, "{version:?} {message:x?}");
        }
        // prost skips groups, which we refuse
        Err(DecodeError::Wire(e)) if e.fault == Fault::WireType => {}
        // prost reads what a rule of the protocol forbids
        Err(DecodeError::FirstSymbol(_)) => {}
        Err(e) => panic!("prost reads it, we do not: {e}: {version:?} {message:x?}"),
    }
    true
}

#[test]
fn what_prost_reads_we_read() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    for version in [Version::V1, Version::V2] {
        let corpus = messages(version);
        let mut read = 0;
        for _ in 0..5000 {
            let mut message = corpus[rng.below(corpus.len() as u64) as usize].clone();
            damage(&mut message, &mut rng);
            read += usize::from(check(version, &message, &mut decoder, &mut batch));
        }
        println!("{version:?}: prost read {read} of 5000");
        assert!(read > 200, "the damage leaves nothing to compare");
    }
}
