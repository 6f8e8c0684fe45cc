//! Chunks of native histograms.
//!
//! ```text
//!   chunk = first timestamp (i64 LE) · HISTOGRAM (u8) · varint length, first histogram · token*
//!   token = zigzag change of the interval · body
//!   body  = SAME
//!         | COUNTS + reset (u8) · zigzag change of each count · sum (8 bytes LE)
//!         | WHOLE (u8) · varint length, histogram
//! ```
//!
//! While a chunk is open, it ends with the newest histogram in full and its length (u32 LE), because the next
//! histogram is compared with it. Sealing removes both.

use super::open::Full;
use super::{HISTOGRAM, OpenChunk, SAMPLES_MAX, array};
use model::histogram::{CounterReset, Counts, HistogramParts};
use model::{Histogram, Samples, TimeRange};
use stdx::varint::{self, unzigzag, zigzag};
use xxhash_rust::xxh3::xxh3_64;

/// An open chunk of this size in bytes takes no more histograms, because a read must decode the whole chunk.
const OPEN_BYTES_MAX: usize = 32 << 10;

const HISTOGRAM_HEADER_BYTES: usize = 9;

const SAME: u8 = 0;
const COUNTS: u8 = 1;
const WHOLE: u8 = 5;

const LENGTH_BYTES: usize = 4;

pub(super) fn fingerprint(histogram: &Histogram) -> u64 {
    xxh3_64(histogram.as_bytes())
}

impl OpenChunk {
    /// Appends a histogram. Its time must meet the conditions of [`Self::append`]. A chunk holds either
    /// histograms or floats.
    pub fn append_histogram(&mut self, timestamp_ms: i64, value: &Histogram) -> Result<(), Full> {
        let mut token = Vec::new();
        if self.count() == 0 {
            token.extend_from_slice(&timestamp_ms.to_le_bytes());
            token.push(HISTOGRAM);
            put_bytes(&mut token, value.as_bytes());
            self.start_of(timestamp_ms);
        } else {
            assert!(self.exponent() == HISTOGRAM, "BUG: a histogram was appended to a chunk of floats");
            if self.count() >= SAMPLES_MAX || self.bytes.len() >= OPEN_BYTES_MAX {
                return Err(Full);
            }
            varint::put(&mut token, zigzag(self.advance(timestamp_ms)));
            let end = self.tokens_end();
            put_body(&mut token, &self.bytes[end..self.bytes.len() - LENGTH_BYTES], value);
            self.bytes.truncate(end);
        }
        token.extend_from_slice(value.as_bytes());
        token.extend_from_slice(&(value.as_bytes().len() as u32).to_le_bytes());
        self.extend(&token);
        self.set_newest(fingerprint(value));
        Ok(())
    }

    pub(super) fn tokens_end(&self) -> usize {
        let at = self.bytes.len() - LENGTH_BYTES;
        let len = u32::from_le_bytes(self.bytes[at..].try_into().expect("BUG: not four bytes"));
        at - len as usize
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_body(out: &mut Vec<u8>, newest: &[u8], value: &Histogram) {
    if newest == value.as_bytes() {
        return out.push(SAME);
    }
    let (old, new) = (parts(newest), value.parts());
    match (&old.counts, &new.counts) {
        (Counts::Whole(from), Counts::Whole(to)) if old.layout == new.layout => {
            out.push(COUNTS + new.reset as u8);
            let changes = from.iter().zip(to).map(|(from, to)| to.wrapping_sub(*from) as i64);
            changes.for_each(|change| varint::put(out, zigzag(change)));
            out.extend_from_slice(&new.sum.to_bits().to_le_bytes());
        }
        _ => {
            out.push(WHOLE);
            put_bytes(out, value.as_bytes());
        }
    }
}

pub(super) fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples<Histogram>) {
    let mut reader = Reader { rest: &bytes[HISTOGRAM_HEADER_BYTES..] };
    let mut timestamp_ms = i64::from_le_bytes(array(&bytes[..8]));
    let mut value = Histogram::from_bytes(reader.bytes()).expect("BUG: a chunk holds an invalid histogram");
    let mut delta = 0i64;
    for i in 0..count {
        if i > 0 {
            delta = delta.wrapping_add(unzigzag(reader.varint()));
            timestamp_ms = timestamp_ms.wrapping_add(delta);
            delta = delta.min(i64::from(u32::MAX)); // the writer limits the interval, too
            value = reader.body(value);
        }
        if timestamp_ms > range.end_ms {
            return;
        }
        if timestamp_ms >= range.start_ms {
            out.push(timestamp_ms, value.clone());
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> u64 {
        varint::take(&mut self.rest).expect("BUG: a chunk ends within a token")
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = self.varint() as usize;
        self.take(len)
    }

    /// Decodes the next histogram, which is stored either in full or as its difference from `newest`.
    fn body(&mut self, newest: Histogram) -> Histogram {
        let reset = match self.take(1)[0] {
            SAME => return newest,
            WHOLE => {
                return Histogram::from_bytes(self.bytes()).expect("BUG: a chunk holds an invalid histogram");
            }
            tag => RESETS[usize::from(tag - COUNTS)],
        };
        let mut parts = newest.parts();
        let Counts::Whole(counts) = &mut parts.counts else { panic!("BUG: the counts are not whole") };
        for count in counts {
            *count = count.wrapping_add(unzigzag(self.varint()) as u64);
        }
        let sum = f64::from_bits(u64::from_le_bytes(array(self.take(8))));
        let parts = HistogramParts { reset, sum, ..parts };
        Histogram::new(&parts).expect("BUG: the layout of a stored histogram is invalid")
    }
}

const RESETS: [CounterReset; (WHOLE - COUNTS) as usize] =
    [CounterReset::Unknown, CounterReset::Yes, CounterReset::No, CounterReset::Gauge];

fn parts(bytes: &[u8]) -> HistogramParts {
    HistogramParts::decode(bytes).expect("BUG: a chunk holds an invalid histogram")
}
