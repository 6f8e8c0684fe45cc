//! Damages bytes at random, for tests of decoders.

use crate::rng::Rng;

/// Runs `target` on each input of `corpus`, then on damaged copies, whose number is
/// [`mutations`]`(usual)`. Prints the seed.
pub fn each_damaged(corpus: &[Vec<u8>], usual: usize, target: impl Fn(&[u8])) {
    corpus.iter().for_each(|bytes| target(bytes));
    let mut rng = Rng::announced();
    for _ in 0..mutations(usual) {
        let mut bytes = corpus[rng.below(corpus.len() as u64) as usize].clone();
        damage(&mut bytes, &mut rng);
        target(&bytes);
    }
}

/// How many damaged inputs a test should try: the environment variable `FUZZ_MUTATIONS`, or `usual`
/// if it is not set.
pub fn mutations(usual: usize) -> usize {
    std::env::var("FUZZ_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

const INTERESTING: [u8; 11] = [0x00, 0x01, 0x0a, 0x0b, 0x12, 0x1a, 0x22, 0x2a, 0x7f, 0x80, 0xff];

/// Changes, inserts or removes bytes in up to four places.
pub fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let byte = match rng.below(2) {
            0 => INTERESTING[rng.below(INTERESTING.len() as u64) as usize],
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
