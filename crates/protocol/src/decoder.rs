//! The trait of all decoders.

use crate::{Body, DecodeError};
use model::Batch;
use stdx::budget::{IncrementalReservation, Reservation};

/// A request of a protocol, with the information `F` of its headers.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// Variant of the format according to the headers.
    pub format: F,
    pub body: Body<'a>,
}

/// Decodes the requests of one protocol. A decoder keeps its working memory between requests. It hashes label
/// bytes without parsing them; [`labels_of`](crate::labels::labels_of) parses the labels of unknown series. A
/// fault in the message fails the request. A fault in a series leaves out this series ([`Batch::refuse`]).
pub trait Decoder: Send + 'static {
    type Format: std::fmt::Debug + Copy + Send + 'static;

    /// A decoder that hashes labels with `seed` ([`model::SeriesKey`]).
    fn new(seed: u64) -> Self;

    /// Decodes a request into an empty `batch`. Memory is reserved before the decoder or the batch grows.
    fn fill(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError>;

    fn memory_bytes(&self) -> usize;

    /// Decodes a request into `batch`, and drops the previous contents. Growth of the decoder or the batch is
    /// reserved first with `memory`, which never shrinks. After an error, the batch is empty.
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
