//! Decodes metrics of OpenTelemetry (OTLP 1.x) into a [`Batch`], with the series that Prometheus' receiver makes of
//! them.
//!
//! ```text
//!   Content-Type ─ Media::of ─▶ Media
//!   JSON ─ json::transcode ─▶ protobuf ─▶ Walk: resource ─▶ scope ─▶ metric ─▶ point ─▶ Batch
//!                                           │                 │          └─ PointLabels: label bytes
//!                                           │                 └─ NameCache: translated names
//!                                           └─ labels of the resource; `target_info`
//! ```
//!
//! A message has no labels of series. They are made from the attributes of resource, scope and point, and from the
//! metric's name. Neighboring points have the same attributes in the same order. So the decoder works out once which
//! label comes where (a [template](labels)), and then only copies values. The result is the canonical form of
//! [`model::labels`], so a series has the same key whether it comes over OTLP or over remote write, and a known series
//! is found by this key.
//!
//! Messages may have their fields in any order, and JSON usually does. Where a field decides about fields before it (a
//! resource about its metrics, the temporality about its points), the fields are looked at twice.
//!
//! Sources: <https://opentelemetry.io/docs/specs/otlp/>, and `storage/remote/otlptranslator` of Prometheus 3.5.

pub mod answer;
pub(crate) mod attribute;
mod bounds;
mod exemplar;
mod exponential;
mod fields;
mod histogram;
pub(crate) mod json;
mod labels;
mod metric;
mod name_cache;
mod names;
mod number;
mod point;
mod resource;
mod summary;
mod translation;
mod walk;
mod work;

pub use translation::{Delta, Naming, Promoted, Translation};

use crate::wire::WireError;
use crate::{DecodeError, Encoding, Request};
use attribute::Attributes;
use bounds::BoundsCache;
use labels::PointLabels;
use model::{Batch, Exemplar, LabelsBuilder, SeriesHasher, SeriesRefusal, TotalsPart};
use name_cache::NameCache;
use resource::ResourceScratch;
use std::sync::Arc;
use stdx::budget::{Exhausted, IncrementalReservation};

/// The encodings of bodies that are accepted.
pub const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// How the messages of a request and of its answer are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    Protobuf,
    Json,
}

impl Media {
    /// Finds the form that the header `Content-Type` names.
    pub fn of(content_type: Option<&str>) -> Result<Self, DecodeError> {
        let content_type = content_type.unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/x-protobuf" | "application/protobuf" => Ok(Self::Protobuf),
            "application/json" => Ok(Self::Json),
            _ => Err(DecodeError::OtlpContentType(crate::body::shown(content_type))),
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Format {
    pub media: Media,
    pub translation: Arc<Translation>,
    /// What the [increments of exponential histograms](Batch::exponentials) have added up to, if the request is decoded again.
    pub totals: Option<TotalsPart>,
}

impl Format {
    pub const fn new(media: Media, translation: Arc<Translation>) -> Self {
        Self { media, translation, totals: None }
    }
}

/// Decodes `ExportMetricsServiceRequest`. Between requests, it keeps up to [`Decoder::KEPT_BYTES_MAX`] bytes of memory.
#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
    /// The decompressed body.
    body: Vec<u8>,
    /// The message of a body in JSON.
    message: Vec<u8>,
    scratch: Scratch,
}

impl Decoder {
    /// A decoder that has more memory than this after a request frees all of it.
    pub const KEPT_BYTES_MAX: usize = 8 << 20;

    fn give_back(&mut self) {
        if crate::Decoder::memory_bytes(self) > Self::KEPT_BYTES_MAX {
            *self = crate::Decoder::new(self.seed);
        }
    }
}

/// Working memory.
#[derive(Debug, Default)]
struct Scratch {
    names: NameCache,
    labels: PointLabels,
    bounds: BoundsCache,
    resource: ResourceScratch,
    /// Bytes of a repeated field that a message has in several pieces: counts and bounds of a histogram.
    pieces: [Vec<u8>; 2],
    /// Upper bounds of the buckets of an exponential histogram, as 8 bytes each.
    upper_bounds: Vec<u8>,
    /// Values of the buckets of a histogram.
    counts: Vec<f64>,
    /// Bounds of the buckets of a histogram with their numbers, in ascending order.
    ranked_bounds: Vec<(f64, u32)>,
    exemplars: Vec<(u32, Exemplar)>,
    exemplar_attributes: Attributes,
    builder: LabelsBuilder,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    const HAS_TOTALS: bool = true;

    fn with_totals(format: Format, part: TotalsPart) -> Format {
        Format { media: Media::Protobuf, totals: Some(part), ..format }
    }

    fn new(seed: u64) -> Self {
        Self {
            hasher: SeriesHasher::new(seed),
            seed,
            body: Vec::new(),
            message: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Self { hasher, body, message, scratch, .. } = self;
        let Request { format: Format { media, translation, totals }, body: encoded } = request;
        let filled = encoded.uncompressed(body, reservation).and_then(|bytes| {
            let bytes = match media {
                Media::Protobuf => bytes,
                Media::Json => {
                    json::transcode(bytes, json::METRICS, message, reservation)?;
                    message.as_slice()
                }
            };
            walk::decode(bytes, (&translation, totals.as_ref()), hasher, scratch, batch, reservation)?;
            let is_message = media == Media::Protobuf && encoded.encoding == Encoding::Identity;
            if !batch.exponentials.is_empty() && !is_message {
                reservation.reserve(bytes.len())?;
                batch.message = Some(bytes.to_vec());
            }
            Ok(())
        });
        self.give_back();
        filled
    }

    fn memory_bytes(&self) -> usize {
        let Self { body, message, scratch, .. } = self;
        let Scratch {
            names,
            labels,
            bounds,
            resource,
            pieces,
            upper_bounds,
            counts,
            ranked_bounds,
            exemplars,
            exemplar_attributes,
            builder: _,
        } = scratch;
        body.capacity()
            + message.capacity()
            + names.memory_bytes()
            + labels.memory_bytes()
            + bounds.memory_bytes()
            + resource.memory_bytes()
            + pieces.iter().map(Vec::capacity).sum::<usize>()
            + upper_bounds.capacity()
            + counts.capacity() * size_of::<f64>()
            + ranked_bounds.capacity() * size_of::<(f64, u32)>()
            + exemplars.capacity() * size_of::<(u32, Exemplar)>()
            + exemplar_attributes.memory_bytes()
    }
}

/// An error that concerns either one point or the whole request.
#[derive(Debug)]
enum Stop {
    Point(SeriesRefusal),
    Request(DecodeError),
}

impl From<SeriesRefusal> for Stop {
    fn from(error: SeriesRefusal) -> Self {
        Self::Point(error)
    }
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Self::Request(error)
    }
}

impl From<Exhausted> for Stop {
    fn from(full: Exhausted) -> Self {
        Self::Request(full.into())
    }
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Request(error.into())
    }
}
