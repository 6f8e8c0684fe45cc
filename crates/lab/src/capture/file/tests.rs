use super::conceal::{Conceal, Concealer};
use super::request::Parsed;
use super::*;
use crate::generate::protocol::Protocol;
use protocol::encode::{V1Encoder, V2Encoder};
use std::io::Cursor;
use stdx::rng::Rng;

const STARTED_MS: i64 = 1_795_284_000_000;

type Sample = (i64, u64);

type Wanted = Vec<(model::Labels, Vec<Sample>)>;

type WantedRequest = (i64, Protocol, String, Wanted);

fn body(message: Protocol, wanted: &Wanted) -> Vec<u8> {
    let (mut v1, mut v2) = (V1Encoder::new(), V2Encoder::new());
    for (labels, samples) in wanted {
        let times: Vec<i64> = samples.iter().map(|s| s.0).collect();
        let values: Vec<f64> = samples.iter().map(|s| f64::from_bits(s.1)).collect();
        v1.series(labels.as_ref(), &times, &values);
        v2.series(labels.as_ref(), &times, &values);
    }
    match message {
        Protocol::V1 => v1.finish().to_vec(),
        Protocol::V2 => v2.finish().to_vec(),
        _ => panic!("no remote write"),
    }
}

fn plain() -> Concealer {
    Concealer::new(Conceal::default(), [0; 16])
}

fn writer(series_max: usize) -> Writer<Cursor<Vec<u8>>> {
    let writer = Writer::begin(Cursor::new(Vec::new()), STARTED_MS, plain()).unwrap();
    writer.with_series_max(series_max)
}

impl Writer<Cursor<Vec<u8>>> {
    fn into_bytes(mut self) -> Vec<u8> {
        self.flush().unwrap();
        self.into_file().into_inner()
    }
}

fn read_all(bytes: &[u8]) -> (Vec<WantedRequest>, Ending) {
    let mut reader = Reader::open(bytes).unwrap();
    let mut series: Vec<model::Labels> = Vec::new();
    let mut requests: Vec<WantedRequest> = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        match event {
            Event::Forget => series.clear(),
            Event::Series(labels) => series.push(model::LabelsRef::from_canonical(&labels).to_owned()),
            Event::Gap(..) => {}
            Event::Request(RequestEvent { arrival_us, message, tenant, items }) => {
                let key = (arrival_us, message, tenant.to_string());
                if requests.last().is_none_or(|(a, m, t, _)| (*a, *m, t) != (key.0, key.1, &key.2)) {
                    requests.push((key.0, key.1, key.2, Vec::new()));
                }
                let into = &mut requests.last_mut().unwrap().3;
                for item in items {
                    let labels = series[item.series as usize].clone();
                    match into.last_mut() {
                        Some((last, samples)) if *last == labels => samples.extend(item.samples),
                        _ => into.push((labels, item.samples)),
                    }
                }
            }
        }
    }
    (requests, reader.ending().unwrap().clone())
}

fn random_request(rng: &mut Rng, second: i64, series: u64) -> Wanted {
    let count = rng.below(series) + 1;
    let mut numbers: Vec<u64> = (0..count).map(|_| rng.below(series)).collect();
    numbers.dedup();
    let sample = |rng: &mut Rng, i: u64| {
        let bits = match rng.below(4) {
            0 => rng.next_u64(),
            1 => model::STALE_NAN_BITS,
            2 => (second as f64 * 3.0).to_bits(),
            _ => (rng.unit() * 100.0).to_bits(),
        };
        (STARTED_MS + second * 1000 + i as i64 * 17 - rng.below(5_000) as i64, bits)
    };
    let one = |n: u64, rng: &mut Rng| {
        let labels = [("__name__", "m"), ("number", &n.to_string()), ("job", "a \"b\"\n<c>")];
        let samples = (0..rng.below(3) + 1).map(|i| sample(rng, i)).collect();
        (model::Labels::from_pairs(&labels), samples)
    };
    numbers.into_iter().map(|n| one(n, rng)).collect()
}

