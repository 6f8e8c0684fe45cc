//! Builds a short text from its end, because the digits of a number become known from the last to the first.

/// Longest text.
const LEN: usize = 64;

/// Most digits of the quotient of a time and [`TIMES`].
const QUOTIENT_LEN: usize = 16;

/// Number of times in succession that share their first digits.
const TIMES: u64 = 10_000;

const DIGITS: [[u8; 2]; 100] = {
    let (mut pairs, mut n) = ([[0; 2]; 100], 0);
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// A text of at most [`LEN`] bytes. More are a bug.
///
/// Copies have a constant length where possible, and take bytes along that do not belong to the text. A few
/// instructions do this, while a copy of a length that is known at run time is a call.
#[derive(Debug)]
pub(super) struct Backwards {
    /// The text ends in the middle.
    bytes: [u8; 2 * LEN],
    from: usize,
    quotient: Quotient,
}

/// The digits that the last time shares with those around it.
#[derive(Debug)]
struct Quotient {
    value: u64,
    /// Its digits are at the end.
    text: [u8; QUOTIENT_LEN],
    digits: usize,
}

impl Default for Backwards {
    fn default() -> Self {
        let quotient = Quotient { value: 0, text: [b'0'; QUOTIENT_LEN], digits: 1 };
        Self { bytes: [0; 2 * LEN], from: LEN, quotient }
    }
}

impl Backwards {
    #[inline]
    pub(super) const fn clear(&mut self) {
        self.from = LEN;
    }

    #[cfg(test)]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.from..LEN]
    }

    /// Appends the text to `bytes`, and then removes what was copied along.
    #[inline]
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        let (text, rest): (&[u8; LEN], _) =
            self.bytes[self.from..].split_first_chunk().expect("BUG: less than a copy after the text");
        debug_assert_eq!(rest.len(), LEN - self.from);
        let to = bytes.len() + LEN - self.from;
        bytes.extend_from_slice(text);
        bytes.truncate(to);
    }

    /// Number of bytes by which [`Self::append_to`] grows a vector for a moment.
    pub(super) const COPY_BYTES: usize = LEN;

    #[inline]
    pub(super) const fn byte(&mut self, byte: u8) {
        self.from -= 1;
        self.bytes[self.from] = byte;
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        let to = self.from;
        self.from -= text.len();
        self.bytes[self.from..to].copy_from_slice(text);
    }

    #[inline]
    pub(super) fn integer(&mut self, n: i64) {
        self.digits(n.unsigned_abs());
        if n < 0 {
            self.byte(b'-');
        }
    }

    /// Writes an integer that probably differs from the last one in its last four digits only.
    #[inline]
    pub(super) fn time(&mut self, n: i64) {
        let (quotient, rest) = (n.unsigned_abs() / TIMES, (n.unsigned_abs() % TIMES) as usize);
        if n < TIMES as i64 {
            return self.integer(n);
        }
        if quotient != self.quotient.value {
            self.quotient = Quotient::of(quotient);
        }
        self.pair(rest % 100);
        self.pair(rest / 100);
        self.bytes[self.from - QUOTIENT_LEN..self.from].copy_from_slice(&self.quotient.text);
        self.from -= self.quotient.digits;
    }

    /// Writes `n / 10^places`.
    #[inline]
    pub(super) fn decimal(&mut self, n: i64, mut places: usize) {
        let mut rest = n.unsigned_abs();
        if places > 0 {
            while places >= 2 {
                self.pair((rest % 100) as usize);
                (rest, places) = (rest / 100, places - 2);
            }
            if places > 0 {
                self.byte(b'0' + (rest % 10) as u8);
                rest /= 10;
            }
            self.byte(b'.');
        }
        self.digits(rest);
        if n < 0 {
            self.byte(b'-');
        }
    }

    #[inline]
    fn digits(&mut self, mut n: u64) {
        while n >= 100 {
            self.pair((n % 100) as usize);
            n /= 100;
        }
        match n {
            0..=9 => self.byte(b'0' + n as u8),
            _ => self.pair(n as usize),
        }
    }

    #[inline]
    fn pair(&mut self, n: usize) {
        let to = self.from;
        self.from -= 2;
        self.bytes[self.from..to].copy_from_slice(&DIGITS[n]);
    }
}

impl Quotient {
    #[cold]
    fn of(value: u64) -> Self {
        let (mut text, mut digits, mut rest) = ([b'0'; QUOTIENT_LEN], 0, value);
        while rest > 0 {
            digits += 1;
            text[QUOTIENT_LEN - digits] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self { value, text, digits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_integers() {
        let mut text = Backwards::default();
        let around = |n: i64| [n - 1, n, n + 1];
        let times =
            [0, 9_999, 10_000, 99_999, 1_795_284_000, 1_795_290_000, i64::MAX - 1, -1, -10_000, i64::MIN + 1];
        for n in times.into_iter().flat_map(around) {
            text.clear();
            text.time(n);
            assert_eq!(std::str::from_utf8(text.as_bytes()).unwrap(), n.to_string());
        }
    }

    #[test]
    fn nothing_but_the_text_is_appended() {
        let mut text = Backwards::default();
        text.text(&[b'x'; LEN]);
        let mut bytes = Vec::new();
        text.append_to(&mut bytes);
        assert_eq!(bytes, [b'x'; LEN]);
        text.clear();
        text.append_to(&mut bytes);
        text.byte(b'y');
        text.append_to(&mut bytes);
        assert_eq!(bytes[LEN..], *b"y");
    }
}
