//! What a head does with values of one kind. Code that is generic over [`Value`] is compiled once for each kind, so floats pay
//! nothing for histograms.

use crate::chunk::{self, Full, OpenChunk};
use crate::late::{Late, LateOf};
use model::{Histogram, Samples, TimeRange};

/// A value of a sample: a float or a native histogram.
pub trait Value: private::Value {}

impl Value for f64 {}
impl Value for Histogram {}

pub(crate) mod private {
    use super::*;

    /// Operations of the head on values of one kind.
    pub trait Value: model::Value {
        /// Appends the value to a chunk of its kind.
        fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full>;

        /// Appends the samples inside `range` of a chunk's bytes to `out`.
        fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples<Self>);

        /// Number that is compared with [`OpenChunk::newest`] to recognise a repetition: the bits of a float, a hash of
        /// 64 bits of a histogram.
        fn fingerprint(&self) -> u64;

        /// An empty store of late samples.
        fn no_late() -> Late;

        /// Late samples of a series of this kind.
        fn late(late: &Late) -> &LateOf<Self>;

        /// As [`Self::late`].
        fn late_mut(late: &mut Late) -> &mut LateOf<Self>;
    }
}

impl private::Value for f64 {
    #[inline]
    fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full> {
        chunk.append(timestamp_ms, *self)
    }

    #[inline]
    fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples) {
        chunk::read_floats(bytes, count, range, out);
    }

    #[inline]
    fn fingerprint(&self) -> u64 {
        self.to_bits()
    }

    fn no_late() -> Late {
        Late::Floats(LateOf::default())
    }

    fn late(late: &Late) -> &LateOf<Self> {
        match late {
            Late::Floats(late) => late,
            Late::Histograms(_) => panic!("BUG: a series of floats has late histograms"),
        }
    }

    fn late_mut(late: &mut Late) -> &mut LateOf<Self> {
        match late {
            Late::Floats(late) => late,
            Late::Histograms(_) => panic!("BUG: a series of floats has late histograms"),
        }
    }
}

impl private::Value for Histogram {
    fn append(&self, chunk: &mut OpenChunk, timestamp_ms: i64) -> Result<(), Full> {
        chunk.append_histogram(timestamp_ms, self)
    }

    fn read(bytes: &[u8], count: u16, range: TimeRange, out: &mut Samples<Self>) {
        chunk::read_histograms(bytes, count, range, out);
    }

    fn fingerprint(&self) -> u64 {
        chunk::fingerprint(self)
    }

    fn no_late() -> Late {
        Late::Histograms(Box::default())
    }

    fn late(late: &Late) -> &LateOf<Self> {
        match late {
            Late::Histograms(late) => late,
            Late::Floats(_) => panic!("BUG: a series of histograms has late floats"),
        }
    }

    fn late_mut(late: &mut Late) -> &mut LateOf<Self> {
        match late {
            Late::Histograms(late) => late,
            Late::Floats(_) => panic!("BUG: a series of histograms has late floats"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
