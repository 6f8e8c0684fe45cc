//! Native histograms: counts in exponential or custom buckets, as in Prometheus' `model/histogram`.
//!
//! Histograms stay encoded, and two histograms are equal if their bytes are equal.
//!
//! ```text
//!   histogram = u8 flags    bit 0: counts are doubles, not whole numbers    bits 1-2: counter reset
//!               i8 schema   f64 zero threshold
//!               spans of positive buckets   spans of negative buckets   varint(n) n × f64 custom bounds
//!               count   count of the zero bucket   count of each positive, then of each negative bucket
//!               f64 sum
//!   spans     = varint(n) n × { zigzag(offset) varint(length) }
//!   count     = varint | f64
//! ```
//!
//! Doubles are little-endian. Each count is for a single bucket, neither cumulative nor a delta.

use crate::caps::{HISTOGRAM_BUCKETS_MAX, HISTOGRAM_BYTES_MAX};
use stdx::varint::{self, unzigzag, zigzag};

const FLAG_DOUBLES: u8 = 1;
const RESET_SHIFT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Histogram(Box<[u8]>);

/// Whether the observed counters were reset since the previous histogram, as far as the sender
/// knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CounterReset {
    /// The sender does not know, so readers have to compare the counts of the two histograms.
    #[default]
    Unknown = 0,
    Yes = 1,
    No = 2,
    /// The histogram of a gauge: its counts go up and down, so they have no resets.
    Gauge = 3,
}

/// A run of consecutive buckets. Buckets between two spans are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Number of empty buckets between the previous span and this one. For the first span, the
    /// index of its first bucket.
    pub offset: i32,
    pub length: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Resolution: the upper bound of each bucket is `2^(2^-schema)` times that of the previous
    /// bucket. -53 means that the bounds are in `custom_bounds`.
    pub schema: i8,
    pub zero_threshold: f64,
    pub positive: Vec<Span>,
    pub negative: Vec<Span>,
    /// Upper bounds of the buckets, used only with schema -53.
    pub custom_bounds: Vec<f64>,
}

impl Layout {
    /// Number of buckets, not counting the zero bucket. `None` if it exceeds
    /// [`HISTOGRAM_BUCKETS_MAX`].
    pub fn buckets(&self) -> Option<usize> {
        let lengths = self.positive.iter().chain(&self.negative).map(|span| span.length as usize);
        let count = lengths.fold(0usize, usize::saturating_add);
        (count <= HISTOGRAM_BUCKETS_MAX).then_some(count)
    }
}

