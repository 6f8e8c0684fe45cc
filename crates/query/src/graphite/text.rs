//! Numbers as graphite-web writes them into names of series.

/// Like `%g` in C: six significant digits, without zeros at the end.
pub(super) fn general(value: f64) -> String {
    general_to(value, 6)
}

/// Like `%g` in C with so many significant digits, at least one.
pub(super) fn general_to(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return non_finite(value).into();
    }
    let scientific = format!("{value:.decimals$e}", decimals = digits - 1);
    let (shown, exponent) = scientific.split_once('e').expect("BUG: a number has no exponent");
    let exponent: i32 = exponent.parse().expect("BUG: an exponent is not a number");
    if (-4..digits as i32).contains(&exponent) {
        let decimals = (digits as i32 - 1 - exponent) as usize;
        return without_zeros(&format!("{value:.decimals$}")).into();
    }
    format!("{}e{}", without_zeros(shown), signed(exponent))
}

/// Like `str` of a number with a point in Python: as few digits as needed, and at least one after the point.
pub(super) fn shortest(value: f64) -> String {
    if !value.is_finite() {
        return non_finite(value).into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("BUG: a number has no exponent");
    let exponent: i32 = exponent.parse().expect("BUG: an exponent is not a number");
    if (-4..16).contains(&exponent) {
        let text = format!("{value}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    format!("{digits}e{}", signed(exponent))
}

/// Like `%d` in Python: the integer part of a number.
pub(super) fn truncated(value: f64) -> String {
    // adding 0 turns a negative zero into a positive one
    fixed(value.trunc() + 0.0, 0)
}

/// Like `%.2f` in Python: a number with so many digits after the point.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { non_finite(value).into() }
}

const fn non_finite(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "nan",
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn signed(exponent: i32) -> String {
    format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

#[cfg(test)]
mod tests;
