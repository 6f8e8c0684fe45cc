//! Decoding, common to all protocols.

use crate::{Body, DecodeError};
use model::Batch;
use stdx::budget::{Purse, Reservation};

/// A request of a protocol whose headers say `F`.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// Variant of the format as stated by the headers, such as the version of the message.
    pub format: F,
    /// Body as it was sent.
    pub body: Body<'a>,
}

/// Decodes the requests of one protocol; keeps its working memory from one to the next, so that a warm one does not
/// allocate.
///
/// A decoder does not look into labels. It fills [`Batch::bytes`] with label bytes and hashes them; the labels of a series
/// whose hash is not known are read by [`labels_of`](crate::labels::labels_of). What breaks the request fails it whole;
/// what is wrong with one series leaves that series out ([`Batch::refuse`]).
pub trait Decoder: Send + 'static {
    /// See [`Request::format`].
    type Format: std::fmt::Debug + Copy + Send + 'static;

    /// A cold decoder, which hashes labels with `seed` (see [`model::SeriesKey`]).
    fn new(seed: u64) -> Self;

    /// Decodes a request into `batch`, which is empty. Memory for growth is reserved with `purse` first.
    fn fill(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        purse: &mut Purse<'_>,
    ) -> Result<(), DecodeError>;

    /// Bytes of memory that the decoder holds between requests.
    fn memory_bytes(&self) -> usize;

    /// Decodes a request into `batch`, whose former content is dropped.
    ///
    /// Growth of the decoder and of the batch is reserved with `memory` first; memory that they have already is
    /// not. `memory` never shrinks, and afterwards holds at least what was requested. After an error the batch is
    /// empty.
    fn decode(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        memory: &mut Reservation,
    ) -> Result<(), DecodeError> {
        batch.clear();
        let filled = self.fill(request, batch, &mut Purse::new(memory));
        if filled.is_err() {
            batch.clear();
        }
        filled
    }
}
