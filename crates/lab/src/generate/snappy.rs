//! Snappy bodies that can be changed in place.
//!
//! Requests of two rounds differ only in their samples. So a request is compressed once, with every value and
//! timestamp as a literal. Further rounds overwrite only these literals.
//!
//! ```text
//!   message     … labels … 09 [value] 10 [stamp] … labels … 09 [value] 10 [stamp] …
//!   compressed  … copies …    literal    literal … copies …    literal └ a copy of the stamp before, where
//!                                                                      both belong to the same target
//! ```
//!
//! The result is plain Snappy (<https://github.com/google/snappy/blob/main/format_description.txt>).

/// Length of a value, which is encoded as a little-endian double.
pub const VALUE_BYTES: usize = 8;

/// Length of a timestamp between 1971 and 2109, which is encoded as a varint.
pub const STAMP_BYTES: usize = 6;

const TAG_BYTES: usize = 1;

/// Copies must begin less than this many bytes before their destination, because their offset has two bytes.
const WINDOW_BYTES: usize = 1 << 16;

const COPY_BYTES_MAX: usize = 64;

/// Shorter matches are left as literals.
const MATCH_BYTES_MIN: usize = 4;

const TABLE_BITS: u32 = 14;

/// Position of a sample in an uncompressed message, where its value is followed by a tag byte and its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSpot {
    pub value_at: u32,
    /// True if this timestamp and that of the preceding sample are equal in every round.
    pub same_stamp: bool,
}

impl SampleSpot {
    fn value(self) -> usize {
        self.value_at as usize
    }

    fn stamp(self) -> usize {
        self.value() + VALUE_BYTES + TAG_BYTES
    }

    fn end(self) -> usize {
        self.stamp() + STAMP_BYTES
    }
}

/// A compressed message, and where in it the values and timestamps can be overwritten.
#[derive(Debug, Default)]
pub struct Packed {
    pub bytes: Vec<u8>,
    pub values: Vec<u32>,
    /// For each timestamp: its offset in `bytes`, and the number of its sample. Timestamps that are copies of another
    /// are left out.
    pub stamps: Vec<(u32, u32)>,
}

/// Compresses messages. It can be used again, which saves allocating the table.
#[derive(Debug)]
pub struct Compressor {
    /// Maps a hash of four bytes to the latest place with that hash, outside of samples. An offset of 0 means that
    /// there is none.
    table: Vec<Place>,
}

/// An offset in the message, and where the unchanging bytes around it end, so that no match extends into a sample.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    at: u32,
    end: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Self { table: vec![Place::default(); 1 << TABLE_BITS] }
    }
}

impl Compressor {
    /// Compresses `message`, whose samples are at `spots` in ascending order.
    pub fn pack(&mut self, message: &[u8], spots: &[SampleSpot]) -> Packed {
        assert!(u32::try_from(message.len()).is_ok(), "BUG: a message has {} bytes", message.len());
        self.table.fill(Place::default());
        let mut out = Output::new(message, spots.len());
        let mut at = 0;
        let mut alike = Place::default();
        let mut before: Option<SampleSpot> = None;
        for (&spot, number) in spots.iter().zip(0..) {
            alike = self.region(&mut out, at, spot.value(), alike);
            out.values_pending.push(spot.value_at);
            match before.map(|before| spot.value() - before.value()) {
                Some(distance) if spot.same_stamp && distance < WINDOW_BYTES => {
                    out.copy(spot.stamp() - TAG_BYTES, distance, TAG_BYTES + STAMP_BYTES);
                }
                _ => out.stamps_pending.push((spot.stamp() as u32, number)),
            }
            at = spot.end();
            before = Some(spot);
        }
        self.region(&mut out, at, message.len(), alike);
        out.finish()
    }

    /// Compresses the bytes from `start` to `end`, which contain no sample, and returns their place. The bytes between
    /// the previous two samples, at `alike`, probably begin in the same way.
    fn region(&mut self, out: &mut Output<'_>, start: usize, end: usize, alike: Place) -> Place {
        let message = out.message;
        let mut at = start;
        let near = start - (alike.at as usize) < WINDOW_BYTES;
        let len = if near { match_len(message, alike, at, end) } else { 0 };
        if alike.at > 0 && len >= MATCH_BYTES_MIN {
            out.copy(at, start - alike.at as usize, len);
            at += len;
        }
        while at + MATCH_BYTES_MIN <= end {
            let hash = load(message, at).wrapping_mul(0x1e35_a7bd) >> (32 - TABLE_BITS);
            let here = Place { at: at as u32, end: end as u32 };
            let source = std::mem::replace(&mut self.table[hash as usize], here);
            let distance = at - source.at as usize;
            let len = match source.at {
                1.. if distance < WINDOW_BYTES => match_len(message, source, at, end),
                _ => 0,
            };
            if len < MATCH_BYTES_MIN {
                at += 1;
            } else {
                out.copy(at, distance, len);
                at += len;
            }
        }
        Place { at: start as u32, end: end as u32 }
    }
}

