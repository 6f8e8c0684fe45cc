//! Writes a number into a text that has a place for it, as in C and Python: `Channel %d`, `%.2f %%`.

use crate::graphite::text::{fixed, general_to, shortest, truncated};

/// Largest width and precision.
const WIDTH_MAX: usize = 100;

/// Writes the value at the one place that the format has for it.
pub(super) fn format(format: &str, value: f64) -> Result<String, String> {
    let (mut out, mut rest, mut is_written) = (String::new(), format, false);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if is_written {
            return Err(format!("{format:?} has places for more than one value"));
        }
        let (place, after) = Place::parse(rest)?;
        place.write(value, &mut out)?;
        (rest, is_written) = (after, true);
    }
    if !is_written {
        return Err(format!("{format:?} has no place for the value, such as %d"));
    }
    out.push_str(rest);
    Ok(out)
}

/// `%-8.2f` without the percent sign.
struct Place {
    flags: String,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

impl Place {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let rest = text.trim_start_matches(['-', '+', ' ', '0', '#']);
        let flags = text[..text.len() - rest.len()].to_owned();
        let (width, rest) = number(rest)?;
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (precision, rest) = number(rest)?;
                (Some(precision), rest)
            }
            None => (None, rest),
        };
        let kind = rest.chars().next().ok_or("the format ends behind a percent sign")?;
        Ok((Self { flags, width, precision, kind }, &rest[kind.len_utf8()..]))
    }

    fn write(&self, value: f64, out: &mut String) -> Result<(), String> {
        let precision = self.precision.unwrap_or(6);
        let text = match self.kind {
            'd' | 'i' | 'u' if value.is_finite() => truncated(value),
            'f' | 'F' => fixed(value, precision),
            'e' | 'E' => scientific(value, precision),
            'g' | 'G' => general_to(value, precision.max(1)),
            's' | 'r' => shortest(value),
            kind => return Err(format!("cannot write {} as %{kind}", shortest(value))),
        };
        let text = if self.kind.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text };
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None if self.has('+') => ("+", text.as_str()),
            None if self.has(' ') => (" ", text.as_str()),
            None => ("", text.as_str()),
        };
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        let (left, zeros, right) = match () {
            () if self.has('-') => (0, 0, missing),
            () if self.has('0') && !matches!(self.kind, 's' | 'r') => (0, missing, 0),
            () => (missing, 0, 0),
        };
        out.extend([&" ".repeat(left), sign, &"0".repeat(zeros), digits, &" ".repeat(right)]);
        Ok(())
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

/// Like `%e` in C, whose exponent has at least two digits.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text.to_lowercase(),
    }
}

fn number(text: &str) -> Result<(usize, &str), String> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - rest.len()];
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(usize::MAX) };
    if number > WIDTH_MAX {
        return Err(format!("a width or precision above {WIDTH_MAX} is not supported"));
    }
    Ok((number, rest))
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn numbers_are_written_as_in_python() {
        let check =
            |text: &str, value: f64, expected: Result<&str, &str>| match (format(text, value), expected) {
                (Ok(written), Ok(expected)) => assert_eq!(written, expected, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (written, _) => panic!("{text}: {written:?}, expected {expected:?}"),
            };
        check("Channel %d MHz", 7.9, Ok("Channel 7 MHz"));
        check("%d", -0.5, Ok("0"));
        check("%d", -7.9, Ok("-7"));
        check("%5.2f|", 2.0 / 3.0, Ok(" 0.67|"));
        check("%-6.1f|", -2.25, Ok("-2.2  |"));
        check("%+06.1f", 1.0, Ok("+001.0"));
        check("%g %%", 1e-7, Ok("1e-07 %"));
        check("%.3g", 1234.0, Ok("1.23e+03"));
        check("%e", 1500.0, Ok("1.500000e+03"));
        check("%s", 2.0, Ok("2.0"));
        check("%f", f64::INFINITY, Ok("inf"));
        check("%d", f64::INFINITY, Err("cannot write inf as %d"));
        check("%x", 1.0, Err("cannot write"));
        check("text", 1.0, Err("no place"));
        check("%d %d", 1.0, Err("more than one"));
        check("%1000d", 1.0, Err("above 100"));
        check("50%", 1.0, Err("ends behind a percent sign"));
    }
}
