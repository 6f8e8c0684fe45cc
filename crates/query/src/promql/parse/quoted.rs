//! String literals in Go's syntax.

/// Reads the string literal at the beginning of `text`. Returns its value, and its length in bytes.
pub(super) fn read(text: &str) -> Result<(String, usize), &'static str> {
    const UNTERMINATED: &str = "unterminated quoted string";
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let (mut out, mut at) = (Vec::new(), 1);
    loop {
        match *bytes.get(at).ok_or(UNTERMINATED)? {
            byte if byte == quote => break,
            b'\n' if quote != b'`' => return Err(UNTERMINATED),
            b'\\' if quote != b'`' => at += escape(&bytes[at + 1..], quote, &mut out)? + 1,
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    let value = String::from_utf8(out).map_err(|_| "invalid UTF-8 in a quoted string")?;
    Ok((value, at + 1))
}

/// Decodes the escape sequence after a backslash. Returns its length in bytes.
fn escape(rest: &[u8], quote: u8, out: &mut Vec<u8>) -> Result<usize, &'static str> {
    const UNKNOWN: &str = "unknown escape sequence in a quoted string";
    let first = *rest.first().ok_or("unterminated quoted string")?;
    let plain = match first {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' => b'\\',
        byte if byte == quote => quote,
        b'x' => {
            out.push(number(rest, 1..3, 16).and_then(|n| u8::try_from(n).ok()).ok_or(UNKNOWN)?);
            return Ok(3);
        }
        b'0'..=b'7' => {
            out.push(number(rest, 0..3, 8).and_then(|n| u8::try_from(n).ok()).ok_or(UNKNOWN)?);
            return Ok(3);
        }
        b'u' | b'U' => {
            let end = if first == b'u' { 5 } else { 9 };
            let c = number(rest, 1..end, 16).and_then(char::from_u32).ok_or(UNKNOWN)?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(end);
        }
        _ => return Err(UNKNOWN),
    };
    out.push(plain);
    Ok(1)
}

fn number(bytes: &[u8], digits: std::ops::Range<usize>, radix: u32) -> Option<u32> {
    let text = std::str::from_utf8(bytes.get(digits)?).ok()?;
    if text.starts_with('+') { None } else { u32::from_str_radix(text, radix).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let check = |text: &str, expected: Result<(&str, usize), ()>| {
            let read = read(text);
            assert_eq!(read.as_ref().map(|(s, n)| (s.as_str(), *n)).map_err(|_| ()), expected, "{text}");
        };
        check(r#""a" + 1"#, Ok(("a", 3)));
        check(r#"'"' "#, Ok(("\"", 3)));
        check(r"`\n`", Ok(("\\n", 4)));
        check(r#""\n\t\\\"" "#, Ok(("\n\t\\\"", 10)));
        check(r#""\x41\101\u00e9\U0001F600""#, Ok(("AA\u{e9}\u{1f600}", 26)));
        check(r#""\xc3\xa9""#, Ok(("\u{e9}", 10)));
        check("\"\u{e9}\"", Ok(("\u{e9}", 4)));
        for bad in [
            r#"""#,
            r#""a"#,
            r#""\"#,
            r#""\q""#,
            r#""\'""#,
            r#""\xff""#,
            r#""\x4""#,
            r#""\ud800""#,
            "\"\n\"",
            r#""\x+1""#,
        ] {
            check(bad, Err(()));
        }
    }
}
