//! Finds bytes in text, eight at a time. For a single byte that is probably far away, [`memchr`] is faster.

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Eight bytes of text. The results have the high bit of each byte that is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Eight(u64);

impl Eight {
    /// Bytes that equal `byte`. Bits after the first found byte may be wrong.
    #[inline(always)]
    pub(crate) const fn equal(self, byte: u8) -> u64 {
        let other = self.0 ^ (ONES * byte as u64);
        other.wrapping_sub(ONES) & !other & HIGH
    }

    /// Bytes that equal `byte`, without wrong bits.
    #[inline(always)]
    pub(crate) const fn all_equal(self, byte: u8) -> u64 {
        let other = self.0 ^ (ONES * byte as u64);
        !(((other & !HIGH) + !HIGH) | other) & HIGH
    }

    /// Bytes that are less than `limit`, which is at most 128. Bits after the first found byte may be wrong.
    #[inline(always)]
    pub(crate) const fn below(self, limit: u8) -> u64 {
        self.0.wrapping_sub(ONES * limit as u64) & !self.0 & HIGH
    }

    /// Bytes that are not ASCII.
    #[inline(always)]
    pub(crate) const fn not_ascii(self) -> u64 {
        self.0 & HIGH
    }
}

/// The next eight bytes from `at` on. At the end of the text, bytes that it lacks are 0, and `is_there` has the bits of the
/// others. `None` if there are no bytes left.
#[inline(always)]
pub(crate) fn eight(text: &[u8], at: usize) -> Option<(Eight, u64)> {
    let rest = text.get(at..)?;
    match rest.first_chunk::<8>() {
        Some(eight) => Some((Eight(u64::from_le_bytes(*eight)), u64::MAX)),
        None if rest.is_empty() => None,
        None => {
            let is_there = (1 << (8 * rest.len())) - 1;
            // a shift is faster than a copy
            if let Some(last) = text.last_chunk::<8>() {
                return Some((Eight(u64::from_le_bytes(*last) >> (64 - 8 * rest.len())), is_there));
            }
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            Some((Eight(u64::from_le_bytes(last)), is_there))
        }
    }
}

/// The place of the first of eight bytes that has a bit in `found`.
#[inline(always)]
pub(crate) const fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

/// Returns the place of the first byte from `at` on for which `hits` has a bit.
#[inline(always)]
pub(crate) fn find(text: &[u8], mut at: usize, hits: impl Fn(Eight) -> u64) -> Option<usize> {
    while let Some((eight, is_there)) = eight(text, at) {
        let found = hits(eight) & is_there;
        if found != 0 {
            return Some(at + first(found));
        }
        at += 8;
    }
    None
}

/// Returns where the line ends that `at` is in: at the next line break, or at the end of the text.
#[inline]
pub(crate) fn line_end(text: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn bytes_are_found_where_they_are() {
        let mut rng = Rng::announced();
        for _ in 0..100_000 {
            let near = [b'"', b'"' - 1, b'"' + 1, 0x1f, 0x20, 0x7f, 0x80, 0xff, 0, 1, b'a'];
            let text: Vec<u8> =
                (0..rng.below(30)).map(|_| near[rng.below(near.len() as u64) as usize]).collect();
            let at = rng.below(text.len() as u64 + 2) as usize;
            let check = |hits: fn(Eight) -> u64, is_hit: fn(u8) -> bool| {
                let rest = text.get(at..).unwrap_or_default();
                let expected = rest.iter().position(|byte| is_hit(*byte)).map(|found| at + found);
                assert_eq!(find(&text, at, hits), expected, "{text:?} from {at} on");
            };
            check(|eight| eight.equal(b'"'), |byte| byte == b'"');
            check(|eight| eight.equal(0), |byte| byte == 0);
            check(|eight| eight.below(0x20), |byte| byte < 0x20);
            check(Eight::not_ascii, |byte| byte >= 0x80);
            if let Some((eight, is_there)) = eight(&text, at) {
                let rest = &text[at..text.len().min(at + 8)];
                let expected = rest.iter().zip(0..).filter(|(byte, _)| **byte == b'"');
                let expected = expected.fold(0, |bits, (_, place)| bits | 0x80 << (8 * place));
                assert_eq!(eight.all_equal(b'"') & is_there, expected, "{rest:?}");
            }
        }
    }
}
