//! The trait of all decoders.

use crate::labels::{describe_labels, labels_of};
use crate::{Body, DecodeError};
use model::{Batch, Labels, LabelsBuilder, SeriesRefusal, TotalsPart};
use std::ops::Range;
use stdx::budget::{IncrementalReservation, Reservation};

#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// The variant of the protocol, such as the version of remote write. `()` if the protocol has only one.
    pub format: F,
    pub body: Body<'a>,
}

/// Decodes the requests of one protocol. A decoder keeps its working memory between requests. To be fast, it
/// hashes the bytes of labels without parsing them. The caller parses the labels of a series only if the
/// series is new, with its [`LabelForm`]. If the message itself is damaged, the whole
/// request fails. If only one series is invalid, that series is left out ([`Batch::refuse`]).
pub trait Decoder: Send + 'static {
    type Format: std::fmt::Debug + Clone + Send + 'static;

    /// Whether the rules on Graphite's names apply to the series.
    const HAS_GRAPHITE_NAMES: bool = false;

    /// Whether a batch may have [points that must be added up](Batch::exponentials) before the request is decoded again.
    const HAS_TOTALS: bool = false;

    /// The format for decoding a part of such a request again, from its message without an encoding. For others, `part` means nothing.
    fn with_totals(format: Self::Format, part: TotalsPart) -> Self::Format {
        drop(part);
        format
    }

    fn new(seed: u64) -> Self;

    /// Decodes a request into `batch`, which must be empty. Memory is reserved before the decoder or the
    /// batch grows.
    fn fill(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError>;

    fn memory_bytes(&self) -> usize;

    /// How the caller parses the label bytes of a batch that was decoded with this format.
    fn label_form(_: &Self::Format) -> &dyn LabelForm {
        &EncodedLabels
    }

    /// Replaces the contents of `batch` with those of a request. Before the decoder or the batch grows,
    /// `memory` is enlarged accordingly. It never shrinks. After an error, the batch is empty.
    fn decode(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        memory: &mut Reservation,
    ) -> Result<(), DecodeError> {
        batch.clear();
        let filled = self.fill(request, batch, &mut IncrementalReservation::new(memory));
        if filled.is_err() {
            batch.clear();
        }
        filled
    }
}

/// How labels are written in the bytes of a batch.
pub trait LabelForm: std::fmt::Debug {
    /// Returns a series' labels in canonical form, without labels that have empty values. The error says why the series
    /// cannot be stored. `bytes` are those of the batch, and `labels` is the range of the series.
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal>;

    /// Formats labels as text for error messages. The labels may be invalid.
    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String;

    /// True if the range has the layout of [`model::labels`], so that keys of sorted labels are those of the series.
    /// Otherwise, the caller should remember which keys belong to which series.
    fn is_encoded(&self) -> bool {
        false
    }
}

/// The layout of [`model::labels`], but with labels in any order.
#[derive(Debug, Clone, Copy)]
pub struct EncodedLabels;

impl LabelForm for EncodedLabels {
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal> {
        labels_of(part(bytes, labels), builder)
    }

    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String {
        describe_labels(part(bytes, labels))
    }

    fn is_encoded(&self) -> bool {
        true
    }
}

/// Describes labels of a text for an error message: the labels, or the text itself if they are invalid.
pub(crate) fn describe_text(raw: &[u8], labels: Result<Labels, SeriesRefusal>) -> String {
    match labels {
        Ok(labels) => describe_labels(labels.as_bytes()),
        Err(_) => String::from_utf8_lossy(&raw[..raw.len().min(SHOWN_BYTES_MAX)]).into_owned(),
    }
}

/// The limit on how many bytes of a text are quoted in an error message.
const SHOWN_BYTES_MAX: usize = 256;

pub(crate) fn part<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    &bytes[range.start as usize..range.end as usize]
}