fn load(message: &[u8], at: usize) -> u32 {
    let bytes = message[at..at + 4].try_into().expect("BUG: not four bytes");
    u32::from_le_bytes(bytes)
}

/// Length of the match between the bytes at `source` and those at `at`. A match ends before the next sample in either
/// place.
fn match_len(message: &[u8], source: Place, at: usize, end: usize) -> usize {
    let left = &message[source.at as usize..source.end as usize];
    left.iter().zip(&message[at..end]).take_while(|(a, b)| a == b).count()
}

struct Output<'a> {
    message: &'a [u8],
    packed: Packed,
    /// Number of bytes of the message that are already written or belong to `copy`.
    covered: usize,
    /// Offset and length of the latest copy, which ends at `covered`. It is written later, because it may still grow.
    copy: Option<(usize, usize)>,
    /// Offsets in the message of values that are not written yet, in ascending order. `stamps_pending` has the
    /// timestamps.
    values_pending: Vec<u32>,
    stamps_pending: Vec<(u32, u32)>,
}

impl<'a> Output<'a> {
    fn new(message: &'a [u8], samples: usize) -> Self {
        let mut bytes = Vec::with_capacity(message.len() / 8 + 64);
        let mut len = message.len();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        let packed = Packed { bytes, values: Vec::with_capacity(samples), stamps: Vec::new() };
        let (values_pending, stamps_pending) = (Vec::new(), Vec::new());
        Self { message, packed, covered: 0, copy: None, values_pending, stamps_pending }
    }

    /// Adds a copy: the `len` bytes at `at` are equal to the bytes that begin `offset` bytes earlier.
    fn copy(&mut self, at: usize, offset: usize, len: usize) {
        match &mut self.copy {
            Some((same, grows)) if *same == offset && self.covered == at => *grows += len,
            _ => {
                self.literal(at);
                self.copy = Some((offset, len));
            }
        }
        self.covered = at + len;
    }

    fn finish(mut self) -> Packed {
        self.literal(self.message.len());
        assert_eq!(self.covered, self.message.len(), "BUG: some bytes of the message were not compressed");
        self.packed.bytes.shrink_to_fit();
        self.packed.stamps.shrink_to_fit();
        self.packed
    }

    /// Writes the pending copy, and then all bytes up to `end` as a literal.
    fn literal(&mut self, end: usize) {
        self.flush_copy();
        let literal = &self.message[self.covered..end];
        let out = &mut self.packed.bytes;
        if let Some(last) = literal.len().checked_sub(1) {
            match last {
                0..60 => out.push((last as u8) << 2),
                60..0x100 => out.extend_from_slice(&[60 << 2, last as u8]),
                0x100..0x1_0000 => out.extend_from_slice(&[61 << 2, last as u8, (last >> 8) as u8]),
                _ => {
                    out.push(63 << 2);
                    out.extend_from_slice(&(last as u32).to_le_bytes());
                }
            }
        }
        let shift = out.len() as u32;
        out.extend_from_slice(literal);
        let place = |at: u32| at - self.covered as u32 + shift;
        self.packed.values.extend(self.values_pending.drain(..).map(place));
        self.packed.stamps.extend(self.stamps_pending.drain(..).map(|(at, sample)| (place(at), sample)));
        self.covered = end;
    }

    fn flush_copy(&mut self) {
        let Some((offset, mut len)) = self.copy.take() else { return };
        let out = &mut self.packed.bytes;
        while len > 0 {
            let part = len.min(COPY_BYTES_MAX);
            if (4..12).contains(&part) && offset < 1 << 11 {
                out.extend_from_slice(&[
                    1 | ((part - 4) as u8) << 2 | ((offset >> 8) as u8) << 5,
                    offset as u8,
                ]);
            } else {
                out.extend_from_slice(&[2 | ((part - 1) as u8) << 2, offset as u8, (offset >> 8) as u8]);
            }
            len -= part;
        }
    }
}

#[cfg(test)]
mod tests;
