//! Decoder of chunks into columns.

use super::decimal::POW10;
use super::{FLOAT, HEADER_BYTES, VARIANT_RAW, VARIANT_RUN, array};
use model::{Samples, TimeRange};
use stdx::varint;

pub(super) fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples) {
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

/// Walks the tokens of a chunk. Its methods are always inlined, so that the reader stays in registers.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    timestamp_ms: i64,
    delta: i64,
}

impl Reader<'_> {
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
                // does not change `now`, because a run repeats the last value that has a mantissa
                VARIANT_RAW => values[i] = f64::from_bits(self.take(8)),
                _ => {
                    let n = (control >> 2 & 0xf) as usize;
                    if n > 0 {
                        mantissa = mantissa.wrapping_add(varint::unzigzag(self.take(n)));
                        now = value(mantissa);
                    }
                    values[i] = now;
                }
            }
            times[i] = self.timestamp_ms;
            i += 1;
        }
    }

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

    /// Reads a control byte, and the change of the interval after it. Also advances the time, except before a
    /// run, which advances it for each of its samples.
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
            // the writer limits the interval, too
            self.delta = self.delta.min(i64::from(u32::MAX));
        }
        control
    }

    /// Fills in the samples of a run. Returns their number.
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
