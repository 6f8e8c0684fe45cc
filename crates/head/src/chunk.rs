//! Compressed samples of one series: appended one by one, read as columns.
//!
//! ```text
//!   chunk   = first timestamp (i64 LE) · exponent (u8) · first value (8 bytes LE) · token*
//!   token   = control (u8) · [change of interval] · [value]
//!   control = time class (bits 7-6) · length n of the value part (bits 5-2) · variant (bits 1-0)
//! ```
//!
//! Time is the change of the interval ("delta of deltas"): none, 1, 4 or 8 bytes for classes 0 to 3.
//!
//! Most numbers that people measure are short decimals, so a chunk first tries `value = mantissa /
//! 10^exponent`, exact to the bit, with one exponent for the whole chunk; the token then holds the change of
//! the mantissa in `n` bytes (zigzag). A value with no such form is put in whole (variant 2). Where those
//! prevail, the next chunk is a float chunk (exponent [`FLOAT`]): XOR with the previous value's bits, of
//! which `n` bytes are kept after leaving out `variant` leading zero bytes and the trailing ones. In both,
//! `n = 0` with variant 1 is a run: the next byte says how many more samples repeat value and interval, so a
//! constant costs nothing.
//!
//! Everything is whole bytes: less dense than Gorilla's bits (Pelkonen et al., 2015) on pure noise, denser
//! on decimals, and several times faster to read.

use model::{Samples, TimeRange};

#[cfg(test)]
mod tests;

/// Samples in a chunk at the most: an hour at four a minute.
pub(crate) const SAMPLES_MAX: u16 = 240;

/// The exponent byte of a float chunk.
const FLOAT: u8 = 0xff;

/// Larger exponents are not tried: 16 digits are all a double has.
const EXPONENT_MAX: u8 = 15;

/// Mantissas stay below this, so that they are exact as doubles and so is every power of ten used.
const MANTISSA_MAX: f64 = (1u64 << 53) as f64;

const POW10: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

const HEADER_BYTES: usize = 17;
const VARIANT_RUN: u8 = 1;
const VARIANT_RAW: u8 = 2;

/// What a finished chunk's bytes end with: the last timestamp (i64 LE) and the number of samples (u16 LE).
const FOOTER_BYTES: usize = 10;

/// A finished chunk: one allocation of exactly its size, footer included.
#[derive(Debug, Clone)]
pub struct Chunk {
    bytes: Box<[u8]>,
}

impl Chunk {
    /// How many samples there are.
    pub fn count(&self) -> u16 {
        let count = self.bytes.len() - 2;
        u16::from_le_bytes([self.bytes[count], self.bytes[count + 1]])
    }

    /// The range from the first to the last sample.
    pub fn range(&self) -> TimeRange {
        let footer = self.bytes.len() - FOOTER_BYTES;
        TimeRange::new(
            i64::from_le_bytes(array(&self.bytes[..8])),
            i64::from_le_bytes(array(&self.bytes[footer..footer + 8])),
        )
    }

    /// Bytes of memory, the handle included.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    /// Bytes that the samples alone take.
    pub const fn data_bytes(&self) -> usize {
        self.bytes.len() - FOOTER_BYTES
    }

    /// Appends the samples inside `range` to `out`.
    pub fn read(&self, range: TimeRange, out: &mut Samples) {
        if self.range().overlaps(&range) {
            read(&self.bytes, self.count(), range, out);
        }
    }
}

/// A chunk that still grows. 48 bytes, so that a series' hot state fits a cache line.
#[derive(Debug, Clone)]
pub struct OpenChunk {
    bytes: Vec<u8>,
    last_ms: i64,
    /// Mantissa or bits of the last value that went through the value coder. Of an empty chunk: the bits of
    /// the newest value, where `last_delta` is [`REMEMBERS`].
    last_value: u64,
    /// The last interval, or `u32::MAX` where it was longer than that.
    last_delta: u32,
    count: u16,
    /// Values put in whole, in a decimal chunk.
    raw_count: u8,
    /// The last token is a run and can still grow.
    in_run: bool,
}

