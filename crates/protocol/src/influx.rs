//! Decodes Influx' line protocol.
//!
//! ```text
//!   cpu,cpu=cpu0,host=web1 usage_user=1.5,usage_system=2i 1795284000000000000
//!   └───────head─────────┘ └──────────fields───────────┘ └──────time───────┘
//!
//!   cpu_usage_user{cpu="cpu0", host="web1"} 1.5        one series for each field
//!   cpu_usage_system{cpu="cpu0", host="web1"} 2
//! ```
//!
//! Most lines belong to series that are known. So the decoder does not parse heads. The key of a series is a hash of the
//! head's bytes and of the field's name ([`crate::raw_keys`]), and its label bytes are the part of the line that ends with the
//! field's name. The caller remembers which series such a key belongs to ([`LabelForm::is_encoded`]), and lets [`Names`]
//! parse the labels of the others.
//!
//! Strings cannot be stored. The field is left out and reported; the other fields of the line are kept. Source:
//! <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>.
//!
//! [`LabelForm::is_encoded`]: crate::LabelForm::is_encoded

mod lines;
mod names;
mod scan;

pub use names::{NameRule, Names};

use crate::raw_keys::RawKeys;
use crate::{DecodeError, Encoding, LabelForm, Request};
use lines::Lines;
use model::caps::{LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX};
use model::{Batch, SeriesHasher};
use std::sync::Arc;
use stdx::budget::IncrementalReservation;

/// The encodings of bodies that are accepted. Without `Content-Encoding`, a body is not compressed.
pub const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// Limit on the bytes of a measurement with its tags. Even if each byte is escaped, the longest labels of a series fit.
pub const HEAD_BYTES_MAX: usize = 2 * SERIES_LABEL_BYTES_MAX;

/// Limit on the bytes of a field's name. Even if each byte is escaped, the longest name of a metric fits.
pub const FIELD_NAME_BYTES_MAX: usize = 2 * LABEL_VALUE_BYTES_MAX;

/// The unit of the times in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    #[default]
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
}

impl Precision {
    /// The names that [`Self::parse`] accepts.
    pub const NAMES: &str = "ns, us, ms, s, m or h";

    /// Reads the parameter `precision` of a request, with the names of InfluxDB 1 and 2.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "ns" | "n" => Self::Nanoseconds,
            "us" | "u" | "µ" | "µs" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    /// Converts a time to milliseconds. Fractions of a millisecond are cut off. A time out of range becomes the largest
    /// or smallest integer, which is refused later.
    const fn to_ms(self, time: i64) -> i64 {
        match self {
            Self::Nanoseconds => time.div_euclid(1_000_000),
            Self::Microseconds => time.div_euclid(1000),
            Self::Milliseconds => time,
            Self::Seconds => time.saturating_mul(1000),
            Self::Minutes => time.saturating_mul(60_000),
            Self::Hours => time.saturating_mul(3_600_000),
        }
    }
}

/// What a request says besides its lines.
#[derive(Debug, Clone)]
pub struct Format {
    pub precision: Precision,
    /// The time of lines without a time, in milliseconds since the Unix epoch.
    pub arrival_ms: i64,
    pub names: Arc<Names>,
}

/// Decodes lines.
#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    fn new(seed: u64) -> Self {
        Self { seed, hasher: SeriesHasher::new(seed) }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Request { format: Format { precision, arrival_ms, names }, body } = request;
        body.decompress(&mut batch.bytes, reservation)?;
        // moved out, so that other fields of the batch can be modified while the bytes are borrowed
        let bytes = std::mem::take(&mut batch.bytes);
        let keys = RawKeys { hasher: &self.hasher, fingerprint: names.fingerprint(self.seed) };
        let read = Lines::new(&bytes, keys, (precision, arrival_ms), batch, reservation).read();
        batch.bytes = bytes;
        read
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn label_form(format: &Format) -> &dyn LabelForm {
        &*format.names
    }
}

#[cfg(test)]
mod tests;