fn sample_recording(seed: u64, requests: i64, series_max: usize) -> (Vec<u8>, Vec<WantedRequest>) {
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut writer = writer(series_max);
    let mut parsed = Parsed::default();
    let mut wanted = Vec::new();
    for second in 0..requests {
        let request = random_request(&mut rng, second, 40);
        let message = if rng.chance(0.5) { Protocol::V1 } else { Protocol::V2 };
        let tenant = ["", "a", "b"][rng.below(3) as usize].to_owned();
        let arrival_us = second * 1_000_000 + rng.below(3_000_000) as i64;
        parsed.read(message, &body(message, &request)).unwrap();
        let done = writer.append(arrival_us, message, &tenant, &parsed).unwrap();
        assert_eq!(done.samples as usize, request.iter().map(|(_, s)| s.len()).sum::<usize>());
        if rng.chance(0.2) {
            writer.flush().unwrap();
        }
        wanted.push((arrival_us, message, tenant, request));
    }
    (writer.into_bytes(), wanted)
}

#[test]
fn what_was_recorded_is_read_back_bit_by_bit() {
    for seed in 0..20 {
        let (bytes, wanted) = sample_recording(seed, 60, DICTIONARY_SERIES_MAX);
        assert_eq!(read_all(&bytes), (wanted, Ending::Whole));
    }
}

#[test]
fn a_full_dictionary_begins_another() {
    let (bytes, wanted) = sample_recording(7, 60, 10);
    assert_eq!(read_all(&bytes), (wanted, Ending::Whole));
}

#[test]
fn large_requests_span_blocks() {
    let labels = |n: usize| model::Labels::from_pairs(&[("__name__", "m"), ("n", &n.to_string())]);
    let mut rng = Rng::new(1);
    let mut many = |n: i64| (0..n).map(|i| (STARTED_MS + i, rng.next_u64())).collect::<Vec<_>>();
    let request: Wanted = vec![(labels(0), many(200_000)), (labels(1), many(1)), (labels(2), many(100_000))];
    let mut parsed = Parsed::default();
    parsed.read(Protocol::V1, &body(Protocol::V1, &request)).unwrap();
    let mut writer = writer(DICTIONARY_SERIES_MAX);
    writer.append(5, Protocol::V1, "", &parsed).unwrap();
    let bytes = writer.into_bytes();
    assert!(bytes.len() > 2 * BLOCK_BYTES);
    assert_eq!(read_all(&bytes), (vec![(5, Protocol::V1, String::new(), request)], Ending::Whole));
}

#[test]
fn steady_traffic_takes_few_bytes_a_sample() {
    let mut writer = writer(DICTIONARY_SERIES_MAX);
    let mut parsed = Parsed::default();
    for round in 0..40 {
        let request: Wanted = (0..500)
            .map(|n| {
                let labels = [("__name__", "http_requests_total"), ("instance", &format!("host-{n}:9100"))];
                let value = (round as f64 * 7.0 + n as f64).to_bits();
                (model::Labels::from_pairs(&labels), vec![(STARTED_MS + round * 15_000, value)])
            })
            .collect();
        parsed.read(Protocol::V1, &body(Protocol::V1, &request)).unwrap();
        writer.append(round * 15_000_000, Protocol::V1, "", &parsed).unwrap();
    }
    let bytes = writer.into_bytes();
    assert!(bytes.len() < 20_000 * 2, "{} bytes for 20,000 samples", bytes.len());
}

#[test]
fn a_torn_tail_is_cut_and_damage_ends_the_reading() {
    let (bytes, wanted) = sample_recording(3, 7, DICTIONARY_SERIES_MAX);
    for cut in HEADER_BYTES..bytes.len() {
        let (read, ending) = read_all(&bytes[..cut]);
        assert!(
            wanted.starts_with(&read) || read.len() <= wanted.len(),
            "wrong content after a cut at {cut}"
        );
        for (got, put) in read.iter().zip(&wanted) {
            assert!(put.3.starts_with(&got.3), "cut at {cut}");
        }
        assert!(!matches!(ending, Ending::Damaged { .. }), "cut at {cut}: {ending:?}");
    }
    for cut in 0..HEADER_BYTES {
        assert!(Reader::open(&bytes[..cut]).is_err());
    }
    let zeros = [bytes.as_slice(), &[0; 4096]].concat();
    assert_eq!(read_all(&zeros), (wanted.clone(), Ending::Torn { at: bytes.len() as u64 }));
    for at in HEADER_BYTES..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        let (read, ending) = read_all(&flipped);
        assert!(wanted.starts_with(&read), "flipped at {at}");
        assert_ne!(ending, Ending::Whole, "flipped at {at}");
    }
}

