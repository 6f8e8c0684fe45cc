use super::*;
use crate::encode::tsdb::{BlockChunk, BlockEncoder, BlockFiles};
use model::{Labels, STALE_NAN_BITS, Samples, SeriesRefusal, TimeRange};
use proptest::prelude::*;

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn labels(i: usize) -> Labels {
    Labels::from_pairs(&[("__name__", "m"), ("i", &format!("{i:05}")), ("job", "x")])
}

/// Reads all series of a block with their samples, including those that tombstones delete.
fn walk(files: &BlockFiles) -> Result<Vec<(SeriesEntry, Samples)>, TsdbError> {
    let mut index = Index::open(files.index.as_slice())?;
    let mut chunks = Chunks::open(vec![files.chunks.as_slice()])?;
    let mut all = Vec::new();
    loop {
        let mut entry = SeriesEntry::default();
        if !index.next(&mut entry)? {
            return Ok(all);
        }
        let mut samples = Samples::default();
        for chunk in &entry.chunks {
            if let Chunk::Floats(data) = chunks.get(chunk.reference)? {
                xor::decode(data, &mut samples).expect("a chunk written by the encoder is valid");
            }
        }
        all.push((entry, samples));
    }
}

#[test]
fn a_block_round_trips_in_both_versions() {
    for version in [1, 2] {
        let mut block = BlockEncoder::new(version);
        // there are enough symbols for the index to keep the positions of several, because it keeps every
        // 32nd
        for i in 0..500 {
            let times: Vec<i64> = (0..7).map(|k| 1_000 + i as i64 + k * 15_000).collect();
            let mut values: Vec<f64> = (0..7).map(|k| k as f64 * 0.1 + i as f64).collect();
            values[6] = f64::from_bits(STALE_NAN_BITS);
            let (a, b) = (
                BlockChunk::Floats(&times[..4], &values[..4]),
                BlockChunk::Floats(&times[4..], &values[4..]),
            );
            block.series(labels(i).as_ref(), &[a, b]);
        }
        block.delete(TimeRange::new(5, 70_000));
        let files = block.finish(ULID);
        let all = walk(&files).unwrap();
        assert_eq!(all.len(), 500, "version {version}");
        for (i, (entry, samples)) in all.iter().enumerate() {
            assert_eq!(entry.labels, Some(Ok(labels(i))));
            assert_eq!(samples.len(), 7);
            assert_eq!(samples.timestamps[6], 1_000 + i as i64 + 90_000);
            assert_eq!(samples.values[6].to_bits(), STALE_NAN_BITS);
            assert_eq!(
                (entry.chunks[1].min_time_ms, entry.chunks[1].max_time_ms),
                (samples.timestamps[4], samples.timestamps[6])
            );
        }
        let stones = Tombstones::parse(&files.tombstones).unwrap();
        assert_eq!(stones.series(), 1);
        assert_eq!(stones.of(all[499].0.reference), [TimeRange::new(5, 70_000)]);
        let meta = BlockMeta::parse(&files.meta).unwrap();
        assert_eq!((meta.ulid.as_str(), meta.series, meta.samples), (ULID, 500, 3500));
        assert_eq!((meta.min_time_ms, meta.max_time_ms), (1_000, 91_500));
    }
}

