//! Encodes batches of records, decodes them, and damages them.

use expect_test::expect;
use journal::fuzz;
use journal::records::{
    BATCH_VERSION, BatchError, BatchHeader, decode, decode_header, encode, encode_memory, records_memory,
};
use model::{AttributeValue, ErrorKind, Records, RecordsBuilder, StreamName, TenantId};
use stdx::damage::each_damaged;
use stdx::rng::Rng;

fn header(records: &Records, id: Option<[u8; 16]>) -> BatchHeader {
    BatchHeader {
        tenant: TenantId::parse("team-a").unwrap(),
        stream: StreamName::parse("nginx.access").unwrap(),
        arrival_us: 1_795_284_000_123_456,
        id,
        records: records.len() as u32,
    }
}

fn encoded(records: &Records) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, &header(records, None), records).unwrap();
    out
}

/// Records with some of eight attributes, of all kinds.
fn any_records(count: u64, rng: &mut Rng) -> Records {
    let mut builder = RecordsBuilder::new();
    for _ in 0..count {
        builder.put("everywhere", AttributeValue::Int(rng.below(1000) as i64)).unwrap();
        for attribute in 0..8 {
            let text = "héllo wörld ".repeat(rng.below(4) as usize);
            let value = match rng.below(10) {
                0 => AttributeValue::Bool(rng.below(2) == 0),
                1 => AttributeValue::Int(
                    (rng.next_u64() >> rng.below(64)) as i64 * if rng.below(2) == 0 { 1 } else { -1 },
                ),
                2 => AttributeValue::Float(rng.below(1000) as f64 / 8.0),
                3 => AttributeValue::Text(&text),
                4 => AttributeValue::Json(r#"["a",{"b":1}]"#),
                _ => continue,
            };
            builder.put(&format!("a{attribute}.é"), value).unwrap();
        }
        builder.end(1_795_284_000_000_000 + rng.below(10_000_000) as i64);
    }
    builder.finish()
}

#[test]
fn batches_round_trip() {
    let mut rng = Rng::announced();
    for case in 0..300 {
        let count = rng.below(60);
        let records = any_records(count, &mut rng);
        let header = header(&records, (case % 2 == 0).then_some([case as u8; 16]));
        let mut bytes = b"before".to_vec();
        encode(&mut bytes, &header, &records).unwrap();
        let bytes = &bytes[6..];
        assert_eq!(decode(bytes), Ok((header.clone(), records.clone())));
        assert_eq!(decode_header(bytes), Ok(header));
        let memory = records_memory(bytes).unwrap();
        let (_, decoded) = decode(bytes).unwrap();
        assert!(decoded.memory_bytes() <= memory && bytes.len() <= encode_memory(&records));
        // the bound is not far off
        assert!(memory <= 20_000 + 4 * decoded.memory_bytes(), "{memory} for {}", decoded.memory_bytes());
    }
}

#[test]
fn columns_that_are_too_large_are_refused() {
    let mut builder = RecordsBuilder::new();
    builder.put("text", AttributeValue::Text(&"x".repeat(257 << 20))).unwrap();
    builder.end(0);
    let records = builder.finish();
    let error = encode(&mut Vec::new(), &header(&records, None), &records).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn special_values_round_trip() {
    let mut builder = RecordsBuilder::new();
    for (time_us, int, float) in [
        (i64::MIN, i64::MAX, f64::INFINITY),
        (i64::MAX, i64::MIN, f64::from_bits(0x7ff0_0000_0000_0001)),
        (0, 0, -0.0),
    ] {
        builder.put("", AttributeValue::Int(int)).unwrap();
        builder.put("f", AttributeValue::Float(float)).unwrap();
        builder.put("text", AttributeValue::Text("\0")).unwrap();
        builder.end(time_us);
    }
    let records = builder.finish();
    let bytes = encoded(&records);
    let (_, decoded) = decode(&bytes).unwrap();
    assert_eq!(encoded(&decoded), bytes, "floats are equal bit for bit");
    assert_eq!(decoded.times_us, records.times_us);
    assert_eq!(decoded.attributes[0], records.attributes[0]);
}

#[test]
fn damaged_batches_are_errors() {
    let mut rng = Rng::announced();
    let batches: Vec<Vec<u8>> = [0, 1, 3, 40].map(|count| encoded(&any_records(count, &mut rng))).into();
    for bytes in &batches {
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "cut to {length} of {} bytes", bytes.len());
        }
        assert!(decode(&[bytes, &b"x"[..]].concat()).is_err());
    }
    each_damaged(&batches, 20_000, |bytes| _ = fuzz::batch(bytes));
    // columns as they are before they are packed: of three records with two attributes
    let columns = b"\x03\0\x02\x04\x06\x02\x81\x03abc\x02\x04\x06\x03\x01t\x02\0\x01\x02\x03hello".to_vec();
    assert!(fuzz::columns(&columns));
    each_damaged(&[columns], 20_000, |bytes| _ = fuzz::columns(bytes));
}