/// In an empty chunk's `last_delta`: the newest value is still known.
const REMEMBERS: u32 = 1;

/// The chunk is full or of the wrong kind for this value: seal it and append to a new one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Default for OpenChunk {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            last_ms: i64::MIN,
            last_value: 0,
            last_delta: 0,
            count: 0,
            raw_count: 0,
            in_run: false,
        }
    }
}

impl OpenChunk {
    /// How many samples there are.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// The time of the newest sample, also after [`Self::seal`]; `i64::MIN` before the first.
    pub const fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// The time of the first sample.
    pub fn first_ms(&self) -> i64 {
        i64::from_le_bytes(array(&self.bytes[..8]))
    }

    /// Bytes on the heap.
    pub const fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The newest value, bit-exact; that of an empty chunk only after [`Self::remember`].
    pub fn last_value(&self) -> Option<f64> {
        if self.count == 0 {
            return (self.last_delta == REMEMBERS).then(|| f64::from_bits(self.last_value));
        }
        let raw_last = self.exponent() != FLOAT && self.raw_count > 0;
        if raw_last {
            // rare: the last token may have been a raw value, which last_value does not hold
            let mut all = Samples::default();
            self.read(TimeRange::new(self.last_ms, self.last_ms), &mut all);
            return all.values.last().copied();
        }
        Some(match self.exponent() {
            FLOAT => f64::from_bits(self.last_value),
            e => decimal(self.last_value as i64, e),
        })
    }

    /// Appends the samples inside `range` to `out`.
    pub fn read(&self, range: TimeRange, out: &mut Samples) {
        if self.count > 0 && range.start_ms <= self.last_ms {
            read(&self.bytes, self.count, range, out);
        }
    }

