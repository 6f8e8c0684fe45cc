//! Builds a short text from its end, because the digits of a number become known from the last to the first.

const LEN: usize = 64;

const DIGITS: [[u8; 2]; 100] = {
    let (mut pairs, mut n) = ([[0; 2]; 100], 0);
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// A text of at most [`LEN`] bytes. More are a bug.
#[derive(Debug)]
pub(super) struct Backwards {
    bytes: [u8; LEN],
    from: usize,
}

impl Backwards {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { bytes: [0; LEN], from: LEN }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

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

    /// Writes `n / 10^places`.
    #[inline]
    pub(super) fn decimal(&mut self, n: i64, places: usize) {
        let mut rest = n.unsigned_abs();
        if places > 0 {
            for _ in 0..places {
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