#[test]
fn lengths_are_not_trusted() {
    let header = b"\x81\x01t\x01s\x07\0".to_vec();
    let check = |rest: &[u8], expected: BatchError| {
        let bytes = [&header[..], rest].concat();
        assert_eq!(decode(&bytes), Err(expected), "{rest:?}");
    };
    let malformed = BatchError::Malformed;
    check(b"\xff\xff\xff\xff\x0f", malformed("too many records"));
    // a million records and 40 MB of memory, in a block of two bytes
    check(
        b"\xc0\x84\x3d\x80\xb4\x89\x13\x80\x89\x7a\x02xx",
        malformed("columns cannot decompress to their declared length"),
    );
    check(b"\xc0\x84\x3d\xff\xff\xff\xff\x7f\x02\0xx", malformed("columns cannot take the declared memory"));
    check(b"\xc0\x84\x3d\x80\x80\x1e\x02\0xx", BatchError::Truncated);
    check(b"\x01\x00\x02\0\x02\0", malformed("columns take more memory than is declared"));
    check(b"\x01\x08\x03\0\x02\0\0", malformed("bytes after the last attribute"));
    assert_eq!(decode_header(&[BATCH_VERSION + 1]), Err(BatchError::Version(BATCH_VERSION + 1)));
    assert_eq!(decode_header(&[4]), Err(malformed("an invalid version")));
    assert_eq!(decode_header(&[]), Err(BatchError::Truncated));
}

/// Users have such bytes on their disks, so a change requires a new version.
#[test]
fn bytes_of_a_batch() {
    let mut builder = RecordsBuilder::new();
    for row in 0..3_i64 {
        builder.put("level", AttributeValue::Text(["info", "warn", ""][row as usize])).unwrap();
        builder.put("http.status", AttributeValue::Int(200 + row)).unwrap();
        if row > 0 {
            builder.put("ok", AttributeValue::Bool(row == 2)).unwrap();
            builder.put("took", AttributeValue::Float(0.5)).unwrap();
            builder.put("tags", AttributeValue::Json("[]")).unwrap();
        }
        builder.end(1_795_284_000_000_000 - 1000 * row);
    }
    let records = builder.finish();
    let mut bytes = Vec::new();
    encode(&mut bytes, &header(&records, Some([0xee; 16])), &records).unwrap();
    assert_eq!(decode(&bytes).unwrap().1, records);
    let lines: Vec<String> = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        .collect();
    expect![[r#"
        81 06 74 65 61 6d 2d 61 0c 6e 67 69 6e 78 2e 61
        63 63 65 73 73 c0 d4 e4 88 d2 99 98 03 01 ee ee
        ee ee ee ee ee ee ee ee ee ee ee ee ee ee 03 ac
        0b 62 00 80 a0 ba 91 a4 b3 b0 06 cf 0f cf 0f 05
        83 05 6c 65 76 65 6c 04 04 00 69 6e 66 6f 77 61
        72 6e 81 0b 68 74 74 70 2e 73 74 61 74 75 73 90
        03 92 03 94 03 00 02 6f 6b 02 01 00 02 02 04 74
        6f 6f 6b 02 01 00 00 00 00 00 00 00 e0 3f 00 00
        00 00 00 00 e0 3f 04 04 74 61 67 73 02 01 00 02
        02 5b 5d 5b 5d
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}