#[test]
fn chunks_of_other_encodings_are_reported() {
    let mut block = BlockEncoder::new(2);
    let histogram = BlockChunk::Other(2, &[0, 17, 9, 9], TimeRange::new(3, 4));
    block.series(labels(0).as_ref(), &[histogram]);
    let files = block.finish(ULID);
    let mut chunks = Chunks::open(vec![files.chunks.as_slice()]).unwrap();
    assert_eq!(chunks.get(8).unwrap(), Chunk::Other { encoding: 2, samples: 17 });
    for wrong in [0, 7, 9, 500, 1 << 32, u64::MAX] {
        assert!(chunks.get(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn series_that_cannot_be_stored_are_passed_over() {
    let mut block = BlockEncoder::new(2);
    let long = "v".repeat(20 << 10);
    let any = BlockChunk::Floats(&[1], &[1.0]);
    let canonical = |pairs: &[(&str, &str)]| {
        let mut bytes = Vec::new();
        pairs.iter().for_each(|(n, v)| model::labels::put_label(&mut bytes, n.as_bytes(), v.as_bytes()));
        bytes
    };
    let (too_long, nameless) = (canonical(&[("__name__", "m"), ("a", &long)]), canonical(&[("a", "b")]));
    block.series(model::LabelsRef::from_canonical(&too_long), std::slice::from_ref(&any));
    block.series(model::LabelsRef::from_canonical(&nameless), std::slice::from_ref(&any));
    let names: Vec<_> = (0..3000).map(|i| format!("l{i:04}")).collect();
    let pairs: Vec<_> =
        [("__name__", "m")].into_iter().chain(names.iter().map(|n| (n.as_str(), "x"))).collect();
    let many = canonical(&pairs);
    block.series(model::LabelsRef::from_canonical(&many), std::slice::from_ref(&any));
    block.series(labels(3).as_ref(), &[any]);
    let all = walk(&block.finish(ULID)).unwrap();
    let found: Vec<_> = all.into_iter().map(|(e, _)| e.labels.unwrap()).collect();
    assert_eq!(found[0], Err(SeriesRefusal::LabelValueTooLong("a".into(), 20 << 10)));
    assert_eq!(found[1], Err(SeriesRefusal::NoName));
    assert_eq!(found[2], Err(SeriesRefusal::TooManyLabels(3001)));
    assert_eq!(found[3], Ok(labels(3)));
}

#[test]
fn a_chunk_as_the_format_describes_it() {
    // the chunk has 3 samples: t = 1000, 1060 and 1120, each with value 1.0
    let mut data = vec![0, 3, 0xd0, 0x0f];
    data.extend(1f64.to_bits().to_be_bytes());
    data.push(60);
    // three zero bits: the value is unchanged, the distance is unchanged, the value is unchanged
    data.push(0);
    let mut samples = Samples::default();
    assert_eq!(xor::decode(&data, &mut samples), Some(()));
    assert_eq!((samples.timestamps, samples.values), (vec![1000, 1060, 1120], vec![1.0; 3]));
    assert_eq!(xor::decode(&data[..data.len() - 1], &mut Samples::default()), None);
    assert_eq!(xor::encode(&[1000, 1060, 1120], &[1.0; 3]), data);
}

#[test]
fn refuses_other_versions_and_damage() {
    let mut block = BlockEncoder::new(2);
    block.series(labels(0).as_ref(), &[BlockChunk::Floats(&[1, 2], &[1.0, 2.0])]);
    let files = block.finish(ULID);
    assert!(walk(&files).is_ok());
    let mut newer = files.clone();
    newer.index[4] = 3;
    assert!(matches!(walk(&newer), Err(TsdbError::Version { found: 3, .. })));
    for at in 0..files.index.len() {
        for cut in [true, false] {
            let mut bad = files.clone();
            if cut {
                bad.index.truncate(at);
            } else {
                bad.index[at] ^= 0x10;
            }
            // padding may be damaged without an error, because no checksum covers it
            let padding = !cut && files.index[at] == 0;
            assert!(walk(&bad).is_err() || padding, "byte {at}, cut: {cut}");
        }
    }
    for at in 0..files.tombstones.len() {
        let mut bad = files.tombstones.clone();
        bad[at] ^= 1;
        assert!(Tombstones::parse(&bad).is_err(), "byte {at}");
    }
    let meta = |from: &str, to: &str| {
        let text = String::from_utf8(files.meta.clone()).unwrap();
        BlockMeta::parse(text.replace(from, to).as_bytes()).unwrap_err().to_string()
    };
    assert!(meta("\"version\": 1", "\"version\": 2").contains("version 2"));
    assert!(meta(ULID, "../../etc").contains("not a ULID"));
    assert!(meta("\"minTime\": 1", "\"minTime\": 9").contains("is before minTime 9"));
    assert!(meta("\"stats\"", "stats").contains("expected a string"));
}

proptest! {
    #[test]
    fn floats_round_trip(samples in prop::collection::vec((any::<i64>(), any::<u64>()), 1..300)) {
        let times: Vec<i64> = samples.iter().map(|s| s.0).collect();
        let values: Vec<f64> = samples.iter().map(|s| f64::from_bits(s.1)).collect();
        check_chunk(&times, &values)?;
    }

    #[test]
    fn regular_floats_round_trip(
        start in 0i64..1 << 41,
        steps in prop::collection::vec((-70_000i64..70_000, 0u8..4, any::<u16>()), 1..300),
    ) {
        let (mut t, mut times, mut values) = (start, Vec::new(), Vec::new());
        for (jitter, kind, n) in steps {
            t += 15_000 + if kind == 0 { jitter } else { jitter % 8 };
            times.push(t);
            values.push(match kind { 0 => 1.0, 1 => f64::from(n), 2 => f64::from(n) / 10.0, _ => f64::from(n) * 1e100 });
        }
        check_chunk(&times, &values)?;
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = xor::decode(&bytes, &mut Samples::default());
        let _ = Tombstones::parse(&bytes);
        let _ = BlockMeta::parse(&bytes);
        let files = BlockFiles { index: bytes.clone(), chunks: bytes, ..BlockFiles::default() };
        let _ = walk(&files);
    }
}

fn check_chunk(times: &[i64], values: &[f64]) -> Result<(), TestCaseError> {
    let mut read = Samples::default();
    prop_assert_eq!(xor::decode(&xor::encode(times, values), &mut read), Some(()));
    prop_assert_eq!(&read.timestamps, times);
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    prop_assert_eq!(bits(&read.values), bits(values));
    Ok(())
}

#[test]
fn the_fuzz_target_on_damaged_blocks() {
    let mut rng = stdx::rng::Rng::announced();
    let mut block = BlockEncoder::new(2);
    for i in 0..40 {
        block.series(labels(i).as_ref(), &[BlockChunk::Floats(&[1, 2, 30], &[1.0, 2.0, 2.0])]);
    }
    let files = block.finish(ULID);
    for i in 0..stdx::damage::mutations(3_000) {
        let mut bytes = match i % 4 {
            0 => files.index.clone(),
            1 => files.chunks.clone(),
            2 => files.tombstones.clone(),
            _ => files.meta.clone(),
        };
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        fuzz::block_files(&bytes);
        // random symbols and entries, but with valid checksums and mostly small lengths
        let mut content: Vec<u8> =
            (0..rng.below(200)).map(|_| (rng.next_u64() >> rng.below(64)) as u8).collect();
        content.extend_from_slice(&bytes[..bytes.len().min(rng.below(300) as usize)]);
        fuzz::block_contents(&content);
    }
}

proptest! {
    #[test]
    fn any_contents(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz::block_contents(&bytes);
    }
}
