//! Writes numbers as the shortest text that parses to the same bits.

/// The NaN that Prometheus parses from the text `NaN`. Source: `model/value/value.go` in Prometheus.
pub(crate) const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0001);

/// Appends a finite number.
pub(crate) fn put_finite(out: &mut Vec<u8>, v: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(v);
    out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

/// Appends an integer.
pub(crate) fn put_integer(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}
