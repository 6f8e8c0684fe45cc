use super::*;
use stdx::rng::Rng;

fn random_message(rng: &mut Rng) -> (Vec<u8>, Vec<SampleSpot>) {
    let words: Vec<Vec<u8>> =
        (0..8).map(|_| (0..rng.below(90)).map(|_| rng.below(4) as u8).collect()).collect();
    let (mut message, mut spots) = (Vec::new(), Vec::new());
    let mut stamp = [0; STAMP_BYTES];
    for sample in 0..rng.below(40) {
        for _ in 0..rng.below(4) {
            message.extend_from_slice(&words[rng.below(8) as usize]);
        }
        if rng.chance(0.02) {
            message.extend((0..rng.below(90_000)).map(|_| rng.next_u64() as u8));
        }
        let same_stamp = sample > 0 && rng.chance(0.7);
        if !same_stamp {
            stamp = rng.next_u64().to_le_bytes()[..STAMP_BYTES].try_into().unwrap();
        }
        spots.push(SampleSpot { value_at: message.len() as u32, same_stamp });
        message.extend_from_slice(&(rng.below(3)).to_le_bytes());
        message.push(0x10);
        message.extend_from_slice(&stamp);
    }
    message.extend_from_slice(&words[0]);
    (message, spots)
}

#[test]
fn messages_and_patched_values_round_trip() {
    let mut rng = Rng::announced();
    let mut compressor = Compressor::default();
    for _ in 0..400 {
        let (mut message, spots) = random_message(&mut rng);
        let mut packed = compressor.pack(&message, &spots);
        let unpack = |bytes: &[u8]| snap::raw::Decoder::new().decompress_vec(bytes).unwrap();
        assert_eq!(unpack(&packed.bytes), message);
        assert_eq!(packed.values.len(), spots.len());

        for (spot, at) in spots.iter().zip(&packed.values) {
            let value = rng.next_u64().to_le_bytes();
            message[spot.value()..][..VALUE_BYTES].copy_from_slice(&value);
            packed.bytes[*at as usize..][..VALUE_BYTES].copy_from_slice(&value);
        }
        let mut stamp = [0; STAMP_BYTES];
        let mut own = packed.stamps.iter().peekable();
        for (spot, number) in spots.iter().zip(0..) {
            if !spot.same_stamp {
                stamp = rng.next_u64().to_le_bytes()[..STAMP_BYTES].try_into().unwrap();
            }
            message[spot.stamp()..][..STAMP_BYTES].copy_from_slice(&stamp);
            if let Some((at, _)) = own.next_if(|(_, sample)| *sample == number) {
                packed.bytes[*at as usize..][..STAMP_BYTES].copy_from_slice(&stamp);
            } else {
                assert!(spot.same_stamp);
            }
        }
        assert!(own.next().is_none());
        assert_eq!(unpack(&packed.bytes), message, "after the change");
    }
}

#[test]
fn messages_without_samples_are_compressed_too() {
    let mut compressor = Compressor::default();
    for message in [Vec::new(), vec![7], vec![1; 100_000], b"abcabcabcabcabcabcabcabc".repeat(20)] {
        let packed = compressor.pack(&message, &[]);
        assert_eq!(snap::raw::Decoder::new().decompress_vec(&packed.bytes).unwrap(), message);
        assert!(packed.bytes.len() <= message.len() + 8);
    }
}