    /// Closes the chunk. What is left is empty but remembers its newest time.
    pub(crate) fn seal(&mut self) -> Option<Chunk> {
        if self.count == 0 {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.reserve_exact(FOOTER_BYTES);
        bytes.extend_from_slice(&self.last_ms.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        *self = Self { last_ms: self.last_ms, ..Self::default() };
        Some(Chunk { bytes: bytes.into_boxed_slice() })
    }

    /// Lets go of the samples, but not of the newest time.
    pub(crate) fn clear(&mut self) {
        *self = Self { last_ms: self.last_ms, ..Self::default() };
    }

    /// Makes an empty chunk remember the newest value, so that its repetition is known as such.
    pub(crate) fn remember(&mut self, value: f64) {
        assert!(self.count == 0, "BUG: a chunk that holds samples knows its newest value");
        (self.last_value, self.last_delta) = (value.to_bits(), REMEMBERS);
    }

    fn exponent(&self) -> u8 {
        self.bytes[8]
    }

    /// Adds a sample that is newer than all others.
    #[inline]
    pub(crate) fn append(&mut self, timestamp_ms: i64, value: f64) -> Result<(), Full> {
        debug_assert!(timestamp_ms > self.last_ms, "BUG: open chunks grow forwards");
        if self.count == 0 {
            self.start(timestamp_ms, value);
            return Ok(());
        }
        if self.count >= SAMPLES_MAX {
            return Err(Full);
        }
        let delta = timestamp_ms.wrapping_sub(self.last_ms);
        let change = delta.wrapping_sub(i64::from(self.last_delta));
        let exponent = self.exponent();
        if exponent == FLOAT {
            self.put_float(change, value);
        } else {
            self.put_decimal(change, value, exponent)?;
        }
        self.count += 1;
        self.last_ms = timestamp_ms;
        self.last_delta = u32::try_from(delta).unwrap_or(u32::MAX);
        Ok(())
    }

    #[cold]
    fn start(&mut self, timestamp_ms: i64, value: f64) {
        let (exponent, first) = match decimal_form(value, 0) {
            Some((e, mantissa)) => (e, mantissa as u64),
            None => (FLOAT, value.to_bits()),
        };
        // room for a few tokens; 32 is also the allocator's next size
        self.bytes.reserve_exact(32);
        self.bytes.extend_from_slice(&timestamp_ms.to_le_bytes());
        self.bytes.push(exponent);
        self.bytes.extend_from_slice(&first.to_le_bytes());
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            last_ms: timestamp_ms,
            last_value: first,
            count: 1,
            ..Self::default()
        };
    }

    fn put_decimal(&mut self, change: i64, value: f64, exponent: u8) -> Result<(), Full> {
        let Some(mantissa) = mantissa_at(value, exponent) else {
            return self.put_odd(change, value, exponent);
        };
        let step = mantissa.wrapping_sub(self.last_value as i64);
        self.last_value = mantissa as u64;
        let zigzag = ((step << 1) ^ (step >> 63)) as u64;
        self.put_token(change, zigzag, bytes_of(zigzag), 0);
        Ok(())
    }

    /// A value that the chunk's exponent cannot hold: a larger exponent, or the value whole.
    #[cold]
    fn put_odd(&mut self, change: i64, value: f64, exponent: u8) -> Result<(), Full> {
        if let Some((larger, _)) = decimal_form(value, exponent + 1)
            && self.rescale(larger)
        {
            return self.put_decimal(change, value, larger);
        }
        if self.raw_count >= 4 && u16::from(self.raw_count) * 2 > self.count {
            return Err(Full);
        }
        self.raw_count = self.raw_count.saturating_add(1);
        self.put_token(change, value.to_bits(), 8, VARIANT_RAW);
        Ok(())
    }

    /// Writes the chunk anew with a larger exponent. False where a mantissa would get too large.
    fn rescale(&mut self, exponent: u8) -> bool {
        let mut all = Samples::default();
        self.read(TimeRange::ALL, &mut all);
        let fits = |v: &f64| mantissa_at(*v, exponent).is_some() || decimal_form(*v, 0).is_none();
        if !all.values.iter().all(fits) {
            return false;
        }
        let Some(first) = mantissa_at(all.values[0], exponent) else { return false };
        let mut anew = Self { bytes: std::mem::take(&mut self.bytes), ..Self::default() };
        anew.bytes.clear();
        anew.start(all.timestamps[0], all.values[0]);
        anew.bytes[8] = exponent;
        anew.bytes[9..HEADER_BYTES].copy_from_slice(&first.to_le_bytes());
        anew.last_value = first as u64;
        for (timestamp_ms, value) in all.timestamps.iter().zip(&all.values).skip(1) {
            let change = timestamp_ms.wrapping_sub(anew.last_ms).wrapping_sub(i64::from(anew.last_delta));
            match mantissa_at(*value, exponent) {
                Some(_) => anew.put_decimal(change, *value, exponent).expect("BUG: the mantissa fits"),
                None => {
                    anew.raw_count = anew.raw_count.saturating_add(1);
                    anew.put_token(change, value.to_bits(), 8, VARIANT_RAW);
                }
            }
            anew.count += 1;
            let delta = timestamp_ms.wrapping_sub(anew.last_ms);
            anew.last_delta = u32::try_from(delta).unwrap_or(u32::MAX);
            anew.last_ms = *timestamp_ms;
        }
        *self = anew;
        true
    }

    fn put_float(&mut self, change: i64, value: f64) {
        let bits = value.to_bits();
        let xor = bits ^ self.last_value;
        self.last_value = bits;
        if xor == 0 {
            return self.put_token(change, 0, 0, 0);
        }
        let leading = (xor.leading_zeros() / 8).min(3) as usize;
        let trailing = (xor.trailing_zeros() / 8) as usize;
        let n = 8 - leading - trailing;
        self.put_token(change, xor >> (trailing * 8), n, leading as u8);
    }

    #[inline]
    fn put_token(&mut self, change: i64, value: u64, n: usize, variant: u8) {
        if change == 0 && n == 0 {
            return self.put_repeat();
        }
        self.in_run = false;
        let (class, time_bytes) = match change {
            0 => (0u8, 0),
            -128..=127 => (1, 1),
            -0x8000_0000..=0x7fff_ffff => (2, 4),
            _ => (3, 8),
        };
        let mut token = [0u8; HEADER_BYTES];
        token[0] = class << 6 | (n as u8) << 2 | variant;
        token[1..9].copy_from_slice(&change.to_le_bytes());
        token[1 + time_bytes..9 + time_bytes].copy_from_slice(&value.to_le_bytes());
        self.extend(&token[..1 + time_bytes + n]);
    }

    /// Value and interval stayed the same.
    fn put_repeat(&mut self) {
        if self.in_run
            && let Some(run) = self.bytes.last_mut()
            && *run < u8::MAX
        {
            *run += 1;
            return;
        }
        self.in_run = true;
        self.extend(&[VARIANT_RUN, 1]);
    }

    /// Grows by a quarter and not by doubling: there is one of these for each series.
    #[inline]
    fn extend(&mut self, token: &[u8]) {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        if capacity - len < token.len() {
            let step = (capacity / 4).clamp(16, 256);
            self.bytes.reserve_exact(step.max(token.len()));
        }
        self.bytes.extend_from_slice(token);
    }
}

/// The smallest exponent from `from` on at which `value` is an exact decimal, and its mantissa there.
fn decimal_form(value: f64, from: u8) -> Option<(u8, i64)> {
    (from..=EXPONENT_MAX).find_map(|e| Some((e, mantissa_at(value, e)?)))
}

/// The integer `m` below 2^53 with `m / 10^exponent == value` to the bit. Both operands of that division
/// are exact, so it rounds the true quotient correctly, whatever exponent was chosen.
#[inline]
fn mantissa_at(value: f64, exponent: u8) -> Option<i64> {
    let power = POW10[exponent as usize];
    let scaled = value * power;
    // Rounds without a call to the library; where this is off by one (near 2^53) the check below fails and
    // the value is kept in another form. Through the integer, so that -0.0, which it cannot hold, fails too.
    let mantissa = (scaled + 0.5f64.copysign(scaled)) as i64;
    let exact = scaled.abs() < MANTISSA_MAX && (mantissa as f64 / power).to_bits() == value.to_bits();
    exact.then_some(mantissa)
}

#[inline]
fn decimal(mantissa: i64, exponent: u8) -> f64 {
    mantissa as f64 / POW10[exponent as usize]
}

const fn bytes_of(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

fn array(bytes: &[u8]) -> [u8; 8] {
    bytes.try_into().expect("BUG: eight bytes were cut out")
}

/// Appends the chunk's samples inside `range` to `out`. Most chunks lie inside as a whole: all samples are
/// unpacked, and only then those outside are cut off.
fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples) {
    let from = out.timestamps.len();
    out.timestamps.resize(from + count as usize, 0);
    out.values.resize(from + count as usize, 0.0);
    let (times, values) = (&mut out.timestamps[from..], &mut out.values[from..]);
    let reader =
        Reader { bytes, at: HEADER_BYTES, timestamp_ms: i64::from_le_bytes(array(&bytes[..8])), delta: 0 };
    let first = u64::from_le_bytes(array(&bytes[9..HEADER_BYTES]));
    match bytes[8] {
        FLOAT => reader.floats(first, times, values),
        0 => reader.decimals(first as i64, times, values, |m| m as f64),
        e => {
            let power = POW10[e as usize];
            reader.decimals(first as i64, times, values, |m| m as f64 / power);
        }
    }
    let inside = times.partition_point(|t| *t <= range.end_ms);
    let before = times[..inside].partition_point(|t| *t < range.start_ms);
    out.timestamps.truncate(from + inside);
    out.values.truncate(from + inside);
    out.timestamps.drain(from..from + before);
    out.values.drain(from..from + before);
}

/// Walks the tokens of a chunk.
///
/// Its small methods are always inlined, so that it lives in registers: where a token starts is known only
/// after the one before it, and that chain decides how long a scan takes.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    timestamp_ms: i64,
    delta: i64,
}

