use super::*;
use model::ErrorKind;
use std::io::Write;
use stdx::budget::Account;

const ENCODINGS: [Encoding; 4] = [Encoding::Identity, Encoding::Snappy, Encoding::Zstd, Encoding::Gzip];

fn compressed(encoding: Encoding, text: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Identity => text.to_vec(),
        Encoding::Snappy => snap::raw::Encoder::new().compress_vec(text).unwrap(),
        Encoding::Zstd => zstd::bulk::compress(text, 3).unwrap(),
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
    }
}

fn zstd_stream(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Decompresses with an account that is limited to `limit_bytes`. Returns the result and the largest number
/// of bytes that were reserved.
fn decompress(encoding: Encoding, bytes: &[u8], limit_bytes: u64) -> (Result<Vec<u8>, DecodeError>, u64) {
    let account = Account::new("inflight", limit_bytes);
    let mut memory = account.reserve(0).unwrap();
    let mut out = Vec::new();
    let decompressed =
        Body { encoding, bytes }.decompress(&mut out, &mut IncrementalReservation::new(&mut memory));
    assert!(
        decompressed.is_err() || memory.bytes() >= out.capacity() as u64,
        "the output has more memory than was reserved"
    );
    (decompressed.map(|()| out), account.peak_bytes())
}

fn text(len: usize) -> Vec<u8> {
    (0..len as u32)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> (i % 29)).to_le_bytes())
        .take(len)
        .collect()
}

#[test]
fn bodies_round_trip_in_each_encoding() {
    for len in [0, 1, 100, 70_000, 3 << 20] {
        let text = text(len);
        for encoding in ENCODINGS {
            let body = compressed(encoding, &text);
            assert!(decompress(encoding, &body, u64::MAX).0.unwrap() == text, "{encoding:?}, {len} bytes");
        }
        let whole = |bytes: &[u8]| decompress(Encoding::Zstd, bytes, u64::MAX).0.unwrap() == text;
        assert!(whole(&zstd_stream(&text)), "size not declared");
        let (a, b) = text.split_at(len / 3);
        let members = [compressed(Encoding::Gzip, a), compressed(Encoding::Gzip, b)].concat();
        assert!(decompress(Encoding::Gzip, &members, u64::MAX).0.unwrap() == text, "two members");
    }
}

/// A tiny frame can cost much more memory than it has bytes, so a body must be a single frame. Senders of
/// metrics write only one.
#[test]
fn zstd_bodies_of_several_frames_are_refused() {
    for first in [compressed(Encoding::Zstd, &text(1000)), zstd_stream(&text(1000))] {
        let body = [first, compressed(Encoding::Zstd, b"1")].concat();
        let error = decompress(Encoding::Zstd, &body, u64::MAX).0.unwrap_err();
        assert!(error.to_string().contains("more than one frame"), "{error}");
    }
}

/// Bodies that expand to 65 MiB are refused because of the limit on bodies. Bodies that expand to 40 MiB are
/// refused because the account is smaller.
#[test]
fn decompression_bombs_take_no_more_than_the_account() {
    const MIB: u64 = 1 << 20;
    let bomb = vec![0; 65 * MIB as usize];
    let bodies = [
        (Encoding::Snappy, compressed(Encoding::Snappy, &bomb)),
        (Encoding::Zstd, compressed(Encoding::Zstd, &bomb)),
        (Encoding::Zstd, zstd_stream(&bomb)),
        (Encoding::Gzip, compressed(Encoding::Gzip, &bomb)),
    ];
    for (encoding, body) in &bodies {
        assert!(body.len() < 5 * MIB as usize, "{encoding:?}: {} bytes", body.len());
        let (refused, _) = decompress(*encoding, body, u64::MAX);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, DecodeError::DecodedTooLarge(_)), "{encoding:?}: {refused}");
        assert_eq!(refused.kind(), ErrorKind::TooLarge);
    }
    let bomb = &bomb[..40 * MIB as usize];
    let bodies = [
        (Encoding::Snappy, compressed(Encoding::Snappy, bomb)),
        (Encoding::Zstd, compressed(Encoding::Zstd, bomb)),
        (Encoding::Zstd, zstd_stream(bomb)),
        (Encoding::Gzip, compressed(Encoding::Gzip, bomb)),
    ];
    for (encoding, body) in &bodies {
        let (refused, peak_bytes) = decompress(*encoding, body, 6 * MIB);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, DecodeError::Memory(_)), "{encoding:?}: {refused}");
        assert!(peak_bytes <= 6 * MIB, "{encoding:?}: {peak_bytes} bytes");
    }
}

#[test]
fn damaged_bodies_are_invalid() {
    let text = text(100_000);
    for encoding in [Encoding::Snappy, Encoding::Zstd, Encoding::Gzip] {
        let good = compressed(encoding, &text);
        for bad in [&b""[..], b"no such thing", &good[..good.len() / 2], &good[1..]] {
            let refused = decompress(encoding, bad, u64::MAX).0;
            // even an empty body is damaged, because gzip needs at least one member
            let Err(refused) = refused else { panic!("{encoding:?}: {} bytes", bad.len()) };
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{encoding:?}: {refused}");
        }
    }
    let stream = zstd_stream(&text);
    assert!(decompress(Encoding::Zstd, &stream[..stream.len() - 1], u64::MAX).0.is_err());
}

/// A zstd frame of only 13 bytes claims that it expands to 60 MiB.
#[test]
fn an_impossible_declared_size_reserves_nothing() {
    let mut frame = compressed(Encoding::Zstd, b"");
    frame.truncate(4);
    frame.extend([0b1010_0000]); // one segment, four bytes of size
    frame.extend((60u32 << 20).to_le_bytes());
    frame.extend([0b11, 0, 0, 0]); // the last block, RLE, of no bytes
    let (refused, peak_bytes) = decompress(Encoding::Zstd, &frame, u64::MAX);
    assert_eq!((refused.unwrap_err().kind(), peak_bytes), (ErrorKind::Invalid, 0));
}

#[test]
fn content_encodings() {
    const ACCEPTED: &[Encoding] = &[Encoding::Snappy, Encoding::Zstd];
    let check = |header: Option<&str>, expected: Option<Encoding>| {
        let got = Encoding::negotiate(header, ACCEPTED);
        assert!(got.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Unsupported));
        assert_eq!(got.ok(), expected, "{header:?}");
    };
    check(None, Some(Encoding::Snappy));
    check(Some(""), Some(Encoding::Snappy));
    check(Some("snappy"), Some(Encoding::Snappy));
    check(Some("Snappy"), Some(Encoding::Snappy));
    check(Some(" zstd "), Some(Encoding::Zstd));
    check(Some("gzip"), None);
    check(Some("snappy, gzip"), None);
    check(Some("identity"), None);
    let error = Encoding::negotiate(Some("br"), ACCEPTED).unwrap_err();
    assert_eq!(error.to_string(), "content encoding \"br\" is not supported; send snappy or zstd");
}

#[test]
fn a_zstd_context_is_no_larger_than_its_reservation() {
    let bytes = zstd_safe::DCtx::create().sizeof();
    assert!(bytes <= ZSTD_CONTEXT_BYTES, "{bytes} bytes");
}
