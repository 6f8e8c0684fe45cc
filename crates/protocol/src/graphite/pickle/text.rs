//! Strings of protocol 0, which are written as text.

use super::PickleFault;

const NOT_A_STRING: PickleFault = PickleFault::Argument("a string");

/// Returns what is between the quotes of a line such as `'a.b'`.
pub(super) fn unquoted(line: &[u8]) -> Result<&[u8], PickleFault> {
    let line = line.trim_ascii();
    match line {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => Ok(inner),
        _ => Err(NOT_A_STRING),
    }
}

/// Appends a byte string with the escapes of Python's `repr`.
pub(super) fn unescape_bytes(escaped: &[u8], out: &mut Vec<u8>) -> Result<(), PickleFault> {
    let mut rest = escaped;
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let [escape, others @ ..] = rest else { return Err(NOT_A_STRING) };
        rest = others;
        out.push(match escape {
            b'\\' | b'\'' | b'"' => *escape,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => hexadecimal(&mut rest, 2)? as u8,
            _ => return Err(NOT_A_STRING),
        });
    }
    Ok(())
}

/// Appends a text as UTF-8. In its line, bytes from 128 on are Latin-1, and other characters are escaped as `\uXXXX`.
pub(super) fn unescape_text(line: &[u8], out: &mut Vec<u8>) -> Result<(), PickleFault> {
    let mut rest = line;
    while let [first, others @ ..] = rest {
        rest = others;
        let code = match (first, rest) {
            (b'\\', [b'u', others @ ..]) => {
                rest = others;
                hexadecimal(&mut rest, 4)?
            }
            (b'\\', [b'U', others @ ..]) => {
                rest = others;
                hexadecimal(&mut rest, 8)?
            }
            _ => u32::from(*first),
        };
        let character = char::from_u32(code).ok_or(NOT_A_STRING)?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(())
}

fn hexadecimal(rest: &mut &[u8], digits: usize) -> Result<u32, PickleFault> {
    let (text, others) = rest.split_at_checked(digits).ok_or(NOT_A_STRING)?;
    *rest = others;
    let is_hexadecimal = text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_hexadecimal).ok_or(NOT_A_STRING)?;
    u32::from_str_radix(text, 16).map_err(|_| NOT_A_STRING)
}