impl Reader<'_> {
    /// Unpacks as many samples as there are `times` and `values`.
    #[inline]
    fn decimals(mut self, first: i64, times: &mut [i64], values: &mut [f64], value: impl Fn(i64) -> f64) {
        let values = &mut values[..times.len()];
        let mut mantissa = first;
        let mut now = value(mantissa);
        (times[0], values[0]) = (self.timestamp_ms, now);
        let mut i = 1;
        while i < times.len() {
            let control = self.control();
            match control & 3 {
                VARIANT_RUN => {
                    i += self.run(now, &mut times[i..], &mut values[i..]);
                    continue;
                }
                // a run after a raw value repeats the coder's value, which stays `now`
                VARIANT_RAW => values[i] = f64::from_bits(self.take(8)),
                _ => {
                    let n = (control >> 2 & 0xf) as usize;
                    if n > 0 {
                        let zigzag = self.take(n);
                        mantissa = mantissa.wrapping_add((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
                        now = value(mantissa);
                    }
                    values[i] = now;
                }
            }
            times[i] = self.timestamp_ms;
            i += 1;
        }
    }

    /// Unpacks as many samples as there are `times` and `values`.
    fn floats(mut self, first: u64, times: &mut [i64], values: &mut [f64]) {
        let values = &mut values[..times.len()];
        let mut bits = first;
        (times[0], values[0]) = (self.timestamp_ms, f64::from_bits(bits));
        let mut i = 1;
        while i < times.len() {
            let control = self.control();
            if control == VARIANT_RUN {
                i += self.run(f64::from_bits(bits), &mut times[i..], &mut values[i..]);
                continue;
            }
            let n = (control >> 2 & 0xf) as usize;
            if n > 0 {
                let trailing = 8 - (control & 3) as usize - n;
                bits ^= self.take(n) << (trailing * 8);
            }
            (times[i], values[i]) = (self.timestamp_ms, f64::from_bits(bits));
            i += 1;
        }
    }

    /// Reads a control byte and its time part, and moves the time on, except before a run.
    #[inline(always)]
    fn control(&mut self) -> u8 {
        let control = self.bytes[self.at];
        self.at += 1;
        match control >> 6 {
            0 => {}
            1 => {
                self.delta += i64::from(self.bytes[self.at] as i8);
                self.at += 1;
            }
            2 => self.delta += i64::from(self.take(4) as u32 as i32),
            _ => self.delta = self.delta.wrapping_add(self.take(8) as i64),
        }
        if control != VARIANT_RUN {
            self.timestamp_ms = self.timestamp_ms.wrapping_add(self.delta);
            // as the writer does: intervals beyond u32 are remembered as u32::MAX
            self.delta = self.delta.min(i64::from(u32::MAX));
        }
        control
    }

    /// Value and interval stay the same for as many samples as the next byte says; returns their number.
    #[inline(always)]
    fn run(&mut self, value: f64, times: &mut [i64], values: &mut [f64]) -> usize {
        let length = self.bytes[self.at] as usize;
        self.at += 1;
        for time in &mut times[..length] {
            self.timestamp_ms = self.timestamp_ms.wrapping_add(self.delta);
            *time = self.timestamp_ms;
        }
        values[..length].fill(value);
        length
    }

    /// The next `n` (1 to 8) bytes as a little-endian number.
    #[inline(always)]
    fn take(&mut self, n: usize) -> u64 {
        let from = self.at;
        self.at += n;
        match self.bytes.get(from..from + 8) {
            Some(word) => u64::from_le_bytes(array(word)) & (u64::MAX >> (64 - 8 * n as u32)),
            None => {
                let mut word = [0u8; 8];
                word[..n].copy_from_slice(&self.bytes[from..from + n]);
                u64::from_le_bytes(word)
            }
        }
    }
}

const _: () = assert!(size_of::<OpenChunk>() == 48);
const _: () = assert!(SAMPLES_MAX <= u8::MAX as u16 + 1, "a run's length fits a byte");
