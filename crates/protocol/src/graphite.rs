//! Decodes the protocols by which points are sent to Graphite.
//!
//! ```text
//!   servers.web1.load 0.7 1795284000           path, value, time in seconds
//!   disk.used;host=web1;rack=b 42.5 1795284000 tags become labels
//!   disk.used;rack=b;host=web1 43 1795284000.5 the same series
//! ```
//!
//! - [`Decoder`]: lines of text, as above
//! - [`pickle::Decoder`]: lists of points, serialized by Python
//! - [`protobuf::Decoder`]: go-carbon's messages
//!
//! The path becomes the metric name unchanged, with its dots. A point that cannot be read is left out and reported.
//! Sources: <https://graphite.readthedocs.io/en/latest/feeding-carbon.html> and
//! <https://graphite.readthedocs.io/en/latest/tags.html>.

mod lines;
mod number;
pub mod pickle;
mod points;
pub mod protobuf;

use crate::{DecodeError, Encoding, Request};
use lines::Lines;
use model::caps::SERIES_LABEL_BYTES_MAX;
use model::{Batch, SeriesHasher};
use points::{Label, Points};
use stdx::budget::IncrementalReservation;

/// The encodings of bodies that are accepted. Without `Content-Encoding`, a body is not compressed.
pub const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// A line may hold the longest labels of a series, a value and a time.
pub const LINE_BYTES_MAX: usize = SERIES_LABEL_BYTES_MAX + 1024;

/// Limit on the length of a frame, without its header. Carbon has the same limit.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Number of bytes before each frame. They contain its length as a big-endian number.
pub const FRAME_HEADER_BYTES: usize = 4;

/// How the time -1 is read. In Carbon, it means the time of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeOfArrival {
    /// A point has to have a time of its own. If the server filled in the current time, a request that is sent twice
    /// would store its points twice.
    #[default]
    Refused,
    /// Milliseconds since the Unix epoch.
    Is(i64),
}

/// How a body of a binary protocol is framed, and how the time -1 is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format {
    /// True if the body is a sequence of length-prefixed messages. Otherwise, the whole body is one message.
    pub has_frames: bool,
    pub arrival: TimeOfArrival,
}

/// Decodes lines of text.
#[derive(Debug)]
pub struct Decoder {
    hasher: SeriesHasher,
    body: Vec<u8>,
    /// The labels of the current line, reused between lines.
    labels: Vec<Label>,
}

impl crate::Decoder for Decoder {
    type Format = TimeOfArrival;

    const HAS_GRAPHITE_NAMES: bool = true;

    fn new(seed: u64) -> Self {
        Self { hasher: SeriesHasher::new(seed), body: Vec::new(), labels: Vec::new() }
    }

    fn fill(
        &mut self,
        request: Request<'_, TimeOfArrival>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Self { hasher, body, labels } = self;
        let text = request.body.uncompressed(body, reservation)?;
        Lines { points: Points { hasher, labels, batch, reservation, arrival: request.format } }.read(text)
    }

    fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.labels.capacity() * size_of::<Label>()
    }
}

/// Number of complete frames at the start of `bytes`.
pub fn count_frames(bytes: &[u8]) -> usize {
    std::iter::successors(split_frame(bytes), |(_, rest)| split_frame(rest)).count()
}

/// Splits a sequence of frames. Returns the first frame and what follows it, or `None` if the bytes end within a frame.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    rest.split_at_checked(u32::from_be_bytes(*header) as usize)
}

#[cfg(test)]
mod tests;
