//! Decodes and encodes chunks of floats. A timestamp is stored as the difference of two intervals: the one
//! from the previous timestamp to this one, and the one before that. A value is stored as XOR with the
//! previous value.
//!
//! Source: Pelkonen et al., "Gorilla: a fast, scalable, in-memory time series database", VLDB 2015, section
//! 4.1, with Prometheus' bit widths:
//!
//! ```text
//!   count u16, t0 varint, v0 64 bits, (t1 - t0) uvarint, v1 xor, then for each: difference of differences, xor
//!
//!   difference of differences:  0            0
//!                               10           14 bits        110   17 bits
//!                               1110         20 bits        1111  64 bits
//!   xor:                        0            the same value
//!                               10           bits in the same position and number as last time
//!                               11           number of leading zeros in 5 bits, length in 6 (0 is 64), the bits
//! ```

use model::Samples;

/// Appends the samples of a chunk. If the data is truncated or invalid, the samples before the fault are
/// appended, and the result is `None`.
pub fn decode(data: &[u8], samples: &mut Samples) -> Option<()> {
    let count = u16::from_be_bytes(*data.first_chunk()?);
    let mut bits = Bits::new(&data[2..]);
    let (mut t, mut delta) = (0i64, 0i64);
    let mut value = Xor::default();
    for i in 0..count {
        match i {
            0 => {
                t = bits.varint()?;
                value.bits = bits.take(64)?;
            }
            1 => {
                delta = bits.uvarint()? as i64;
                t = t.wrapping_add(delta);
                value.next(&mut bits)?;
            }
            _ => {
                delta = delta.wrapping_add(bits.difference()?);
                t = t.wrapping_add(delta);
                value.next(&mut bits)?;
            }
        }
        samples.push(t, f64::from_bits(value.bits));
    }
    Some(())
}

/// The latest value, and the range of changed bits that the chunk stated last. The next values can reuse this
/// range.
#[derive(Debug, Default)]
struct Xor {
    bits: u64,
    trailing: u32,
    /// Length of the range in bits. It is 0 until the chunk states a range.
    width: u32,
}

impl Xor {
    fn next(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        if bits.take(1)? == 0 {
            return Some(());
        }
        if bits.take(1)? == 1 {
            let leading = bits.take(5)? as u32;
            let width = bits.take(6)? as u32;
            self.width = if width == 0 { 64 } else { width };
            self.trailing = 64u32.checked_sub(leading + self.width)?;
        }
        let width = if self.width == 0 { 64 } else { self.width };
        self.bits ^= bits.take(width)? << self.trailing;
        Some(())
    }
}

/// Reads a stream of bits. The most significant bit of a byte comes first.
#[derive(Debug)]
struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits that were read from `bytes` but not taken yet. They start at the most significant bit.
    held: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, held: 0, count: 0 }
    }

    #[inline]
    fn take(&mut self, width: u32) -> Option<u64> {
        if width > 32 {
            let high = self.take_short(width - 32)?;
            return Some(high << 32 | self.take_short(32)?);
        }
        self.take_short(width)
    }

    #[inline]
    fn take_short(&mut self, width: u32) -> Option<u64> {
        if self.count < width {
            self.refill();
            if self.count < width {
                return None;
            }
        }
        let out = self.held >> (64 - width);
        self.held <<= width;
        self.count -= width;
        Some(out)
    }

    #[inline]
    fn refill(&mut self) {
        // there is room, because fewer than 32 bits are held
        if let Some((four, rest)) = self.bytes.split_first_chunk::<4>() {
            self.held |= u64::from(u32::from_be_bytes(*four)) << (32 - self.count);
            self.count += 32;
            self.bytes = rest;
            return;
        }
        while let Some((byte, rest)) = self.bytes.split_first() {
            self.held |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.bytes = rest;
        }
    }

    fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for i in 0..10 {
            let byte = self.take(8)?;
            if i == 9 && byte > 1 {
                return None;
            }
            value |= (byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn varint(&mut self) -> Option<i64> {
        self.uvarint().map(stdx::varint::unzigzag)
    }

    fn difference(&mut self) -> Option<i64> {
        let mut ones = 0;
        while ones < 4 && self.take(1)? == 1 {
            ones += 1;
        }
        let width = match ones {
            0 => return Some(0),
            1 => 14,
            2 => 17,
            3 => 20,
            _ => return self.take(64).map(|n| n as i64),
        };
        let n = self.take(width)? as i64;
        // the range is -2^(width-1) + 1 to 2^(width-1)
        Some(if n > 1 << (width - 1) { n - (1 << width) } else { n })
    }
}

/// Encodes samples as a chunk, for tests. They need not be in the order of time.
pub fn encode(timestamps: &[i64], values: &[f64]) -> Vec<u8> {
    let mut out = BitsOut { bytes: (timestamps.len() as u16).to_be_bytes().to_vec(), free: 0 };
    let (mut delta, mut leading, mut trailing) = (0i64, u32::MAX, 0);
    for (i, (t, v)) in timestamps.iter().zip(values).enumerate() {
        let before = if i == 0 { 0 } else { timestamps[i - 1] };
        match i {
            0 => out.varint(*t),
            1 => {
                delta = t.wrapping_sub(before);
                out.uvarint(delta as u64);
            }
            _ => {
                let next = t.wrapping_sub(before);
                out.difference(next.wrapping_sub(delta));
                delta = next;
            }
        }
        if i == 0 {
            out.put(v.to_bits(), 64);
            continue;
        }
        let xor = v.to_bits() ^ values[i - 1].to_bits();
        if xor == 0 {
            out.put(0, 1);
            continue;
        }
        if leading == u32::MAX || xor.leading_zeros() < leading || xor.trailing_zeros() < trailing {
            (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
            out.put(0b11, 2);
            out.put(u64::from(leading), 5);
            out.put(u64::from(64 - leading - trailing) & 63, 6);
        } else {
            out.put(0b10, 2);
        }
        out.put(xor >> trailing, 64 - leading - trailing);
    }
    out.bytes
}

#[derive(Debug)]
struct BitsOut {
    bytes: Vec<u8>,
    free: u32,
}

impl BitsOut {
    fn put(&mut self, bits: u64, width: u32) {
        for i in (0..width).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            let last = self.bytes.last_mut().expect("BUG: there is no byte to fill");
            *last |= ((bits >> i & 1) as u8) << self.free;
        }
    }

    fn uvarint(&mut self, n: u64) {
        let mut bytes = Vec::new();
        stdx::varint::put(&mut bytes, n);
        bytes.into_iter().for_each(|b| self.put(u64::from(b), 8));
    }

    fn varint(&mut self, n: i64) {
        self.uvarint(stdx::varint::zigzag(n));
    }

    fn difference(&mut self, n: i64) {
        let fits = |width: u32| n > -(1i64 << (width - 1)) && n <= 1 << (width - 1);
        match n {
            0 => self.put(0, 1),
            _ if fits(14) => self.tagged(0b10, 2, n, 14),
            _ if fits(17) => self.tagged(0b110, 3, n, 17),
            _ if fits(20) => self.tagged(0b1110, 4, n, 20),
            _ => self.tagged(0b1111, 4, n, 64),
        }
    }

    fn tagged(&mut self, tag: u64, tag_width: u32, n: i64, width: u32) {
        self.put(tag, tag_width);
        self.put(n as u64, width);
    }
}
