//! Rounds numbers as Python does, whose results graphite-web shows.

/// Rounds to `places` decimal places, which may be negative, as Python's `round`: the exact decimal expansion
/// is rounded, and a tie goes to the even digit.
pub(super) fn round(v: f64, places: i64) -> f64 {
    // NDIGITS_MAX and NDIGITS_MIN of CPython's `float.__round__`: beyond them, a float is rounded to itself,
    // or to zero
    const PLACES_MAX: i64 = 323;
    const PLACES_MIN: i64 = -308;
    if !v.is_finite() || places > PLACES_MAX {
        return v;
    }
    if places < PLACES_MIN {
        return 0.0 * v;
    }
    if is_beyond(v, places) {
        return v;
    }
    if let Some(rounded) = round_quickly(v, places) {
        return rounded;
    }
    match usize::try_from(places) {
        Ok(places) => format!("{v:.places$}").parse().expect("BUG: Rust reads what it prints"),
        Err(_) => round_before_point(v, usize::try_from(-places).expect("BUG: places are negative")),
    }
}

/// True if a unit of the last place is so small, compared with the distance to the next floats, that the rounded number
/// is read as the same float. This saves formatting hundreds of digits.
fn is_beyond(v: f64, places: i64) -> bool {
    // the exponent of the smallest difference between floats of this size, of which the smaller neighbour may have half
    let exponent = ((v.to_bits() >> 52) & 0x7ff) as i64 - 1075;
    // 10^-places < 2^(exponent - 2), where a power of ten has more than 3.3 binary digits
    places > 0 && 33 * places > 10 * (2 - exponent)
}

/// Rounds by arithmetic if its error cannot matter: the scaled value is not close to a tie, and a quotient of an integer
/// and an exact power of ten is the float that is nearest to the decimal number.
fn round_quickly(v: f64, places: i64) -> Option<f64> {
    // larger powers of ten are not exactly representable
    const EXACT_MAX: i64 = 22;
    // the error of a scaled value below this is less than a thousandth
    const SCALED_MAX: f64 = (1_u64 << 40) as f64;
    if !(0..=EXACT_MAX).contains(&places) {
        return None;
    }
    let power = 10_f64.powi(places as i32);
    let scaled = v * power;
    let distance = (scaled - scaled.floor() - 0.5).abs();
    (scaled.abs() < SCALED_MAX && distance > 0.001).then(|| scaled.round() / power)
}

/// Rounds to a multiple of ten to the power of `zeros`.
fn round_before_point(v: f64, zeros: usize) -> f64 {
    let digits = format!("{:.0}", v.abs().trunc());
    let kept = digits.len().saturating_sub(zeros);
    let (head, tail) = digits.split_at(kept);
    // the digits after the kept ones, compared with one half of the last kept place
    let tail = format!("{tail:0>zeros$}");
    let is_half_exactly = tail.starts_with('5') && tail[1..].bytes().all(|b| b == b'0') && v.fract() == 0.0;
    let is_above_half = tail.as_bytes()[0] >= b'5' && !is_half_exactly;
    let last = head.bytes().last().map_or(0, |digit| digit - b'0');
    let is_up = is_above_half || (is_half_exactly && last % 2 == 1);
    let mut head: Vec<u8> = if head.is_empty() { vec![b'0'] } else { head.bytes().collect() };
    if is_up {
        increment(&mut head);
    }
    let text = String::from_utf8(head).expect("BUG: digits are ASCII");
    let rounded: f64 = format!("{text}e{zeros}").parse().expect("BUG: Rust reads digits");
    rounded.copysign(v)
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_as_in_python() {
        for (v, places, rounded) in [
            (2.5, 0, 2.0),
            (3.5, 0, 4.0),
            (-2.5, 0, -2.0),
            (2.675, 2, 2.67),
            (0.125, 2, 0.12),
            (1234.0, -2, 1200.0),
            (1250.0, -2, 1200.0),
            (1250.5, -2, 1300.0),
            (1350.0, -2, 1400.0),
            (51.0, -2, 100.0),
            (50.0, -2, 0.0),
            (-951.0, -2, -1000.0),
            (1.0, -309, 0.0),
            (1e300, 324, 1e300),
            (f64::INFINITY, 2, f64::INFINITY),
        ] {
            assert_eq!(round(v, places), rounded, "{v} to {places} places");
        }
    }

    #[test]
    fn places_beyond_the_digits_of_a_float_change_nothing() {
        let mut rng = stdx::rng::Rng::announced();
        let mut beyond = 0;
        for number in 0..20_000_u64 {
            let (places, v) = match number % 3 {
                0 => (rng.below(324), f64::from_bits(rng.below(u64::MAX))),
                1 => (rng.below(40), (rng.unit() - 0.5) * 10_f64.powi(rng.below(40) as i32 - 20)),
                // powers of two, whose smaller neighbour is nearer
                _ => (rng.below(40), 2_f64.powi(rng.below(120) as i32 - 60)),
            };
            if v.is_finite() && is_beyond(v, places as i64) {
                let by_digits: f64 = format!("{v:.*}", places as usize).parse().unwrap();
                assert_eq!(v, by_digits, "{v} to {places} places");
                beyond += 1;
            }
        }
        assert!(beyond > 2_000, "{beyond}");
        assert!(is_beyond(0.1, 300) && is_beyond(1.0, 20) && !is_beyond(1.0, 15) && !is_beyond(1e-300, 300));
    }

    #[test]
    fn rounding_by_arithmetic_is_rounding_by_digits() {
        let mut rng = stdx::rng::Rng::announced();
        for _ in 0..20_000 {
            let places = rng.below(12);
            let v = (rng.unit() - 0.5) * 10_f64.powi(rng.below(16) as i32);
            if let Some(rounded) = round_quickly(v, places as i64) {
                let by_digits: f64 = format!("{v:.*}", places as usize).parse().unwrap();
                assert_eq!(rounded, by_digits, "{v} to {places} places");
            }
        }
    }
}