#[test]
fn other_files_are_refused() {
    let (bytes, _) = sample_recording(3, 1, DICTIONARY_SERIES_MAX);
    let refused = |change: fn(&mut Vec<u8>), why: &str| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        let said = format!("{:#}", Reader::open(bytes.as_slice()).unwrap_err());
        assert!(said.contains(why), "{said}");
    };
    refused(|b| b[0] = b'X', "FLDMKREC");
    refused(|b| b[13] ^= 1, "damaged");
    refused(|b| b.clear(), "no header");
    let later = |b: &mut Vec<u8>| {
        b[8] = 5;
        let crc = crc32c::crc32c(&b[..HEADER_BYTES - 4]);
        b[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    };
    refused(later, "format version 5");
}

/// A recording with one block, whose header and checksum are valid whatever `block` contains.
fn around(block: &[u8]) -> Vec<u8> {
    let mut bytes = writer(DICTIONARY_SERIES_MAX).into_file().into_inner();
    let payload = lz4_flex::block::compress(block);
    let mut head = Vec::new();
    head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    head.extend_from_slice(&(block.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &payload);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

#[test]
fn hostile_entries_are_damage_and_nothing_worse() {
    let seed = 11;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..20_000 {
        let len = rng.below(40) as usize + 1;
        // small numbers are more likely to be valid kinds and lengths, so that more of the reader is tested
        let block: Vec<u8> = (0..len).map(|_| (rng.next_u64() >> (56 + rng.below(7))) as u8).collect();
        read_all(&around(&block));
    }
    for block in [
        &[kind::REQUEST as u8, 0, 0, 0][..],
        &[kind::STREAM as u8, 1, 0, kind::REQUEST as u8, 0, 0, 255, 255, 255, 255, 15],
        &[kind::STREAM as u8, 13, 0],
        &[kind::SERIES as u8, 1, 0],
        &[9],
    ] {
        assert!(matches!(read_all(&around(block)).1, Ending::Damaged { .. }), "{block:?}");
    }
}

#[test]
fn native_histograms_keep_everything_but_their_time() {
    // TimeSeries { labels: {__name__="m"}, histograms: [ { sum(3): 1.5, timestamp(15): 7, field 9: "ab" } ] }
    let mut histogram = vec![0x19];
    histogram.extend_from_slice(&1.5f64.to_le_bytes());
    let kept = [histogram.as_slice(), &[0x4a, 2, b'a', b'b']].concat();
    histogram.extend_from_slice(&[0x78, 7, 0x4a, 2, b'a', b'b', 0x88, 1, 3]);
    let labels = model::Labels::from_pairs(&[("__name__", "m")]);
    let mut series = labels.as_bytes().to_vec();
    series.extend_from_slice(&[0x22, histogram.len() as u8]);
    series.extend_from_slice(&histogram);
    let mut message = vec![0x0a, series.len() as u8];
    message.extend_from_slice(&series);
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();

    let mut parsed = Parsed::default();
    parsed.read(Protocol::V1, &body).unwrap();
    let mut writer = writer(DICTIONARY_SERIES_MAX);
    assert_eq!(writer.append(0, Protocol::V1, "", &parsed).unwrap().samples, 1);
    let bytes = writer.into_bytes();
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    let mut found = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        if let Event::Request(request) = event {
            found.extend(request.items.into_iter().flat_map(|item| item.histograms));
        }
    }
    assert_eq!(found, [(7, kept)]);
}

#[test]
fn broken_bodies_are_errors_and_bad_series_are_left_out() {
    let mut parsed = Parsed::default();
    assert!(parsed.read(Protocol::V1, b"").is_err());
    assert!(parsed.read(Protocol::V1, &[0xff; 20]).is_err());
    let compress = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
    assert!(parsed.read(Protocol::V1, &compress(&[0x0a, 5, 1])).is_err());
    assert!(parsed.read(Protocol::V2, &compress(&[0x2a, 2, 0x0a, 0x80])).is_err());
    assert!(
        parsed.read(Protocol::V2, &compress(&[0x2a, 4, 0x0a, 2, 1, 1])).is_err(),
        "a body without symbols was accepted"
    );
    let mut rng = Rng::new(5);
    for _ in 0..5_000 {
        let bytes: Vec<u8> =
            (0..rng.below(60)).map(|_| (rng.next_u64() >> (56 + rng.below(6))) as u8).collect();
        for message in [Protocol::V1, Protocol::V2] {
            parsed.read(message, &compress(&bytes)).ok();
            writer(10).append(0, message, "", &parsed).unwrap();
        }
    }
    // a series without a name is left out, and a label that is not UTF-8 makes the whole body invalid
    let nameless = [0x0a, 2, 0x12, 0];
    let not_text = [0x0a, 9, 0x0a, 5, 0x0a, 1, b'a', 0x12, 1, 0xff];
    parsed.read(Protocol::V1, &compress(&nameless)).unwrap();
    assert_eq!(writer(10).append(0, Protocol::V1, "", &parsed).unwrap().series_refused, 1);
    assert!(parsed.read(Protocol::V1, &compress(&not_text)).is_err());
}

#[test]
fn concealed_recordings_hold_no_text_of_labels() {
    let what = Conceal { values: true, metrics: true, labels: true };
    let mut writer =
        Writer::begin(Cursor::new(Vec::new()), STARTED_MS, Concealer::new(what, [3; 16])).unwrap();
    let labels = model::Labels::from_pairs(&[("__name__", "secretmetric"), ("secretname", "secretvalue")]);
    let mut parsed = Parsed::default();
    parsed.read(Protocol::V2, &body(Protocol::V2, &vec![(labels, vec![(STARTED_MS, 0)])])).unwrap();
    writer.append(0, Protocol::V2, "secrettenant", &parsed).unwrap();
    let bytes = writer.into_bytes();
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    assert_eq!(reader.header().concealed, what);
    let mut texts = String::new();
    while let Some(event) = reader.next().unwrap() {
        texts += &format!("{event:?}");
        if let Event::Series(labels) = event {
            texts += &format!("{:?}", model::LabelsRef::from_canonical(&labels));
        }
    }
    assert!(texts.contains("tenant: \"t") && !texts.contains("secret"), "{texts}");
}

#[test]
fn a_repaired_recording_continues_after_the_last_complete_block() {
    let (bytes, _) = sample_recording(1, 1, DICTIONARY_SERIES_MAX);
    let mut writer = writer(DICTIONARY_SERIES_MAX);
    let mut parsed = Parsed::default();
    let request = random_request(&mut Rng::new(4), 1, 9);
    parsed.read(Protocol::V1, &body(Protocol::V1, &request)).unwrap();
    writer.append(1_000, Protocol::V1, "", &parsed).unwrap();
    writer.flush().unwrap();
    // half a block reached the disk
    writer.file_mut().get_mut().extend_from_slice(&bytes[HEADER_BYTES..bytes.len() - 3]);
    let cut = |file: &mut Cursor<Vec<u8>>, len: u64| {
        file.get_mut().truncate(len as usize);
        Ok(())
    };
    writer.repair(cut).unwrap();
    writer.gap(3, 999);
    writer.append(2_000, Protocol::V1, "", &parsed).unwrap();
    let wanted = |arrival| (arrival, Protocol::V1, String::new(), request.clone());
    assert_eq!(read_all(&writer.into_bytes()), (vec![wanted(1_000), wanted(2_000)], Ending::Whole));
}