/// The total count, then the count of the zero bucket, of each positive and of each negative
/// bucket.
#[derive(Debug, Clone, PartialEq)]
pub enum Counts {
    Whole(Vec<u64>),
    /// Fractional counts, which result from calculations such as rates.
    Doubles(Vec<f64>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct HistogramParts {
    pub reset: CounterReset,
    pub layout: Layout,
    /// There must be two more counts than the layout has buckets: the total and the zero bucket.
    pub counts: Counts,
    /// Sum of all observations. [`crate::STALE_NAN_BITS`] means that the series has ended.
    pub sum: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid histogram: {0}")]
pub struct NotAHistogram(&'static str);

const TOO_MANY: NotAHistogram = NotAHistogram("it has too many buckets");
const CUT_SHORT: NotAHistogram = NotAHistogram("it ends too early");

impl Histogram {
    /// Decodes untrusted bytes to check that they are a valid histogram.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAHistogram> {
        HistogramParts::decode(bytes)?;
        Self::of(bytes.to_vec())
    }

    /// Encodes a histogram. Fails if the counts do not match the layout, or if a limit is exceeded.
    pub fn new(parts: &HistogramParts) -> Result<Self, NotAHistogram> {
        let expected = parts.layout.buckets().ok_or(TOO_MANY)? + 2;
        if parts.counts.len() != expected || parts.layout.custom_bounds.len() > HISTOGRAM_BUCKETS_MAX {
            return Err(NotAHistogram("the number of counts or of custom bounds does not fit"));
        }
        let mut out = Vec::new();
        parts.encode(&mut out);
        Self::of(out)
    }

    fn of(encoded: Vec<u8>) -> Result<Self, NotAHistogram> {
        match encoded.len() <= HISTOGRAM_BYTES_MAX {
            true => Ok(Self(encoded.into())),
            false => Err(NotAHistogram("its encoded form is too long")),
        }
    }

    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Sum of all observations.
    pub fn sum(&self) -> f64 {
        let last = self.0.last_chunk().expect("BUG: a histogram has no sum");
        f64::from_bits(u64::from_le_bytes(*last))
    }

    pub fn parts(&self) -> HistogramParts {
        HistogramParts::decode(&self.0).expect("BUG: checked bytes of a histogram cannot be decoded")
    }
}

impl Counts {
    pub const fn len(&self) -> usize {
        match self {
            Self::Whole(counts) => counts.len(),
            Self::Doubles(counts) => counts.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl HistogramParts {
    fn encode(&self, out: &mut Vec<u8>) {
        let doubles = matches!(self.counts, Counts::Doubles(_));
        out.push(u8::from(doubles) | (self.reset as u8) << RESET_SHIFT);
        out.push(self.layout.schema as u8);
        put_double(out, self.layout.zero_threshold);
        for spans in [&self.layout.positive, &self.layout.negative] {
            varint::put(out, spans.len() as u64);
            for span in spans {
                varint::put(out, zigzag(span.offset.into()));
                varint::put(out, span.length.into());
            }
        }
        varint::put(out, self.layout.custom_bounds.len() as u64);
        self.layout.custom_bounds.iter().for_each(|bound| put_double(out, *bound));
        match &self.counts {
            Counts::Whole(counts) => counts.iter().for_each(|count| varint::put(out, *count)),
            Counts::Doubles(counts) => counts.iter().for_each(|count| put_double(out, *count)),
        }
        put_double(out, self.sum);
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Self, NotAHistogram> {
        let from = &mut bytes;
        let [flags, schema] = take_array(from)?;
        let reset = match flags >> RESET_SHIFT {
            0 => CounterReset::Unknown,
            1 => CounterReset::Yes,
            2 => CounterReset::No,
            3 => CounterReset::Gauge,
            _ => return Err(NotAHistogram("it has unknown flags")),
        };
        let layout = Layout {
            schema: schema as i8,
            zero_threshold: take_double(from)?,
            positive: take_spans(from)?,
            negative: take_spans(from)?,
            custom_bounds: take_list(from, take_double)?,
        };
        let count = layout.buckets().ok_or(TOO_MANY)? + 2;
        let counts = match flags & FLAG_DOUBLES {
            0 => Counts::Whole((0..count).map(|_| take_varint(from)).collect::<Result<_, _>>()?),
            _ => Counts::Doubles((0..count).map(|_| take_double(from)).collect::<Result<_, _>>()?),
        };
        let sum = take_double(from)?;
        if !from.is_empty() {
            return Err(NotAHistogram("bytes follow the end"));
        }
        Ok(Self { reset, layout, counts, sum })
    }
}

fn put_double(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], NotAHistogram> {
    let (first, rest) = from.split_first_chunk().ok_or(CUT_SHORT)?;
    *from = rest;
    Ok(*first)
}

fn take_double(from: &mut &[u8]) -> Result<f64, NotAHistogram> {
    Ok(f64::from_bits(u64::from_le_bytes(take_array(from)?)))
}

fn take_varint(from: &mut &[u8]) -> Result<u64, NotAHistogram> {
    varint::take(from).ok_or(CUT_SHORT)
}

fn take_list<T>(
    from: &mut &[u8],
    take: impl Fn(&mut &[u8]) -> Result<T, NotAHistogram>,
) -> Result<Vec<T>, NotAHistogram> {
    let count = usize::try_from(take_varint(from)?).unwrap_or(usize::MAX);
    if count > HISTOGRAM_BUCKETS_MAX {
        return Err(TOO_MANY);
    }
    (0..count).map(|_| take(from)).collect()
}

fn take_spans(from: &mut &[u8]) -> Result<Vec<Span>, NotAHistogram> {
    take_list(from, |from| {
        let offset = i32::try_from(unzigzag(take_varint(from)?));
        let length = u32::try_from(take_varint(from)?);
        match (offset, length) {
            (Ok(offset), Ok(length)) => Ok(Span { offset, length }),
            _ => Err(NotAHistogram("a span does not fit 32 bits")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency() -> HistogramParts {
        let layout = Layout {
            schema: 3,
            zero_threshold: 1e-128,
            positive: vec![Span { offset: -12, length: 2 }, Span { offset: 3, length: 1 }],
            negative: vec![Span { offset: 0, length: 1 }],
            custom_bounds: Vec::new(),
        };
        let counts = Counts::Whole(vec![1_000_007, 3, 5, 900_000, 99_999, 100]);
        HistogramParts { reset: CounterReset::No, layout, counts, sum: 12.5 }
    }

    #[test]
    fn every_form_survives_encoding() {
        let check = |parts: &HistogramParts| {
            let encoded = Histogram::new(parts).unwrap();
            assert_eq!(&encoded.parts(), parts);
            assert_eq!(encoded.sum().to_bits(), parts.sum.to_bits());
            assert_eq!(Histogram::from_bytes(encoded.as_bytes()), Ok(encoded));
        };
        check(&latency());
        check(&HistogramParts { counts: Counts::Doubles(vec![0.5; 6]), ..latency() });
        check(&HistogramParts { reset: CounterReset::Gauge, sum: f64::NEG_INFINITY, ..latency() });
        let custom = Layout {
            schema: -53,
            custom_bounds: vec![0.1, 1.0],
            positive: vec![Span { offset: 0, length: 3 }],
            ..Layout::default()
        };
        check(&HistogramParts { layout: custom, counts: Counts::Whole(vec![6, 0, 1, 2, 3]), ..latency() });
        check(&HistogramParts { layout: Layout::default(), counts: Counts::Whole(vec![0, 0]), ..latency() });
    }

    #[test]
    fn no_part_and_no_change_of_one_panics() {
        let encoded = Histogram::new(&latency()).unwrap();
        for len in 0..encoded.as_bytes().len() {
            assert!(HistogramParts::decode(&encoded.as_bytes()[..len]).is_err(), "{len} bytes");
        }
        for at in 0..encoded.as_bytes().len() {
            for byte in 0..=u8::MAX {
                let mut changed = encoded.as_bytes().to_vec();
                changed[at] = byte;
                let _ = Histogram::from_bytes(&changed);
            }
        }
        let longer = [encoded.as_bytes(), &[0]].concat();
        assert_eq!(Histogram::from_bytes(&longer), Err(NotAHistogram("bytes follow the end")));
    }

    #[test]
    fn counts_must_fit_the_buckets() {
        assert!(Histogram::new(&HistogramParts { counts: Counts::Whole(vec![1, 0]), ..latency() }).is_err());
        let wide = |length| Layout { positive: vec![Span { offset: 0, length }], ..Layout::default() };
        assert_eq!(wide(4096).buckets(), Some(4096));
        assert_eq!(wide(4097).buckets(), None);
        assert_eq!(wide(u32::MAX).buckets(), None);
    }
}
