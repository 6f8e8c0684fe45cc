//! Lossless encoding of a value relative to the previous value of its series.
//!
//! A whole number after a whole number is stored as the difference, so an unchanged value takes one byte. Any other
//! value is stored as the XOR of the bits, without leading and trailing zero bytes.

use super::varint;

/// A double holds every whole number up to this magnitude exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0; // 2^53

fn whole(bits: u64) -> Option<i64> {
    let value = f64::from_bits(bits);
    let number = value as i64;
    (value.abs() <= WHOLE_MAX && (number as f64).to_bits() == bits).then_some(number)
}

/// Appends the value `now` relative to the previous value `before`. Both are the bits of a double.
///
/// If both are whole numbers, the varint `zigzag(now - before) × 2` is written. Otherwise, the changed bytes of the
/// XOR are written, the lowest first. They follow the varint `(first × 16 + count) × 2 + 1`, which says at which byte
/// they begin and how many there are.
pub(super) fn put(out: &mut Vec<u8>, before: u64, now: u64) {
    if let (Some(before), Some(now)) = (whole(before), whole(now)) {
        let difference = now - before; // both at most 2^53
        varint::put(out, stdx::varint::zigzag(difference) << 1);
        return;
    }
    let changed = before ^ now;
    let first = changed.trailing_zeros() as usize / 8 % 8;
    let bytes = changed.to_le_bytes();
    let end = 8 - changed.leading_zeros() as usize / 8;
    let end = end.max(first);
    varint::put(out, ((first * 16 + (end - first)) * 2 + 1) as u64);
    out.extend_from_slice(&bytes[first..end]);
}

pub(super) fn take(from: &mut &[u8], before: u64) -> Option<u64> {
    let code = varint::take(from)?;
    let payload = code >> 1;
    if code & 1 == 0 {
        let difference = (payload >> 1) as i64 ^ -((payload & 1) as i64);
        return Some((whole(before)?.checked_add(difference)? as f64).to_bits());
    }
    let (first, len) = (payload as usize / 16, payload as usize % 16);
    let mut changed = [0; 8];
    let (bytes, rest) = from.split_at_checked(len)?;
    changed.get_mut(first..first.checked_add(len)?)?.copy_from_slice(bytes);
    *from = rest;
    Some(before ^ u64::from_le_bytes(changed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn check(values: &[u64]) -> usize {
        let mut bytes = Vec::new();
        let mut before = 0;
        for &now in values {
            put(&mut bytes, before, now);
            before = now;
        }
        let (mut rest, mut before) = (bytes.as_slice(), 0);
        for &now in values {
            before = take(&mut rest, before).expect("the value just appended cannot be read");
            assert_eq!(before, now, "{values:?}");
        }
        assert!(rest.is_empty());
        bytes.len()
    }

    #[test]
    fn exact_to_the_bit_and_short_where_little_changes() {
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(check(&bits(&[0.0, 0.0, 1.0, 5.0, 5.0, -20.0])), 6);
        assert_eq!(check(&bits(&[WHOLE_MAX, -WHOLE_MAX, 0.0])), 8 + 8 + 8);
        check(&bits(&[0.1, 0.1, 0.2, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 1e300, 3.0]));
        check(&[model::STALE_NAN_BITS, 0, 0x7ff8_0000_0000_0001, u64::MAX, 1, 0, 1 << 63]);
        let mut rng = Rng::new(3);
        let random: Vec<u64> = (0..2_000).map(|i| rng.next_u64() >> (i % 64)).collect();
        check(&random);
    }

    #[test]
    fn malformed_values_are_refused() {
        // three invalid encodings: a difference from a value that is not whole, too few bytes, and bytes beyond the
        // eighth
        assert_eq!(take(&mut &[0][..], 0.5f64.to_bits()), None);
        assert_eq!(take(&mut &[3][..], 0), None);
        assert_eq!(take(&mut &[0xff, 1, 0, 0, 0][..], 0), None);
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                take(&mut &[a, b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16][..], 7);
            }
        }
    }
}
