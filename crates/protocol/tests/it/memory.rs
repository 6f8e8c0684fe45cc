//! Checks that a decoder reserves memory before it uses it, whatever a body contains.

use crate::proto::pack;
use model::{Batch, ErrorKind};
use protocol::remote_write::{Decoder, Version};
use protocol::{DecodeError, Decoder as _};
use stdx::budget::Account;

const MIB: u64 = 1 << 20;

/// Decodes with an account that is limited to `limit_bytes`. Returns the result and the largest number of
/// bytes that were reserved.
fn decode(version: Version, message: &[u8], limit_bytes: u64) -> (Result<Batch, DecodeError>, u64) {
    let account = Account::new("inflight", limit_bytes);
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    let mut memory = account.reserve(0).unwrap();
    let decoded = decoder.decode(crate::request(version, &pack(message)), &mut batch, &mut memory);
    assert_eq!(account.used_bytes(), memory.bytes());
    (decoded.map(|()| batch), account.peak_bytes())
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut len = value.len();
    while len >= 0x80 {
        field.push(len as u8 | 0x80);
        len >>= 7;
    }
    field.push(len as u8);
    field.extend(value);
    field
}

/// Messages whose decoded form needs much more memory than the messages themselves.
fn amplifiers() -> Vec<(&'static str, Version, Vec<u8>)> {
    let symbols = |texts: &[&str]| texts.iter().flat_map(|t| field(4, t.as_bytes())).collect::<Vec<_>>();
    let long = "x".repeat(15 << 10);
    let few = symbols(&["", "__name__", "m", "long", &long]);
    let labels = field(5, b"\x0a\x04\x01\x02\x03\x04\x12\x00");
    let mut metrics: Vec<String> = ["", "__name__", &long].map(String::from).to_vec();
    metrics.extend((0..20_000).map(|i| format!("m{i}")));
    let metrics: Vec<_> = metrics.iter().map(String::as_str).collect();
    let metadata: Vec<u8> = (3..20_003u32)
        .flat_map(|metric| {
            let metric =
                [metric as u8 & 0x7f | 0x80, (metric >> 7) as u8 & 0x7f | 0x80, (metric >> 14) as u8];
            field(5, &[b"\x0a\x04\x01", &metric[..], b"\x12\x00\x2a\x06\x08\x01\x18\x02\x20\x02"].concat())
        })
        .collect();
    let named = b"\x0a\x0d\x0a\x08__name__\x12\x01m";
    let exemplar = field(3, &field(1, &[&b"\x0a\x01a"[..], &field(2, b"b")].concat()));
    vec![
        ("long labels", Version::V2, [few.clone(), labels.repeat(20_000)].concat()),
        ("long metadata", Version::V2, [symbols(&metrics), metadata].concat()),
        ("symbols", Version::V2, b"\x22\x00".repeat(1_900_000)),
        ("empty samples", Version::V1, field(1, &[&named[..], &b"\x12\x00".repeat(1_900_000)].concat())),
        ("empty samples", Version::V2, [few, field(5, &b"\x12\x00".repeat(1_900_000))].concat()),
        ("exemplars", Version::V1, field(1, &[&named[..], &exemplar.repeat(200_000)].concat())),
        ("metadata", Version::V1, field(3, b"\x12\x01m").repeat(240_000)),
        ("labels in pieces", Version::V1, field(1, &[&b"\x12\x00"[..], named].concat().repeat(200_000))),
    ]
}

#[test]
fn decoding_ends_when_memory_cannot_be_reserved() {
    for (what, version, message) in amplifiers() {
        let (decoded, peak) = decode(version, &message, 8 * MIB);
        let error = decoded.expect_err(what);
        assert!(matches!(error, DecodeError::Memory(full) if full.is_for_good()), "{what}: {error}");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(peak <= 8 * MIB);
    }
}

#[test]
fn decoded_batches_are_within_their_reservation() {
    for (what, version, message) in amplifiers() {
        let (decoded, peak) = decode(version, &message, 1 << 40);
        match decoded {
            Ok(batch) => assert!(batch.memory_bytes() as u64 <= peak, "{what}: {peak} bytes reserved"),
            Err(error) => assert!(matches!(error, DecodeError::TooMany { .. }), "{what}: {error}"),
        }
        eprintln!("{what} {version:?}: {} KiB become {} KiB", message.len() >> 10, peak >> 10);
    }
}

#[test]
fn memory_held_by_others_makes_the_error_retryable() {
    let (_, version, message) = amplifiers().swap_remove(0);
    let account = Account::new("inflight", 1 << 30);
    let _others = account.reserve((1 << 30) - 8 * MIB).unwrap();
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    let mut memory = account.reserve(0).unwrap();
    let error =
        decoder.decode(crate::request(version, &pack(&message)), &mut batch, &mut memory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[test]
fn a_warm_decoder_reserves_nothing() {
    let message = [field(1, b"\x0a\x0d\x0a\x08__name__\x12\x01m\x12\x02\x10\x05")].concat().repeat(1_000);
    let body = pack(&message);
    let account = Account::new("inflight", MIB);
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    decoder.decode(crate::request(Version::V1, &body), &mut batch, &mut account.reserve(0).unwrap()).unwrap();
    let mut memory = account.reserve(7).unwrap();
    decoder.decode(crate::request(Version::V1, &body), &mut batch, &mut memory).unwrap();
    assert_eq!((memory.bytes(), batch.floats.series.len()), (7, 1_000));
}
