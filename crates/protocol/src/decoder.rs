//! The trait that the decoders of all protocols implement.

use crate::{Body, DecodeError};
use model::Batch;
use stdx::budget::{IncrementalReservation, Reservation};

/// A request of a protocol. `F` is the information that its headers carry.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// Variant of the format as stated by the headers, such as the version of the message.
    pub format: F,
    /// Body as sent.
    pub body: Body<'a>,
}

/// Decodes the requests of one protocol. A decoder keeps its working memory between requests, so that a warm decoder
/// does not allocate.
///
/// A decoder does not parse labels. It fills [`Batch::bytes`] with label bytes and hashes them; if a hash is unknown,
/// [`labels_of`](crate::labels::labels_of) parses the labels. A fault in the message fails the whole request. A fault
/// in one series leaves out only that series ([`Batch::refuse`]).
pub trait Decoder: Send + 'static {
    /// See [`Request::format`].
    type Format: std::fmt::Debug + Copy + Send + 'static;

    /// A decoder without working memory. It hashes labels with `seed` (see [`model::SeriesKey`]).
    fn new(seed: u64) -> Self;

    /// Decodes a request into an empty `batch`. Before the decoder or the batch grows, the bytes are reserved with
    /// `reservation`.
    fn fill(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError>;

    /// Bytes of memory that the decoder holds between requests.
    fn memory_bytes(&self) -> usize;

    /// Decodes a request into `batch` and drops its previous contents.
    ///
    /// Before the decoder or the batch grows, the additional bytes are reserved with `memory`. Bytes that they already
    /// have are not reserved again. `memory` never shrinks; afterwards it covers at least the growth. After an error,
    /// the batch is empty.
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
