use super::*;
use stdx::rng::Rng;

fn check_against_snap(body: &[u8]) {
    let mut out = b"left over".to_vec();
    let ours = decompress(body, &mut out).map(|()| out);
    let theirs = snap::raw::Decoder::new().decompress_vec(body);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{body:x?}"),
        (Err(_), Err(_)) => {}
        // we refuse the declared length, but the snap crate accepts it
        (Err(e), Ok(theirs)) => assert!(theirs.len() > BODY_BYTES_MAX, "{e} {body:x?}"),
        (Ok(_), Err(e)) => panic!("{e} {body:x?}"),
    }
}

/// Generates a block with elements of all kinds, most of which are valid.
fn random_block(rng: &mut Rng) -> Vec<u8> {
    let (mut elements, mut done) = (Vec::new(), 0u64);
    for _ in 0..rng.below(60) {
        let kind = if done == 0 { 0 } else { rng.below(4) };
        let far = match rng.below(3) {
            0 => done,
            1 => done.min(20),
            _ => done.min(1),
        };
        let offset = 1 + rng.below(far);
        match kind {
            0 => {
                let length = 1 + if rng.chance(0.8) { rng.below(60) } else { rng.below(3000) };
                match length {
                    0..=60 => elements.push(((length - 1) as u8) << 2),
                    61..=256 => elements.extend([60 << 2, (length - 1) as u8]),
                    _ => elements.extend([61 << 2, (length - 1) as u8, ((length - 1) >> 8) as u8]),
                }
                elements.extend((0..length).map(|_| rng.next_u64() as u8));
                done += length;
            }
            1 => {
                let (length, offset) = (4 + rng.below(8), offset.min(2047));
                elements.extend([1 | ((length - 4) as u8) << 2 | ((offset >> 8) as u8) << 5, offset as u8]);
                done += length;
            }
            kind => {
                let length = 1 + rng.below(64);
                elements.push(kind as u8 | ((length - 1) as u8) << 2);
                elements.extend(&offset.to_le_bytes()[..if kind == 2 { 2 } else { 4 }]);
                done += length;
            }
        }
    }
    let mut block = Vec::new();
    let mut declared = if rng.chance(0.05) { rng.below(2 * done + 2) } else { done };
    while declared >= 0x80 {
        block.push(declared as u8 | 0x80);
        declared >>= 7;
    }
    block.push(declared as u8);
    block.extend(elements);
    block
}

#[test]
fn agrees_with_the_snap_crate() {
    let mut rng = Rng::announced();
    for _ in 0..3000 {
        let mut block = random_block(&mut rng);
        check_against_snap(&block);
        for _ in 0..rng.below(3) {
            let at = rng.below(block.len() as u64) as usize;
            block[at] = rng.next_u64() as u8;
        }
        check_against_snap(&block);
        block.truncate(rng.below(block.len() as u64 + 1) as usize);
        check_against_snap(&block);
    }
}

#[test]
fn agrees_with_the_snap_crate_on_compressed_text() {
    let mut rng = Rng::new(3);
    let words: Vec<String> = (0..50).map(|_| format!("w{:x}", rng.below(1 << 20))).collect();
    for n in [0, 1, 5, 63, 64, 65, 1000, 200_000] {
        let text: String = (0..n).map(|_| words[rng.below(50) as usize].as_str()).collect();
        let body = snap::raw::Encoder::new().compress_vec(text.as_bytes()).unwrap();
        let mut out = Vec::new();
        decompress(&body, &mut out).unwrap();
        assert!(out == text.as_bytes(), "{n} words");
    }
}

#[test]
fn memory_is_refused_before_it_is_allocated() {
    let check = |body: &[u8], expected: DecodeError| {
        let mut out = Vec::new();
        assert_eq!(decoded_len(body), Err(expected.clone()));
        assert_eq!(decompress(body, &mut out), Err(expected));
        assert_eq!(out.capacity(), 0);
    };
    let no_length = || DecodeError::Snappy("no valid length at the start");
    check(&[], no_length());
    check(&[0xff; 4], no_length());
    check(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], no_length());
    check(&[0xff, 0xff, 0xff, 0xff, 0x7f], DecodeError::DecodedTooLarge(0x7_ffff_ffff));
    check(&[0x81, 0x80, 0x80, 0x20, 0x00], DecodeError::DecodedTooLarge((64 << 20) + 1));
    check(
        &[0x80, 0x80, 0x80, 0x20, 0x00, 0x00],
        DecodeError::Snappy("declared length is larger than the body can expand to"),
    );
    let large = vec![0; BODY_COMPRESSED_BYTES_MAX + 1];
    check(&large, DecodeError::BodyTooLarge(large.len()));
}
