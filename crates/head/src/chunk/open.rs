//! Encoder of the chunk to which a series appends.

use super::decimal::{decimal, decimal_form, mantissa_at};
use super::{
    Chunk, ChunkValue, FLOAT, FOOTER_BYTES, HEADER_BYTES, HISTOGRAM, SAMPLES_MAX, VARIANT_RAW, VARIANT_RUN,
    array,
};
use model::{Samples, TimeRange};
use stdx::varint;

/// A chunk that still grows. It takes 48 bytes, so that it fits into one cache line together with the other
/// fields of a series that an append touches.
#[derive(Debug, Clone)]
pub struct OpenChunk {
    pub(super) bytes: Vec<u8>,
    last_ms: i64,
    /// - Decimal chunk: mantissa of the newest value that has one.
    /// - Float chunk: bits of the newest value.
    /// - Chunk of histograms: fingerprint of the newest histogram.
    /// - Empty chunk: if `last_delta` is [`REMEMBERS`], fingerprint of the series' newest value, which is in
    ///   an earlier chunk.
    last_value: u64,
    /// Milliseconds between the two newest samples. Longer intervals are stored as `u32::MAX`.
    last_delta: u32,
    count: u16,
    /// Number of values that a decimal chunk stores as plain floats, because they are not exact at its
    /// exponent.
    raw_count: u8,
    in_run: bool,
}

/// In an empty chunk, `last_delta` has this value if `last_value` is the fingerprint of the series' newest
/// value.
const REMEMBERS: u32 = 1;

/// The chunk is full, or too many of its values are stored as plain floats. Seal it and append to a new one.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

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
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Time of the newest sample, which [`Self::seal`] does not reset. `i64::MIN` if there was no sample yet.
    pub const fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// Time of the first sample. Panics if the chunk is empty.
    pub fn first_ms(&self) -> i64 {
        i64::from_le_bytes(array(&self.bytes[..8]))
    }

    pub const fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Fingerprint of the newest value: the bits of a float, a hash of a histogram. Empty chunks may have
    /// none.
    pub fn newest(&self) -> Option<u64> {
        if self.count == 0 {
            return (self.last_delta == REMEMBERS).then_some(self.last_value);
        }
        let exponent = self.exponent();
        if exponent == FLOAT || exponent == HISTOGRAM {
            return Some(self.last_value);
        }
        if self.raw_count > 0 {
            // rare: the newest value may be stored as a plain float, so it is not in `last_value`
            let mut all = Samples::<f64>::default();
            self.read(TimeRange::new(self.last_ms, self.last_ms), &mut all);
            return all.values.last().copied().map(f64::to_bits);
        }
        Some(decimal(self.last_value as i64, exponent).to_bits())
    }

    /// Appends the samples inside `range` to `out`. `V` must be the type that the chunk holds, floats or
    /// histograms.
    pub fn read<V: ChunkValue>(&self, range: TimeRange, out: &mut Samples<V>) {
        if self.count > 0 && range.start_ms <= self.last_ms {
            V::read(&self.bytes, self.count, range, out);
        }
    }

    /// Returns the samples as a finished chunk and empties this one, which remembers the time of the newest
    /// sample.
    pub fn seal(&mut self) -> Option<Chunk> {
        if self.count == 0 {
            return None;
        }
        let end = if self.exponent() == HISTOGRAM { self.tokens_end() } else { self.bytes.len() };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(end);
        bytes.reserve_exact(FOOTER_BYTES);
        bytes.extend_from_slice(&self.last_ms.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        *self = Self { last_ms: self.last_ms, ..Self::default() };
        Some(Chunk { bytes: bytes.into_boxed_slice() })
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { last_ms: self.last_ms, ..Self::default() };
    }

    /// Replaces the time of the series' newest sample, which [`Self::clear`] keeps, because this sample was deleted. The
    /// chunk must be empty.
    pub(crate) fn set_newest_ms(&mut self, newest_ms: i64) {
        assert!(self.count == 0, "BUG: the chunk holds the newest sample");
        *self = Self { bytes: std::mem::take(&mut self.bytes), last_ms: newest_ms, ..Self::default() };
    }

    /// Gives an empty chunk the fingerprint of the series' newest value, to detect repetitions.
    pub(crate) fn set_newest_fingerprint(&mut self, fingerprint: u64) {
        assert!(self.count == 0, "BUG: the chunk already holds samples");
        (self.last_value, self.last_delta) = (fingerprint, REMEMBERS);
    }

    pub(super) fn start_of(&mut self, timestamp_ms: i64) {
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            last_ms: timestamp_ms,
            count: 1,
            ..Self::default()
        };
    }

    /// Records the time of another histogram. Returns the difference between its interval and the previous
    /// one.
    pub(super) fn advance(&mut self, timestamp_ms: i64) -> i64 {
        let delta = timestamp_ms.wrapping_sub(self.last_ms);
        let change = delta.wrapping_sub(i64::from(self.last_delta));
        self.count += 1;
        self.last_ms = timestamp_ms;
        self.last_delta = u32::try_from(delta).unwrap_or(u32::MAX);
        change
    }

    pub(super) const fn set_newest(&mut self, fingerprint: u64) {
        self.last_value = fingerprint;
    }

    pub(super) fn exponent(&self) -> u8 {
        self.bytes[8]
    }

    /// Appends a sample. Its time must be greater than the newest time. An empty chunk also accepts an equal
    /// time.
    #[inline]
    pub fn append(&mut self, timestamp_ms: i64, value: f64) -> Result<(), Full> {
        let is_repeated = self.count == 0 && timestamp_ms == self.last_ms;
        debug_assert!(
            timestamp_ms > self.last_ms || is_repeated,
            "BUG: a sample is not newer than the chunk's newest"
        );
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
        // 32 bytes have room for the header and a few tokens, and are a size class of the allocator
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
        let zigzag = varint::zigzag(step);
        self.put_token(change, zigzag, bytes_of(zigzag), 0);
        Ok(())
    }

    /// Stores a value that is not exact at the chunk's exponent. Either the whole chunk gets a larger
    /// exponent, or this value is stored as a plain float.
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

    /// Rewrites the chunk with a larger exponent. Returns false if a mantissa would be too large.
    fn rescale(&mut self, exponent: u8) -> bool {
        let mut all = Samples::<f64>::default();
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
                Some(_) => anew.put_decimal(change, *value, exponent).expect("BUG: no room for a mantissa"),
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

    /// Appends a sample that repeats the previous value and interval, by starting a run or extending it.
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

    /// Appends a token. The buffer grows by a quarter, to save memory.
    #[inline]
    pub(super) fn extend(&mut self, token: &[u8]) {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        if capacity - len < token.len() {
            let step = (capacity / 4).clamp(16, 256);
            self.bytes.reserve_exact(step.max(token.len()));
        }
        self.bytes.extend_from_slice(token);
    }
}

const fn bytes_of(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

const _: () = assert!(size_of::<OpenChunk>() == 48);
