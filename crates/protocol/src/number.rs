//! Writes numbers as the shortest text with the same bits.

/// Prometheus' NaN for the text `NaN` (`model/value/value.go`).
pub(crate) const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0001);

pub(crate) fn put_finite(out: &mut Vec<u8>, v: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(v);
    out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

pub(crate) fn put_integer(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}
