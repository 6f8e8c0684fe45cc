//! Packed bits to numbers, 32 at a time: what encodings of Parquet have in common.
//!
//! Numbers of `width` bits follow one another, the lowest bit first. 32 of them take whole bytes (four for each bit of
//! the width), so with the width known to the compiler each place and each shift is a constant.

/// Numbers that are cut out together.
pub(super) const GROUP: usize = 32;

/// Bytes that must follow a group: each number is cut out of the 16 bytes that it begins in.
pub(super) const PADDING: usize = 16;

/// Bytes of a group.
pub(super) const fn group_bytes(width: u8) -> usize {
    GROUP / 8 * width as usize
}

/// Cuts out the group of `width` bits at the beginning of `bytes`, which go on for [`PADDING`] bytes after it.
pub(super) fn unpack(bytes: &[u8], width: u8, out: &mut [u64; GROUP]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                0 => *out = [0; GROUP],
                $($width => cut::<$width>(bytes, out),)*
                _ => panic!("BUG: a width of more than 64 bits"),
            }
        };
    }
    by_width!(
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
    )
}

fn cut<const WIDTH: usize>(bytes: &[u8], out: &mut [u64; GROUP]) {
    let bytes = &bytes[..group_bytes(WIDTH as u8) + PADDING];
    let mask = u64::MAX >> (64 - WIDTH);
    *out = std::array::from_fn(|i| {
        let (at, shift) = (i * WIDTH / 8, i * WIDTH % 8);
        // with up to 7 bits before it, it lies in 8 bytes
        let number = if WIDTH <= 57 {
            let word = bytes[at..].first_chunk().expect("BUG: the padding follows");
            u64::from_le_bytes(*word) >> shift
        } else {
            let word = bytes[at..].first_chunk().expect("BUG: the padding follows");
            (u128::from_le_bytes(*word) >> shift) as u64
        };
        number & mask
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn numbers_of_each_width_come_back() {
        let seed = Rng::fresh_seed();
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        for width in 0..=64 {
            let numbers: [u64; GROUP] =
                std::array::from_fn(|_| rng.next_u64().checked_shr(64 - u32::from(width)).unwrap_or(0));
            let mut bytes = vec![0; group_bytes(width)];
            for (i, number) in numbers.iter().enumerate() {
                for bit in (0..usize::from(width)).filter(|bit| number >> bit & 1 == 1) {
                    let at = i * usize::from(width) + bit;
                    bytes[at / 8] |= 1 << (at % 8);
                }
            }
            // what follows does not matter
            bytes.resize(bytes.len() + PADDING, 0xff);
            let mut out = [0; GROUP];
            unpack(&bytes, width, &mut out);
            assert_eq!(out, numbers, "{width} bits");
        }
    }
}
