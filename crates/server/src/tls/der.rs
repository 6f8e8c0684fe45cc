//! Reads DER, for the fields of certificates that the TLS library does not give access to. Iteration over
//! elements ends at malformed bytes.

use stdx::calendar::Date;

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Context-specific tag 0, which contains the version of a certificate.
const VERSION: u8 = 0xa0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
}

impl<'a> Element<'a> {
    /// If this element has the given tag, returns the elements inside it.
    pub(super) fn elements(self, tag: u8) -> Option<Elements<'a>> {
        (self.tag == tag).then_some(Elements(self.content))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let rest = std::mem::take(&mut self.0);
        let (&tag, rest) = rest.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // the first byte says how many bytes the length has; three are enough for 16 MiB
            0x81..=0x83 => {
                let (length, after) = rest.split_at_checked(usize::from(first - 0x80))?;
                rest = after;
                length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some(Element { tag, content })
    }
}

/// The time in which a certificate is valid, as Unix time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from_s: i64,
    pub(super) expires_s: i64,
}

pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let signed = Elements(certificate).next()?.elements(SEQUENCE)?.next()?.elements(SEQUENCE)?;
    let mut fields = signed.skip_while(|field| field.tag == VERSION);
    // the fields before it are the serial number, the algorithm and the issuer
    let mut times = fields.nth(3)?.elements(SEQUENCE)?;
    let (from, expires) = (times.next()?, times.next()?);
    Some(Validity { from_s: time_s(from)?, expires_s: time_s(expires)? })
}

/// Parses a time such as `YYMMDDhhmmssZ` (for 1950 to 2049) or `YYYYMMDDhhmmssZ`, and returns Unix time.
fn time_s(time: Element<'_>) -> Option<i64> {
    let digits = std::str::from_utf8(time.content).ok()?.strip_suffix('Z')?;
    let (year, rest) = match time.tag {
        UTC_TIME => digits.split_at_checked(2)?,
        GENERALIZED_TIME => digits.split_at_checked(4)?,
        _ => return None,
    };
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let pair = |at: usize| number(rest.get(2 * at..2 * at + 2)?);
    let year = match (time.tag, number(year)?) {
        (UTC_TIME, year) if year >= 50 => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let date = Date { year, month: pair(0)?, day: pair(1)? };
    let is_date = (1..=12).contains(&date.month) && (1..=31).contains(&date.day);
    is_date.then_some(())?;
    Some(date.days() * 86_400 + pair(2)? * 3600 + pair(3)? * 60 + pair(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_end_where_bytes_are_malformed() {
        let check = |bytes: &[u8], expected: &[(u8, &[u8])]| {
            let found: Vec<_> = Elements(bytes).map(|element| (element.tag, element.content)).collect();
            assert_eq!(found, expected, "{bytes:?}");
        };
        check(&[], &[]);
        check(&[0x0c, 0x01, b'a', 0x30, 0x00], &[(0x0c, b"a"), (0x30, b"")]);
        check(&[0x0c, 0x81, 0x01, b'a'], &[(0x0c, b"a")]);
        check(&[0x0c, 0x82, 0x00, 0x01, b'a'], &[(0x0c, b"a")]);
        for cut in [&[0x0c][..], &[0x0c, 2, b'a'], &[0x0c, 0x80], &[0x0c, 0x84, 0, 0, 0, 0], &[0x0c, 0x82, 0]]
        {
            check(cut, &[]);
            check(&[&[0x0c, 1, b'a'], cut].concat(), &[(0x0c, b"a")]);
        }
    }

    #[test]
    fn times() {
        let check = |tag, text: &str, expected| {
            assert_eq!(time_s(Element { tag, content: text.as_bytes() }), expected, "{text}");
        };
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        for wrong in
            ["", "Z", "7001010000Z", "701301000000Z", "70010100000xZ", "700101000000", "+70101000000Z"]
        {
            check(UTC_TIME, wrong, None);
        }
        check(SEQUENCE, "700101000000Z", None);
        assert_eq!(validity(b"not a certificate"), None);
    }
}
