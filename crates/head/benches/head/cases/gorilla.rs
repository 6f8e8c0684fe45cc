//! The comparison for ADR 0004: a bit-packed XOR chunk with milliseconds. Source: Pelkonen et al., "Gorilla:
//! a fast, scalable, in-memory time series database" (VLDB 2015), section 4.1.
//!
//! ```text
//!   time     the change of the interval:
//!            0 (no change)    10 + 7 bits    110 + 9 bits    1110 + 12 bits    1111 + 64 bits
//!   value    the XOR with the previous value:
//!            0 (equal)    10 + the bits inside the previous window    11 + 5 bits of leading zeros + 6 bits of length + the bits
//! ```

use model::Samples;

/// Writes bits into words of 64 bits, highest bit first.
#[derive(Debug, Default)]
struct BitWriter {
    words: Vec<u64>,
    free: u32,
}

impl BitWriter {
    /// Appends the low `n` bits (1 to 64).
    #[inline]
    fn put(&mut self, bits: u64, n: u32) {
        let bits = bits & (u64::MAX >> (64 - n));
        if n <= self.free {
            self.free -= n;
            *self.words.last_mut().expect("BUG: free bits are in a word") |= bits << self.free;
            return;
        }
        let over = n - self.free;
        if self.free > 0 {
            *self.words.last_mut().expect("BUG: free bits are in a word") |= bits >> over;
        }
        self.free = 64 - over;
        self.words.push(bits << self.free);
    }

    const fn bits(&self) -> usize {
        self.words.len() * 64 - self.free as usize
    }
}

#[derive(Debug)]
struct BitReader<'a> {
    words: &'a [u64],
    at: usize,
}

impl BitReader<'_> {
    /// Returns the next 64 bits without consuming them. Zeros follow the end.
    #[inline]
    fn peek(&self) -> u64 {
        let (word, shift) = (self.at / 64, self.at % 64);
        let high = self.words.get(word).copied().unwrap_or(0) << shift;
        let low = self.words.get(word + 1).copied().unwrap_or(0);
        high | (low >> 1) >> (63 - shift)
    }

    #[inline]
    fn take(&mut self, n: u32) -> u64 {
        let bits = self.peek() >> (64 - n);
        self.at += n as usize;
        bits
    }

    #[inline]
    fn take_signed(&mut self, n: u32) -> i64 {
        let bits = self.peek() as i64 >> (64 - n);
        self.at += n as usize;
        bits
    }
}

/// An XOR chunk, which can be read while it grows.
#[derive(Debug, Default)]
pub(crate) struct XorChunk {
    bits: BitWriter,
    count: u16,
    last_ms: i64,
    last_delta: i64,
    last_value: u64,
    leading: u32,
    /// Significant bits in the window; 0 before the first window.
    length: u32,
}

impl XorChunk {
    pub(crate) fn bytes(&self) -> usize {
        self.bits.bits().div_ceil(8)
    }

    #[inline]
    pub(crate) fn append(&mut self, timestamp_ms: i64, value: f64) {
        let value = value.to_bits();
        self.count += 1;
        if self.count == 1 {
            self.bits.put(timestamp_ms as u64, 64);
            self.bits.put(value, 64);
        } else {
            self.put_time(timestamp_ms);
            self.put_value(value);
        }
        self.last_ms = timestamp_ms;
        self.last_value = value;
    }

    fn put_time(&mut self, timestamp_ms: i64) {
        let delta = timestamp_ms - self.last_ms;
        let change = delta - self.last_delta;
        self.last_delta = delta;
        let (prefix, prefix_bits, bits) = match change {
            0 => return self.bits.put(0, 1),
            -64..=63 => (0b10, 2, 7),
            -256..=255 => (0b110, 3, 9),
            -2048..=2047 => (0b1110, 4, 12),
            _ => (0b1111, 4, 64),
        };
        self.bits.put(prefix, prefix_bits);
        self.bits.put(change as u64, bits);
    }

    fn put_value(&mut self, value: u64) {
        let xor = value ^ self.last_value;
        if xor == 0 {
            return self.bits.put(0, 1);
        }
        let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
        if self.length > 0 && leading >= self.leading && trailing >= 64 - self.leading - self.length {
            self.bits.put(0b10, 2);
        } else {
            self.leading = leading;
            self.length = 64 - leading - trailing;
            self.bits.put(0b11, 2);
            self.bits.put(u64::from(leading), 5);
            // lengths from 1 to 64 are stored as 0 to 63, in six bits
            self.bits.put(u64::from(self.length - 1), 6);
        }
        self.bits.put(xor >> (64 - self.leading - self.length), self.length);
    }

    pub(crate) fn read(&self, out: &mut Samples) {
        out.timestamps.reserve(self.count as usize);
        out.values.reserve(self.count as usize);
        let mut bits = BitReader { words: &self.bits.words, at: 0 };
        let (mut timestamp_ms, mut value) = (bits.take(64) as i64, bits.take(64));
        let (mut delta, mut leading, mut length) = (0i64, 0u32, 0u32);
        out.push(timestamp_ms, f64::from_bits(value));
        for _ in 1..self.count {
            delta += read_change(&mut bits);
            timestamp_ms += delta;
            if bits.take(1) == 1 {
                if bits.take(1) == 1 {
                    leading = bits.take(5) as u32;
                    length = bits.take(6) as u32 + 1;
                }
                value ^= bits.take(length) << (64 - leading - length);
            }
            out.push(timestamp_ms, f64::from_bits(value));
        }
    }
}

#[inline]
fn read_change(bits: &mut BitReader<'_>) -> i64 {
    let ones = (!bits.peek()).leading_zeros().min(4);
    bits.at += if ones < 4 { ones as usize + 1 } else { 4 };
    match ones {
        0 => 0,
        1 => bits.take_signed(7),
        2 => bits.take_signed(9),
        3 => bits.take_signed(12),
        _ => bits.take_signed(64),
    }
}
