//! Unpacks bit-packed numbers, 32 at a time.
//!
//! Numbers of `width` bits follow one another, the lowest bit first. A known width makes all offsets and shifts
//! constants.

pub(crate) const GROUP: usize = 32;

const WORD: usize = 16;

const WIDTH_MAX: u8 = 64;

pub(crate) const fn group_bytes(width: u8) -> usize {
    GROUP / 8 * width as usize
}

/// Unpacks `width`-bit numbers from the beginning of `bytes`. Missing bytes count as zeros.
pub(crate) fn unpack(bytes: &[u8], width: u8, out: &mut [u64; GROUP]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                0 => *out = [0; GROUP],
                $($width => cut::<$width>(bytes, out),)*
                _ => panic!("BUG: a packed number has more than 64 bits"),
            }
        };
    }
    by_width!(
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
    )
}

fn cut<const WIDTH: usize>(bytes: &[u8], out: &mut [u64; GROUP]) {
    let Some(bytes) = bytes.get(..group_bytes(WIDTH as u8) + WORD) else {
        return cut_end::<WIDTH>(bytes, out);
    };
    let mask = u64::MAX >> (64 - WIDTH);
    *out = std::array::from_fn(|i| {
        let (at, shift) = (i * WIDTH / 8, i * WIDTH % 8);
        // with up to 7 bits before it, the number fits into 8 bytes
        let number = if WIDTH <= 57 {
            let word = bytes[at..].first_chunk().expect("BUG: the bytes end within a word");
            u64::from_le_bytes(*word) >> shift
        } else {
            let word = bytes[at..].first_chunk().expect("BUG: the bytes end within a word");
            (u128::from_le_bytes(*word) >> shift) as u64
        };
        number & mask
    });
}

/// Unpacks the last bytes of the data. They are padded with zeros, because [`cut`] reads whole words.
#[cold]
fn cut_end<const WIDTH: usize>(bytes: &[u8], out: &mut [u64; GROUP]) {
    let mut end = [0; group_bytes(WIDTH_MAX) + WORD];
    end[..bytes.len()].copy_from_slice(bytes);
    cut::<WIDTH>(&end, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn numbers_of_each_width_come_back() {
        let mut rng = Rng::announced();
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
            for behind in [0, 1, WORD - 1, WORD, 100] {
                let mut out = [0; GROUP];
                unpack(&[&bytes[..], &vec![0xff; behind]].concat(), width, &mut out);
                assert_eq!(out, numbers, "{width} bits, {behind} bytes after them");
            }
            let mut out = [1; GROUP];
            unpack(&bytes[..group_bytes(width) / 2], width, &mut out);
            assert_eq!(out[..GROUP / 2], numbers[..GROUP / 2], "{width} bits");
            assert_eq!(out[GROUP / 2..], [0; GROUP / 2], "{width} bits");
        }
    }
}
